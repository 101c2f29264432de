"""Every way to run generated convolutions equals one conv2d per episode."""

import numpy as np
import pytest

from hypertransformer_tf.backend import tf
from hypertransformer_tf.errors import UserError
from hypertransformer_tf.models import cnn as cnns
from hypertransformer_tf.models.convolution import METHODS, episode_conv2d
from hypertransformer_tf.models.normalization import Moments, moments


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


def block_case(architecture, order, episodes, gamma_episodes):
    """A conv layer, images and weights with scales of both signs."""
    rng = np.random.default_rng(0)
    layer = cnns.make_cnn(architecture, (17, 17, 2), 5, 3, order).conv_layers[0]
    weights = {
        "kernel": rng.normal(size=[episodes, *layer.weight_shapes["kernel"]]),
        "bias": rng.normal(size=[episodes, 5]),
        "gamma": rng.normal(size=[gamma_episodes, 5]),
        "beta": rng.normal(size=[gamma_episodes, 5]),
    }
    images = rng.normal(size=[3, 4, *layer.input_shape])
    statistics = Moments(rng.normal(size=[3, 5]), rng.uniform(0.5, 2.0, size=[3, 5]))
    return layer, *tf.nest.map_structure(lambda x: tf.constant(x, tf.float32), (images, weights, statistics))


@pytest.mark.parametrize("statistics_of", ["support", "learned", "own", "own, masked"])
@pytest.mark.parametrize("episodes, gamma_episodes", [(3, 3), (3, 1), (1, 1)])
@pytest.mark.parametrize("architecture", ["maxpool-4-layer", "3-layer"])
@pytest.mark.parametrize("order", cnns.BLOCK_ORDERS)
def test_a_block_equals_its_halves_done_one_after_the_other(
    order, architecture, episodes, gamma_episodes, statistics_of
):
    """Outputs, statistics and gradients, whatever is folded into what."""
    layer, images, weights, statistics = block_case(architecture, order, episodes, gamma_episodes)
    if statistics_of == "learned":
        statistics = Moments(*(each[:1] for each in statistics))
    mask = tf.constant([[0.0, 0.0, 1.0, 0.0]] * 3) if "masked" in statistics_of else None
    given = statistics if "own" not in statistics_of else None

    def run(method):
        with tf.GradientTape() as tape:
            tape.watch([images, weights, statistics])
            result, used = cnns.block(layer, images, weights, given, mask, method)
            loss = tf.reduce_sum(tf.sin(result)) + tf.reduce_sum(used.mean * used.variance)
        watched = [images, weights, *([statistics] if given else [])]
        return [result, *used, *tf.nest.flatten(tape.gradient(loss, watched))]

    for one, other in zip(tf.function(run)("auto"), tf.function(run)("plain")):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_second_derivatives_of_moments():
    """They go through the mean, too, though its gradient is written out."""
    x = tf.constant(np.random.default_rng(0).normal(size=[2, 3, 2, 2, 4]), tf.float64)

    def second(of_moments):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                mean, variance = of_moments(x)
                loss = tf.reduce_sum(tf.sin(mean) * tf.exp(variance))
            first = inner.gradient(loss, x)
            total = tf.reduce_sum(tf.sin(3.0 * first))
        return outer.gradient(total, x)

    def plain_moments(x):  # tf.nn.moments stops the gradient of the mean and has wrong second derivatives
        mean = tf.reduce_mean(x, [1, 2, 3], keepdims=True)
        return mean[:, 0, 0, 0], tf.reduce_mean(tf.square(x - mean), [1, 2, 3])

    np.testing.assert_allclose(second(moments), second(plain_moments), rtol=1e-9, atol=1e-12)
