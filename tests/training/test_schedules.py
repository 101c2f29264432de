"""Learning rates as numbers."""

import pytest

from hypertransformer_tf.backend import tf
from hypertransformer_tf.errors import UserError
from hypertransformer_tf.training.schedules import LearningRate


def at(schedule, episodes, total=1000):
    return float(schedule(tf.constant(episodes, tf.int64), total))


def test_the_papers_schedule_falls_smoothly_by_5_percent_in_100_000_episodes():
    schedule = LearningRate(0.02)
    assert at(schedule, 0) == pytest.approx(0.02)
    assert at(schedule, 50_000) == pytest.approx(0.02 * 0.95**0.5)
    assert at(schedule, 4_000_000) == pytest.approx(0.02 * 0.95**40, rel=1e-5)


def test_cosine_goes_from_the_rate_to_its_final_fraction():
    schedule = LearningRate(0.1, "cosine", final_fraction=0.2)
    assert [at(schedule, e) for e in (0, 500, 1000, 2000)] == pytest.approx([0.1, 0.06, 0.02, 0.02])


def test_warm_up_multiplies_any_schedule():
    schedule = LearningRate(0.1, "constant", warmup_episodes=10)
    assert [at(schedule, e) for e in (0, 4, 9, 500)] == pytest.approx([0.01, 0.05, 0.1, 0.1])


@pytest.mark.parametrize("options", [{"schedule": "linear"}, {"rate": 0.0}, {"decay": -1.0}])
def test_impossible_schedules_are_refused(options):
    with pytest.raises(UserError, match="LearningRate|linear"):
        LearningRate(**options)
