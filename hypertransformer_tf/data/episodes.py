"""Few-shot episodes, drawn in-graph as a pure function of (seed, stream, index).

Episode i is the same on every machine, on any number of devices and after every resume, because its
random numbers are stateless and depend on nothing else. Images stay uint8 until an episode is drawn.
"""

from __future__ import annotations

from typing import NamedTuple

from hypertransformer_tf.backend import tf
from hypertransformer_tf.data.augmentation import rotate_by_90
from hypertransformer_tf.data.class_images import ClassImages
from hypertransformer_tf.errors import UserError

# Streams keep the episodes of different purposes apart under one seed.
STREAMS = {"train": 0, "val": 1, "test": 2}


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

    Raises:
        UserError: when there are too few classes, or too few images in a class.
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
        self.rotate = rotate
        self._seed = (seed * len(STREAMS) + STREAMS[stream]) % 2**31
        self._largest = int(images.counts.max())
        self._images = tf.constant(images.images)
        self._offsets = tf.constant(images.offsets, tf.int32)
        self._counts = tf.constant(images.counts, tf.int32)

    def __call__(self, indices: tf.Tensor) -> Episodes:
        """Draws the episodes with the given indices.

        Args:
            indices: int64 [episode] with a static size.

        Returns:
            Episodes with static shapes; support and query are disjoint, both in random order.
        """
        episodes = indices.shape[0]
        classes = self._counts.shape[0]
        support_size = self.way * (self.shot + self.unlabeled)
        sizes = [classes, self.way * self._largest, support_size, self.query, self.way]
        numbers = tf.stack([self._random(index, sum(sizes)) for index in tf.unstack(indices)])
        by_class, by_image, by_support, by_query, by_turn = tf.split(numbers, sizes, 1)

        class_ids = tf.math.top_k(by_class, self.way).indices
        rows = self._choose_images(class_ids, tf.reshape(by_image, [episodes, self.way, self._largest]))
        slots = tf.tile(tf.range(self.way)[None, :, None], [episodes, 1, self.per_class])
        held = self.shot + self.unlabeled
        labels = tf.where(tf.range(self.per_class) < self.shot, slots, self.way)

        def flatten(values, count):
            return tf.reshape(values, [episodes, -1])[:, :count]

        support_order = tf.argsort(by_support)
        support_rows = tf.gather(flatten(rows[:, :, :held], None), support_order, batch_dims=1)
        support_slots = tf.gather(flatten(slots[:, :, :held], None), support_order, batch_dims=1)
        support_labels = tf.gather(flatten(labels[:, :, :held], None), support_order, batch_dims=1)
        # Image-major, so that cutting the surplus leaves the first slots one image more.
        query_order = tf.argsort(by_query)
        query_rows = flatten(tf.transpose(rows[:, :, held:], [0, 2, 1]), self.query)
        query_rows = tf.gather(query_rows, query_order, batch_dims=1)
        query_slots = flatten(tf.transpose(slots[:, :, held:], [0, 2, 1]), self.query)
        query_slots = tf.gather(query_slots, query_order, batch_dims=1)

        images = tf.gather(self._images, tf.concat([support_rows, query_rows], 1))
        if self.rotate:
            turns = tf.cast(by_turn * 4.0, tf.int32)
            turns = tf.gather(turns, tf.concat([support_slots, query_slots], 1), batch_dims=1)
            images = rotate_by_90(images, turns)
        images = tf.cast(images, tf.float32) / 128.0 - 1.0
        return Episodes(
            images[:, :support_size],
            support_labels,
            None,
            images[:, support_size:],
            query_slots,
            class_ids,
        )

    def _random(self, index: tf.Tensor, count: int) -> tf.Tensor:
        """`count` uniform numbers in 0..1 that depend on (seed, stream, index) alone."""
        seed = tf.stack([tf.constant(self._seed, tf.int64), tf.cast(index, tf.int64)])
        return tf.random.stateless_uniform([count], seed, alg="philox")

    def _choose_images(self, class_ids: tf.Tensor, numbers: tf.Tensor) -> tf.Tensor:
        """Rows of `per_class` different images of each class: int32 [episode, way, image]."""
        counts = tf.gather(self._counts, class_ids)[:, :, None]
        exists = tf.range(self._largest) < counts
        chosen = tf.math.top_k(tf.where(exists, numbers, -1.0), self.per_class).indices
        return tf.gather(self._offsets, class_ids)[:, :, None] + chosen


def _limits(way: int, shot: int, query: int, unlabeled: int) -> list[tuple[str, int, int]]:
    """(name, value, smallest sensible value) of each count."""
    return [("way", way, 2), ("shot", shot, 1), ("query", query, 1), ("unlabeled", unlabeled, 0)]
