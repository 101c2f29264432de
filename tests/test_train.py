"""train.py as a user runs it: resume, interruption, several devices, and mistakes."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from conftest import ROOT

from hypertransformer_tf.backend import tf

pytestmark = pytest.mark.slow


def arguments(tiny_gin, tiny_data, workdir, *bindings):
    flags = [f"--gin_file={tiny_gin}", f"--data_dir={tiny_data}", f"--workdir={workdir}"]
    return flags + [f"--gin_bindings={binding}" for binding in bindings]


def state(workdir, step=30):
    """Every tensor of the training state after a step, except the clock."""
    reader = tf.train.load_checkpoint(str(workdir / "checkpoints" / f"step-{step:010d}" / "state"))
    names = [n for n in reader.get_variable_to_shape_map() if "clock" not in n and "OBJECT_GRAPH" not in n]
    assert len(names) > 50
    return {name: reader.get_tensor(name) for name in names}


def log_lines(workdir):
    return [json.loads(line) for line in (workdir / "log.jsonl").read_text().splitlines()]


def assert_error(result, *parts):
    """One line that names culprit and remedy, exit code 2, no traceback."""
    assert result.returncode == 2, result.stderr[-2000:]
    assert "Traceback" not in result.stderr
    lines = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, result.stderr[-2000:]
    for part in parts:
        assert part in lines[0]


@pytest.fixture(scope="module")
def unbroken(tiny_gin, tiny_data, tmp_path_factory):
    """A run of 30 steps that nothing interrupts."""
    workdir = tmp_path_factory.mktemp("runs") / "unbroken"
    command = [sys.executable, str(ROOT / "train.py"), *arguments(tiny_gin, tiny_data, workdir)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr[-3000:]
    return workdir, result


def test_an_unbroken_run_says_what_it_does_and_keeps_its_promises(unbroken):
    workdir, result = unbroken
    assert "12 training, 6 validation, 6 test" in result.stdout and "finished after 30 steps" in result.stdout
    assert "evaluate.py" in result.stdout
    validated = [line for line in log_lines(workdir) if "val_accuracy" in line]
    assert [line["step"] for line in validated] == [10, 20, 30]
    steps = sorted(path.name for path in (workdir / "checkpoints").glob("step-*"))
    assert steps == ["step-0000000010", "step-0000000020", "step-0000000030"]
    best = list((workdir / "checkpoints").glob("best-*"))
    assert len(best) == 1
    manifest = json.loads((best[0] / "manifest.json").read_text())
    assert manifest["val_accuracy"] == pytest.approx(
        100 * max(v["val_accuracy"] for v in validated), abs=1e-3
    )
    assert "Task.way = 3" in manifest["config"]
    assert (workdir / "config.gin").exists() and "EpisodeSampler" not in manifest["operative_config"]


def test_killed_at_any_moment_and_resumed_the_parameters_are_bit_identical(
    unbroken, tiny_gin, tiny_data, tmp_path
):
    """kill -9 as soon as the first checkpoint is there, another number of steps in a call afterwards."""
    workdir = tmp_path / "killed"
    flags = arguments(tiny_gin, tiny_data, workdir, "train.steps_per_call = 1")
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "train.py"), *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 240
    while not (workdir / "checkpoints" / "step-0000000010").exists() and time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()[1][-2000:]
        time.sleep(0.01)
    process.kill()
    process.communicate()
    shutil.rmtree(workdir / "checkpoints" / "step-0000000030", ignore_errors=True)

    again = subprocess.run(
        [sys.executable, str(ROOT / "train.py"), *arguments(tiny_gin, tiny_data, workdir)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert again.returncode == 0, again.stderr[-3000:]
    assert "resuming after step" in again.stderr
    one, other = state(unbroken[0]), state(workdir)
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)

    def validations(folder):
        return [(x["step"], x["val_accuracy"]) for x in log_lines(folder) if "val_accuracy" in x]

    assert validations(workdir) == validations(unbroken[0])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_save_and_end_cleanly(tiny_gin, tiny_data, tmp_path, number):
    workdir = tmp_path / "stopped"
    flags = arguments(
        tiny_gin, tiny_data, workdir, "train.episodes = 1000000", "train.checkpoint_episodes = 10000"
    )
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "train.py"), *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 240
    while not (workdir / "log.jsonl").exists() or not log_lines(workdir):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    os.kill(process.pid, number)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors[-2000:]
    assert "interrupted after" in output and "same command" in output and "Traceback" not in errors
    assert len(list((workdir / "checkpoints").glob("step-*"))) == 1


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_sound_state(
    tiny_gin, tiny_data, tmp_path, program
):
    workdir = tmp_path / "nan"
    flags = arguments(
        tiny_gin,
        tiny_data,
        workdir,
        "Optimizer.kind = 'sgd'",
        "LearningRate.rate = 1e30",
        "train.checkpoint_episodes = 2",
    )
    result = program("train.py", *flags)
    assert_error(result, "not finite", "step", "LearningRate.rate")
    for path in (workdir / "checkpoints").glob("step-*"):
        values = state(workdir, int(path.name.split("-")[1])).values()
        assert all(np.isfinite(v).all() for v in values if v.dtype == np.float32)


def test_a_workdir_of_another_configuration_is_refused(unbroken, tiny_gin, tiny_data, program):
    flags = arguments(tiny_gin, tiny_data, unbroken[0], "HyperTransformer.channels = 6")
    assert_error(program("train.py", *flags), "channels = 4, this run has 6", "--workdir")


@pytest.mark.parametrize(
    "bindings, parts",
    [
        (["Optimiser.kind = 'adam'"], ["Optimiser"]),
        (["Optimizer.kid = 'adam'"], ["kid"]),
        (["Optimizer.kind = 'lamb'"], ["'lamb'", "adamw"]),
        (["Task.way = 13"], ["13-way", "12"]),
        (["Task.shot = 7"], ["8 images", "needs 9"]),
        (["load_splits.test = '18-40'"], ["18-40", "24 classes"]),
        (["load_splits.name = 'cub'"], ["'cub'", "glyphs"]),
        (["TrainingStep.towers = 3"], ["3"]),
        (["train.steps_per_call = 0"], ["steps_per_call = 0"]),
        (["Task.way = "], ["configuration"]),
    ],
)
def test_mistakes_in_a_configuration(tiny_gin, tiny_data, tmp_path, program, bindings, parts):
    assert_error(program("train.py", *arguments(tiny_gin, tiny_data, tmp_path / "w", *bindings)), *parts)


def test_a_binding_without_effect_is_an_error(tiny_data, tiny_gin, tmp_path, program):
    flags = arguments(tiny_gin, tiny_data, tmp_path / "w", "other/LearningRate.rate = 0.1")
    assert_error(program("train.py", *flags), "other/LearningRate.rate", "no effect")


def test_missing_files_and_devices(tiny_gin, tiny_data, tmp_path, program):
    assert_error(program("train.py", "--gin_file=gin/omniglott.gin"), "gin/omniglott.gin", "gin/glyphs.gin")
    assert_error(program("train.py"), "--gin_file=gin/glyphs.gin")
    empty = tmp_path / "empty"
    empty.mkdir()
    nowhere = program(
        "train.py", "--gin_file=gin/omniglot.gin", f"--data_dir={empty}", f"--workdir={tmp_path}/w"
    )
    assert_error(nowhere, str(empty), "images_background.zip", "gin/glyphs.gin")
    assert_error(
        program("train.py", *arguments(tiny_gin, tiny_data, tmp_path / "w"), "--strategy=tpus"), "tpus"
    )
