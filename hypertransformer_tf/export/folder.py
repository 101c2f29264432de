"""An output folder that is either the old one or the complete new one."""

from __future__ import annotations

import glob
import os
import re
import shutil
import tempfile
import time
from pathlib import Path
from typing import Callable

from hypertransformer_tf.backend import tf
from hypertransformer_tf.errors import UserError


def check_output(path: Path, overwrite: bool, mark: str) -> None:
    """Refuses an output folder that must not be written.

    Args:
        path: the output folder.
        overwrite: an older output may be replaced.
        mark: a file that every output has; a folder without it is not an older output.

    Raises:
        UserError: for a folder that exists, or was not made by the program.
    """
    try:
        if not path.exists() and not path.is_symlink():
            return
    except (OSError, ValueError) as error:
        raise UserError(f"--output_dir={path} is no usable name ({error}): name another folder") from error
    if path.resolve() == Path.cwd().resolve():
        raise UserError("--output_dir is the working directory: name a folder in it")
    if not path.is_dir() or path.is_symlink():
        raise UserError(f"--output_dir={path} is there and is no folder: name another one")
    if not any(path.iterdir()):
        return
    if not (path / mark).is_file():
        raise UserError(f"--output_dir={path} holds other things (no {mark}): name another folder")
    if not overwrite:
        raise UserError(f"--output_dir={path} exists: give --overwrite to replace it, or name another one")


def replace_folder(path: Path, write: Callable[[Path], None]) -> None:
    """Lets `write` fill a temporary folder beside `path`, then puts it in its place.

    Raises:
        UserError: when it can't be written (a full disk, no permission); `path` is as it was.
    """
    temporary = None
    try:
        _clean_up(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name[:100]}.new-"))
        new, old = temporary / "new", temporary / "old"
        new.mkdir()
        write(new)
        for file in new.rglob("*"):
            if file.is_file():
                with open(file, "rb") as opened:
                    os.fsync(opened.fileno())
        if path.exists():
            os.rename(path, old)
        os.rename(new, path)
    except (OSError, ValueError, tf.errors.OpError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0].split(" [Op:")[0]
        reason = re.sub(r"\{\{.*?\}\}", "", reason).strip()
        raise UserError(
            f"{path} can't be written ({reason}): nothing was changed; make room or name another folder"
        ) from error
    finally:  # also when interrupted: the old folder goes back unless the new one is in its place
        if temporary is not None:
            if (temporary / "old").exists() and not path.exists():
                os.rename(temporary / "old", path)
            shutil.rmtree(temporary, ignore_errors=True)


def _clean_up(path: Path) -> None:
    """Removes what a killed run left beside `path`; puts the old folder back if that run had moved it."""
    pattern = f".{glob.escape(path.name[:100])}.new-*"
    for left in path.parent.glob(pattern) if path.parent.is_dir() else ():
        if time.time() - left.stat().st_mtime < 3600:
            continue  # another run may be at work
        if (left / "old").exists() and not path.exists():
            os.rename(left / "old", path)
        shutil.rmtree(left, ignore_errors=True)
