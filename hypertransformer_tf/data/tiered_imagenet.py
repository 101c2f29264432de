"""tieredImageNet in its published forms: 351 / 97 / 160 classes, 779,165 images, 84x84 RGB.

images: {split}_images_png.pkl, a list of PNG files as arrays, or
        {split}_images.npz, an array `images` in the order blue, green, red
labels: {split}_labels.pkl with `label_specific` and maybe `label_specific_str`, or with `labels`
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from hypertransformer_tf.data.cache import cached, fingerprint
from hypertransformer_tf.data.class_images import ClassImages
from hypertransformer_tf.data.found import PARTS, find_forms
from hypertransformer_tf.data.rows import CHUNK, Rows, in_chunks, number_classes, rows_by_label
from hypertransformer_tf.data.splits import Splits
from hypertransformer_tf.data.unpickling import read_dict, read_pickle, text
from hypertransformer_tf.errors import UserError

FOLDERS = ("tieredimagenet", "tiered-imagenet", "tiered_imagenet", "tieredImageNet")
_IMAGES = {"png": "images_png.pkl", "npz": "images.npz"}


def _names(images: str) -> dict[str, list[str]]:
    of_part = {part: [f"{part}_{images}"] for part in PARTS}
    return {**of_part, **{f"labels of {part}": [f"{part}_labels.pkl"] for part in PARTS}}


def load_tiered_imagenet(base: Path, image_size: int | None = None) -> Splits:
    """Reads tieredImageNet, from the cache when it was decoded before.

    Decoding reads and writes a few hundred images at a time; the cache, 16 GB, is memory-mapped.

    Args:
        base: folder with the files, or with a folder `tieredimagenet` or `tiered-imagenet` of them.
        image_size: side of the images; None = as stored.

    Returns:
        Splits as the files have them, images uint8 [image, height, width, 3] in RGB; classes in the order
        of their labels, with different numbers of images.

    Raises:
        UserError: naming the file that is missing, damaged, or holds something else.
    """
    forms = {form: _names(images) for form, images in _IMAGES.items()}
    form, files = find_forms(base, FOLDERS, forms, "tieredImageNet")
    parts = [_load_part(form, files[part], files[f"labels of {part}"], image_size) for part in PARTS]
    return Splits("tieredimagenet", *parts)


def _load_part(form: str, images: Path, labels: Path, image_size: int | None) -> ClassImages:
    def build() -> Rows:
        numbers, names = _read_labels(labels)
        if form == "png":
            shape, count, stream = _open_png(images)
        else:
            shape, count, stream = _open_npz(images)
        if count != len(numbers):
            raise UserError(
                f"{images} holds {count} images, {labels} {len(numbers)} labels: fetch both again"
            )
        return rows_by_label(numbers, names, shape, stream, str(images), image_size)

    key = fingerprint([images, labels], image_size=image_size)
    return cached(f"tieredimagenet-{images.name.split('_')[0]}", key, str(images), build)


def _read_labels(file: Path) -> tuple[np.ndarray, list[str]]:
    """int64 [image], class numbers, and the names of the classes."""
    content = read_dict(file)
    key = next((key for key in ("label_specific", "labels") if key in content), None)
    if key is None:
        raise UserError(f"{file} has neither 'label_specific' nor 'labels': fetch it again")
    numbers, values = number_classes(content[key], str(file))
    names = content.get("label_specific_str") if key == "label_specific" else None
    if names is None:
        return numbers, [str(value) for value in values]
    if values[0] < 0 or values[-1] >= len(names):
        raise UserError(f"{file}: label {values[-1]} has no name among {len(names)}: fetch it again")
    return numbers, [text(names[value]) for value in values]


def _open_png(file: Path):
    """Image shape, number of images and a function that streams them."""
    encoded = read_pickle(file)
    if not isinstance(encoded, list) or not encoded:
        raise UserError(f"{file} holds no list of images: fetch it again")

    def decode(index: int) -> np.ndarray:
        try:
            # PNG is RGB whatever wrote it.
            with Image.open(io.BytesIO(encoded[index])) as image:
                return np.asarray(image.convert("RGB"))
        except Exception as error:  # on damaged files Pillow raises anything there is
            raise UserError(f"{file}: image {index} is not readable ({error}): fetch it again") from error

    def stream() -> Iterator[np.ndarray]:
        return in_chunks((decode(index) for index in range(len(encoded))), str(file))

    return decode(0).shape, len(encoded), stream


def _open_npz(file: Path):
    """As `_open_png`; the array is read from the zip from start to end and never is in memory."""
    errors = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, OSError, KeyError, NotImplementedError)

    def start(archive: zipfile.ZipFile):
        opened = archive.open("images.npy")
        version = np.lib.format.read_magic(opened)
        read_header = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}
        shape, fortran, dtype = read_header[version[0]](opened)
        if dtype != np.uint8 or len(shape) != 4 or shape[3] != 3 or 0 in shape or fortran:
            raise UserError(f"{file}: images are {dtype} {shape}, needed is uint8 [image, height, width, 3]")
        return opened, shape

    def stream() -> Iterator[np.ndarray]:
        try:
            with zipfile.ZipFile(file) as archive:
                opened, shape = start(archive)
                size = int(np.prod(shape[1:]))
                for first in range(0, shape[0], CHUNK):
                    count = min(CHUNK, shape[0] - first)
                    chunk = np.frombuffer(opened.read(count * size), np.uint8).reshape(count, *shape[1:])
                    yield chunk[..., ::-1]
        except errors as error:
            raise UserError(f"{file} is damaged ({error}): fetch it again") from error

    try:
        with zipfile.ZipFile(file) as archive:
            shape = start(archive)[1]
    except errors as error:
        raise UserError(f"{file} is no readable .npz with 'images' ({error}): fetch it again") from error
    return shape[1:], shape[0], stream
