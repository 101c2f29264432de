"""Batch normalisation of generated CNNs with a named source of its statistics.

Statistics are per episode and channel, never across episodes, so no synchronisation between replicas
is needed. Sources (DESIGN.md, "Model"):

* `support`: mean and variance over the support images' activations; inductive, what is exported.
* `query`: over the query images' activations; transductive, what the reference implementation does.
* `moving`: averages over training episodes; inductive.
"""

from __future__ import annotations

from typing import NamedTuple

from hypertransformer_tf.backend import tf
from hypertransformer_tf.errors import UserError

STATISTICS = ("support", "query", "moving")
EPSILON = 1e-3


class Moments(NamedTuple):
    """Mean and variance, each float [episode or 1, channels]."""

    mean: tf.Tensor
    variance: tf.Tensor


def check_statistics(name: str) -> str:
    """Returns `name`; raises UserError when it names no source of statistics."""
    if name not in STATISTICS:
        raise UserError(f"unknown batch-normalisation statistics {name!r}: use {', '.join(STATISTICS)}")
    return name


def moments(activations: tf.Tensor, mask: tf.Tensor | None = None) -> Moments:
    """Mean and variance over the samples and positions of each episode.

    Args:
        activations: float [episode, sample, height, width, channels].
        mask: float [episode, sample], 1 = ignore the sample altogether; None = use all.

    Returns:
        Moments, each [episode, channels]; variance 0 where every sample is masked.
    """
    if mask is None:
        mean = tf.reduce_mean(activations, [1, 2, 3], keepdims=True)
        variance = tf.reduce_mean(tf.math.squared_difference(activations, mean), [1, 2, 3])
        return Moments(mean[:, 0, 0, 0], variance)
    kept = 1.0 - mask
    share = tf.math.divide_no_nan(kept, tf.reduce_sum(kept, 1, keepdims=True))
    mean = tf.einsum("es,esc->ec", share, tf.reduce_mean(activations, [2, 3]))
    squares = tf.math.squared_difference(activations, mean[:, None, None, None, :])
    return Moments(mean, tf.einsum("es,esc->ec", share, tf.reduce_mean(squares, [2, 3])))


def normalize(activations: tf.Tensor, statistics: Moments, gamma: tf.Tensor, beta: tf.Tensor) -> tf.Tensor:
    """gamma * (x - mean) / sqrt(variance + 1e-3) + beta.

    Args:
        activations: float [episode, sample, height, width, channels].
        statistics: Moments of [episode or 1, channels].
        gamma, beta: float [episode or 1, channels].
    """
    scale = gamma * tf.math.rsqrt(statistics.variance + EPSILON)
    shift = beta - statistics.mean * scale
    return activations * scale[:, None, None, None, :] + shift[:, None, None, None, :]
