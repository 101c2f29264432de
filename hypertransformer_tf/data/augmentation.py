"""Image augmentations that run in-graph, on uint8 images of whole episodes."""

from __future__ import annotations

from hypertransformer_tf.backend import tf


def rotate_by_90(images: tf.Tensor, turns: tf.Tensor) -> tf.Tensor:
    """Rotates each image counter-clockwise by a multiple of 90 degrees.

    Args:
        images: [episode, image, side, side, channels], any dtype.
        turns: int32 [episode, image] in 0..3, quarter turns.

    Returns:
        The rotated images, same shape and dtype.
    """
    turns = turns[:, :, None, None, None]
    transposed = tf.transpose(images, [0, 1, 3, 2, 4])
    quarter, three_quarters = tf.reverse(transposed, [2]), tf.reverse(transposed, [3])
    images = tf.where(turns == 1, quarter, images)
    images = tf.where(turns == 2, tf.reverse(images, [2, 3]), images)
    return tf.where(turns == 3, three_quarters, images)
