"""Episodes per second of training and evaluation, and where the time goes.

    python scripts/benchmark.py                    # all configurations, against the plain step
    python scripts/benchmark.py --quick            # the first one, within a minute
    python scripts/benchmark.py --scaling          # time and memory as episodes and models grow

The plain side is what a straightforward program does, and stays here as the yardstick: one episode per step,
one conv2d per episode and layer and then batch normalisation; in evaluation, one query batch of one task at a
time with weights generated anew. Both sides take turns in one process. Every figure is the median of
several windows; tracing and the first calls are left out. Images are random numbers: no data set is needed.
"""

import dataclasses
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from absl import flags

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from hypertransformer_tf import configuration  # noqa: E402
from hypertransformer_tf.backend import tf  # noqa: E402
from hypertransformer_tf.data.augmentation import Augmentation  # noqa: E402
from hypertransformer_tf.data.class_images import ClassImages  # noqa: E402
from hypertransformer_tf.data.episodes import EpisodeSampler  # noqa: E402
from hypertransformer_tf.errors import UserError, run_program  # noqa: E402
from hypertransformer_tf.evaluation.accuracy import TaskEvaluator, query_accuracy  # noqa: E402
from hypertransformer_tf.evaluation.records import hardware, text_table, versions  # noqa: E402
from hypertransformer_tf.models.hypertransformer import HyperTransformer  # noqa: E402
from hypertransformer_tf.storage import write_text  # noqa: E402
from hypertransformer_tf.training.losses import query_cross_entropy  # noqa: E402
from hypertransformer_tf.training.optimizers import Optimizer  # noqa: E402
from hypertransformer_tf.training.step import TrainingStep  # noqa: E402
from hypertransformer_tf.training.strategy import configure_threads  # noqa: E402

EVALUATED_TASKS, QUERY_BATCHES, QUERY_BATCH = 8, 16, 100
STAGE_EPISODES = 16


class Case(NamedTuple):
    """An episode and the model that works on it; `learned`: conv layers that are not generated."""

    way: int = 20
    shot: int = 1
    query: int = 60
    side: int = 28
    image_channels: int = 1
    channels: int = 8
    learned: int = 0
    transformer_layers: int = 3

    @property
    def rotate(self) -> bool:
        """Whether classes are rotated, as on Omniglot."""
        return self.image_channels == 1

    def sampler(self, query: int | None = None, augmentation: Augmentation | None = None) -> EpisodeSampler:
        """Episodes of random images from as many classes as Omniglot (photographs: mini-ImageNet) has."""
        query = query or self.query
        classes = max(964 if self.rotate else 64, self.way)
        per_class = self.shot + -(-query // self.way)
        shape = [classes * max(20, per_class), self.side, self.side, self.image_channels]
        images = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
        arrays = np.split(images, classes)
        data = ClassImages.from_class_arrays(arrays, [str(i) for i in range(classes)], "random images")
        return EpisodeSampler(data, self.way, self.shot, query, rotate=self.rotate, augmentation=augmentation)

    def model(self, **options) -> HyperTransformer:
        """A built model."""
        model = HyperTransformer(
            way=self.way,
            image_shape=(self.side, self.side, self.image_channels),
            channels=self.channels,
            num_learned_layers=self.learned,
            transformer_layers=self.transformer_layers,
            **options,
        )
        model.build_variables()
        return model


CASES = {
    "omniglot_8ch_all": Case(),
    "omniglot_8ch_logits": Case(learned=4),
    "omniglot_64ch_all": Case(channels=64),
    "photos_16ch_all": Case(way=5, query=25, side=84, image_channels=3, channels=16),
}
SCALED = {
    "way": (5, 20, 50, 100),
    "shot": (1, 5, 20),
    "channels": (4, 8, 16, 32, 64),
    "transformer_layers": (1, 3, 6),
    "query": (60, 240),
}

FLAGS = flags.FLAGS
flags.DEFINE_list("configurations", list(CASES), f"Some of {', '.join(CASES)}.")
flags.DEFINE_list("batches", ["1", "4", "16", "64"], "Episodes per step.")
flags.DEFINE_enum("against", "plain", ["plain", "nothing"], "What to compare with.")
flags.DEFINE_bool("stages", True, f"Split a step of {STAGE_EPISODES} episodes into its stages.")
flags.DEFINE_bool("evaluation", True, "Also evaluation.")
flags.DEFINE_integer("windows", 5, "Windows whose median is taken.", 1)
flags.DEFINE_float("seconds", 1.0, "Length of a window.")
flags.DEFINE_bool("quick", False, "The first configuration at 16 and 64 episodes per step, short windows.")
flags.DEFINE_bool("scaling", False, "Time and peak memory of single episodes as way, shot, ... grow.")
flags.DEFINE_string("point", None, "JSON of one case: measure it alone (what --scaling starts).")
flags.DEFINE_string("json", None, "Also write the figures to this file.")


def training(case: Case, batch: int, plain: bool = False):
    """A function that runs one training step."""
    model = case.model(conv_method="plain") if plain else case.model()
    optimizer = Optimizer(lambda step: tf.constant(1e-5))
    optimizer.build(model.trainable_variables)
    towers = 2 if batch % 2 == 0 and not plain else 1
    return TrainingStep(model, optimizer, case.sampler(), episodes_per_step=batch, towers=towers)


def evaluation(case: Case):
    """A function that measures accuracies of EVALUATED_TASKS tasks x QUERY_BATCHES x QUERY_BATCH."""
    evaluator = TaskEvaluator(case.model(), case.sampler(QUERY_BATCH), query_batches=QUERY_BATCHES)
    tasks = tf.range(EVALUATED_TASKS, dtype=tf.int64)
    return lambda step: evaluator.accuracies(step * EVALUATED_TASKS + tasks)


def plain_evaluation(case: Case):
    """A function that generates the weights of one task and measures one query batch."""
    model, sampler = case.model(conv_method="plain"), case.sampler(QUERY_BATCH)

    def evaluate(step):
        episode = sampler(step[None])
        weights = model.generate(episode.support_images, episode.support_labels)
        return query_accuracy(model.classify(episode.query_images, weights), episode.query_labels)

    return evaluate


def stages(case: Case) -> dict:
    """Functions of the parts of a training step; some contain others, see `split`."""
    count = STAGE_EPISODES
    model, sampler = case.model(), case.sampler()
    fields = [f.name for f in dataclasses.fields(Augmentation) if f.name.endswith("_probability")]
    augmented = case.sampler(augmentation=Augmentation(**dict.fromkeys(fields, 0.5)))
    episodes = sampler(tf.range(count, dtype=tf.int64))
    support = (episodes.support_images, episodes.support_labels, None)
    weights = model.generate(*support)
    generators = [each for each in model.generators if each is not None]
    tokens = [
        tf.random.normal([count, each.slices + support[0].shape[1], each.token_size]) for each in generators
    ]
    optimizer = Optimizer(lambda step: tf.constant(1e-5))
    optimizer.build(model.trainable_variables)

    def indices(step):
        return step * count + tf.range(count, dtype=tf.int64)

    def forward(step):
        return query_cross_entropy(model(*support, episodes.query_images).logits, episodes.query_labels, 0.0)

    def backward(step):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(forward(step))
        return [tf.convert_to_tensor(g) for g in tape.gradient(loss, model.trainable_variables)]

    gradients = [tf.zeros(variable.shape) for variable in model.trainable_variables]
    return {
        "sampling": lambda step: sampler(indices(step))[0],
        "sampling, augmented": lambda step: augmented(indices(step))[0],
        "generation": lambda step: model.generate(*support),
        "transformers": lambda step: [
            each.encoder(given, None, each.slices) for each, given in zip(generators, tokens)
        ],
        "generated CNN": lambda step: model.classify(episodes.query_images, weights),
        "forward": forward,
        "forward, backward": backward,
        "update": lambda step: optimizer.apply(gradients, model.trainable_variables, step),
    }


def split(rates: dict[str, float]) -> dict[str, float]:
    """Milliseconds an episode of each stage, from calls per second of the functions of `stages`."""
    ms = {name: 1000.0 / rate / STAGE_EPISODES for name, rate in rates.items()}
    return {
        "sampling": ms["sampling"],
        "augmentation, all kinds (off by default)": ms["sampling, augmented"] - ms["sampling"],
        "support pass": ms["generation"] - ms["transformers"],
        "transformers": ms["transformers"],
        "generated CNN": ms["generated CNN"],
        "backward": ms["forward, backward"] - ms["forward"],
        "update": ms["update"],
    }


def measure(sides: dict) -> dict[str, list[float]]:
    """Calls per second of each function, in windows that take turns."""
    compiled = {name: tf.function(function) for name, function in sides.items()}
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for window in range(-1, FLAGS.windows):  # the first one warms up
        for name, function in compiled.items():
            calls, started = 0, time.perf_counter()
            while calls < 2 or (window >= 0 and time.perf_counter() - started < FLAGS.seconds):
                result = function(tf.constant(calls, tf.int64))
                tf.nest.map_structure(lambda x: x.numpy(), result)
                calls += 1
            if window >= 0:
                rates[name].append(calls / (time.perf_counter() - started))
    return rates


def benchmark(name: str) -> dict:
    """Prints and returns the figures of a configuration."""
    case, against = CASES[name], FLAGS.against == "plain"
    print(f"\n{name}: {case.way}-way {case.shot}-shot, {case.query} query images of "
          f"{case.side}x{case.side}x{case.image_channels}, {case.channels} channels", flush=True)  # fmt: skip
    sides, units = {}, {}
    for batch in map(int, FLAGS.batches):
        sides[f"training, {batch} per step"], units[f"training, {batch} per step"] = (
            training(case, batch),
            batch,
        )
    if against:
        sides["training, plain"], units["training, plain"] = training(case, 1, plain=True), 1
    if FLAGS.evaluation:
        label = f"evaluation, {EVALUATED_TASKS} tasks at a time"
        sides[label], units[label] = evaluation(case), EVALUATED_TASKS * QUERY_BATCHES
        if against:
            sides["evaluation, plain"], units["evaluation, plain"] = plain_evaluation(case), 1
    rates = {name: np.array(values) * units[name] for name, values in measure(sides).items()}
    medians = {name: float(np.median(values)) for name, values in rates.items()}
    rows = []
    for side, values in rates.items():
        plain = medians.get(side.split(",")[0] + ", plain")
        ratio = f"{medians[side] / plain:.2f}" if plain else ""
        rows.append([side, f"{medians[side]:.1f}", f"{values.min():.1f}..{values.max():.1f}", ratio])
    unit = f"episodes/s (evaluation: batches of {QUERY_BATCH})"
    print(text_table(["", unit, "windows", "ratio" if against else ""], rows))
    found = {"episodes_per_second": medians}
    if against:
        kinds = ["training", "evaluation"] if FLAGS.evaluation else ["training"]
        found["ratios"] = {
            kind: max(rate for side, rate in medians.items() if side.startswith(kind))
            / medians[f"{kind}, plain"]
            for kind in kinds
        }
    if FLAGS.stages:
        rates = measure(stages(case))
        found["stages_ms"] = split({stage: float(np.median(values)) for stage, values in rates.items()})
        print(f"stages of a step of {STAGE_EPISODES} episodes, without towers:")
        print(text_table(["", "ms an episode"], [[k, f"{v:.2f}"] for k, v in found["stages_ms"].items()]))
    return found


def point(case: Case) -> None:
    """Prints JSON: seconds of a training step of one episode, peak memory of the process."""

    def resident():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    before = resident()
    rates = measure({"training": training(case, 1)})
    seconds = {name: 1.0 / float(np.median(values)) for name, values in rates.items()}
    print(json.dumps({"seconds": seconds["training"], "bytes": resident(), "bytes_before": before}))


def scaling() -> list[dict]:
    """Prints and returns time and memory of one episode with one number changed at a time, or several."""
    base = Case()
    changes = [{}]
    changes += [{name: value} for name, values in SCALED.items() for value in values
                if value != getattr(base, name)]  # fmt: skip
    changes.append({"way": 100, "shot": 20, "query": 100})
    rows, found = [], []
    for number, change in enumerate([{}, *changes]):
        case = base._replace(**change)
        command = [sys.executable, __file__, f"--point={json.dumps(case._asdict())}"]
        command += [f"--windows={FLAGS.windows}", f"--seconds={FLAGS.seconds}"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=os.environ)
        if done.returncode:
            raise UserError(f"--scaling: the case {change} ended with exit code {done.returncode}")
        if number == 0:  # the first process finds the machine cold: up to half slower
            continue
        result = {**change, **json.loads(done.stdout.splitlines()[-1])}
        found.append(result)
        label = (
            ", ".join(f"{name} {value}" for name, value in change.items())
            or "20-way 1-shot, 60 queries, 8 channels"
        )
        row = [label, f"{1000 * result['seconds']:.1f}", f"{result['bytes'] / 2**30:.2f}"]
        row.append(f"{result['seconds'] / found[0]['seconds']:.2f}")
        rows.append(row)
        print(f"measured: {label}", file=sys.stderr, flush=True)
    print(text_table(["one episode per step", "ms", "peak GiB", "ratio"], rows))
    return found


def main(_):
    configuration.load(["gin/omniglot_fast.gin"])
    configure_threads()
    if FLAGS.point:
        return point(Case(**json.loads(FLAGS.point)))
    for name in FLAGS.configurations:
        if name not in CASES:
            raise UserError(f"--configurations: unknown {name!r}, use some of {', '.join(CASES)}")
    if FLAGS.quick:
        FLAGS.configurations, FLAGS.batches, FLAGS.stages = FLAGS.configurations[:1], ["16", "64"], False
        FLAGS.windows, FLAGS.seconds = 3, 0.7
    print(hardware())
    record = {"hardware": hardware(), "versions": versions()}
    if FLAGS.scaling:
        record["scaling"] = scaling()
    else:
        record["configurations"] = {name: benchmark(name) for name in FLAGS.configurations}
    if FLAGS.json:
        write_text(Path(FLAGS.json), json.dumps(record, indent=1) + "\n")
    if not FLAGS.scaling:
        for name, found in record["configurations"].items():
            ratios = "  ".join(
                f"{kind} ratio: {ratio:.1f}" for kind, ratio in found.get("ratios", {}).items()
            )
            print(ratios if len(record["configurations"]) == 1 else f"{name}: {ratios}")


if __name__ == "__main__":
    run_program(main)
