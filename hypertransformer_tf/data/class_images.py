"""ClassImages: images grouped by class, the one form in which every source delivers its data."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from hypertransformer_tf.errors import UserError


@dataclasses.dataclass(frozen=True)
class ClassImages:
    """Images grouped by class. Class c owns `images[offsets[c] : offsets[c] + counts[c]]`.

    Attributes:
        images: uint8 [image, height, width, channels], in memory or memory-mapped; subsets share it.
            Embeddings are float32 [image, 1, 1, size].
        offsets: int64 [class], first image of each class.
        counts: int64 [class], images of each class.
        names: a name for each class.
        source: where the images come from, for messages.
    """

    images: np.ndarray
    offsets: np.ndarray
    counts: np.ndarray
    names: tuple[str, ...]
    source: str

    @classmethod
    def from_class_arrays(
        cls, arrays: Sequence[np.ndarray], names: Sequence[str], source: str
    ) -> ClassImages:
        """Joins one array [image, height, width, channels] per class, uint8 or (embeddings) float32.

        Raises:
            UserError: when there is no class or images differ in shape.
        """
        if not len(arrays):
            raise UserError(f"{source} holds no classes")
        shapes = sorted({array.shape[1:] for array in arrays})
        if len(shapes) > 1:
            raise UserError(f"{source} holds images of different shapes: {shapes[0]} and {shapes[1]}")
        counts = np.array([len(array) for array in arrays], np.int64)
        images = np.concatenate(arrays)
        if images.dtype != np.float32:
            images = images.astype(np.uint8, copy=False)
        return cls(images, np.cumsum(counts) - counts, counts, tuple(names), source)

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.counts)

    @property
    def num_images(self) -> int:
        """Number of images of these classes."""
        return int(self.counts.sum())

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(height, width, channels)."""
        return tuple(self.images.shape[1:])

    def select(self, classes: Sequence[int], source: str | None = None) -> ClassImages:
        """The given classes in the given order, sharing the images.

        Raises:
            UserError: for a class that does not exist.
        """
        chosen = np.asarray(classes, np.int64)
        outside = chosen[(chosen < 0) | (chosen >= self.num_classes)]
        if len(outside):
            raise UserError(
                f"class {outside[0]} asked of {self.source}, which has {self.num_classes} (from 0)"
            )
        return dataclasses.replace(
            self,
            offsets=self.offsets[chosen],
            counts=self.counts[chosen],
            names=tuple(self.names[c] for c in chosen),
            source=source or self.source,
        )

    def class_array(self, index: int) -> np.ndarray:
        """uint8 [image, height, width, channels] of one class."""
        return self.images[self.offsets[index] : self.offsets[index] + self.counts[index]]
