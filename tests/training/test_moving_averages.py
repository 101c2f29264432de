"""The moving averages that a saved model has: those of its averaged parameters, not of the training's own."""

import numpy as np
import pytest
from conftest import TINY_CONFIG

from hypertransformer_tf import configuration
from hypertransformer_tf.backend import tf
from hypertransformer_tf.data.episodes import EpisodeSampler
from hypertransformer_tf.data.sources import load_splits
from hypertransformer_tf.training import trained
from hypertransformer_tf.training.loop import OBSERVED_EPISODES, train
from hypertransformer_tf.training.strategy import make_strategy

NAMES = ("moving_mean", "moving_square")
OPTIONS = ["LearningRate.rate = 0.02", "train.episodes = 200", "train.checkpoint_episodes = 200"]


def run(tiny_data, workdir, *bindings):
    """Trains; returns the moving averages of the best model and those of the training's last state."""
    configuration.load_text(TINY_CONFIG, [*OPTIONS, *bindings])
    workdir.mkdir()
    train(load_splits(str(tiny_data)), workdir, make_strategy("cpu"), configuration.check_all_used)
    found = trained.find(str(workdir))
    model = found.load_model()
    best = [variables[name].numpy() for variables in model.layer_variables for name in NAMES]
    reader = tf.train.load_checkpoint(str(workdir / "checkpoints" / "step-0000000100" / "state"))
    keys = sorted(name for name in reader.get_variable_to_shape_map() if "moving_" in name)
    return found, model, best, [reader.get_tensor(key) for key in keys]


def test_the_best_model_has_the_statistics_of_its_own_parameters(tiny_data, tmp_path):
    found, model, best, _ = run(tiny_data, tmp_path / "run", "train.validate_episodes = 200")
    task = found.manifest["task"]
    sampler = EpisodeSampler(load_splits(str(tiny_data)).train, task["way"], task["shot"], task["query"])
    first = found.manifest["episodes_trained"] - OBSERVED_EPISODES
    assert first == 200 - OBSERVED_EPISODES > 0
    episodes = sampler(tf.range(first, first + OBSERVED_EPISODES, dtype=tf.int64))
    outputs = model(episodes.support_images, episodes.support_labels, None, episodes.query_images)
    observed = [each.numpy() for moments in outputs.batch_statistics for each in moments]
    for saved, expected in zip(best, observed):
        np.testing.assert_allclose(saved, expected, rtol=1e-4, atol=1e-5)


def test_a_validation_does_not_change_the_training(tiny_data, tmp_path):
    *_, seldom = run(tiny_data, tmp_path / "seldom", "train.validate_episodes = 200")
    *_, often = run(tiny_data, tmp_path / "often", "train.validate_episodes = 20")
    for one, other in zip(seldom, often):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("decay", [0.0, 0.9])
def test_only_an_average_brings_other_statistics_than_the_training_s_own(tiny_data, tmp_path, decay):
    bindings = ["train.validate_episodes = 200", f"WeightAverage.decay = {decay}"]
    *_, best, last = run(tiny_data, tmp_path / "run", *bindings)
    same = [any(np.array_equal(saved, other) for other in last) for saved in best]
    assert all(same) if decay == 0.0 else not any(same)
