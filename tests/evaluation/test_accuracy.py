"""Evaluation over tasks: against a plain loop, determinism, chance level before training."""

import numpy as np
import pytest

from hypertransformer_tf.backend import keras, tf
from hypertransformer_tf.data.array_file import load_array
from hypertransformer_tf.data.episodes import EpisodeSampler
from hypertransformer_tf.evaluation.accuracy import TaskEvaluator, query_accuracy
from hypertransformer_tf.models.hypertransformer import HyperTransformer

STATISTICS = ("support", "query", "moving")


@pytest.fixture(scope="module")
def images(tiny_data):
    return load_array(tiny_data)


def make(**options):
    keras.utils.set_random_seed(0)
    model = HyperTransformer(
        way=5, image_shape=(16, 16, 1), channels=4, transformer_layers=1, shared_features=4, **options
    )
    model.build_variables()
    return model


def test_accuracy_counts_right_answers():
    logits = np.float32([[[3, 1], [0, 1], [2, 1], [0, 9]]])
    assert query_accuracy(logits, np.int32([[0, 1, 1, 1]])).numpy() == [0.75]


def test_equals_a_plain_loop_over_tasks_and_query_batches(images):
    model = make()
    sampler = EpisodeSampler(images, 5, 1, 10, seed=3, stream="test")
    found = TaskEvaluator(model, sampler, STATISTICS, query_batches=3, tasks_per_call=2)(5)
    for task in range(5):
        episode = sampler(tf.constant([task], tf.int64), 3)
        for statistics in STATISTICS:
            hits = []
            for batch in range(3):
                part = slice(10 * batch, 10 * batch + 10)
                logits = model(
                    episode.support_images,
                    episode.support_labels,
                    None,
                    episode.query_images[:, part],
                    statistics=statistics,
                ).logits
                hits.append(logits.numpy().argmax(-1) == episode.query_labels[:, part].numpy())
            assert found[statistics][task] == pytest.approx(np.mean(hits), abs=1e-6)


def test_the_number_of_tasks_in_a_call_changes_nothing_and_progress_adds_up(images):
    sampler, model, done = EpisodeSampler(images, 5, 1, 10, seed=3), make(), []
    one = TaskEvaluator(model, sampler, tasks_per_call=1)(7)
    three = TaskEvaluator(model, sampler, tasks_per_call=3)(7, done.append)
    np.testing.assert_array_equal(one["support"], three["support"])
    assert done == [3, 3, 1] and one["support"].shape == (7,)


@pytest.mark.parametrize("statistics", STATISTICS)
def test_before_training_accuracy_is_at_chance(images, statistics):
    """Class slots are random, so a model that knows nothing can't be better than 1 in 5."""
    sampler = EpisodeSampler(images, 5, 1, 10)
    accuracies = TaskEvaluator(make(initialization="random"), sampler, [statistics])(400)[statistics]
    assert accuracies.mean() == pytest.approx(0.2, abs=0.04)
