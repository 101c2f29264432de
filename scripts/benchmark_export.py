"""What generate.py and classify.py give and cost on this machine, through the programs themselves.

    python scripts/benchmark_export.py --json=results/benchmarks/export.json
    python scripts/benchmark_export.py --data_dir=FOLDER_WITH_THE_ZIPS --tasks=20   # tasks of Omniglot, too

Accuracy: tasks are written to disk as PNG folders, generate.py reads support images, classify.py the others.
Speed and size: a 20-way CNN of the checkpoint; TFLite on one core, one image at a time.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from absl import flags
from tqdm import tqdm

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from hypertransformer_tf import configuration  # noqa: E402
from hypertransformer_tf.backend import tf  # noqa: E402
from hypertransformer_tf.data.glyphs import load_glyphs  # noqa: E402
from hypertransformer_tf.data.sources import load_splits  # noqa: E402
from hypertransformer_tf.errors import UserError, run_program  # noqa: E402
from hypertransformer_tf.evaluation.intervals import confidence_interval  # noqa: E402
from hypertransformer_tf.evaluation.records import hardware, text_table, versions  # noqa: E402
from hypertransformer_tf.export.example_task import write_task  # noqa: E402
from hypertransformer_tf.storage import write_text  # noqa: E402
from hypertransformer_tf.training import trained  # noqa: E402

FLAGS = flags.FLAGS
flags.DEFINE_string("checkpoint", None, "Default: the one for characters.")
flags.DEFINE_string("data_dir", None, "Where Omniglot is; without it, only letters drawn from fonts.")
flags.DEFINE_integer("tasks", 20, "Tasks of each kind.", 1)
flags.DEFINE_integer("many", 10_000, "Images of the speed test of classify.py.", 1)
flags.DEFINE_string("json", None, "Also write the figures to this file.")

GLYPHS = "glyphs: letters of alphabets not trained on"
OMNIGLOT = "omniglot: characters not trained on"
TASKS = [(GLYPHS, 5, 3), (OMNIGLOT, 5, 1), (OMNIGLOT, 5, 5), (OMNIGLOT, 20, 1)]


def run(name: str, *arguments) -> tuple[str, float]:
    """Standard output and seconds of a program."""
    started = time.perf_counter()
    command = [sys.executable, str(ROOT / name), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise UserError(f"{name} failed: {done.stderr.strip()[-300:]}")
    return done.stdout, time.perf_counter() - started


def checkpoint_flags() -> list[str]:
    return [f"--checkpoint={FLAGS.checkpoint}"] if FLAGS.checkpoint else []


def accuracy(images, way: int, shot: int, folder: Path, description: str) -> dict:
    """Accuracy of tasks through the programs."""
    found, expected, seconds = [], [], []
    for task in tqdm(range(FLAGS.tasks), desc=f"{description}, {way}-way {shot}-shot", leave=False):
        place = folder / f"{way}-{shot}-{task}"
        write_task(images, place, way, shot, 10, task)
        model = f"--output_dir={place / 'model'}"
        _, took = run("generate.py", f"--support_dir={place / 'classes'}", model, *checkpoint_flags())
        seconds.append(took)
        answers, _ = run("classify.py", f"--model={place / 'model'}", "--format=json", place / "images")
        found.append(json.loads(answers)["accuracy"])
        card = json.loads((place / "model" / "model.json").read_text())
        expected.append(card["expected_accuracy"]["percent"])
    interval = confidence_interval(np.array(found))
    result = {
        "data": description,
        "way": way,
        "shot": shot,
        "tasks": FLAGS.tasks,
        "images_per_task": 10 * way,
        "accuracy": round(interval.mean, 2),
        "ci95": round(interval.half_width, 2),
        "generate_seconds": round(float(np.median(seconds)), 2),
    }
    if shot > 1:
        result["leave_one_out"] = round(float(np.mean(expected)), 2)
    return result


def generation_ms(model) -> float:
    """Milliseconds to write a CNN from one image per class, once everything is loaded."""
    generate = tf.function(model.generate)
    images = tf.zeros([1, model.way, *model.image_shape])
    labels = tf.range(model.way)[None]
    times = []
    for _ in range(60):
        started = time.perf_counter()
        generate(images, labels)["logits"]["kernel"].numpy()
        times.append(time.perf_counter() - started)
    return 1000 * float(np.median(times[10:]))


def tflite_ms(file: Path, shape) -> float:
    """Milliseconds for one image on one core."""
    interpreter = tf.lite.Interpreter(str(file), num_threads=1)
    interpreter.allocate_tensors()
    entry = interpreter.get_input_details()[0]
    interpreter.set_tensor(entry["index"], np.zeros([1, *shape], entry["dtype"]))
    windows = []
    for _ in range(7):
        started = time.perf_counter()
        for _ in range(500):
            interpreter.invoke()
        windows.append((time.perf_counter() - started) / 500)
    return 1000 * float(np.median(windows))


def speed(test, checkpoint, folder: Path) -> dict:
    """Sizes and times of a CNN with as many classes as the checkpoint has."""
    model = checkpoint.load_model()
    write_task(test, folder / "task", model.way, 1, 10, 0)
    arguments = [f"--support_dir={folder / 'task' / 'classes'}", f"--output_dir={folder / 'model'}"]
    _, seconds = run("generate.py", *arguments, "--tflite=float32,float16,int8", *checkpoint_flags())
    from PIL import Image

    random = np.random.default_rng(0)
    (folder / "many").mkdir()
    for number in range(FLAGS.many):
        pixels = random.integers(0, 256, model.image_shape[:2]).astype(np.uint8)
        Image.fromarray(pixels).save(folder / "many" / f"{number}.png")
    _, many = run("classify.py", f"--model={folder / 'model'}", "--format=csv", folder / "many")
    kinds = ("float32", "float16", "int8")
    files = {kind: folder / "model" / f"model_{kind}.tflite" for kind in kinds}
    card = json.loads((folder / "model" / "model.json").read_text())
    return {
        "way": model.way,
        "parameters": card["parameters"],
        "multiply_adds": card["multiply_adds"],
        "generation_ms": round(generation_ms(model), 2),
        "generate_command_seconds": round(seconds, 2),
        "tflite_bytes": {kind: file.stat().st_size for kind, file in files.items()},
        "tflite_ms_per_image": {k: round(tflite_ms(f, model.image_shape), 4) for k, f in files.items()},
        "classified_images": FLAGS.many,
        "classify_command_seconds": round(many, 2),
    }


def main(_):
    sources = {GLYPHS: load_glyphs().test}
    if FLAGS.data_dir:
        configuration.load(["gin/omniglot.gin"])
        sources[OMNIGLOT] = load_splits(FLAGS.data_dir).test
    checkpoint = trained.find(FLAGS.checkpoint or trained.CHARACTERS)
    with tempfile.TemporaryDirectory() as folder:
        record = {
            "checkpoint": checkpoint.path.name,
            "dataset": checkpoint.manifest["dataset"],
            "episodes_trained": checkpoint.manifest["episodes_trained"],
            "speed": speed(sources[GLYPHS], checkpoint, Path(folder)),
            "tasks": [
                accuracy(sources[data], way, shot, Path(folder) / str(list(sources).index(data)), data)
                for data, way, shot in TASKS
                if data in sources
            ],
            "hardware": hardware(),
            "versions": versions(),
        }
    for name, value in record["speed"].items():
        print(f"{name}: {value}")
    rows = [
        [t["data"], f"{t['way']}-way {t['shot']}-shot", f"{t['accuracy']:.2f} +- {t['ci95']:.2f}"]
        + [str(t.get("leave_one_out", "-")), str(t["generate_seconds"])]
        for t in record["tasks"]
    ]
    print(text_table(["data", "task", "accuracy %", "leave-one-out %", "generate.py s"], rows))
    if FLAGS.json:
        write_text(Path(FLAGS.json), json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    run_program(main)
