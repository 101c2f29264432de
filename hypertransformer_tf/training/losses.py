"""The loss of an episode: cross entropy of the query images through the generated CNN."""

from __future__ import annotations

from hypertransformer_tf.backend import tf


def query_cross_entropy(logits: tf.Tensor, labels: tf.Tensor, label_smoothing: float = 0.0) -> tf.Tensor:
    """Softmax cross entropy, averaged over the query images of each episode (section 3.2).

    Args:
        logits: float [episode, query, way].
        labels: int [episode, query] in 0..way-1.
        label_smoothing: share of the target spread evenly over all classes.

    Returns:
        float32 [episode], in nats.
    """
    logits = tf.cast(logits, tf.float32)
    if not label_smoothing:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    else:
        way = logits.shape[-1]
        targets = tf.one_hot(labels, way) * (1.0 - label_smoothing) + label_smoothing / way
        losses = tf.nn.softmax_cross_entropy_with_logits(targets, logits)
    return tf.reduce_mean(losses, -1)


def sum_of_squares(slices) -> tf.Tensor:
    """Sum of squares of generated weights: tensors [episode, slice, value] -> float32 [episode]."""
    return tf.add_n([tf.reduce_sum(tf.square(tf.cast(each, tf.float32)), [1, 2]) for each in slices])
