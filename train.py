"""Trains a HyperTransformer or a baseline: python train.py --gin_file=gin/omniglot.gin"""

from pathlib import Path

from absl import flags

from hypertransformer_tf import configuration, storage
from hypertransformer_tf.analysis.training_pictures import training_pictures
from hypertransformer_tf.data.sources import load_splits
from hypertransformer_tf.errors import UserError, run_program
from hypertransformer_tf.training import workers
from hypertransformer_tf.training.loop import train
from hypertransformer_tf.training.strategy import STRATEGIES, configure_threads, make_strategy

FLAGS = flags.FLAGS
flags.DEFINE_multi_string("gin_file", None, "Configuration file; may be given several times, the last wins.")
flags.DEFINE_multi_string("gin_bindings", [], "One binding, as 'LearningRate.rate = 0.01'.")
flags.DEFINE_string(
    "workdir", None, "Folder of the run, also gs://...; default: runs/<name of the last gin file>."
)
flags.DEFINE_string("data_dir", None, "Where data sets are; default: $HYPERTRANSFORMER_DATA.")
flags.DEFINE_string("strategy", "auto", f"Devices: {', '.join(STRATEGIES)}; workers are listed in TF_CONFIG.")
flags.DEFINE_string("tpu", None, "Name or address of a Cloud TPU; local = the TPU of this machine.")
flags.DEFINE_integer("logical_cpus", 0, "Split the CPU into so many devices (for tests of --strategy).")
flags.DEFINE_integer(
    "restarts",
    10,
    "With workers: start again so often in a row when another worker is lost; 0 = end with exit code 75.",
    0,
)


def main(_):
    with workers.restarted_after_a_loss(FLAGS.restarts):
        _train()


def _train():
    if not FLAGS.gin_file:
        raise UserError("no configuration: give one, such as --gin_file=gin/glyphs.gin")
    configuration.load(FLAGS.gin_file, FLAGS.gin_bindings)
    configure_threads()
    strategy = make_strategy(FLAGS.strategy, FLAGS.logical_cpus, FLAGS.tpu)
    workdir = storage.place(FLAGS.workdir or Path("runs") / Path(FLAGS.gin_file[-1]).stem)
    splits = load_splits(FLAGS.data_dir)
    result = train(splits, workdir, strategy, configuration.check_all_used, training_pictures)
    print(f"{result.ending} after {result.step:,} steps")
    if result.ending == "interrupted":
        print("everything is saved; the same command goes on from here")
    if result.best_accuracy >= 0:
        print(f"best validation accuracy {100 * result.best_accuracy:.2f}%")
        print(f"to evaluate on test classes: python evaluate.py --workdir={workdir}")


if __name__ == "__main__":
    run_program(main)
