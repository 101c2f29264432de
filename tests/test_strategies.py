"""Training on several devices and in several processes: equal parameters, one clean end, lost workers.

The processes train with plain SGD, a small rate and several shots: Adam hides a wrong scale of gradients, and
large gradients (one shot of tiny images) turn rounding into differences of 1e-3 within ten steps. Two devices
of a process and two processes do the same arithmetic, so they are compared bit for bit.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
from conftest import ROOT
from test_train import arguments, assert_error, log_lines, state

from hypertransformer_tf.backend import tf
from hypertransformer_tf.errors import UserError
from hypertransformer_tf.training import strategy, workers
from hypertransformer_tf.training.workers import Cluster, Workers

BINDINGS = (
    "Optimizer.kind = 'sgd'",
    "LearningRate.rate = 0.0001",
    "Task.shot = 4",
    "HyperTransformer.num_learned_layers = 3",
    "TrainingStep.episodes_per_step = 4",
    "train.steps_per_call = 4",
    "train.validation_tasks = 1",
    "train.validate_episodes = 400",
    "train.checkpoint_episodes = 32",
    "train.keep = 100",
)
STEPS = 200


def episodes(steps):
    return f"train.episodes = {4 * steps}"


def config(addresses, index, kind="worker"):
    return json.dumps({"cluster": {"worker": addresses}, "task": {"type": kind, "index": index}})


def assert_close(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_allclose(one[name], other[name], rtol=1e-5, atol=1e-5, err_msg=name)


# Several devices of one process


@pytest.fixture(scope="module")
def flags(tiny_gin, tiny_data):
    """Flags of train.py for a workdir."""
    return lambda workdir, *bindings: arguments(tiny_gin, tiny_data, workdir, *BINDINGS, *bindings)


def train(*flags):
    command = [sys.executable, str(ROOT / "train.py"), *flags]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr[-3000:]
    return result


@pytest.fixture(scope="module")
def on_one(flags, tmp_path_factory):
    """16 steps on one device."""
    workdir = tmp_path_factory.mktemp("one")
    train(*flags(workdir, episodes(16)))
    return workdir


@pytest.fixture(scope="module")
def on_two(flags, tmp_path_factory):
    """An unbroken run on two devices."""
    workdir = tmp_path_factory.mktemp("two")
    train(*flags(workdir, episodes(STEPS)), "--strategy=mirrored", "--logical_cpus=2")
    return workdir


@pytest.mark.slow
def test_two_devices_take_the_same_steps_as_one(on_one, on_two):
    assert_close(state(on_one, 8), state(on_two, 8))


@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_devices(on_one, on_two, flags, tmp_path):
    """8 steps on two devices, 8 more on four."""
    shutil.copytree(on_two / "checkpoints/step-0000000008", tmp_path / "checkpoints/step-0000000008")
    result = train(*flags(tmp_path, episodes(16)), "--logical_cpus=4")
    assert "4 replicas" in result.stdout and "resuming after step 8" in result.stderr
    assert_close(state(on_one, 16), state(tmp_path, 16))


# Several processes


class Pair:
    """Two workers on this machine, each started any number of times."""

    def __init__(self, folder):
        sockets = [socket.socket() for _ in range(2)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        self.addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
        for each in sockets:
            each.close()
        self.folder, self.processes = folder, []

    def start(self, index, *flags):
        environment = {**os.environ, "TF_CONFIG": config(self.addresses, index)}
        log = open(self.folder / f"{len(self.processes)}.log", "w+")  # noqa: SIM115  read when it has ended
        command = [sys.executable, str(ROOT / "train.py"), *flags]
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, text=True)
        process.log = log
        self.processes.append(process)
        return process

    def end(self):
        for process in self.processes:
            process.kill()
            process.log.close()


def output(process, timeout=300):
    """Exit code, and what the process wrote to stdout and stderr."""
    code = process.wait(timeout)
    process.log.seek(0)
    return code, process.log.read()


def wait_for_checkpoint(workdir, step, *processes):
    """Waits for a checkpoint of this step or a later one."""
    deadline = time.monotonic() + 240
    while not any(int(path.name[5:]) >= step for path in workdir.glob("checkpoints/step-*")):
        assert time.monotonic() < deadline
        for process in processes:
            assert process.poll() is None, output(process)[1][-3000:]
        time.sleep(0.02)


@pytest.fixture
def pair(tmp_path):
    pair = Pair(tmp_path)
    yield pair
    pair.end()


@pytest.mark.slow
def test_workers_stop_together_lose_one_and_end_as_if_unbroken(on_one, on_two, flags, pair, tmp_path):
    """SIGTERM to one worker ends both; both go on; kill -9 of one, which comes back, and the run finishes."""
    workdir = tmp_path / "run"
    given = [*flags(workdir, episodes(STEPS)), "--strategy=multiworker"]
    chief, other = pair.start(0, *given), pair.start(1, *given)
    wait_for_checkpoint(workdir, 8, chief, other)
    os.kill(other.pid, signal.SIGTERM)
    said = []
    for process in (chief, other):
        code, text = output(process)
        assert code == 0 and "Traceback" not in text, text[-3000:]
        said.append(text)
    stopped = [re.search(r"interrupted after (\d+) steps", text)[1] for text in said]
    assert stopped[0] == stopped[1] and 8 <= int(stopped[0]) < STEPS
    assert "2 replicas on 2 workers" in said[0] and "steps/s" not in said[1] and "replicas" not in said[1]
    assert_close(state(on_one, 8), state(workdir, 8))

    chief, other = pair.start(0, *given), pair.start(1, *given)
    wait_for_checkpoint(workdir, int(stopped[0]) + 8, chief, other)
    other.kill()
    other.wait()
    back = pair.start(1, *given)
    for process in (chief, back):
        code, text = output(process)
        assert code == 0 and "Traceback" not in text, text[-3000:]
        assert f"finished after {STEPS} steps" in text
    text = output(chief)[1]
    assert (
        text.count("lost a worker") == 1 and "try 1 of 10" in text and text.count("resuming after step") == 2
    )

    one, other = state(on_two, STEPS), state(workdir, STEPS)
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)
    steps = [line["step"] for line in log_lines(workdir) if "val_accuracy" in line]
    assert steps == [100, 200]
    assert len(list(workdir.glob("checkpoints/best-*"))) == 1
    assert not list(workdir.glob("checkpoints/.*")) and not list(workdir.glob("*.part"))


@pytest.mark.slow
def test_workers_must_share_the_workdir(on_two, flags, pair, tmp_path):
    shutil.copytree(on_two / "checkpoints/step-0000000008", tmp_path / "a/checkpoints/step-0000000008")
    processes = [pair.start(i, *flags(tmp_path / name)) for i, name in enumerate("ab")]
    said = [output(process) for process in processes]
    for code, text in said:
        errors = [line for line in text.splitlines() if line.startswith("error: ")]
        assert code == 2 and len(errors) == 1 and "Traceback" not in text, text[-3000:]
        assert "the chief sees the checkpoint of step 8" in errors[0] and "--workdir" in errors[0]
    assert "worker 1 sees no checkpoint" in said[1][1]
    assert not (tmp_path / "b").exists()


def told(own, chief, index=1):
    """A worker of two: it holds `own`, the chief `chief`; both are lists of what is summed, in turn."""
    found = Workers(tf.distribute.get_strategy())
    found.index, found.count = index, 2
    sums = iter(chief)
    found.total = lambda values: [a + b for a, b in zip(values, next(sums))]
    return found


def test_disagreements_end_every_worker():
    with pytest.raises(UserError, match="worker 1 has not the configuration of the chief"):
        told(None, [[5.0], [0.0]]).check_same("configuration", "Task.way = 3")
    with pytest.raises(UserError, match="another worker has not the data"):
        told(None, [[0.0], [1.0]], index=0).check_same("data", "tiny")
    with pytest.raises(UserError, match="the chief sees no checkpoint in w, worker 1 sees .* step 1,000"):
        told(None, [[-1.0], [0.0]]).check_same_step(1000, "w")
    told(None, [[1000.0], [0.0]]).check_same_step(1000, "w")


def test_alone_everything_is_agreed():
    alone = Workers(tf.distribute.get_strategy())
    assert alone.is_chief and alone.total([1.5, True]) == [1.5, 1.0]
    alone.check_same("configuration", "any")
    alone.check_same_step(-1, "w")


# Lost workers


@pytest.fixture
def lonely(monkeypatch):
    """A worker of two whose new start is only noted; the process does not end either."""
    started, left = [], []
    monkeypatch.setattr(workers, "_connected", Cluster(("a:1", "b:1"), 0))
    monkeypatch.setattr(workers, "_PAUSE", 0.0)
    monkeypatch.setattr(workers, "_leave", left.append)
    monkeypatch.setattr(workers, "_close_on_exec", lambda: None)
    monkeypatch.setattr(workers.os, "execv", lambda path, command: started.append([path, *command]))
    monkeypatch.setenv("HYPERTRANSFORMER_RESTARTS", "0")
    return started, left


def lose(restarts):
    text = "Graph execution error:\n\nDetected at node x\nCollective ops is aborted by: peer is gone. More"
    with workers.restarted_after_a_loss(restarts):
        raise tf.errors.UnavailableError(None, None, text)


def test_a_loss_starts_the_same_command_again_a_limited_number_of_times(lonely, capsys, monkeypatch):
    started, left = lonely
    monkeypatch.setattr(workers, "_leave", lambda line: (_ for _ in ()).throw(SystemExit(line)))
    for _ in range(2):
        lose(2)
    assert len(started) == 2 and started[0][:2] == [sys.executable, sys.executable]
    lines = capsys.readouterr().err.splitlines()
    assert lines[1] == "lost a worker (peer is gone): starting again from the last checkpoint, try 2 of 2"
    with pytest.raises(SystemExit, match="lost a worker .* 3 times in a row"):
        lose(2)
    Workers(tf.distribute.get_strategy()).progressed()  # a checkpoint: counted anew
    lose(2)
    assert len(started) == 3


def test_without_other_workers_errors_stay_what_they_are(lonely, monkeypatch):
    monkeypatch.setattr(workers, "_connected", None)
    with pytest.raises(tf.errors.UnavailableError):
        lose(2)


def test_waiting_has_an_end(lonely):
    with workers.time_limit(0.0005, "nobody came"):
        time.sleep(0.3)
    with workers.time_limit(1.0, "not this"):
        pass
    assert lonely[1] == ["error: nobody came"]


# Flags and TF_CONFIG


@pytest.mark.parametrize(
    "text, message",
    [
        ("{", "TF_CONFIG is no JSON"),
        ("[]", "TF_CONFIG must be"),
        ('{"cluster": {"worker": ["a:1"]}}', "TF_CONFIG must be"),
        ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": "x"}}', "TF_CONFIG must be"),
        (config(["a:1", "b:1"], 2), r"no worker 2 among \['a:1', 'b:1'\]"),
        (config(["a:1"], 0, "chief"), "no chief 0"),
        (config(["a:1"], 0, "ps"), "a task 'ps'"),
        (config(["a", "b:1"], 0), "'a' must be 'host:port'"),
        (config(["a:1", "a:1"], 0), "an address twice"),
    ],
)
def test_mistakes_in_tf_config(monkeypatch, text, message):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(UserError, match=message):
        strategy.make_strategy("multiworker")


def test_a_chief_comes_first(monkeypatch):
    jobs = {"worker": ["b:1", "c:1"], "chief": ["a:1"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": jobs, "task": {"type": "worker", "index": 0}}))
    assert workers.read_cluster() == Cluster(("a:1", "b:1", "c:1"), 1)


@pytest.mark.parametrize(
    "name, addresses, tpu, picked",
    [
        ("auto", None, None, "OneDevice"),
        ("auto", ["a:1"], None, "OneDevice"),
        ("auto", ["a:1", "b:1"], None, "workers of 2"),
        ("multiworker", ["a:1"], None, "workers of 1"),
        ("auto", ["a:1", "b:1"], "mine", "tpu mine"),
        ("tpu", None, None, "tpu None"),
        ("tpu", None, "local", "tpu local"),
        ("cpu", ["a:1", "b:1"], None, "OneDevice"),
    ],
)
def test_what_a_name_stands_for(monkeypatch, name, addresses, tpu, picked):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    if addresses:
        monkeypatch.setenv("TF_CONFIG", config(addresses, 0))
    monkeypatch.setattr(strategy.workers, "connect", lambda cluster: f"workers of {cluster.count}")
    monkeypatch.setattr(strategy, "_tpu", lambda name: f"tpu {name}")
    made = strategy.make_strategy(name, tpu=tpu)
    assert picked in (made if isinstance(made, str) else type(made).__name__)


@pytest.mark.parametrize(
    "name, options, message",
    [
        ("tpus", {}, "--strategy=tpus: unknown"),
        ("multiworker", {}, "TF_CONFIG is not set; BUILD.md"),
        ("cpu", {"tpu": "mine"}, "--tpu=mine with --strategy=cpu"),
        ("auto", {"tpu": ""}, "--tpu is empty"),
        ("tpu", {"logical_cpus": 2}, "--logical_cpus=2"),
    ],
)
def test_mistakes_in_flags(monkeypatch, name, options, message):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(UserError, match=message):
        strategy.make_strategy(name, **options)


@pytest.mark.parametrize("error", [ValueError("no such TPU.\nmore"), OSError("unknown host"), RuntimeError()])
def test_a_named_tpu_that_is_not_there(monkeypatch, error):
    def fail(**_):
        raise error

    monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", fail)
    with pytest.raises(UserError, match="--tpu=mine: no TPU there .*give the TPU's name, or local"):
        strategy.make_strategy("tpu", tpu="mine")


@pytest.mark.slow
def test_programs_without_a_tpu(tiny_gin, tiny_data, tmp_path, program):
    result = program("train.py", *arguments(tiny_gin, tiny_data, tmp_path / "w"), "--strategy=tpu")
    assert_error(result, "--tpu=local: no TPU there", "BUILD.md")
    assert_error(program("evaluate.py", "--strategy=tpu", "--checkpoint=x"), "--strategy=tpu is for train.py")
    assert not (tmp_path / "w").exists()
