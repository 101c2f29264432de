"""What each method spends on one task: on its CNN, from the support set, and then on each image.

    python scripts/benchmark_adaptation.py --json=results/benchmarks/adaptation.json

20-way 1-shot on 28x28 images, one task at a time, methods in turns in one process; medians. Multiply-adds are
counted in the graph. Images are random numbers and models untrained: the cost does not depend on them, except
for the iterations of RFS's fit, which runs outside of the graph and is not in its multiply-adds.
"""

import json
import sys
import time
from pathlib import Path

import gin
import numpy as np
from absl import flags

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from hypertransformer_tf import configuration  # noqa: E402
from hypertransformer_tf.analysis.operations import float_operations  # noqa: E402
from hypertransformer_tf.backend import tf  # noqa: E402
from hypertransformer_tf.baselines.maml import MAML  # noqa: E402
from hypertransformer_tf.baselines.methods import make_model  # noqa: E402
from hypertransformer_tf.errors import run_program  # noqa: E402
from hypertransformer_tf.evaluation.records import hardware, text_table, versions  # noqa: E402
from hypertransformer_tf.models import cnn as cnns  # noqa: E402
from hypertransformer_tf.storage import write_text  # noqa: E402
from hypertransformer_tf.training.strategy import configure_threads  # noqa: E402

FLAGS = flags.FLAGS
flags.DEFINE_list("channels", ["8", "16", "32"], "Widths of the CNNs.")
flags.DEFINE_integer("rounds", 40, "Tasks of each method that are timed.", 1)
flags.DEFINE_string("json", None, "Also write the figures to this file.")

WAY, SHOT, SIDE, CLASSES, CLASSIFIED = 20, 1, 28, 964, 100
METHODS = {
    "HyperTransformer, all layers": ("gin/omniglot_fast.gin",),
    "HyperTransformer, logits": ("gin/omniglot_fast.gin", "HyperTransformer.num_learned_layers = 4"),
    "ProtoNet": ("gin/baselines/protonet.gin",),
    "RFS": ("gin/baselines/rfs.gin",),
    "MAML, 5 steps": ("gin/baselines/maml.gin",),
}


def build(gin_file: str, *bindings: str, channels: int):
    """A model of a configuration."""
    gin.clear_config()
    owner = "BaselineCNN" if "baselines" in gin_file else "HyperTransformer"
    configuration.load([str(ROOT / gin_file)], [*bindings, f"{owner}.channels = {channels}"])
    return make_model(WAY, (SIDE, SIDE, 1), CLASSES)


def multiply_adds(function, *arguments) -> int:
    """Multiply-adds of a function, from its graph."""
    graph = tf.function(function).get_concrete_function(*arguments).graph
    return float_operations(graph) // 2


def medians_ms(functions: dict) -> dict[str, float]:
    """Milliseconds of a call of each function, in turns; the first three calls are left out."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for number in range(3 + FLAGS.rounds):
        for name, function in functions.items():
            started = time.perf_counter()
            tf.nest.map_structure(lambda x: x.numpy(), function())
            if number >= 3:
                times[name].append(1000 * (time.perf_counter() - started))
    return {name: float(np.median(values)) for name, values in times.items()}


def measure(channels: int) -> dict:
    """Figures of all methods with CNNs of a width."""
    support = tf.random.stateless_uniform([1, WAY * SHOT, SIDE, SIDE, 1], [0, 0], -1.0, 1.0)
    labels = tf.repeat(tf.range(WAY), SHOT)[None]
    query = tf.random.stateless_uniform([1, CLASSIFIED, SIDE, SIDE, 1], [0, 1], -1.0, 1.0)
    adapt, found = {}, {}
    for name, given in METHODS.items():
        model = build(*given, channels=channels)
        adapt[name] = tf.function(lambda model=model: model.generate(support, labels)["logits"])
        # MAML's generate loops over episodes; a loop's body is not counted.
        counted = model.adapt if isinstance(model, MAML) else model.generate
        found[name] = {"multiply_adds": multiply_adds(counted, support, labels, None)}
    # All methods end with the same CNN; here the last one's.
    weights = tf.nest.map_structure(tf.constant, model.generate(support, labels))

    @tf.function
    def classify():
        return cnns.run(model.cnn, query, weights, "support").logits

    image_ms = medians_ms({"": classify})[""] / CLASSIFIED
    for name, ms in medians_ms(adapt).items():
        found[name]["ms"] = ms
    one = multiply_adds(lambda: cnns.run(model.cnn, query[:, :1], weights, "support").logits)
    return {"adaptation": found, "image": {"multiply_adds": one, "ms": image_ms}}


def main(_):
    tf.get_logger().setLevel("ERROR")  # TensorFlow warns of its own use of its profiler
    configure_threads()
    record = {
        "hardware": hardware(),
        "versions": versions(),
        "task": f"{WAY}-way {SHOT}-shot, {SIDE}x{SIDE}",
        "channels": {channels: measure(int(channels)) for channels in FLAGS.channels},
    }
    rows = [
        [f"{channels} channels, {name}", f"{of['multiply_adds'] / 1e6:.1f}", f"{of['ms']:.2f}"]
        for channels, found in record["channels"].items()
        for name, of in {**found["adaptation"], "then an image": found["image"]}.items()
    ]
    print(text_table(["", "million multiply-adds", "ms"], rows))
    if FLAGS.json:
        write_text(Path(FLAGS.json), json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    run_program(main)
