"""Every row of the paper parses, builds and runs one step, with images of the right shape."""

import json

import gin
import numpy as np
import pytest
from conftest import ROOT

from hypertransformer_tf import configuration
from hypertransformer_tf.backend import tf
from hypertransformer_tf.data.class_images import ClassImages
from hypertransformer_tf.data.episodes import EpisodeSampler
from hypertransformer_tf.models.hypertransformer import HyperTransformer
from hypertransformer_tf.training.loop import Task
from hypertransformer_tf.training.masking import SupportMasking
from hypertransformer_tf.training.optimizers import Optimizer
from hypertransformer_tf.training.schedules import LearningRate
from hypertransformer_tf.training.step import TrainingStep

ROWS = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "gin" / "paper").glob("*/*.gin"))
SHAPES = {"omniglot": (28, 28, 1), "embeddings": (1, 1, 640)}


def made_up_images(shape):
    random = np.random.default_rng(0)
    if shape[0] == 1:
        arrays = [random.normal(size=[40, *shape]).astype(np.float32) for _ in range(20)]
    else:
        arrays = [random.integers(0, 256, [40, *shape]).astype(np.uint8) for _ in range(20)]
    return ClassImages.from_class_arrays(arrays, [str(i) for i in range(20)], "made up")


IMAGES = {}


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS)
def test_one_step_of_a_row(row):
    configuration.load([row])
    data = gin.query_parameter("load_splits.name")
    shape = SHAPES.get(data, (84, 84, 3))
    images = IMAGES.setdefault(shape, made_up_images(shape))
    task = Task()
    assert task.way == (20 if data == "omniglot" else 5)
    sampler = EpisodeSampler(images, task.way, task.shot, task.query, task.unlabeled, rotate=task.rotate)
    model = HyperTransformer(way=task.way, image_shape=shape)
    model.build_variables()
    if row.startswith("gin/paper/oracle"):
        return
    optimizer = Optimizer(lambda step: LearningRate()(step, 4_000_000))
    step = TrainingStep(model, optimizer, sampler, masking=SupportMasking(), total_episodes=4_000_000)
    optimizer.build(step.variables)
    before = [variable.numpy() for variable in step.variables]
    metrics = step(tf.constant(0, tf.int64))
    assert np.isfinite(metrics["loss"]) and metrics["learning_rate"] > 0.0
    assert any((old != new.numpy()).any() for old, new in zip(before, step.variables))


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
