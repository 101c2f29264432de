"""Rotation by TensorFlow's projective transform, for host pipelines, and what in-step rotation is held to.

Uses TensorFlow Addons where it can be imported (TensorFlow up to 2.15) and else the op that Addons calls;
the results are equal bit for bit. XLA has no such op: inside a training step `image_ops.rotate_and_roll`
does the same with a gather, on a CPU in about the same time.
"""

from __future__ import annotations

import warnings

from hypertransformer_tf.backend import tf

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the project has ended, and says so at each import
        import tensorflow_addons as tfa
except Exception:  # on newer TensorFlow it fails in several ways
    tfa = None


def rotate(images: tf.Tensor, angles: tf.Tensor, fill: float) -> tf.Tensor:
    """Rotates each image about its centre: nearest pixels, constant fill.

    Args:
        images: [image, height, width, channels], uint8 or float32.
        angles: float32 [image], radians, counter-clockwise.
        fill: grey value of what the rotation uncovers.

    Returns:
        The rotated images, same shape and dtype.
    """
    if tfa is None:
        return rotate_by_op(images, angles, fill)
    return tfa.image.rotate(images, angles, "nearest", "constant", fill_value=float(fill))


def rotate_by_op(images: tf.Tensor, angles: tf.Tensor, fill: float) -> tf.Tensor:
    """As `rotate`, without TensorFlow Addons."""
    height, width = images.shape[1:3]
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=images,
        transforms=rotation_transforms(angles, height, width),
        output_shape=[height, width],
        fill_value=float(fill),
        interpolation="NEAREST",
        fill_mode="CONSTANT",
    )


def rotation_transforms(angles: tf.Tensor, height: int, width: int) -> tf.Tensor:
    """The eight coefficients of each rotation about the centre: float32 [image, 8].

    An output pixel (x, y) is taken from (c0 x + c1 y + c2, c3 x + c4 y + c5).
    """
    sine, cosine, zero = tf.sin(angles), tf.cos(angles), tf.zeros_like(angles)
    right = ((width - 1) - (cosine * (width - 1) - sine * (height - 1))) / 2.0
    down = ((height - 1) - (sine * (width - 1) + cosine * (height - 1))) / 2.0
    return tf.stack([cosine, -sine, right, sine, cosine, down, zero, zero], 1)
