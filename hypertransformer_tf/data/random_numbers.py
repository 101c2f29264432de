"""Random numbers of an episode: a pure function of its seeds and of what they are for."""

from __future__ import annotations

from hypertransformer_tf.backend import tf

# First purposes of those who draw; each may count up from its own.
TASK, DROPOUT, MASKING, AUGMENTATION = 0, 1000, 2000, 2**30


def uniform(seeds: tf.Tensor, purpose: int, shape) -> tf.Tensor:
    """Uniform numbers.

    Args:
        seeds: int64 [episode, 2] with a static size, see `EpisodeSampler.seeds`.
        purpose: other purposes give independent numbers.
        shape: of the numbers of one episode.

    Returns:
        float32 [episode, *shape] in 0..1.
    """
    offset = tf.constant([purpose << 32, 0], tf.int64)
    each = [tf.random.stateless_uniform(shape, seed + offset, alg="philox") for seed in tf.unstack(seeds)]
    return tf.stack(each)
