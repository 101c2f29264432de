"""Cross entropy against NumPy."""

import numpy as np
import pytest

from hypertransformer_tf.training.losses import query_cross_entropy


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_is_a_mean_over_the_query_images_of_each_episode(smoothing):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=[2, 3, 4]).astype(np.float32)
    labels = np.int32([[0, 3, 1], [2, 2, 0]])
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    targets = np.eye(4)[labels] * (1 - smoothing) + smoothing / 4
    np.testing.assert_allclose(
        query_cross_entropy(logits, labels, smoothing), -(targets * logs).sum(-1).mean(-1), rtol=1e-5
    )


def test_equal_logits_give_the_logarithm_of_the_way():
    assert query_cross_entropy(np.zeros([1, 5, 20], np.float32), np.zeros([1, 5], np.int32)).numpy() == (
        pytest.approx([np.log(20)])
    )
