"""Warm-up heads: at the beginning, the loss wanders from the first conv layer to the logits layer.

Every conv layer but the last has a generated logits layer of its own (`HyperTransformer.warmup_heads`).
The weights of the losses are triangles that slide from the first head to the last and on to the real
logits; afterwards only the real loss counts.
"""

from __future__ import annotations

from hypertransformer_tf.backend import tf


def head_weights(heads: int, episodes: tf.Tensor, warmup_episodes: int) -> tf.Tensor:
    """Weights of the losses.

    Args:
        heads: number of warm-up heads.
        episodes: int64 scalar, training episodes seen.
        warmup_episodes: length of the warm-up.

    Returns:
        float32 [heads + 1], the real loss last; the sum is 1.
    """
    place = heads * tf.minimum(tf.cast(episodes, tf.float32) / float(warmup_episodes), 1.0)
    return tf.maximum(0.0, 1.0 - tf.abs(place - tf.range(heads + 1, dtype=tf.float32)))
