"""Feature extractors: sizes where kernels no longer fit, values, independence of samples."""

import numpy as np
import pytest

from hypertransformer_tf.backend import tf
from hypertransformer_tf.models.features import ActivationFeatures, SharedFeatures


@pytest.mark.parametrize(
    "side, layers, kernels",
    [
        (28, 2, [3, 3]),
        (7, 2, [3, 3]),
        (3, 2, [3]),  # 3 -> 1: the second convolution no longer fits
        (2, 2, [2]),  # the kernel shrinks to the input, then nothing fits
        (1, 1, [1]),
    ],
)
def test_kernels_shrink_and_convolutions_are_left_out(side, layers, kernels):
    extractor = ActivationFeatures((side, side, 4), num_features=6, num_layers=layers)
    result = extractor(np.ones([2, 3, side, side, 4], np.float32))
    assert [c.kernel.shape[0] for c in extractor.convolutions] == kernels
    assert result.shape == (2, 3, 6 * len(kernels)) and extractor.size == 6 * len(kernels)


def test_activation_features_are_spatial_means_before_the_nonlinearity():
    extractor = ActivationFeatures((9, 9, 2), num_features=4, num_layers=2)
    images = np.random.default_rng(0).normal(size=[1, 3, 9, 9, 2]).astype(np.float32)
    result = extractor(images).numpy()
    first = tf.nn.conv2d(images[0], extractor.convolutions[0].kernel, 2, "VALID")
    second = tf.nn.conv2d(tf.nn.relu(first), extractor.convolutions[1].kernel, 1, "VALID")
    expected = np.concatenate([first.numpy().mean((1, 2)), second.numpy().mean((1, 2))], -1)
    np.testing.assert_allclose(result[0], expected, atol=1e-5)
    assert (result < 0).any()


@pytest.mark.parametrize("batch_norm", [False, True])
def test_shared_features_are_means_of_rectified_maps(batch_norm):
    extractor = SharedFeatures(num_features=5, num_layers=4, batch_norm=batch_norm)
    images = np.random.default_rng(0).normal(size=[2, 6, 28, 28, 1]).astype(np.float32)
    result = extractor(images).numpy()
    assert result.shape == (2, 6, 5) and (result >= 0).all() and result.std() > 0
    assert [c.strides[0] for c in extractor.convolutions] == [2, 2, 2, 1]


def test_without_batch_norm_a_sample_is_on_its_own_and_with_it_an_episode_is():
    images = np.random.default_rng(0).normal(size=[2, 6, 28, 28, 1]).astype(np.float32)
    other = images.copy()
    other[0, 5] = 0.0
    for batch_norm in (False, True):
        extractor = SharedFeatures(num_features=5, batch_norm=batch_norm)
        change = np.abs(extractor(images) - extractor(other)).max(-1)
        assert (change[1] == 0).all()
        assert ((change[0, :5] > 0) == batch_norm).all()
