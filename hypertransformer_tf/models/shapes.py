"""Lengths of axes that may be unknown when a graph is made."""

from __future__ import annotations

from hypertransformer_tf.backend import tf


def axis_length(tensor: tf.Tensor, axis: int):
    """Length of an axis: an int where it is known, else a scalar tensor."""
    return tf.shape(tensor)[axis] if tensor.shape[axis] is None else tensor.shape[axis]
