"""Dropout whose random numbers are a pure function of the episode, as everything random here is.

In training, `dropout_of(seeds)` is open around the call of the model; outside of it `dropout` does nothing.
So a layer needs no training flag, and a resumed run drops what the unbroken one would have dropped.
"""

from __future__ import annotations

import contextlib
import threading

from hypertransformer_tf.backend import tf
from hypertransformer_tf.data.random_numbers import DROPOUT, uniform
from hypertransformer_tf.errors import UserError

_open = threading.local()  # the replicas of a strategy are traced in threads of their own


@contextlib.contextmanager
def dropout_of(seeds: tf.Tensor):
    """Switches dropout on.

    Args:
        seeds: int64 [episode, 2] with a static size, different for every episode of the training.
    """
    _open.seeds, _open.calls = seeds, 0
    try:
        yield
    finally:
        _open.seeds = None


def dropout(values: tf.Tensor, rate: float) -> tf.Tensor:
    """Sets a share of the values to zero and scales the others up.

    Args:
        values: float [episode, ...], static but for the episodes.
        rate: share that is dropped; 0 = none.
    """
    seeds = getattr(_open, "seeds", None)
    if seeds is None or rate == 0.0:
        return values
    _open.calls += 1  # each place in the model draws numbers of its own
    draws = uniform(seeds, DROPOUT + _open.calls, values.shape[1:])
    return tf.where(draws >= rate, values / (1.0 - rate), 0.0)


def check_rate(name: str, rate: float) -> float:
    """Returns the rate; raises UserError when it is no rate of dropout."""
    if not 0.0 <= rate < 1.0:
        raise UserError(f"{name} = {rate}: must be at least 0 and below 1")
    return rate
