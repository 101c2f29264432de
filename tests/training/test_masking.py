"""Support samples are hidden with the probabilities that were asked for, as a function of the episode."""

import numpy as np
import pytest

from hypertransformer_tf.backend import tf
from hypertransformer_tf.errors import UserError
from hypertransformer_tf.training.masking import SupportMasking

WAY = 4


def masks(masking, progress, episodes=400, first=0):
    """[episode, support]: 40 labeled, then 40 unlabeled samples."""
    labels = np.tile(np.repeat([0, 1, 2, 3, WAY], [10, 10, 10, 10, 40]), (episodes, 1)).astype(np.int32)
    seeds = tf.stack([tf.zeros(episodes, tf.int64), tf.range(first, first + episodes, dtype=tf.int64)], 1)
    mask = masking(seeds, tf.constant(labels), WAY, tf.constant(progress))
    return mask.numpy()


def test_nothing_is_hidden_by_default():
    assert SupportMasking()(tf.zeros([1, 2], tf.int64), tf.zeros([1, 3], tf.int32), WAY, 0.0) is None


@pytest.mark.parametrize("progress, expected", [(0.0, 0.7), (0.25, 0.35), (0.5, 0.0), (0.9, 0.0)])
def test_the_papers_schedule(progress, expected):
    mask = masks(SupportMasking(unlabeled_start=0.7), progress)
    assert mask[:, :40].max() == 0.0
    assert mask[:, 40:].mean() == pytest.approx(expected, abs=0.02)
    assert set(np.unique(mask)) <= {0.0, 1.0}


def test_random_removal_has_a_probability_for_each_episode():
    mask = masks(SupportMasking(max_remove_labeled=0.8, max_remove_unlabeled=0.4), 0.3)
    labeled, unlabeled = mask[:, :40].mean(1), mask[:, 40:].mean(1)
    assert labeled.mean() == pytest.approx(0.4, abs=0.03) and unlabeled.mean() == pytest.approx(0.2, abs=0.02)
    # Uniform over episodes: a single probability for all would leave a spread of 0.08 only.
    assert labeled.std() == pytest.approx(0.8 / np.sqrt(12), abs=0.03)
    assert abs(np.corrcoef(labeled, unlabeled)[0, 1]) < 0.2


def test_masks_depend_on_the_episode_alone():
    masking = SupportMasking(unlabeled_start=0.5, max_remove_labeled=0.5)
    together, alone = masks(masking, 0.1, 8), masks(masking, 0.1, 1, first=5)
    np.testing.assert_array_equal(together[5], alone[0])
    assert (together[5] != together[6]).any()


@pytest.mark.parametrize(
    "options, message",
    [
        ({"unlabeled_start": 1.5}, "unlabeled_start = 1.5"),
        ({"max_remove_labeled": -0.1}, "max_remove_labeled = -0.1"),
        ({"unlabeled_until": 0.0}, "unlabeled_until"),
    ],
)
def test_numbers_that_are_no_probabilities(options, message):
    with pytest.raises(UserError, match=message):
        SupportMasking(**options)


def test_unlabeled_samples_must_be_there():
    with pytest.raises(UserError, match="Task.unlabeled = 0"):
        SupportMasking(unlabeled_start=0.7).check(0)
    SupportMasking(unlabeled_start=0.7).check(2)
    SupportMasking(max_remove_labeled=0.7).check(0)
