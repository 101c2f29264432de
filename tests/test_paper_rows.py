"""Every row of the paper parses, builds and runs one step, with images of the right shape."""

import json

import gin
import numpy as np
import pytest
from conftest import ROOT

from hypertransformer_tf import configuration
from hypertransformer_tf.backend import tf
from hypertransformer_tf.models.hypertransformer import HyperTransformer
from hypertransformer_tf.training.assembly import assemble_step, configured_image_shape, made_up_images
from hypertransformer_tf.training.loop import Task
from hypertransformer_tf.training.xla import recorded_ops, without_kernel

ROWS = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "gin" / "paper").glob("*/*.gin"))
IMAGES = {}


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS)
def test_one_step_of_a_row(row):
    """The step also has no op that XLA, and so a TPU, lacks."""
    configuration.load([row])
    shape = configured_image_shape()
    assert Task().way == (20 if gin.query_parameter("load_splits.name") == "omniglot" else 5)
    if row.startswith("gin/paper/oracle"):  # its steps are not trained in episodes
        HyperTransformer(way=Task().way, image_shape=shape).build_variables()
        return
    made = assemble_step(IMAGES.setdefault(shape, made_up_images(shape)))
    before = [variable.numpy() for variable in made.step.variables]
    with recorded_ops() as ops:
        metrics = made.step(tf.constant(0, tf.int64))
    assert len(ops) > 40 and not without_kernel(ops)
    assert not any("Call" in op for op in ops)  # no function whose ops would not be seen
    assert np.isfinite(metrics["loss"]) and metrics["learning_rate"] > 0.0
    assert any((old != new.numpy()).any() for old, new in zip(before, made.step.variables))


def test_heads_say_command_figure_and_hours():
    for row in ROWS:
        head = [line for line in (ROOT / row).read_text().splitlines() if line.startswith("#")]
        assert any(f"--gin_file={row}" in line for line in head), row
        assert any(line.startswith("# paper: ") for line in head), row
        assert any(line.startswith("# hours: ") and line[9:].split()[1:2] for line in head), row


def test_tables_have_as_many_rows_as_the_paper():
    count = {}
    for row in ROWS:
        count[row.split("/")[2]] = count.get(row.split("/")[2], 0) + 1
    assert count["table1"] == 28 and count["table3"] == 7 and count["table4"] == 6 and count["leo"] == 2


@pytest.mark.slow
def test_reproduce_trains_evaluates_and_renders(program, data_dir, tmp_path):
    arguments = [
        "--row=table4/omniglot_4ch_logits",
        "--gin_file=gin/fast.gin",
        "--budget_episodes=64",
        f"--data_dir={data_dir}",
        f"--runs={tmp_path / 'runs'}",
        f"--results={tmp_path / 'results'}",
        "--gin_bindings=train.validation_tasks = 8",
        "--variant=test",
        "--tasks=8",
        "--query_batches=1",
    ]
    done = program("scripts/reproduce.py", *arguments)
    assert done.returncode == 0, done.stderr
    file = tmp_path / "results" / "table4_omniglot_4ch_logits_test_test_support.json"
    record = json.loads(file.read_text())
    assert record["row"] == "table4/omniglot_4ch_logits" and record["paper"] == "77.9"
    assert 0 < record["episodes_trained"] <= 64  # of the best model by validation
    assert record["changes"][:2] == ["64 episodes", "fast.gin"]
    done = program("scripts/reproduce.py", "--render", f"--results={tmp_path / 'results'}")
    table = (tmp_path / "results" / "PAPER.md").read_text()
    assert done.returncode == 0 and "| 77.9 |" in table and "64 episodes, fast.gin" in table


def test_unknown_rows(program):
    done = program("scripts/reproduce.py", "--row=table9/nothing")
    assert done.returncode == 2 and "table9/nothing" in done.stderr and done.stderr.count("\n") == 1
    assert program("scripts/reproduce.py").returncode == 2
    listed = program("scripts/reproduce.py", "--list").stdout.splitlines()
    assert len(listed) == len(ROWS)
