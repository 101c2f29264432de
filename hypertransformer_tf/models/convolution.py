"""Convolutions in which every episode of a batch has a kernel of its own.

There are several ways to run them with the same result (tests compare each with the plain one). On a
CPU one conv2d per episode inside a single graph is fastest; accelerators prefer one grouped call.
"""

from __future__ import annotations

from hypertransformer_tf.backend import tf
from hypertransformer_tf.errors import UserError

METHODS = ("unrolled", "grouped", "vectorized")


def automatic_method() -> str:
    """Returns the way used by default on this machine: "unrolled" on a CPU, "grouped" elsewhere."""
    accelerators = tf.config.list_logical_devices("GPU") + tf.config.list_logical_devices("TPU")
    return "grouped" if accelerators else "unrolled"


def episode_conv2d(
    images: tf.Tensor,
    kernels: tf.Tensor,
    bias: tf.Tensor,
    stride: int = 1,
    padding: str = "same",
    pool: int = 1,
    method: str = "auto",
) -> tf.Tensor:
    """Convolution, bias and max-pooling of each episode's images with the kernel of that episode.

    Pooling is done here because a result that is pooled while it is in the cache is four times cheaper
    to hand on; a monotone nonlinearity may follow instead of precede it.

    Args:
        images: float [episode, image, height, width, in_channels].
        kernels: float [episode, kernel_height, kernel_width, in_channels, out_channels], or with a
            leading axis of 1: one kernel for all episodes (a learned layer).
        bias: float [episode or 1, out_channels].
        stride: of the convolution, the same for both axes.
        padding: "same" or "valid", of the convolution; pooling drops incomplete windows.
        pool: side and stride of the max-pooling windows; 1 = none.
        method: one of METHODS or "auto".

    Returns:
        float [episode, image, height', width', out_channels].

    Raises:
        UserError: for an unknown method.
    """
    if method == "auto":
        method = automatic_method()
    if method not in METHODS:
        raise UserError(f"unknown convolution method {method!r}: use auto, {', '.join(METHODS)}")

    def one_episode(image, kernel, one_bias):
        return _max_pool(tf.nn.conv2d(image, kernel, stride, padding.upper()) + one_bias, pool)

    if kernels.shape[0] == 1:
        flat = tf.reshape(images, [-1, *images.shape[2:]])
        result = one_episode(flat, kernels[0], bias[0])
        samples = -1 if images.shape[1] is None else images.shape[1]
        return tf.reshape(result, [tf.shape(images)[0], samples, *result.shape[1:]])
    bias = tf.broadcast_to(bias, [kernels.shape[0], kernels.shape[-1]])
    if method == "unrolled":
        each = zip(tf.unstack(images), tf.unstack(kernels), tf.unstack(bias))
        return tf.stack([one_episode(*one) for one in each])
    if method == "vectorized":
        return tf.vectorized_map(lambda one: one_episode(*one), (images, kernels, bias))

    side_by_side = tf.transpose(images, [1, 2, 3, 0, 4])
    side_by_side = tf.reshape(side_by_side, [*side_by_side.shape[:3], -1])
    kernel = tf.transpose(kernels, [1, 2, 3, 0, 4])
    result = one_episode(side_by_side, tf.reshape(kernel, [*kernel.shape[:3], -1]), tf.reshape(bias, [-1]))
    result = tf.reshape(result, [*result.shape[:3], kernels.shape[0], kernels.shape[-1]])
    return tf.transpose(result, [3, 0, 1, 2, 4])


def _max_pool(images: tf.Tensor, pool: int) -> tf.Tensor:
    return images if pool == 1 else tf.nn.max_pool2d(images, pool, pool, "VALID")
