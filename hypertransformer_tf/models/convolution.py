"""Convolutions in which every episode of a batch has a kernel of its own.

There are several ways to run them with the same result (tests compare each with the plain one). On a
CPU one conv2d per episode inside a single graph is fastest; accelerators prefer one grouped call.
"""

from __future__ import annotations

import numpy as np

from hypertransformer_tf.backend import tf
from hypertransformer_tf.errors import UserError
from hypertransformer_tf.models.normalization import Moments, moments

METHODS = ("unrolled", "grouped", "vectorized", "dense")
# Maps of at most so many positions are convolved by one matrix product on a CPU.
DENSE_POSITIONS = 16


def has_accelerator() -> bool:
    """Whether there is a GPU or a TPU."""
    return bool(tf.config.list_logical_devices("GPU") + tf.config.list_logical_devices("TPU"))


def automatic_method(positions: int) -> str:
    """The way used by default on this machine for maps of a number of positions.

    "grouped" on accelerators; on a CPU "dense" for tiny maps and "unrolled" for others.
    """
    if has_accelerator():
        return "grouped"
    return "dense" if positions <= DENSE_POSITIONS else "unrolled"


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
    convolve = _way(method, stride, padding)
    return convolve(images, kernels, bias, lambda result, _: (_max_pool(result, pool),), None)[0]


def episode_conv2d_with_moments(
    images: tf.Tensor,
    kernels: tf.Tensor,
    bias: tf.Tensor,
    stride: int = 1,
    padding: str = "same",
    pool: int = 1,
    mask: tf.Tensor | None = None,
    method: str = "auto",
) -> tuple[tf.Tensor, Moments]:
    """`episode_conv2d`, and mean and variance of what it gave before the pooling.

    Args:
        mask: float [episode, image], 1 = leave the image out of the moments; None = all count.

    Returns:
        float [episode, image, height', width', out_channels] and Moments of [episode, out_channels].
    """

    def finish(result, mask):
        return _max_pool(result, pool), *moments(result, mask)

    result, *found = _way(method, stride, padding)(images, kernels, bias, finish, mask)
    return result, Moments(*found)


def _way(method: str, stride: int, padding: str):
    """A function (images, kernels, bias, finish, mask) that convolves and hands the results to `finish`.

    `finish` takes float [episode, image, height, width, channels] and the mask, and returns tensors whose
    first axis is the episode; it may be called for each episode by itself.
    """
    if method not in ("auto", *METHODS):
        raise UserError(f"unknown convolution method {method!r}: use auto, {', '.join(METHODS)}")

    def conv2d(images, kernel, bias):
        return tf.nn.conv2d(images, kernel, stride, padding.upper()) + bias

    def convolve(images, kernels, bias, finish, mask):
        if kernels.shape[0] == 1:
            result = conv2d(tf.reshape(images, [-1, *images.shape[2:]]), kernels[0], bias[0])
            samples = -1 if images.shape[1] is None else images.shape[1]
            return finish(tf.reshape(result, [tf.shape(images)[0], samples, *result.shape[1:]]), mask)
        way = automatic_method(images.shape[2] * images.shape[3]) if method == "auto" else method
        if way == "dense":
            result = _as_matrix_product(images, kernels, stride, padding)
            return finish(result + bias[:, None, None, None], mask)
        bias = tf.broadcast_to(bias, [kernels.shape[0], kernels.shape[-1]])
        if way == "unrolled":
            masks = [None] * kernels.shape[0] if mask is None else tf.split(mask, kernels.shape[0])
            each = zip(tf.unstack(images), tf.unstack(kernels), tf.unstack(bias), masks)
            results = [finish(tf.expand_dims(conv2d(*one), 0), one_mask) for *one, one_mask in each]
            return [tf.concat(parts, 0) for parts in zip(*results)]
        if way == "vectorized":
            return finish(tf.vectorized_map(lambda one: conv2d(*one), (images, kernels, bias)), mask)
        side_by_side = tf.transpose(images, [1, 2, 3, 0, 4])
        side_by_side = tf.reshape(side_by_side, [*side_by_side.shape[:3], -1])
        kernel = tf.transpose(kernels, [1, 2, 3, 0, 4])
        result = conv2d(side_by_side, tf.reshape(kernel, [*kernel.shape[:3], -1]), tf.reshape(bias, [-1]))
        result = tf.reshape(result, [*result.shape[:3], kernels.shape[0], kernels.shape[-1]])
        return finish(tf.transpose(result, [3, 0, 1, 2, 4]), mask)

    return convolve


def _as_matrix_product(images: tf.Tensor, kernels: tf.Tensor, stride: int, padding: str) -> tf.Tensor:
    """The convolution as one product with a matrix from all inputs to all outputs of a map."""
    height, width, in_channels = images.shape[2:]
    size, channels = kernels.shape[1], kernels.shape[-1]
    rows, columns = (_reads(side, size, stride, padding) for side in (height, width))
    # [row, column, row of the output, column of the output, position in the kernel]
    reads = np.einsum("ypa,xqb->yxpqab", rows, columns).reshape(-1, size * size)
    matrix = tf.matmul(tf.constant(reads), tf.reshape(kernels, [-1, size * size, in_channels * channels]))
    outputs = rows.shape[1] * columns.shape[1]
    matrix = tf.reshape(matrix, [-1, height * width, outputs, in_channels, channels])
    matrix = tf.reshape(
        tf.transpose(matrix, [0, 1, 3, 2, 4]), [-1, height * width * in_channels, outputs * channels]
    )
    flat = tf.reshape(images, [tf.shape(images)[0], -1, height * width * in_channels])
    shape = [tf.shape(images)[0], -1, rows.shape[1], columns.shape[1], channels]
    return tf.reshape(tf.matmul(flat, matrix), shape)


def _reads(side: int, size: int, stride: int, padding: str) -> np.ndarray:
    """Whether output p reads input y with kernel position a, along one axis: float32 [y, p, a]."""
    if padding == "same":
        outputs = -(-side // stride)
        before = max((outputs - 1) * stride + size - side, 0) // 2
    else:
        outputs, before = (side - size) // stride + 1, 0
    inputs, output, position = np.ogrid[:side, :outputs, :size]
    return (inputs == output * stride + position - before).astype(np.float32)


def _max_pool(images: tf.Tensor, pool: int) -> tf.Tensor:
    """Max-pooling of float [episode, image, height, width, channels]."""
    if pool == 1:
        return images
    flat = _max_pool_with_gradient(tf.reshape(images, [-1, *images.shape[2:]]), pool)
    return tf.reshape(flat, [tf.shape(images)[0], -1, *flat.shape[1:]])


def _max_pool_with_gradient(images: tf.Tensor, pool: int) -> tf.Tensor:
    """Max-pooling of float [image, height, width, channels] that pools again for its gradient.

    On CPUs the fast gradient (oneDNN's, ten times as fast) needs the pooling in its own graph, and where a
    loop over episodes is differentiated it isn't there. Elsewhere the second pooling is optimized away.
    """

    @tf.custom_gradient
    def pooled(images):
        def gradient(of_result):
            given = tf.stop_gradient(images)  # they only decide which position the gradient goes to
            again = tf.stop_gradient(tf.nn.max_pool2d(given, pool, pool, "VALID"))
            size = [1, pool, pool, 1]
            return tf.raw_ops.MaxPoolGrad(
                orig_input=given, orig_output=again, grad=of_result, ksize=size, strides=size, padding="VALID"
            )

        return tf.nn.max_pool2d(images, pool, pool, "VALID"), gradient

    return pooled(images)
