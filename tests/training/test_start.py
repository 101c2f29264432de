"""Trainings that start from the parameters of another one's best model."""

import json
import shutil

import numpy as np
import pytest
from conftest import TINY_CONFIG
from test_train import state

from hypertransformer_tf import configuration
from hypertransformer_tf.data.sources import load_splits
from hypertransformer_tf.errors import UserError
from hypertransformer_tf.training import trained
from hypertransformer_tf.training.loop import train
from hypertransformer_tf.training.strategy import make_strategy


def run(tiny_data, workdir, *bindings):
    """Trains for 20 episodes, if nothing else is said; returns the best model's checkpoint, or None."""
    configuration.load_text(TINY_CONFIG, ["train.episodes = 20", *bindings])
    workdir.mkdir(exist_ok=True)
    train(load_splits(str(tiny_data)), workdir, make_strategy("cpu"), configuration.check_all_used)
    return trained.find(str(workdir), must=False)


def values(found):
    return {name: variable.numpy() for name, variable in found.load_model().named_variables().items()}


@pytest.fixture(scope="module")
def first(tiny_data, tmp_path_factory):
    return run(tiny_data, tmp_path_factory.mktemp("first"))


@pytest.fixture(scope="module")
def starting(first):
    return [f"train.start = '{first.path}'", "train.seed = 1"]


@pytest.fixture(scope="module")
def second(starting, tiny_data, tmp_path_factory):
    """The workdir of 40 episodes after those of `first`."""
    workdir = tmp_path_factory.mktemp("second")
    run(tiny_data, workdir, *starting, "train.episodes = 40", "LearningRate.rate = 0.002")
    return workdir


def test_a_model_goes_on_from_the_parameters_of_another(first, starting, tiny_data, tmp_path, capsys):
    """With a rate of nothing it stays what it was; its episodes and seconds are those of both."""
    still = ["LearningRate.rate = 1e-30", "HyperTransformer.cnn_dropout = 0.1"]
    found = run(tiny_data, tmp_path, *starting, *still)
    assert f"start: checkpoint {first.path}, after 20 episodes" in capsys.readouterr().out
    old, new = values(first), values(found)
    for name in old:
        if "moving" not in name:  # observed on other episodes
            np.testing.assert_allclose(new[name], old[name], rtol=1e-6, atol=1e-20, err_msg=name)
    assert found.manifest["episodes_trained"] == 40 and found.manifest["start"] == first.manifest
    assert found.manifest["train_seconds"] > first.manifest["train_seconds"]


def test_a_resumed_run_does_not_start_again(second, starting, tiny_data, tmp_path):
    shutil.copytree(second / "checkpoints" / "step-0000000010", tmp_path / "checkpoints" / "step-0000000010")
    rest = ["train.episodes = 40", "LearningRate.rate = 0.002"]
    run(tiny_data, tmp_path, *starting, *rest)
    whole, resumed = state(second, 20), state(tmp_path, 20)
    assert whole.keys() == resumed.keys()
    for name, value in whole.items():
        np.testing.assert_array_equal(resumed[name], value, err_msg=name)
    with pytest.raises(UserError, match="made with train.start = .*use another --workdir"):
        run(tiny_data, tmp_path, *rest, "train.seed = 1")


@pytest.mark.parametrize(
    "binding, message",
    [
        ("train.start = 'nowhere'", "checkpoint nowhere does not exist"),
        ("HyperTransformer.channels = 8", "made with channels = 4, this run has 8: use another train.start"),
        ("make_model.method = 'protonet'", "made with make_model.method = 'hypertransformer'"),
    ],
)
def test_what_a_model_can_t_start_from(starting, tiny_data, tmp_path, binding, message):
    with pytest.raises(UserError, match=message):
        run(tiny_data, tmp_path, *starting, binding)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_records_tell_both_trainings(second, tiny_data, tmp_path, program):
    arguments = [f"--workdir={second}", f"--data_dir={tiny_data}", f"--output_dir={tmp_path}", "--tasks=4"]
    done = program("evaluate.py", *arguments)
    assert done.returncode == 0, done.stderr
    record = json.loads(next(tmp_path.glob("*_support.json")).read_text())
    assert record["episodes_trained"] > record["start"]["episodes_trained"] == 20
    assert "LearningRate.rate = 0.002" in record["config"]
    assert "LearningRate.rate = 0.001" in record["start"]["config"]
