"""Training with episodes that the host draws ahead: the parameters are those of steps that draw their own."""

import shutil

import numpy as np
import pytest
from conftest import TINY_CONFIG
from test_train import state

from hypertransformer_tf import configuration
from hypertransformer_tf.data.sources import load_splits
from hypertransformer_tf.training.loop import train
from hypertransformer_tf.training.strategy import make_strategy

HOST = "train.host_sampling = True"


def run(tiny_data, workdir, *bindings):
    """Trains in this process; returns the tensors of the last training state."""
    configuration.load_text(TINY_CONFIG, bindings)
    workdir.mkdir(exist_ok=True)
    train(load_splits(str(tiny_data)), workdir, make_strategy("cpu"), configuration.check_all_used)
    return state(workdir, 30)


def assert_equal(one, other):
    assert one.keys() == other.keys() and len(one) > 50
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


@pytest.mark.slow
def test_the_parameters_are_the_same_also_after_a_resume(tiny_data, tmp_path):
    """Bit for bit; towers get their shares, masks and dropout their seeds."""
    bindings = [
        "TrainingStep.towers = 2",
        "HyperTransformer.transformer_dropout = 0.1",
        "SupportMasking.max_remove_labeled = 0.5",
    ]
    expected = run(tiny_data, tmp_path / "step", *bindings)
    workdir = tmp_path / "host"
    assert_equal(run(tiny_data, workdir, *bindings, HOST), expected)
    for step in (20, 30):
        shutil.rmtree(workdir / "checkpoints" / f"step-{step:010d}")
    assert_equal(run(tiny_data, workdir, *bindings, HOST), expected)


@pytest.mark.slow
def test_on_two_devices(tiny_gin, tiny_data, tmp_path, program):
    flags = [f"--gin_file={tiny_gin}", f"--data_dir={tiny_data}", "--strategy=mirrored", "--logical_cpus=2"]
    states = []
    for name, bindings in (("step", []), ("host", [HOST])):
        bindings = [f"--gin_bindings={each}" for each in ("train.episodes = 20", *bindings)]
        done = program("train.py", *flags, *bindings, f"--workdir={tmp_path / name}")
        assert done.returncode == 0, done.stderr[-3000:]
        assert "2 replicas" in done.stdout
        states.append(state(tmp_path / name, 10))
    assert_equal(*states)
