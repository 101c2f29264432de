"""Every way to run generated convolutions equals one conv2d per episode."""

import numpy as np
import pytest

from hypertransformer_tf.backend import tf
from hypertransformer_tf.errors import UserError
from hypertransformer_tf.models.convolution import METHODS, episode_conv2d


def plain(images, kernels, bias, stride, padding, pool):
    """Convolution and pooling written out as loops over output positions."""
    episodes, samples, height, width, _ = images.shape
    size, channels = kernels.shape[1], kernels.shape[-1]
    if padding == "same":
        rows, columns = -(-height // stride), -(-width // stride)
        lost = [max((out - 1) * stride + size - side, 0) for out, side in ((rows, height), (columns, width))]
        pads = [(total // 2, total - total // 2) for total in lost]
        images = np.pad(images, [(0, 0), (0, 0), *pads, (0, 0)])
    else:
        rows, columns = (height - size) // stride + 1, (width - size) // stride + 1
    result = np.zeros([episodes, samples, rows, columns, channels])
    for i in range(rows):
        for j in range(columns):
            patch = images[:, :, i * stride : i * stride + size, j * stride : j * stride + size]
            result[:, :, i, j] = np.einsum("esijc,eijcd->esd", patch, kernels) + bias[:, None]
    rows, columns = rows // pool, columns // pool
    result = result[:, :, : rows * pool, : columns * pool]
    return result.reshape(episodes, samples, rows, pool, columns, pool, channels).max((3, 5))


def random_case(in_channels=3, side=9, episodes=4):
    rng = np.random.default_rng(0)
    images = rng.normal(size=[episodes, 5, side, side, in_channels]).astype(np.float32)
    kernels = rng.normal(size=[episodes, 3, 3, in_channels, 6]).astype(np.float32)
    return images, kernels, rng.normal(size=[episodes, 6]).astype(np.float32)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("stride, padding, pool", [(1, "same", 2), (1, "same", 1), (2, "valid", 1)])
def test_equals_loops(method, stride, padding, pool):
    images, kernels, bias = random_case()
    result = episode_conv2d(images, kernels, tf.constant(bias), stride, padding, pool, method)
    np.testing.assert_allclose(result, plain(images, kernels, bias, stride, padding, pool), atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_gradients_equal_those_of_the_unrolled_way(method):
    images, kernels, bias = (tf.constant(each) for each in random_case(in_channels=8, side=8))

    def gradients(way):
        with tf.GradientTape() as tape:
            tape.watch([images, kernels, bias])
            loss = tf.reduce_sum(tf.square(episode_conv2d(images, kernels, bias, pool=2, method=way)))
        return tape.gradient(loss, [images, kernels, bias])

    for one, other in zip(tf.function(gradients)(method), tf.function(gradients)("unrolled")):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("method", METHODS)
def test_a_learned_kernel_serves_every_episode(method):
    images, kernels, bias = random_case()
    shared = episode_conv2d(images, tf.constant(kernels[:1]), tf.constant(bias[:1]), method=method)
    repeated = plain(images, np.repeat(kernels[:1], 4, 0), np.repeat(bias[:1], 4, 0), 1, "same", 1)
    np.testing.assert_allclose(shared, repeated, atol=1e-5)


def test_unknown_method_is_refused_by_name():
    with pytest.raises(UserError, match="'fastest'.*unrolled"):
        episode_conv2d(
            tf.zeros([2, 1, 4, 4, 1]), tf.zeros([2, 3, 3, 1, 1]), tf.zeros([2, 1]), method="fastest"
        )
