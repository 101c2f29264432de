"""Random numbers: published answers, the same under XLA, independence."""

import numpy as np
import pytest

from hypertransformer_tf.backend import tf
from hypertransformer_tf.data.random_numbers import threefry, uniform

ALL_ONES = 2**32 - 1


@pytest.mark.parametrize(
    "key, counter, answer",
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((ALL_ONES, ALL_ONES), (ALL_ONES, ALL_ONES), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_gives_the_known_answers(key, counter, answer):
    """Those that Random123 publishes for threefry2x32 with 20 rounds."""
    key, counter = (tuple(tf.constant(word, tf.uint32) for word in words) for words in (key, counter))
    assert tuple(int(word) for word in threefry(key, counter)) == answer


def seeds(*pairs):
    return tf.constant(pairs, tf.int64)


def test_xla_gives_the_same_numbers():
    drawn = uniform(seeds((3, 5), (3, 6)), 7, [301])
    compiled = tf.function(uniform, jit_compile=True)(seeds((3, 5), (3, 6)), 7, [301])
    np.testing.assert_array_equal(drawn, compiled)


def test_numbers_are_uniform_and_depend_on_each_seed_and_the_purpose():
    variants = [
        uniform(seeds(pair), purpose, [100, 100]) for pair in ((1, 2), (2, 1), (1, 3)) for purpose in (0, 1)
    ]
    values = np.stack([each.numpy().ravel() for each in variants])
    assert values.min() >= 0.0 and values.max() < 1.0
    np.testing.assert_allclose(np.histogram(values, 10, (0, 1))[0] / values.size, 0.1, atol=0.005)
    correlations = np.corrcoef(values) - np.eye(len(values))
    assert np.abs(correlations).max() < 0.05
    np.testing.assert_allclose(np.corrcoef(values[0][:-1], values[0][1:])[0, 1], 0.0, atol=0.05)


def test_an_episode_does_not_depend_on_its_batch():
    both = uniform(seeds((3, 5), (3, 6)), 7, [11])
    np.testing.assert_array_equal(both[1:], uniform(seeds((3, 6)), 7, [11]))
