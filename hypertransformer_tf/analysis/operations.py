"""Arithmetic of a graph, as TensorFlow's profiler counts it."""

from __future__ import annotations

from hypertransformer_tf.backend import tf


def float_operations(graph) -> int:
    """Operations on floats in one run of a tf.Graph; a multiply-add is two, bodies of loops don't count."""
    builder = tf.compat.v1.profiler.ProfileOptionBuilder
    options = builder(builder.float_operation()).with_empty_output().build()
    return tf.compat.v1.profiler.profile(graph, options=options).total_float_ops
