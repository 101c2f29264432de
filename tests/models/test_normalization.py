"""Per-episode statistics, with masks, against NumPy."""

import numpy as np
import pytest

from hypertransformer_tf.errors import UserError
from hypertransformer_tf.models.normalization import EPSILON, Moments, check_statistics, moments, normalize


@pytest.fixture
def activations():
    return np.random.default_rng(0).normal(2.0, 3.0, [3, 5, 4, 4, 2]).astype(np.float32)


def test_moments_are_per_episode_and_channel(activations):
    result = moments(activations)
    np.testing.assert_allclose(result.mean, activations.mean((1, 2, 3)), rtol=1e-5)
    np.testing.assert_allclose(result.variance, activations.var((1, 2, 3)), rtol=1e-5)


def test_a_masked_sample_does_not_count(activations):
    mask = np.zeros([3, 5], np.float32)
    mask[:, [1, 4]] = 1.0
    expected = moments(activations[:, [0, 2, 3]])
    activations[:, [1, 4]] = 1e3
    for one, other in zip(moments(activations, mask), expected):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_everything_masked_gives_finite_statistics(activations):
    result = moments(activations, np.ones([3, 5], np.float32))
    np.testing.assert_array_equal(result.mean, np.zeros([3, 2]))
    assert np.isfinite(normalize(activations, result, np.ones([1, 2], np.float32), np.zeros([1, 2]))).all()


def test_normalize_centres_and_scales(activations):
    gamma, beta = np.float32([[2.0, 0.5]]), np.float32([[1.0, -1.0]])
    result = normalize(activations, moments(activations), gamma, beta).numpy()
    np.testing.assert_allclose(result.mean((1, 2, 3)), np.repeat(beta, 3, 0), atol=1e-4)
    np.testing.assert_allclose(result.std((1, 2, 3)), np.repeat(gamma, 3, 0), rtol=1e-3)


def test_normalize_formula():
    result = normalize(
        np.full([1, 1, 1, 1, 1], 5.0, np.float32),
        Moments(np.float32([[1.0]]), np.float32([[4.0]])),
        np.float32([[3.0]]),
        np.float32([[0.5]]),
    )
    assert float(result) == pytest.approx(3.0 * 4.0 / (4.0 + EPSILON) ** 0.5 + 0.5, rel=1e-6)


def test_unknown_statistics_are_refused():
    with pytest.raises(UserError, match="'batch'.*support, query, moving"):
        check_statistics("batch")
