"""Episodes that the host draws ahead of the steps, for devices on which a step can't draw them itself.

The sampler is the same and so are the numbers: an episode is a pure function of its index. Nothing here is
Python at run time, except for memory-mapped images, which a `numpy_function` reads on the host: it runs on
every machine that trains (also on a TPU VM), but never inside a compiled step.
"""

from __future__ import annotations

from typing import NamedTuple

from hypertransformer_tf.backend import tf
from hypertransformer_tf.data.episodes import Episodes, EpisodeSampler
from hypertransformer_tf.errors import UserError


class Drawn(NamedTuple):
    """Episodes with their indices in the sampler's sequence, int64 [episode]."""

    indices: tf.Tensor
    episodes: Episodes


def host_draws(sampler: EpisodeSampler, strategy: tf.distribute.Strategy, wanted: bool | None) -> bool:
    """Whether the host draws the episodes of a training, not its steps.

    Args:
        sampler: of the training.
        strategy: of the training.
        wanted: `train.host_sampling`; None = only where it must be so.

    Raises:
        UserError: when the host must do it and it is not wanted.
    """
    must = sampler.mapped and isinstance(strategy, tf.distribute.TPUStrategy)
    if must and wanted is False:
        raise UserError(
            "train.host_sampling = False: the training images are read from the disk, which a step on a TPU "
            "can't do; remove the binding, or set it to True"
        )
    return must if wanted is None else wanted


def episode_batches(
    sampler: EpisodeSampler,
    per_step: int,
    first_step: int = 0,
    replicas: int = 1,
    first_replica: int = 0,
    local_replicas: int | None = None,
) -> tf.data.Dataset:
    """What the replicas of a host work on, endless and in order: all of a step, then all of the next.

    Args:
        sampler: draws the episodes, on the CPU.
        per_step: episodes of a step over all replicas, a multiple of their number. Step s has the
            episodes s * per_step ... (s + 1) * per_step - 1.
        first_step: where to begin; a resumed training goes on at its step.
        replicas: of all hosts.
        first_replica, local_replicas: the host's part of them; None = all.

    Returns:
        Dataset of Drawn, per_step / replicas episodes each.
    """
    local = local_replicas or replicas
    size = per_step // replicas

    def draw(number):
        replica = first_replica + number % local
        indices = number // local * per_step + replica * size + tf.range(size, dtype=tf.int64)
        return Drawn(indices, sampler(indices))

    numbers = tf.data.Dataset.counter(first_step * local)
    # Two at a time keep a step supplied; more would take the cores from it.
    return numbers.map(draw, num_parallel_calls=2, deterministic=True).prefetch(2 * local)


def distributed_batches(
    strategy: tf.distribute.Strategy, sampler: EpisodeSampler, per_step: int, first_step: int
):
    """`episode_batches` for a strategy: every host draws what its own replicas work on, and nothing else.

    Returns:
        A dataset whose iterator gives a Drawn for each replica.
    """

    def of_host(context: tf.distribute.InputContext) -> tf.data.Dataset:
        replicas = context.num_replicas_in_sync
        local = replicas // context.num_input_pipelines
        first = context.input_pipeline_id * local
        return episode_batches(sampler, per_step, first_step, replicas, first, local)

    return strategy.distribute_datasets_from_function(of_host)
