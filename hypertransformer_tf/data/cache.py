"""Decoded images on disk: written atomically, checked when read, rebuilt when damaged."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Callable

import numpy as np

from hypertransformer_tf.data.class_images import ClassImages
from hypertransformer_tf.data.rows import Rows
from hypertransformer_tf.errors import UserError

FORMAT_VERSION = 1
_IN_MEMORY = 2**31  # bytes of rows that may be decoded into memory when the cache can't be written


def cache_dir() -> Path:
    """Folder of the cache: $HYPERTRANSFORMER_CACHE, else ~/.cache/hypertransformer."""
    return Path(os.environ.get("HYPERTRANSFORMER_CACHE") or Path.home() / ".cache" / "hypertransformer")


def fingerprint(files: Iterable[Path], **options) -> str:
    """Key of a decoded data set: its files (path, size, time of change) and how they are decoded.

    A folder stands for all files below it.
    """
    stats = []
    for path in files:
        path = path.resolve()
        below = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in below:
            status = file.stat()
            if not stat.S_ISDIR(status.st_mode):
                stats.append((str(file), status.st_size, status.st_mtime_ns))
    text = json.dumps([FORMAT_VERSION, stats, sorted(options.items())])
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def cached(name: str, key: str, source: str, build: Callable[[], ClassImages | Rows]) -> ClassImages:
    """Reads a data set from the cache, or builds it and keeps it there.

    Args:
        name: start of the file's name, for people who look into the folder.
        key: what `fingerprint` gave.
        source: `source` of the result.
        build: makes the data set when the cache has none, or a damaged one; Rows are written chunk by
            chunk and never lie in memory together.

    Returns:
        ClassImages whose images are memory-mapped from the cache; from memory when the folder can't be
        written (with a warning).

    Raises:
        UserError: when the folder can't be written and the images are too many for the memory.
    """
    path = cache_dir() / f"{name}-{key}"
    if path.with_suffix(".json").exists():
        try:
            return _read(path, source)
        except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
            _warn(f"the cache {path} is damaged ({error}): building it again")
    images = build()
    try:
        _write(path, images)
        return _read(path, source)
    except (OSError, EOFError, ValueError) as error:
        if isinstance(images, Rows) and images.nbytes > _IN_MEMORY:
            raise UserError(
                f"the {images.nbytes / 1e9:.1f} GB of decoded images can't be written to {path.parent} "
                f"({error}): set HYPERTRANSFORMER_CACHE to a folder with space"
            ) from error
        _warn(f"decoded images can't be cached in {path.parent} ({error}): set HYPERTRANSFORMER_CACHE")
        return images.decode(source) if isinstance(images, Rows) else images


def _read(path: Path, source: str) -> ClassImages:
    index = json.loads(path.with_suffix(".json").read_text())
    file = path.with_suffix(".npy")
    images = np.load(file, mmap_mode="r")
    if file.stat().st_size != index["bytes"] or _checksum(images) != index["checksum"]:
        raise ValueError("size or checksum differ")
    counts = np.array(index["counts"], np.int64)
    return ClassImages(images, np.array(index["offsets"], np.int64), counts, tuple(index["names"]), source)


def _write(path: Path, images: ClassImages | Rows) -> None:
    """The image array first, then the index that vouches for it; each by rename, so none is half there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    array, index_file = path.with_suffix(".npy"), path.with_suffix(".json")
    if isinstance(images, Rows):
        _replace(array, images.write)
        pixels = np.load(array, mmap_mode="r")
    else:
        _replace(array, lambda file: np.save(file, images.images))
        pixels = images.images
    index = {
        "names": images.names,
        "offsets": images.offsets.tolist(),
        "counts": images.counts.tolist(),
        "bytes": array.stat().st_size,
        "checksum": _checksum(pixels),
    }
    _replace(index_file, lambda file: file.write(json.dumps(index).encode()))


def _replace(path: Path, write: Callable) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(descriptor, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _checksum(images: np.ndarray) -> str:
    """Hash of the whole array when it is small, of evenly spaced pieces when it is larger than 64 MiB."""
    flat = images.reshape(-1)
    piece = 2**20
    if flat.nbytes <= 64 * piece:
        return hashlib.sha1(np.ascontiguousarray(flat)).hexdigest()
    starts = np.linspace(0, flat.nbytes - piece, 64, dtype=np.int64)
    digest = hashlib.sha1()
    for start in starts:
        digest.update(np.ascontiguousarray(flat[start : start + piece]))
    return digest.hexdigest()


def _warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr)


def require(path: Path, what: str) -> Path:
    """Returns `path`; raises UserError when it does not exist."""
    if not path.exists():
        raise UserError(f"{what} {path} does not exist")
    return path
