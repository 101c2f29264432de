"""The running average and its use in evaluation."""

import numpy as np
import pytest

from hypertransformer_tf.backend import tf
from hypertransformer_tf.errors import UserError
from hypertransformer_tf.training.averaging import WeightAverage


def test_average_follows_the_formula_and_is_put_in_place_for_a_while_only():
    variable = tf.Variable([0.0])
    average = WeightAverage([variable], decay=0.5)
    expected = 0.0
    for step in range(6):
        variable.assign([float(step)])
        average.update(tf.constant(step, tf.int64))
        decay = min(0.5, (step + 1) / (step + 10))
        expected = decay * expected + (1 - decay) * step
    with average.applied():
        np.testing.assert_allclose(variable, [expected], rtol=1e-6)
    np.testing.assert_array_equal(variable, [5.0])


def test_own_values_come_back_after_an_error():
    variable = tf.Variable([1.0])
    average = WeightAverage([variable], decay=0.9)
    variable.assign([3.0])
    with pytest.raises(RuntimeError), average.applied():
        raise RuntimeError
    np.testing.assert_array_equal(variable, [3.0])


def test_without_decay_nothing_is_kept():
    variable = tf.Variable([1.0])
    average = WeightAverage([variable])
    average.update(tf.constant(0, tf.int64))
    with average.applied():
        np.testing.assert_array_equal(variable, [1.0])
    assert average.shadows == []


def test_impossible_decay_is_refused():
    with pytest.raises(UserError, match="decay = 1.0"):
        WeightAverage([], decay=1.0)
