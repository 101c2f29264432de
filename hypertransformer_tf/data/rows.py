"""Rows: images still to be decoded, given a few at a time, so that no data set has to fit into memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO, Callable

import numpy as np
from PIL import Image

from hypertransformer_tf.data.class_images import ClassImages
from hypertransformer_tf.errors import UserError

CHUNK = 512  # images; 84x84 RGB ones take 11 MB


@dataclasses.dataclass(frozen=True)
class Rows:
    """Images of classes, in any order, each with its place among all images when sorted by class.

    Attributes:
        names: a name for each class.
        counts: int64 [class], images of each class.
        image_shape: (height, width, channels).
        chunks: gives pairs of int64 [image], places 0..images-1, and uint8 [image, height, width,
            channels]; each place comes once.
    """

    names: tuple[str, ...]
    counts: np.ndarray
    image_shape: tuple[int, int, int]
    chunks: Callable[[], Iterator[tuple[np.ndarray, np.ndarray]]]

    @property
    def shape(self) -> tuple[int, ...]:
        """(images, height, width, channels)."""
        return (int(self.counts.sum()), *self.image_shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all decoded images."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def offsets(self) -> np.ndarray:
        """int64 [class], place of the first image of each class."""
        return np.cumsum(self.counts) - self.counts

    def write(self, file: BinaryIO) -> None:
        """Writes an .npy file [image, height, width, channels], sorted by class, chunk by chunk."""
        header = {"descr": "|u1", "fortran_order": False, "shape": self.shape}
        np.lib.format.write_array_header_1_0(file, header)
        start, size = file.tell(), int(np.prod(self.image_shape))
        for places, images in self.chunks():
            cuts = np.flatnonzero(np.diff(places) != 1) + 1
            for first, last in zip([0, *cuts], [*cuts, len(places)]):
                file.seek(start + int(places[first]) * size)
                file.write(np.ascontiguousarray(images[first:last]))

    def decode(self, source: str) -> ClassImages:
        """All images in memory."""
        array = np.empty(self.shape, np.uint8)
        for places, images in self.chunks():
            array[places] = images
        return ClassImages(array, self.offsets, self.counts, self.names, source)


def rows_by_label(
    labels: Sequence[int],
    names: Sequence[str],
    image_shape: tuple[int, int, int],
    stream: Callable[[], Iterable[np.ndarray]],
    source: str,
    image_size: int | None = None,
) -> Rows:
    """Rows of images that come with a label each.

    Args:
        labels: int [image], number of each image's class; -1 = of no class, passed over.
        names: a name for each class.
        image_shape: (height, width, channels) of the images in the stream.
        stream: gives the images in the order of the labels, uint8 [image, height, width, channels], a
            few at a time.
        source: where the images come from, for messages.
        image_size: side of the square that the images are resized to; None = leave them.

    Raises:
        UserError: for a class without images or labels that are no class; while the chunks are read, when
            the stream gives more or fewer images than there are labels, or one of another shape.
    """
    labels = np.asarray(labels, np.int64)
    if not len(names) or (labels >= len(names)).any() or (labels < -1).any():
        raise UserError(f"{source}: labels do not fit its {len(names)} class names: fetch it again")
    counts = np.bincount(labels[labels >= 0], minlength=len(names))
    if not counts.all():
        raise UserError(f"{source}: class {names[int(counts.argmin())]!r} has no images")
    order = np.argsort(labels, kind="stable")[int((labels < 0).sum()) :]
    places = np.full(len(labels), -1, np.int64)
    places[order] = np.arange(len(order))
    final_shape = image_shape if image_size is None else (image_size, image_size, image_shape[2])

    def chunks():
        done = 0
        for images in stream():
            if images.shape[1:] != tuple(image_shape):
                shapes = f"{tuple(image_shape)} and {images.shape[1:]}"
                raise UserError(f"{source} holds images of different shapes, {shapes}: fetch it again")
            of_chunk = places[done : done + len(images)]
            done += len(images)
            if len(of_chunk) == len(images):
                kept = of_chunk >= 0
                yield of_chunk[kept], _resize(images if kept.all() else images[kept], final_shape)
        if done != len(labels):
            raise UserError(f"{source} holds {done} images and {len(labels)} labels: fetch it again")

    return Rows(tuple(names), counts, tuple(final_shape), chunks)


def number_classes(labels, source: str) -> tuple[np.ndarray, np.ndarray]:
    """Numbers the values of a file's labels.

    Args:
        labels: the file's: any sequence or array of integers, [image] or [image, 1].
        source: the file, for messages.

    Returns:
        int64 [image], class numbers from 0 without gaps, and int64 [class], the label of each class.

    Raises:
        UserError: when the labels are not integers, or there are none.
    """
    try:
        array = np.asarray(labels)
    except ValueError as error:
        raise UserError(f"{source}: its labels are no list of integers: fetch it again") from error
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or array.dtype.kind not in "iu" or not len(array):
        raise UserError(f"{source}: its labels are {array.dtype} {array.shape}, needed are integers [image]")
    values, numbers = np.unique(array.astype(np.int64), return_inverse=True)
    return numbers.reshape(-1), values


def rows_of_array(
    images,
    labels: Sequence[int],
    names: Sequence[str],
    source: str,
    image_size: int | None = None,
) -> Rows:
    """Rows of one array uint8 [image, height, width, channels], in memory or mapped.

    Raises:
        UserError: as `rows_by_label`, and for any other array.
    """
    check_images(images, source)
    if len(images) != len(labels):
        raise UserError(f"{source} holds {len(images)} images and {len(labels)} labels: fetch it again")

    def stream():
        for first in range(0, len(images), CHUNK):
            yield images[first : first + CHUNK]

    return rows_by_label(labels, names, images.shape[1:], stream, source, image_size)


def check_images(images, source: str) -> None:
    """Raises UserError unless `images` is a uint8 array [image, height, width, 1 or 3], none of them 0."""
    what = f"{images.dtype} {images.shape}" if isinstance(images, np.ndarray) else type(images).__name__
    fits = isinstance(images, np.ndarray) and images.dtype == np.uint8 and images.ndim == 4
    if not fits or 0 in images.shape or images.shape[3] not in (1, 3):
        raise UserError(
            f"{source}: its images are {what}, needed is uint8 [image, height, width, channels] with 1 or 3 "
            "channels"
        )


def in_chunks(
    images: Iterable[np.ndarray], source: str, remedy: str = "fetch it again"
) -> Iterator[np.ndarray]:
    """Joins single images, uint8 [height, width, channels], to chunks [image, height, width, channels].

    Raises:
        UserError: when images differ in shape.
    """
    held: list[np.ndarray] = []
    for image in images:
        if held and image.shape != held[0].shape:
            shapes = f"{held[0].shape} and {image.shape}"
            raise UserError(f"{source} holds images of different shapes, {shapes}: {remedy}")
        held.append(image)
        if len(held) == CHUNK:
            yield np.stack(held)
            held = []
    if held:
        yield np.stack(held)


def resize_image(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """Bilinear, antialiased: uint8 [height, width, channels] of any size to the given one."""
    if image.shape[:2] == (height, width):
        return image
    picture = Image.fromarray(image[..., 0] if image.shape[2] == 1 else image)
    resized = np.asarray(picture.resize((width, height), Image.Resampling.BILINEAR))
    return resized.reshape(height, width, image.shape[2])


def _resize(images: np.ndarray, shape: tuple[int, int, int]) -> np.ndarray:
    if images.shape[1:3] == tuple(shape[:2]) or not len(images):
        return images
    return np.stack([resize_image(image, *shape[:2]) for image in images])
