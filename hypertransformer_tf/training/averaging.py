"""A running average of the parameters, which usually generalises better than the last ones."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import gin

from hypertransformer_tf.backend import tf
from hypertransformer_tf.errors import UserError


@gin.configurable(denylist=["variables"])
class WeightAverage(tf.Module):
    """Exponential moving average of trainable variables.

    Args:
        variables: the trainable variables.
        decay: share of the old average in each step; 0 = keep no average. Early steps use
            (step + 1) / (step + 10), so that the start is soon forgotten.
    """

    def __init__(self, variables: list[tf.Variable], decay: float = 0.0):
        super().__init__(name="weight_average")
        if not 0.0 <= decay < 1.0:
            raise UserError(f"WeightAverage.decay = {decay}: must be in 0..1, 1 excluded")
        self.decay, self._sources = decay, list(variables)
        # Every replica computes the same average, so the first one's is everybody's.
        aggregation = tf.VariableAggregation.ONLY_FIRST_REPLICA
        self.shadows = [
            tf.Variable(v, trainable=False, name="average", aggregation=aggregation)
            for v in (variables if decay else [])
        ]

    def update(self, step: tf.Tensor) -> None:
        """Folds the present values in; `step` counts the steps done before this one."""
        seen = tf.cast(step, tf.float32)
        new_share = 1.0 - tf.minimum(self.decay, (seen + 1.0) / (seen + 10.0))
        for shadow, source in zip(self.shadows, self._sources):
            shadow.assign_sub(new_share * (shadow - source))

    def applied(self):
        """A context in which the variables hold their averages; then they get their own values back."""
        return held(self._sources if self.shadows else [], self.shadows)


@contextlib.contextmanager
def held(variables: Sequence[tf.Variable], values: Sequence[tf.Tensor]):
    """While open, variables hold other values; then they get their own back."""
    kept = [variable.numpy() for variable in variables]
    for variable, value in zip(variables, values):
        variable.assign(value.numpy())
    try:
        yield
    finally:
        for variable, value in zip(variables, kept):
            variable.assign(value)
