"""Accuracy of ordinary CNNs, each trained on all images of a fixed random set of classes (section 4.4).

    python scripts/oracle.py --gin_file=gin/paper/oracle/omniglot_4ch.gin --data_dir=FOLDER_WITH_THE_ZIPS

Prints the mean over the sets with its 95% confidence interval, and writes a record.
"""

import sys
import time
from pathlib import Path

import numpy as np
from absl import flags
from tqdm import tqdm

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import gin  # noqa: E402

from hypertransformer_tf import configuration  # noqa: E402
from hypertransformer_tf.baselines.oracle import train_oracle  # noqa: E402
from hypertransformer_tf.data.sources import load_splits  # noqa: E402
from hypertransformer_tf.errors import UserError, run_program  # noqa: E402
from hypertransformer_tf.evaluation.intervals import confidence_interval  # noqa: E402
from hypertransformer_tf.evaluation.records import hardware, versions, write_record  # noqa: E402
from hypertransformer_tf.models.hypertransformer import HyperTransformer  # noqa: E402
from hypertransformer_tf.training.loop import Task  # noqa: E402
from hypertransformer_tf.training.strategy import configure_threads  # noqa: E402

FLAGS = flags.FLAGS
flags.DEFINE_multi_string("gin_file", None, "Configuration: data set, way, CNN and train_oracle.")
flags.DEFINE_multi_string("gin_bindings", [], "One binding; wins over files.")
flags.DEFINE_string("data_dir", None, "Where data sets are; default: $HYPERTRANSFORMER_DATA.")
flags.DEFINE_integer("sets", 10, "Sets of classes.", 2)
flags.DEFINE_string("json", None, "File of the record; default: none.")


def main(_):
    if not FLAGS.gin_file:
        raise UserError("no configuration: give one, such as --gin_file=gin/paper/oracle/omniglot_4ch.gin")
    configuration.load(FLAGS.gin_file, FLAGS.gin_bindings)
    configure_threads()
    splits, task = load_splits(FLAGS.data_dir), Task()
    model = HyperTransformer(way=task.way, image_shape=splits.train.image_shape)
    started = time.perf_counter()
    found = [train_oracle(splits.train, model.cnn, number) for number in tqdm(range(FLAGS.sets), unit="set")]
    seconds = time.perf_counter() - started
    trained, held_out = (confidence_interval(np.array(values)) for values in zip(*found))
    for name, interval in (("trained on", trained), ("held out", held_out)):
        print(f"images {name}: {100 * interval.mean:.2f}% +- {100 * interval.half_width:.2f}%")
    if FLAGS.json:
        record = {
            "method": "oracle",
            "dataset": splits.name,
            "split": "train",
            "way": task.way,
            "shot": 0,
            "channels": model.config()["channels"],
            "generated": "none",
            "statistics": "support",
            "accuracy": round(100 * trained.mean, 3),
            "ci95": round(100 * trained.half_width, 3),
            "held_out_accuracy": round(100 * held_out.mean, 3),
            "held_out_ci95": round(100 * held_out.half_width, 3),
            "tasks": FLAGS.sets,
            "query_per_task": 0,
            "episodes_trained": 0,
            "train_seconds": round(seconds, 1),
            "seed": 0,
            "config": gin.operative_config_str(),
            "checkpoint": "none",
            "hardware": hardware(),
            "versions": versions(),
        }
        write_record(Path(FLAGS.json), record)


if __name__ == "__main__":
    run_program(main)
