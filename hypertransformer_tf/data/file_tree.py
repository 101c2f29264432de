"""Files below a folder or in a zip, read alike."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Union

from hypertransformer_tf.errors import UserError

File = Union[Path, zipfile.Path]  # both open("rb"), and their str() is a name for messages
_IGNORED = ("thumbs.db", "desktop.ini", "__macosx")


def is_visible(name: str) -> bool:
    """Whether a file or folder of this name counts: hidden ones and those that systems leave do not."""
    return not name.startswith(".") and name.lower() not in _IGNORED


def walk(place: Path) -> dict[str, File]:
    """All visible files below a folder or in a zip, by name relative to it with slashes, sorted.

    Raises:
        UserError: when there is no such place, or it is neither.
    """
    if place.is_dir():
        found = {path.relative_to(place).as_posix(): path for path in place.rglob("*") if path.is_file()}
    elif place.is_file():
        try:
            root = zipfile.Path(zipfile.ZipFile(place))
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            raise UserError(f"{place} is no readable zip ({error}): fetch it again") from error
        names = [name for name in root.root.namelist() if not name.endswith("/")]
        found = {name: zipfile.Path(root.root, name) for name in names}
    else:
        raise UserError(f"{place} does not exist: give a folder or a zip as --data_dir")
    return {name: found[name] for name in sorted(found) if all(map(is_visible, name.split("/")))}


def group_by_folder(files: dict[str, File]) -> dict[str, list[File]]:
    """Files of each class folder; files beside the class folders are left out.

    A folder that holds all others, as archives often have one, is passed through.
    """
    parts = [(name.split("/"), file) for name, file in files.items() if "/" in name]
    while len({names[0] for names, _ in parts}) == 1 and any(len(names) > 2 for names, _ in parts):
        parts = [(names[1:], file) for names, file in parts if len(names) > 2]
    classes: dict[str, list[File]] = {}
    for names, file in sorted(parts, key=lambda part: part[0]):
        classes.setdefault(names[0], []).append(file)
    return classes


def read_text(file: File) -> str:
    """Text of a file; raises UserError when it can't be read."""
    try:
        with file.open("rb") as opened:
            return opened.read().decode("utf-8-sig")
    except Exception as error:  # a damaged zip raises anything there is
        raise UserError(f"{file} can't be read ({error}): fetch it again") from error
