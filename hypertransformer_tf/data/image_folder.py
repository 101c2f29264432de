"""Folders or zips of class folders with images of any size and format."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from hypertransformer_tf.data.cache import cached, fingerprint
from hypertransformer_tf.data.class_images import ClassImages
from hypertransformer_tf.data.file_tree import File, group_by_folder, is_visible, walk
from hypertransformer_tf.data.rows import Rows, in_chunks, rows_by_label
from hypertransformer_tf.errors import UserError

_MODES = {1: "L", 3: "RGB"}
_MAX_PIXELS = 100_000_000  # an image file of a few kB can claim billions
warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the limit above is ours


def load_image_folder(folder: Path, image_size: int = 28, channels: int = 1) -> ClassImages:
    """Reads all images of all class folders, from the cache when they were decoded before.

    Args:
        folder: holds a folder for each class, or one folder that does, or one zip with the same in it; or
            is that zip. A class's images lie in its folder or in folders below it.
        image_size: images are resized to this square, whatever their shape.
        channels: 1 = grey, 3 = RGB.

    Returns:
        ClassImages in the order of the folders' names, images in the order of their files' names.
        Hidden files are passed over.

    Raises:
        UserError: when there is no class folder, one is empty, or a file is not a readable image.
    """
    if channels not in _MODES:
        raise UserError(f"load_splits.channels = {channels}: use 1 for grey or 3 for RGB images")
    archive = _archive_of(folder)
    if archive is None:
        classes = find_images(_class_root(folder))
        files = [file for found in classes.values() for file in found]
    else:
        classes, files = None, [archive]
    key = fingerprint(files, image_size=image_size, channels=channels)

    def build():
        found = group_by_folder(walk(archive)) if classes is None else classes
        return rows_of_files(list(found), list(found.values()), str(archive or folder), image_size, channels)

    return cached("folder", key, str(archive or folder), build)


def rows_of_files(
    names: Sequence[str], files: Sequence[Sequence[File]], source: str, image_size: int, channels: int
) -> Rows:
    """Rows of image files.

    Args:
        names: a name for each class.
        files: image files of each class.
        source: where they come from, for messages.
        image_size, channels: see `load_image_folder`.

    Raises:
        UserError: when there is no class; while the chunks are read, as `read_image`.
    """
    if not names:
        raise UserError(f"{source} holds no class folders: put the images of each class into a folder")
    labels = np.repeat(np.arange(len(files)), [len(found) for found in files])

    def stream():
        return in_chunks((read_image(f, image_size, channels) for found in files for f in found), source)

    return rows_by_label(labels, names, (image_size, image_size, channels), stream, source)


def _archive_of(place: Path) -> Path | None:
    """The zip that `place` is or holds in the place of class folders."""
    try:
        if place.is_file() and place.suffix.lower() == ".zip":
            return place
        inside = [path for path in place.iterdir() if is_visible(path.name)] if place.is_dir() else []
    except OSError:  # find_images says what is wrong
        return None
    archives = [path for path in inside if path.suffix.lower() == ".zip"]
    return archives[0] if len(archives) == 1 and not any(path.is_dir() for path in inside) else None


def _class_root(folder: Path) -> Path:
    """`folder`, or the folder below it that holds the class folders."""

    def folders(place):
        try:
            return [path for path in place.iterdir() if path.is_dir() and is_visible(path.name)]
        except OSError:
            return []

    inside = folders(folder)
    while len(inside) == 1 and folders(inside[0]):
        folder, inside = inside[0], folders(inside[0])
    return folder


def find_images(folder: Path) -> dict[str, list[Path]]:
    """Files of each class folder, both in alphabetical order; raises as `load_image_folder` does."""
    try:
        is_folder = folder.is_dir()
    except OSError as error:
        raise UserError(f"{folder} can't be read ({error.strerror})") from error
    if not is_folder:
        what = "does not exist:"
        if folder.exists():
            what = "is a file, not a folder: unpack it if it is an archive, and"
        raise UserError(f"{folder} {what} give a folder that holds a folder of images for each class")
    classes = {}
    _check_readable(folder)
    for class_folder in sorted(path for path in folder.iterdir() if path.is_dir() and is_visible(path.name)):
        if folder.resolve().is_relative_to(class_folder.resolve()):
            raise UserError(f"{class_folder} is a link to a folder that it lies in: remove the link")
        _check_readable(class_folder)
        files = sorted(path for path in class_folder.rglob("*") if path.is_file() and is_visible(path.name))
        if not files:
            raise UserError(f"the class folder {class_folder} holds no images: fill it or remove it")
        classes[class_folder.name] = files
    if not classes:
        raise UserError(
            f"{folder} holds no class folders: put the images of each class into a folder of its own"
        )
    return classes


def _check_readable(folder: Path) -> None:
    if not os.access(folder, os.R_OK | os.X_OK):
        raise UserError(f"the folder {folder} can't be read: change its permissions")


def read_image(file: File, image_size: int | tuple[int, int], channels: int) -> np.ndarray:
    """Decodes an image, the right way up as its EXIF data say; transparent parts become white.

    Args:
        file: path, or place in a zip, of an image in any format and mode that Pillow reads.
        image_size: side, or (height, width), that the image is resized to, whatever its shape.
        channels: 1 = grey, 3 = RGB.

    Returns:
        uint8 [height, width, channels].

    Raises:
        UserError: naming the file when it is no image, or one of more than 100 million pixels.
    """
    height, width = (image_size, image_size) if isinstance(image_size, int) else image_size
    try:
        if isinstance(file, Path) and file.exists() and not file.is_file():
            raise ValueError("it is no file")
        with file.open("rb") as opened, Image.open(opened) as image:
            if image.width * image.height > _MAX_PIXELS:
                raise ValueError(f"{image.width}x{image.height} pixels are too many")
            image = ImageOps.exif_transpose(image)
            if image.mode.startswith("I"):  # 16 bits, which convert() would clip instead of scale
                image = Image.fromarray((np.asarray(image, np.int64) >> 8).clip(0, 255).astype(np.uint8))
            if "A" in image.getbands() or "transparency" in image.info:
                image = image.convert("RGBA")
                image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
            image = image.convert(_MODES[channels])
            if image.size != (width, height):
                image = image.resize((width, height), Image.Resampling.BILINEAR)
            return np.asarray(image).reshape(height, width, channels)
    except Exception as error:  # on damaged files the readers of the formats raise anything there is
        raise UserError(f"{file} is not a readable image ({error}): replace or remove it") from error
