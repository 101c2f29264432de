"""Few-shot episodes, drawn in-graph as a pure function of (seed, stream, index).

Episode i is the same on every machine, on any number of devices and after every resume, because its
random numbers are stateless and depend on nothing else. Images stay uint8 until an episode is drawn.
Memory-mapped images of more than MAPPED_BYTES stay on the disk, too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hypertransformer_tf.backend import tf
from hypertransformer_tf.data import random_numbers
from hypertransformer_tf.data.augmentation import Augmentation, rotate_by_90
from hypertransformer_tf.data.class_images import ClassImages
from hypertransformer_tf.errors import UserError

# Streams keep the episodes of different purposes apart under one seed.
STREAMS = {"train": 0, "val": 1, "test": 2}
# Larger memory-mapped images are read from the map by the host; smaller ones lie in memory, in the graph.
MAPPED_BYTES = 1_500_000_000
# Images of at most so many bytes are rotated once and for all.
ROTATED_BYTES = 50_000_000


class Episodes(NamedTuple):
    """A batch of episodes.

    Attributes:
        support_images: float32 [episode, support, height, width, channels] in -1..1.
        support_labels: int32 [episode, support], class slots 0..way-1; way = unlabeled.
        support_mask: float32 [episode, support], 1 = ignore; None = every sample counts.
        query_images: float32 [episode, query, height, width, channels].
        query_labels: int32 [episode, query], 0..way-1.
        class_ids: int32 [episode, way], which class of the ClassImages sits in each slot.
    """

    support_images: tf.Tensor
    support_labels: tf.Tensor
    support_mask: tf.Tensor | None
    query_images: tf.Tensor
    query_labels: tf.Tensor
    class_ids: tf.Tensor


class EpisodeSampler:
    """Draws batches of episodes from the classes of a ClassImages.

    Args:
        images: where classes and images come from.
        way: classes in an episode.
        shot: labeled support images per class.
        query: query images of all classes together; when it is no multiple of the way, the classes in
            the first slots get one more (slots are random).
        unlabeled: unlabeled support images per class.
        seed: with the stream and an index, all that an episode depends on.
        stream: "train", "val" or "test".
        rotate: rotate every class of an episode by a random multiple of 90 degrees, support and query
            alike (training on Omniglot, appendix C).
        augmentation: random changes of the images, after `rotate`; None = none. Which images an episode
            consists of does not depend on it.

    Attributes:
        seed: of this stream; with an index, all that the random numbers of an episode depend on.
        mapped: the images are read from the disk by the host, which a step compiled by XLA can't ask for.

    Raises:
        UserError: when there are too few classes, too few images in a class, or for images that can't
            be augmented as asked.
    """

    def __init__(
        self,
        images: ClassImages,
        way: int,
        shot: int,
        query: int,
        unlabeled: int = 0,
        seed: int = 0,
        stream: str = "train",
        rotate: bool = False,
        augmentation: Augmentation | None = None,
    ):
        for name, value, least in _limits(way, shot, query, unlabeled):
            if value < least:
                raise UserError(f"an episode with {name} = {value}: must be at least {least}")
        if way > images.num_classes:
            raise UserError(
                f"{way}-way episodes need {way} classes, {images.source} has {images.num_classes}: "
                "lower the way or choose a split with more classes"
            )
        self.way, self.shot, self.query, self.unlabeled = way, shot, query, unlabeled
        self.per_class = shot + unlabeled + -(-query // way)
        smallest = int(images.counts.argmin())
        if images.counts[smallest] < self.per_class:
            raise UserError(
                f"class {images.names[smallest]!r} of {images.source} has {images.counts[smallest]} images; "
                f"an episode needs {self.per_class} of each class (support {shot + unlabeled}, "
                f"query {-(-query // way)}): lower shot or query, or leave the class out"
            )
        height, width, _ = images.image_shape
        if rotate and height != width:
            raise UserError(
                f"rotation by 90 degrees needs square images, {images.source} has {height}x{width}"
            )
        if augmentation is not None:
            augmentation.check(images.image_shape, images.source)
        self.augmentation = augmentation  # no default made here: gin would give it the training's options
        self.rotate = rotate
        self.seed = (seed * len(STREAMS) + STREAMS[stream]) % 2**31
        self._largest = int(images.counts.max())
        array = images.images
        self.mapped = isinstance(array, np.memmap) and array.nbytes > MAPPED_BYTES
        # Small ones that are to be rotated are kept in all four rotations, one behind the other.
        self._rotated = rotate and not self.mapped and array.nbytes <= ROTATED_BYTES
        if self._rotated:
            array = np.concatenate([np.rot90(array, turns, (1, 2)) for turns in range(4)])
        self._images = array if self.mapped else tf.constant(array)
        self._offsets = tf.constant(images.offsets, tf.int32)
        self._counts = tf.constant(images.counts, tf.int32)

    def keep_on_devices(self) -> None:
        """Puts a copy of the images on each device of the strategy in whose scope this is called.

        A constant lies on one device, from which every call of a function on another one would copy it. A
        single CPU or GPU has it already. The variable is in nobody's checkpoint.
        """
        strategy = tf.distribute.get_strategy()
        if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
            return  # each worker has a constant of its own, and collectives can't send uint8
        several = strategy.num_replicas_in_sync > 1 or isinstance(strategy, tf.distribute.TPUStrategy)
        if several and not self.mapped:
            self._images = tf.Variable(self._images, trainable=False, name="images")

    def __call__(self, indices: tf.Tensor, query_batches: int = 1) -> Episodes:
        """Draws the episodes with the given indices.

        Args:
            indices: int64 [episode] with a static size.
            query_batches: draws of query images for the same support set; each is without repeats and
                disjoint from the support set, and two draws are independent. Support and first draw do
                not depend on the number of draws.

        Returns:
            Episodes with static shapes, everything in random order. The query axis holds the draws one
            after the other: `query_batches * query` images.
        """
        drawn = [self._draw(indices, batch) for batch in range(query_batches)]
        if query_batches == 1:
            return drawn[0]
        images = tf.concat([each.query_images for each in drawn], 1)
        labels = tf.concat([each.query_labels for each in drawn], 1)
        return drawn[0]._replace(query_images=images, query_labels=labels)

    def _draw(self, indices: tf.Tensor, batch: int) -> Episodes:
        episodes = indices.shape[0]
        classes, held = self._counts.shape[0], self.shot + self.unlabeled
        sizes = [
            classes,
            self.way * self._largest,
            self.way * held,
            self.way,
            self.way * self._largest,
            self.query,
        ]
        of_task, of_query = sizes[:4], sizes[4:]
        numbers = self._random(indices, random_numbers.TASK, sum(of_task))
        by_class, by_image, by_support, by_turn = tf.split(numbers, of_task, 1)
        numbers = self._random(indices, random_numbers.TASK + 1 + batch, sum(of_query))
        by_query_image, by_query = tf.split(numbers, of_query, 1)

        class_ids = tf.math.top_k(by_class, self.way).indices
        shape = [episodes, self.way, self._largest]
        exists = tf.range(self._largest) < tf.gather(self._counts, class_ids)[:, :, None]
        by_image = tf.where(exists, tf.reshape(by_image, shape), -1.0)
        ranked = tf.math.top_k(by_image, self._largest).indices
        support, rest = ranked[:, :, :held], ranked[:, :, held:]
        remains = tf.range(self._largest - held) < tf.gather(self._counts, class_ids)[:, :, None] - held
        by_query_image = tf.where(remains, tf.reshape(by_query_image, shape)[:, :, held:], -1.0)
        chosen = tf.math.top_k(by_query_image, self.per_class - held).indices
        query = tf.gather(rest, chosen, batch_dims=2)

        def shuffled(values, order):
            return tf.gather(tf.reshape(values, [episodes, -1])[:, : order.shape[1]], order, batch_dims=1)

        first = tf.gather(self._offsets, class_ids)[:, :, None]
        slots = tf.tile(tf.range(self.way)[None, :, None], [episodes, 1, self.per_class])
        labels = tf.where(tf.range(held) < self.shot, slots[:, :, :held], self.way)
        order = tf.argsort(by_support)
        support_rows = shuffled(first + support, order)
        support_slots, support_labels = shuffled(slots[:, :, :held], order), shuffled(labels, order)
        # Image-major, so that cutting the surplus leaves the first slots one image more.
        order = tf.argsort(by_query)
        query_rows = shuffled(tf.transpose(first + query, [0, 2, 1]), order)
        query_slots = shuffled(tf.transpose(slots[:, :, held:], [0, 2, 1]), order)

        turns = tf.cast(by_turn * 4.0, tf.int32)

        def prepared(rows, slots, part):
            if self._rotated:
                rows += tf.gather(turns, slots, batch_dims=1) * (self._images.shape[0] // 4)
            images = self._gather_mapped(rows) if self.mapped else tf.gather(self._images, rows)
            return self._prepare(images, slots, turns, indices, part)

        return Episodes(
            prepared(support_rows, support_slots, 0),
            support_labels,
            None,
            prepared(query_rows, query_slots, 1 + batch),
            query_slots,
            class_ids,
        )

    def _prepare(self, images, slots, turns, indices, part) -> tf.Tensor:
        """uint8 images augmented and scaled; `part`: 0 = support, 1 + b = query batch b."""
        if images.dtype == tf.float32:  # embeddings
            return images
        if self.rotate and not self._rotated:
            images = rotate_by_90(images, tf.gather(turns, slots, batch_dims=1))

        def random(purpose, count):
            return self._random(indices, random_numbers.AUGMENTATION + purpose, count)

        if self.augmentation is not None:
            images = self.augmentation(images, slots, self.way, part, random)
        return tf.cast(images, tf.float32) / 128.0 - 1.0

    def _gather_mapped(self, rows: tf.Tensor) -> tf.Tensor:
        """What `tf.gather` would give, read on the host: uint8 [*rows, height, width, channels]."""

        def read(numbers):
            return np.asarray(self._images[numbers])

        images = tf.numpy_function(read, [rows], tf.uint8, stateful=False)
        return tf.ensure_shape(images, [*rows.shape, *self._images.shape[1:]])

    def seeds(self, indices: tf.Tensor) -> tf.Tensor:
        """What all random numbers of episodes depend on: int64 [episode] -> int64 [episode, 2]."""
        indices = tf.cast(indices, tf.int64)
        return tf.stack([tf.fill(indices.shape, tf.constant(self.seed, tf.int64)), indices], 1)

    def _random(self, indices: tf.Tensor, purpose: int, count: int) -> tf.Tensor:
        """Uniform numbers in 0..1, [episode, count], of (seed, stream, index, purpose) alone."""
        return random_numbers.uniform(self.seeds(indices), purpose, [count])


def _limits(way: int, shot: int, query: int, unlabeled: int) -> list[tuple[str, int, int]]:
    """(name, value, smallest sensible value) of each count."""
    return [("way", way, 2), ("shot", shot, 1), ("query", query, 1), ("unlabeled", unlabeled, 0)]
