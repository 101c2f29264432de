"""Means of the features of each class of a support set, and the logits layers that are made of them."""

from __future__ import annotations

from hypertransformer_tf.backend import tf


def counted(labels: tf.Tensor, mask: tf.Tensor | None, way: int) -> tf.Tensor:
    """Which samples count for which class.

    Args:
        labels: int [episode, support] in 0..way; `way` = unlabeled, which count for none.
        mask: float [episode, support], 1 = ignore the sample; None = use all.
        way: number of classes.

    Returns:
        float32 [episode, support, way], 1 or 0.
    """
    members = tf.one_hot(labels, way)
    return members if mask is None else members * (1.0 - mask)[:, :, None]


def class_means(features: tf.Tensor, members: tf.Tensor) -> tf.Tensor:
    """The mean of each class.

    Args:
        features: float [episode, support, feature].
        members: float [episode, support, way], see `counted`.

    Returns:
        float [episode, way, feature]; 0 for a class without samples.
    """
    shares = tf.math.divide_no_nan(members, tf.reduce_sum(members, 1, keepdims=True))
    return tf.matmul(shares, features, transpose_a=True)


def nearest_mean_layer(means: tf.Tensor) -> dict[str, tf.Tensor]:
    """A logits layer whose logits are minus the squared distances to the means, up to one constant per image.

    -|x - m|^2 = 2 m.x - |m|^2 - |x|^2, and |x|^2 is the same for all classes: neither the softmax nor the
    answer depends on it.

    Args:
        means: float [episode, way, feature].

    Returns:
        {"kernel": float [episode, feature, way], "bias": float [episode, way]}.
    """
    return {"kernel": 2.0 * tf.transpose(means, [0, 2, 1]), "bias": -tf.reduce_sum(tf.square(means), -1)}
