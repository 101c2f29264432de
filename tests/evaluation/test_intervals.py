"""Confidence intervals: the formula, and that they cover what they should."""

import math

import numpy as np
import pytest

from hypertransformer_tf.evaluation.intervals import confidence_interval


def test_student_t_interval_of_known_numbers():
    mean, half_width = confidence_interval([0.0, 1.0, 2.0])
    assert mean == 1.0
    assert half_width == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)  # t(0.975, 2), deviation 1


def test_it_is_no_standard_deviation():
    values = np.random.default_rng(0).normal(0.5, 0.1, 1000)
    assert confidence_interval(values).half_width == pytest.approx(1.96 * 0.1 / math.sqrt(1000), rel=0.1)


def test_it_covers_the_true_mean_in_95_of_100_cases():
    rng = np.random.default_rng(0)
    intervals = [confidence_interval(rng.normal(0.0, 1.0, 8)) for _ in range(2000)]
    covered = np.mean([abs(mean) <= half_width for mean, half_width in intervals])
    assert 0.935 < covered < 0.965


def test_one_task_has_no_interval():
    assert math.isnan(confidence_interval([0.5]).half_width)
