"""Episodes per second: sampling alone, and whole training steps.

    python scripts/benchmark.py --data_dir=FOLDER_WITH_THE_ZIPS
    python scripts/benchmark.py --against=plain   # also one episode a step without towers, and the ratios

Measures the model of gin/omniglot_fast.gin. Every figure is the median of several windows, the traced first
call left out; with --against the two sides take turns in one process.
"""

import dataclasses
import json
import sys
import time
from pathlib import Path

import numpy as np
from absl import flags

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from hypertransformer_tf import configuration  # noqa: E402
from hypertransformer_tf.backend import tf  # noqa: E402
from hypertransformer_tf.data.augmentation import Augmentation  # noqa: E402
from hypertransformer_tf.data.episodes import EpisodeSampler  # noqa: E402
from hypertransformer_tf.data.sources import load_splits  # noqa: E402
from hypertransformer_tf.errors import run_program  # noqa: E402
from hypertransformer_tf.evaluation.records import hardware, text_table, versions  # noqa: E402
from hypertransformer_tf.models.hypertransformer import HyperTransformer  # noqa: E402
from hypertransformer_tf.training.checkpoints import write_text  # noqa: E402
from hypertransformer_tf.training.loop import Task  # noqa: E402
from hypertransformer_tf.training.optimizers import Optimizer  # noqa: E402
from hypertransformer_tf.training.step import TrainingStep  # noqa: E402
from hypertransformer_tf.training.strategy import configure_threads  # noqa: E402

FLAGS = flags.FLAGS
flags.DEFINE_string("data_dir", None, "Where Omniglot is; default: $HYPERTRANSFORMER_DATA.")
flags.DEFINE_list("batches", ["1", "8", "16"], "Episodes per step.")
flags.DEFINE_integer("windows", 5, "Windows whose median is taken.", 1)
flags.DEFINE_float("seconds", 3.0, "Length of a window.")
flags.DEFINE_enum("against", None, ["plain"], "Compare with the plain step of one episode.")
flags.DEFINE_string("json", None, "Also write the figures to this file.")


def training(task, splits, batch: int, towers: int):
    """A function that runs one training step, traced and warm."""
    sampler = EpisodeSampler(splits.train, task.way, task.shot, task.query, rotate=task.rotate)
    model = HyperTransformer(way=task.way)
    model.build_variables()
    optimizer = Optimizer(lambda step: tf.constant(1e-5))
    optimizer.build(model.trainable_variables)
    step = TrainingStep(model, optimizer, sampler, episodes_per_step=batch, towers=towers)
    return _warm(tf.function(step))


def sampling(task, splits, batch: int, augmentation=None):
    """A function that draws a batch of episodes, traced and warm."""
    sampler = EpisodeSampler(
        splits.train, task.way, task.shot, task.query, rotate=task.rotate, augmentation=augmentation
    )
    return _warm(tf.function(lambda i: sampler(i * batch + tf.range(batch, dtype=tf.int64)).query_images))


def all_of_drawings() -> Augmentation:
    """Every augmentation for drawings, each half of the time."""
    fields = dataclasses.fields(Augmentation)
    return Augmentation(**{f.name: 0.5 for f in fields if f.name.endswith("_probability")})


def _warm(function):
    for index in range(3):
        function(tf.constant(index, tf.int64))
    return function


def measure(sides: dict) -> dict[str, list[float]]:
    """Calls per second of each function, in windows that take turns."""
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(FLAGS.windows):
        for name, function in sides.items():
            calls, started = 0, time.perf_counter()
            while time.perf_counter() - started < FLAGS.seconds:
                function(tf.constant(calls, tf.int64))
                calls += 1
            rates[name].append(calls / (time.perf_counter() - started))
    return rates


def main(_):
    configuration.load(["gin/omniglot_fast.gin"])
    configure_threads()
    splits, task = load_splits(FLAGS.data_dir), Task()
    batches = [int(text) for text in FLAGS.batches]
    sides, episodes = {}, {}
    for batch in batches:
        towers = 2 if batch % 2 == 0 else 1
        sides[f"training, {batch} per step"] = training(task, splits, batch, towers)
        episodes[f"training, {batch} per step"] = batch
    if FLAGS.against:
        sides["training, plain"], episodes["training, plain"] = training(task, splits, 1, 1), 1
    sides["sampling, 16 at a time"], episodes["sampling, 16 at a time"] = sampling(task, splits, 16), 16
    name = "sampling, 16 at a time, all augmentations of drawings"
    sides[name], episodes[name] = sampling(task, splits, 16, all_of_drawings()), 16
    rates = measure(sides)
    medians = {name: float(np.median(values)) * episodes[name] for name, values in rates.items()}
    rows = [
        [
            name,
            f"{medians[name]:.1f}",
            f"{min(rates[name]) * episodes[name]:.1f}..{max(rates[name]) * episodes[name]:.1f}",
            f"{medians[name] / medians['training, plain']:.2f}" if FLAGS.against else "",
        ]
        for name in sides
    ]
    print(
        f"{task.way}-way {task.shot}-shot, {task.query} query images, 8 channels, all generated; {hardware()}"
    )
    print(text_table(["", "episodes/s", "windows", "ratio" if FLAGS.against else ""], rows))
    if FLAGS.json:
        record = {"episodes_per_second": medians, "hardware": hardware(), "versions": versions()}
        write_text(Path(FLAGS.json), json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    run_program(main)
