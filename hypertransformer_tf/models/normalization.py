"""Batch normalisation of generated CNNs with a named source of its statistics.

Statistics are per episode and channel, never across episodes, so no synchronisation between replicas
is needed. Sources (DESIGN.md, "Model"):

* `support`: mean and variance over the support images' activations; inductive, what is exported.
* `query`: over the query images' activations; transductive, what the reference implementation does.
* `moving`: averages over training episodes; inductive.
"""

from __future__ import annotations

from collections.abc import Sequence
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
        return Moments(*_moments_of_all(activations))
    kept = 1.0 - mask
    share = tf.math.divide_no_nan(kept, tf.reduce_sum(kept, 1, keepdims=True))
    mean = tf.einsum("es,esc->ec", share, tf.reduce_mean(activations, [2, 3]))
    squares = tf.math.squared_difference(activations, mean[:, None, None, None, :])
    return Moments(mean, tf.einsum("es,esc->ec", share, tf.reduce_mean(squares, [2, 3])))


@tf.custom_gradient
def _moments_of_all(activations: tf.Tensor):
    """Moments over axes 1 to 3, with a gradient that passes over the activations half as often."""
    axes = [1, 2, 3]
    mean = tf.reduce_mean(activations, axes, keepdims=True)
    variance = tf.reduce_mean(tf.math.squared_difference(activations, mean), axes)

    def gradient(of_mean, of_variance):
        # The mean is taken again, so that second derivatives see what it depends on.
        mean = tf.reduce_mean(activations, axes, keepdims=True)
        count = tf.cast(tf.reduce_prod(tf.shape(activations)[1:4]), activations.dtype)
        slope = (2.0 * of_variance / count)[:, None, None, None]
        return activations * slope + ((of_mean / count)[:, None, None, None] - mean * slope)

    return (mean[:, 0, 0, 0], variance), gradient


def normalize(activations: tf.Tensor, statistics: Moments, gamma: tf.Tensor, beta: tf.Tensor) -> tf.Tensor:
    """gamma * (x - mean) / sqrt(variance + 1e-3) + beta.

    Args:
        activations: float [episode, sample, height, width, channels].
        statistics: Moments of [episode or 1, channels].
        gamma, beta: float [episode or 1, channels].
    """
    scale, shift = scale_and_shift(statistics, gamma, beta)
    return activations * scale[:, None, None, None, :] + shift[:, None, None, None, :]


def scale_and_shift(statistics: Moments, gamma: tf.Tensor, beta: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """What `normalize` multiplies with and adds, each [episode or 1, channels]; arguments as there."""
    scale = gamma * tf.math.rsqrt(statistics.variance + EPSILON)
    return scale, beta - statistics.mean * scale


def mean_and_square(statistics: Moments) -> Moments:
    """Averages over episodes, for the moving averages; no gradient flows through them.

    Args:
        statistics: Moments of [episode, channels].

    Returns:
        Moments (mean, mean of squares), each [channels].
    """
    squares = statistics.variance + tf.square(statistics.mean)
    return Moments(
        tf.stop_gradient(tf.reduce_mean(statistics.mean, 0)), tf.stop_gradient(tf.reduce_mean(squares, 0))
    )


def mean_of_parts(parts: Sequence[tuple[Moments, ...]]) -> tuple[Moments, ...]:
    """Mean over parts of equally many episodes: for each part and conv layer Moments of [channels]."""
    return tf.nest.map_structure(lambda *each: tf.add_n(each) / len(each), *parts)


def fold_into_moving(
    layers: Sequence[dict], batch_statistics: Sequence[Moments], step: tf.Tensor, momentum: float
) -> None:
    """Folds the statistics of a training step into moving averages (mean over replicas).

    Args:
        layers: for each conv layer its variables "moving_mean" and "moving_square", each [channels].
        batch_statistics: mean and mean of squares of each conv layer.
        step: number of steps done before. Early ones count for more, so that the start is soon forgotten.
        momentum: share of the old value in a late step.
    """
    seen = tf.cast(step, tf.float32)
    momentum = tf.minimum(momentum, seen / (seen + 10.0))
    for variables, observed in zip(layers, batch_statistics):
        for name, value in (("moving_mean", observed.mean), ("moving_square", observed.variance)):
            old = variables[name]
            old.assign(momentum * old + (1.0 - momentum) * value)


def moving_moments(variables: dict) -> dict[str, tf.Tensor]:
    """{"moving_mean", "moving_variance"}, each float [1, channels], from a conv layer's moving averages."""
    mean = variables["moving_mean"][None]
    variance = tf.maximum(variables["moving_square"][None] - tf.square(mean), 0.0)
    return {"moving_mean": mean, "moving_variance": variance}
