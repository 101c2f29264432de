"""Predicts episodes per second and hours of the paper's runs on machines that are not here.

    python scripts/limits.py --json=results/benchmarks/limits.json --page=docs/limits.md

For each row the training step is built on random images: its floating-point operations, the bytes that its
operations read and write, their number and the gradients' size are taken from the graph, and its time is
measured here. What other machines do follows from a few published or assumed figures, which the page prints.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import gin
import numpy as np
from absl import flags

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from hypertransformer_tf import configuration  # noqa: E402
from hypertransformer_tf.analysis.operations import float_operations  # noqa: E402
from hypertransformer_tf.backend import tf  # noqa: E402
from hypertransformer_tf.errors import UserError, run_program  # noqa: E402
from hypertransformer_tf.evaluation.records import hardware, versions  # noqa: E402
from hypertransformer_tf.storage import write_text  # noqa: E402
from hypertransformer_tf.training.assembly import (  # noqa: E402
    assemble_step,
    configured_image_shape,
    made_up_images,
)
from hypertransformer_tf.training.strategy import configure_threads  # noqa: E402

ROWS = (
    "table1/omniglot_1shot_8ch",
    "table1/omniglot_1shot_64ch",
    "table1/omniglot_5shot_8ch",
    "table4/omniglot_4ch_all",
    "table1/miniimagenet_1shot_16ch",
    "table1/miniimagenet_5shot_48ch",
    "table3/tieredimagenet_u4_l3",
)
EPISODES = 4_000_000
# Operations that do nothing when the program runs, or nothing worth counting.
FREE = {
    *(
        "Const",
        "Placeholder",
        "Identity",
        "IdentityN",
        "ReadVariableOp",
        "NoOp",
        "Reshape",
        "Shape",
        "ShapeN",
    ),
    *("ExpandDims", "Squeeze", "Range", "ConcatOffset", "InvertPermutation", "FloorMod", "StopGradient"),
    "BroadcastGradientArgs",
}


class Machine(NamedTuple):
    """What is assumed of a machine.

    Attributes:
        name: for people.
        devices: replicas; the global batch is `batch` x devices.
        flops: of a device, a second, at best.
        share: of it that convolutions of a few channels and small products reach.
        bandwidth: bytes a second of a device's memory.
        fused: share of the bytes that is left when a compiler fuses what it can.
        launch: seconds until an operation starts, for those that are not fused.
        link: bytes a second between devices, and latency of one exchange in seconds.
        batch: episodes of a device in a step.
    """

    name: str
    devices: int
    flops: float
    share: float
    bandwidth: float
    fused: float
    launch: float
    link: tuple[float, float]
    batch: int


MACHINES = (
    Machine("one H100, TensorFlow, op by op", 1, 67e12, 0.15, 3.35e12, 1.0, 4e-6, (9e11, 0.0), 64),
    Machine("one H100, compiled by XLA", 1, 67e12, 0.15, 3.35e12, 0.4, 1e-6, (9e11, 0.0), 64),
    Machine("TPU v4-8 (4 chips)", 4, 275e12, 0.02, 1.2e12, 0.4, 2e-7, (4.5e10, 2e-5), 64),
)
WORKERS, WORKER_LINK, WORKER_LATENCY = 8, 1.25e9, 5e-4

FLAGS = flags.FLAGS
flags.DEFINE_multi_string("row", list(ROWS), "Rows of gin/paper.")
flags.DEFINE_integer("batch", 16, "Episodes per step of what is measured here.")
flags.DEFINE_float("seconds", 5.0, "How long a row is measured.")
flags.DEFINE_bool("one", False, "Measure the only row and print JSON (what the program starts for each row).")
flags.DEFINE_string("json", None, "Write the figures to this file.")
flags.DEFINE_string("page", None, "Write the page to this file.")
flags.DEFINE_bool("render", False, "Measure nothing: write the page of the figures in --json.")


def build_step(row: str, *bindings: str):
    """The training step of a row on random images."""
    gin.clear_config()
    batch = f"TrainingStep.episodes_per_step = {FLAGS.batch}"
    gin_file = str(ROOT / "gin" / "paper" / f"{row}.gin")
    configuration.load([gin_file], [batch, "TrainingStep.statistics = 'support'", *bindings])
    return assemble_step(made_up_images(configured_image_shape())).step


def bytes_of(operation) -> int:
    """Bytes that an operation reads and writes, by its static shapes."""
    tensors = [*operation.inputs, *operation.outputs]
    sizes = [(t.shape.num_elements() or 0) * t.dtype.size for t in tensors]
    return sum(sizes)


def measure(row: str) -> dict:
    """Figures of one row's step, an episode."""
    configure_threads()
    # On an accelerator generated convolutions are grouped ones, and there are no towers.
    grouped = tf.function(build_step(row, "HyperTransformer.conv_method = 'grouped'"))
    starts = [op for op in _graph(grouped).get_operations() if op.type not in FREE]
    step = build_step(row, "TrainingStep.towers = 2")
    compiled = tf.function(step)
    graph = _graph(compiled)
    operations = [op for op in graph.get_operations() if op.type not in FREE]
    for index in range(2):
        compiled(tf.constant(index, tf.int64))
    seconds = []
    until = time.perf_counter() + FLAGS.seconds
    while len(seconds) < 3 or time.perf_counter() < until:
        started = time.perf_counter()
        compiled(tf.constant(len(seconds), tf.int64))["loss"].numpy()
        seconds.append((time.perf_counter() - started) / FLAGS.batch)
    return {
        "flops": float_operations(graph) / FLAGS.batch,
        "bytes": sum(map(bytes_of, operations)) / FLAGS.batch,
        "operations": len(starts),
        "parameters": sum(v.shape.num_elements() for v in step.variables),
        "seconds": float(np.median(seconds)),
    }


def _graph(function):
    return function.get_concrete_function(tf.constant(0, tf.int64)).graph


def peak() -> float:
    """Floating-point operations a second of large matrix products on all cores here."""
    configure_threads()
    side, count = 1024, 4
    matrices = [tf.random.normal([side, side]) for _ in range(count)]
    product = tf.function(lambda: [tf.reduce_sum(tf.matmul(m, m)) for m in matrices])
    product()
    best = min(_timed(product) for _ in range(10))
    return count * 2 * side**3 / best


def _timed(function) -> float:
    started = time.perf_counter()
    [x.numpy() for x in function()]
    return time.perf_counter() - started


def predict(machine: Machine, row: dict) -> tuple[float, str]:
    """Episodes a second on a machine, and what limits them."""
    parts = {
        "arithmetic": machine.batch * row["flops"] / (machine.flops * machine.share),
        "memory": machine.batch * row["bytes"] * machine.fused / machine.bandwidth,
    }
    starts = row["operations"] * machine.launch
    exchange = 0.0
    if machine.devices > 1:
        exchange = 2 * 4 * row["parameters"] / machine.link[0] + machine.link[1]
    seconds = max(*parts.values(), starts) + exchange
    parts.update({"starting operations": starts, "exchange": exchange})
    return machine.devices * machine.batch / seconds, max(parts, key=parts.get)


def predict_workers(row: dict, batch: int) -> tuple[float, str]:
    """The same for WORKERS machines like this one with `batch` episodes each."""
    compute = batch * row["seconds"]
    exchange = 2 * 4 * row["parameters"] / WORKER_LINK + WORKER_LATENCY * np.log2(WORKERS)
    return WORKERS * batch / (compute + exchange), "arithmetic" if compute > exchange else "exchange"


PAGE = """# How fast the paper's runs can be

Written by `scripts/limits.py`. The first table and the column "here" were measured; everything else is a
prediction that nobody has checked on such a machine.

Measured on {hardware}, TensorFlow {tensorflow}, {batch} episodes per step. Large matrix products reach
{peak:.0f} GFLOP/s here.

{measured}

MB moved: what all operations of an episode read and write when nothing is fused and nothing stays in a
cache. Operations: of a step, with grouped convolutions and without towers, as on an accelerator.

## Episodes a second, and hours for {episodes:,} episodes

{predicted}

In brackets what is predicted to take most of the time.

## What was assumed

{assumed}

Peaks and bandwidths are the makers' (H100 SXM in float32 without tensor cores, TPU v4 in bfloat16). The
shares are guesses: convolutions of 8 channels fill 8 of a matrix unit's 128 columns, so on a TPU a row with
64 channels would reach more than assumed and one with 4 less. A time is the largest of arithmetic, memory
and starts, which overlap, plus the exchange of gradients, which does not.

What follows: on two cores arithmetic is the limit, and the first table says how near it is. A GPU that
starts operations one by one waits for the starts in small models: more episodes per step, or XLA, helps
there. Workers pay for the exchange where a step is short: more episodes per step again. Drawing episodes is
a part of the step everywhere; it becomes the limit only where a host does it for accelerators
(`train.host_sampling`), at some thousands a second.
"""


def table(header: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def render(record: dict) -> str:
    """The page in Markdown."""
    measured, predicted, assumed = [], [], []
    for name, row in record["rows"].items():
        rate = row["flops"] / row["seconds"]
        figures = [f"{row['flops'] / 1e9:.2f}", f"{row['bytes'] / 1e6:.0f}", f"{row['operations']:,}"]
        reached = [f"{rate / 1e9:.0f}", f"{100 * rate / record['peak']:.0f}%"]
        measured.append([name, *figures, f"{row['parameters']:,}", *reached])
        cells = [predict(machine, row) for machine in MACHINES] + [predict_workers(row, record["batch"])]
        here = 1.0 / row["seconds"]
        texts = [f"{here:,.0f}/s, {EPISODES / here / 3600:,.0f} h"]
        texts += [f"{rate:,.0f}/s, {EPISODES / rate / 3600:,.1f} h ({limit})" for rate, limit in cells]
        predicted.append([name, *texts])
    for m in MACHINES:
        link = f"{m.link[0] / 1e9:.0f} GB/s + {1e6 * m.link[1]:.0f} us" if m.devices > 1 else "-"
        device = [f"{m.flops / 1e12:.0f} TFLOP/s", f"{100 * m.share:.0f}%", f"{m.bandwidth / 1e12:.2f} TB/s"]
        compiler = [f"{100 * m.fused:.0f}%", f"{1e6 * m.launch:.1f} us"]
        assumed.append([m.name, *device, *compiler, link, f"{m.devices} x {m.batch}"])
    workers = f"{WORKERS} workers like this one"
    link = f"{WORKER_LINK / 1e9:.2f} GB/s + {1e6 * WORKER_LATENCY:.0f} us x log2({WORKERS})"
    assumed.append([workers, *["as here"] * 5, link, f"{WORKERS} x {record['batch']}"])
    counted = ["row", "GFLOP an episode", "MB moved", "operations", "parameters"]
    machines = [m.name for m in MACHINES]
    return PAGE.format(
        hardware=record["hardware"],
        tensorflow=record["versions"]["tensorflow"],
        batch=record["batch"],
        peak=record["peak"] / 1e9,
        episodes=EPISODES,
        measured=table([*counted, "GFLOP/s reached here", "of the peak"], measured),
        predicted=table(["row", "here", *machines, workers], predicted),
        assumed=table(
            ["machine", "peak", "share", "memory", "bytes left", "start", "exchange", "episodes a step"],
            assumed,
        ),
    )


def main(_):
    tf.get_logger().setLevel("ERROR")  # TensorFlow warns of its own use of its profiler
    if FLAGS.one:
        print(json.dumps(measure(FLAGS.row[-1])))
        return
    if FLAGS.render:
        if not FLAGS.json or not FLAGS.page:
            raise UserError("--render needs --json=FILE_TO_READ and --page=FILE_TO_WRITE")
        return write_text(Path(FLAGS.page), render(json.loads(Path(FLAGS.json).read_text())))
    rows = {}
    for row in FLAGS.row:
        if not (ROOT / "gin" / "paper" / f"{row}.gin").is_file():
            raise UserError(f"--row={row}: there is no gin/paper/{row}.gin")
        command = [sys.executable, __file__, "--one", f"--row={row}", f"--batch={FLAGS.batch}"]
        done = subprocess.run([*command, f"--seconds={FLAGS.seconds}"], stdout=subprocess.PIPE, text=True)
        if done.returncode:
            raise UserError(f"--row={row}: measuring it ended with exit code {done.returncode}")
        rows[row] = json.loads(done.stdout.splitlines()[-1])
        print(f"{row}: {1.0 / rows[row]['seconds']:.1f} episodes/s", file=sys.stderr, flush=True)
    record = {
        "hardware": hardware(),
        "versions": versions(),
        "batch": FLAGS.batch,
        "peak": peak(),
        "rows": rows,
    }
    if FLAGS.json:
        write_text(Path(FLAGS.json), json.dumps(record, indent=1) + "\n")
    page = render(record)
    print(page)
    if FLAGS.page:
        write_text(Path(FLAGS.page), page)


if __name__ == "__main__":
    run_program(main)
