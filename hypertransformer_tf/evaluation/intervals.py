"""Mean accuracy and its confidence interval over tasks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import stats


class Interval(NamedTuple):
    """A mean and half the width of its confidence interval, in the unit of the values."""

    mean: float
    half_width: float


def confidence_interval(values, level: float = 0.95) -> Interval:
    """Mean over tasks with Student's t interval (the tasks are the independent draws).

    Args:
        values: float [task], one accuracy per task.
        level: of confidence.

    Returns:
        Interval; a half width of NaN for a single task.
    """
    values = np.asarray(values, np.float64)
    if len(values) < 2:
        return Interval(float(values.mean()), float("nan"))
    error = values.std(ddof=1) / np.sqrt(len(values))
    return Interval(float(values.mean()), float(error * stats.t.ppf(0.5 + level / 2.0, len(values) - 1)))
