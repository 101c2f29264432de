"""Every baseline goes through the training loop, its checkpoints and the evaluator."""

import numpy as np
import pytest
from conftest import ROOT, TINY_DATA

from hypertransformer_tf import configuration
from hypertransformer_tf.baselines.methods import BASELINES
from hypertransformer_tf.data.episodes import EpisodeSampler
from hypertransformer_tf.data.sources import load_splits
from hypertransformer_tf.errors import UserError
from hypertransformer_tf.evaluation.accuracy import TaskEvaluator
from hypertransformer_tf.training import trained
from hypertransformer_tf.training.loop import train
from hypertransformer_tf.training.strategy import make_strategy

TRAINING = """
BaselineCNN.channels = 4
Optimizer.kind = "adam"
LearningRate.rate = 0.01
LearningRate.schedule = "constant"
TrainingStep.episodes_per_step = 2
train.episodes = 40
train.validate_episodes = 20
train.validation_tasks = 8
train.checkpoint_episodes = 20
"""
PRETRAINING = """
TrainingStep.statistics = "query"
train.validation_statistics = "moving"
"""
OF_METHOD = {
    "protonet": TRAINING,
    "imprinted": TRAINING + PRETRAINING,
    "nearest_mean": "",
    "maml": TRAINING + "MAML.steps = 2\nMAML.second_order_from = 0.5\nMAML.step_bn = True",
    "rfs": TRAINING + PRETRAINING,
}


def run(tiny_data, workdir, method, *bindings):
    """Trains with the configuration of a method and more bindings; returns splits and the Result."""
    configuration.load_text(TINY_DATA + OF_METHOD[method] + f'\nmake_model.method = "{method}"', bindings)
    splits = load_splits(str(tiny_data))
    workdir.mkdir(exist_ok=True)
    return splits, train(splits, workdir, make_strategy("cpu"), configuration.check_all_used)


def test_all_methods_are_tested():
    assert set(OF_METHOD) == set(BASELINES)


@pytest.mark.parametrize("method", OF_METHOD)
def test_training_and_evaluation(tiny_data, tmp_path, method):
    if method == "rfs":
        pytest.importorskip("sklearn", reason="needs requirements-baselines.txt")
    splits, result = run(tiny_data, tmp_path, method)
    assert result.ending == "finished" and result.best_accuracy > 0.6  # chance: 1/3
    found = trained.find(tmp_path)
    assert found.method == found.manifest["method"] == method
    model = found.load_model(baselines=True)
    sampler = EpisodeSampler(splits.test, 3, 1, 6, 0, 0, "test")
    sources = ("support", "query", "moving")
    accuracies = TaskEvaluator(model, sampler, sources, query_batches=2)(8)
    assert all(values.shape == (8,) for values in accuracies.values())
    again = found.load_model(baselines=True)
    repeated = TaskEvaluator(again, sampler, sources, query_batches=2, tasks_per_call=4)(8)
    for source in sources:
        np.testing.assert_allclose(accuracies[source], repeated[source])
    with pytest.raises(UserError, match="needs a HyperTransformer"):
        found.load_model()


def test_an_interrupted_training_goes_on_as_if_unbroken(tiny_data, tmp_path):
    run(tiny_data, tmp_path / "whole", "protonet")
    for limit in ("train.max_minutes = 0.0", "train.max_minutes = None"):
        run(tiny_data, tmp_path / "parts", "protonet", limit)
    models = [trained.find(tmp_path / name).load_model(baselines=True) for name in ("whole", "parts")]
    for name, value in models[0].named_variables().items():
        np.testing.assert_array_equal(value, models[1].named_variables()[name], err_msg=name)


@pytest.mark.parametrize(
    "method, binding, message",
    [
        ("protonet", "make_model.method = 'protonets'", "use hypertransformer, protonet"),
        ("protonet", "HyperTransformer.channels = 4", "has no effect"),
        ("nearest_mean", "BaselineCNN.channels = 4", "has no effect"),
        ("protonet", "BaselineCNN.channels = 0", "BaselineCNN.channels = 0"),
        ("protonet", "TrainingStep.l2_generated = 0.1", "l2_generated is for HyperTransformers"),
        ("protonet", "TrainingStep.weight_variation = 0.1", "weight_variation is for HyperTransformers"),
        ("protonet", "TrainingStep.warmup_episodes = 9", "warmup_episodes"),
        ("protonet", "SharedHead.weight = 1.0", "SharedHead"),
        ("imprinted", "TrainingStep.statistics = 'support'", "TrainingStep.statistics = 'query'"),
        ("imprinted", "Task.unlabeled = 1", "Task.unlabeled and SupportMasking"),
        ("imprinted", "ImprintedWeights.support_statistics = 'query'", "use support or moving"),
    ],
)
def test_wrong_combinations(tiny_data, tmp_path, method, binding, message):
    with pytest.raises(UserError, match=message):
        run(tiny_data, tmp_path, method, binding)


def test_another_method_does_not_go_on_in_a_workdir(tiny_data, tmp_path):
    run(tiny_data, tmp_path, "protonet")
    with pytest.raises(UserError, match="make_model.method = 'protonet'"):
        run(tiny_data, tmp_path, "maml")


@pytest.mark.parametrize("file", sorted((ROOT / "gin" / "baselines").glob("*.gin")), ids=lambda p: p.stem)
def test_every_configuration_builds_without_idle_bindings(tiny_data, tmp_path, file):
    if file.stem == "omniglot":
        pytest.skip("no run by itself")
    if file.stem.startswith("rfs"):
        pytest.importorskip("sklearn", reason="needs requirements-baselines.txt")
    bindings = ["Task.way = 3", "Task.query = 6", "train.max_minutes = 0.0", "train.validation_tasks = 2"]
    if file.stem == "rfs_distilled":
        run(tiny_data, tmp_path / "teacher", "rfs")
        bindings.append(f"RFS.teacher = '{tmp_path / 'teacher'}'")
    data = [line for line in TINY_DATA.strip().splitlines() if line.startswith("load_splits")]
    configuration.load([str(file)], data + bindings)
    train(load_splits(str(tiny_data)), tmp_path, make_strategy("cpu"), configuration.check_all_used)
    assert trained.find(tmp_path).load_model(baselines=True).way == 3
