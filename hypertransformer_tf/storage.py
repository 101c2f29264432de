"""Folders in stores that TensorFlow's file systems reach (gs://bucket/run), beside those of this machine.

`place("runs/x")` is a pathlib.Path, `place("gs://bucket/x")` a Remote, which has the few methods of Path that
checkpoints, logs and records need. A store has no atomic rename of folders, so `upload` puts the file that
vouches for the others in last.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fnmatch
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Union

from hypertransformer_tf.backend import tf

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


@dataclasses.dataclass(frozen=True, order=True)
class Remote:
    """A path with a scheme. Its methods do what those of pathlib.Path do and raise OSError as they do."""

    url: str

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> Remote:
        return Remote(f"{self.url.rstrip('/')}/{name}")

    @property
    def name(self) -> str:
        return self.url.rstrip("/").rpartition("/")[2]

    @property
    def parent(self) -> Remote:
        return Remote(self.url.rstrip("/").rpartition("/")[0])

    def exists(self) -> bool:
        with _os_errors(self):
            return tf.io.gfile.exists(self.url)

    def is_dir(self) -> bool:
        with _os_errors(self):
            return tf.io.gfile.isdir(self.url)

    def mkdir(self, parents: bool = True, exist_ok: bool = True) -> None:
        """Makes the folder and those above it, always as with `parents` and `exist_ok`."""
        with _os_errors(self):
            tf.io.gfile.makedirs(self.url)

    def glob(self, pattern: str) -> list[Remote]:
        """Files and folders directly in this one whose names match."""
        try:
            with _os_errors(self):
                names = {name.rstrip("/") for name in tf.io.gfile.listdir(self.url)}
        except FileNotFoundError:
            return []
        return [self / name for name in sorted(names) if fnmatch.fnmatchcase(name, pattern)]

    def read_bytes(self) -> bytes:
        with _os_errors(self), tf.io.gfile.GFile(self.url, "rb") as file:
            return file.read()

    def read_text(self) -> str:
        return self.read_bytes().decode()


Place = Union[Path, Remote]


def place(text: str | Path | Remote) -> Place:
    """What a path stands for: a Remote when it has a scheme, else a Path."""
    if isinstance(text, Remote):
        return text
    return Remote(str(text)) if _SCHEME.match(str(text)) else Path(text)


def write_text(path: Place, text: str) -> None:
    """Writes a small text file; who reads it finds the old or the new text, nothing between."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(path, Remote):
        temporary = path.parent / f".{path.name}.part"
        with _os_errors(path):
            with tf.io.gfile.GFile(temporary.url, "w") as file:
                file.write(text)
            tf.io.gfile.rename(temporary.url, path.url, overwrite=True)
        return
    temporary = path.with_name(f".{path.name}.part")
    temporary.write_text(text)
    os.replace(temporary, path)


def upload(folder: Path, target: Remote, last: str) -> None:
    """Copies the files of a folder into a store, the one called `last` after all others.

    An older folder of that name is removed, its `last` first.
    """
    remove(target, last)
    target.mkdir()
    for file in sorted(folder.iterdir(), key=lambda file: (file.name == last, file.name)):
        copy = target / file.name
        with _os_errors(copy):
            tf.io.gfile.copy(str(file), copy.url, overwrite=True)


def remove(folder: Remote, first: str) -> None:
    """Removes a folder from a store, the file called `first` before all others; nothing if it isn't there."""
    with contextlib.suppress(FileNotFoundError), _os_errors(folder):
        tf.io.gfile.remove((folder / first).url)
    with contextlib.suppress(FileNotFoundError), _os_errors(folder):
        tf.io.gfile.rmtree(folder.url)


@contextlib.contextmanager
def _os_errors(path: Remote) -> Iterator[None]:
    """Turns TensorFlow's errors into the OSErrors that programs know."""
    try:
        yield
    except tf.errors.NotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, "no such file", path.url) from error
    except tf.errors.OpError as error:
        raise OSError(errno.EIO, error.message.splitlines()[0] or type(error).__name__, path.url) from error
