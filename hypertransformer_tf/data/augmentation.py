"""Image augmentations that run in-graph, on uint8 images of whole episodes."""

from __future__ import annotations

import numpy as np

from hypertransformer_tf.backend import tf


def rotate_by_90(images: tf.Tensor, turns: tf.Tensor) -> tf.Tensor:
    """Rotates each image counter-clockwise by a multiple of 90 degrees.

    One gather of pixels, which on a CPU is cheaper than choosing among four rotated copies.

    Args:
        images: [episode, image, side, side, channels], any dtype.
        turns: int32 [episode, image] in 0..3, quarter turns.

    Returns:
        The rotated images, same shape and dtype.
    """
    side, channels = images.shape[2], images.shape[4]
    pixels = np.arange(side * side, dtype=np.int32).reshape(side, side)
    source = np.stack([np.rot90(pixels, k).ravel() for k in range(4)])
    count = turns.shape[0] * turns.shape[1]
    first = tf.range(count, dtype=tf.int32)[:, None] * (side * side)
    index = first + tf.gather(tf.constant(source), tf.reshape(turns, [-1]))
    return tf.reshape(tf.gather(tf.reshape(images, [-1, channels]), index), images.shape)
