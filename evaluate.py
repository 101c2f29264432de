"""Evaluates a trained HyperTransformer or baseline: python evaluate.py --checkpoint=runs/omniglot_fast"""

import math
import re
import time
from pathlib import Path

from absl import flags
from tqdm import tqdm

from hypertransformer_tf import configuration, storage
from hypertransformer_tf.analysis.episode_picture import draw_episode
from hypertransformer_tf.backend import tf
from hypertransformer_tf.data.episodes import EpisodeSampler
from hypertransformer_tf.data.sources import load_splits
from hypertransformer_tf.errors import UserError, run_program
from hypertransformer_tf.evaluation.accuracy import TaskEvaluator
from hypertransformer_tf.evaluation.intervals import confidence_interval
from hypertransformer_tf.evaluation.pictures import check_picture
from hypertransformer_tf.evaluation.records import hardware, text_table, versions, write_csv, write_record
from hypertransformer_tf.models.hypertransformer import HyperTransformer
from hypertransformer_tf.models.normalization import STATISTICS, check_statistics
from hypertransformer_tf.training import trained
from hypertransformer_tf.training.strategy import configure_threads, make_device

FLAGS = flags.FLAGS
flags.DEFINE_string("checkpoint", None, "A run's workdir, or a checkpoint folder; default: --workdir.")
flags.DEFINE_string("workdir", None, "Folder of the run; default: runs/<name of the last gin file>.")
flags.DEFINE_multi_string("gin_file", [], "Configuration; default: the one kept in the checkpoint.")
flags.DEFINE_multi_string("gin_bindings", [], "One binding; wins over files and checkpoint.")
flags.DEFINE_string("data_dir", None, "Where data sets are; default: $HYPERTRANSFORMER_DATA.")
flags.DEFINE_string("strategy", "auto", "Device: auto, cpu, gpu.")
flags.DEFINE_enum("split", "test", ["test", "val"], "Classes to evaluate on.")
flags.DEFINE_integer("tasks", 1024, "Number of tasks; the confidence interval is over tasks.", 1)
flags.DEFINE_integer("query_batches", 16, "Query batches of a task.", 1)
flags.DEFINE_integer(
    "query_batch_size",
    None,
    "Query images of a batch, all classes together; default: 100, or what there is.",
    1,
)
flags.DEFINE_list("statistics", list(STATISTICS), "Sources of batch statistics.")
flags.DEFINE_integer("seed", 0, "Of the tasks.", 0)
flags.DEFINE_string("output_dir", None, "Folder for records; default: evaluation/ in the workdir.")
flags.DEFINE_string("name", None, "Name of the records; default: made from data set, way, shot and channels.")
flags.DEFINE_string("picture", None, "Also draw the first task with predictions to this .png, .pdf or .svg.")
flags.DEFINE_bool("follow", False, "Go on evaluating better checkpoints as the training writes them.")
flags.DEFINE_integer(
    "follow_minutes", 0, "With --follow, stop after so long without a new one; 0 = never.", 0
)


def main(argv):
    if len(argv) > 1:
        raise UserError(f"unexpected argument {argv[1]!r}: see --help")
    if FLAGS.picture is not None:
        check_picture(FLAGS.picture)
    statistics = [check_statistics(name) for name in FLAGS.statistics]
    configure_threads()
    make_device(FLAGS.strategy)
    place = FLAGS.checkpoint or FLAGS.workdir
    if place is None:
        if not FLAGS.gin_file:
            raise UserError(
                "nothing to evaluate: give --checkpoint=FOLDER, or --gin_file for its default workdir"
            )
        place = Path("runs") / Path(FLAGS.gin_file[-1]).stem
    place = storage.place(place)
    seen, waited = None, time.monotonic()
    while True:
        found = trained.find(place, must=not FLAGS.follow)
        if found is not None and found.path != seen:
            _evaluate(found, place, statistics)
            seen, waited = found.path, time.monotonic()
        if not FLAGS.follow or 0 < 60 * FLAGS.follow_minutes < time.monotonic() - waited:
            return
        time.sleep(5)


def _evaluate(checkpoint: trained.Trained, place: storage.Place, statistics: list[str]) -> None:
    info = checkpoint.manifest
    if FLAGS.gin_file:
        configuration.load(FLAGS.gin_file, FLAGS.gin_bindings)
    else:
        configuration.load_text(info["config"], FLAGS.gin_bindings)
    splits = load_splits(FLAGS.data_dir)
    images, dataset = getattr(splits, FLAGS.split), splits.name
    model = checkpoint.load_model(baselines=True)
    task = info["task"]
    way, held = task["way"], task["shot"] + task["unlabeled"]
    there_are = way * max(1, int(images.counts.min()) - held)
    query = FLAGS.query_batch_size or min(100, there_are)
    sampler = EpisodeSampler(images, way, task["shot"], query, task["unlabeled"], FLAGS.seed, FLAGS.split)
    evaluator = TaskEvaluator(model, sampler, statistics, FLAGS.query_batches)
    started = time.perf_counter()
    with tqdm(total=FLAGS.tasks, unit="task", dynamic_ncols=True, mininterval=1.0) as bar:
        accuracies = evaluator(FLAGS.tasks, bar.update)
    seconds = time.perf_counter() - started

    name = f"{dataset}_{task['way']}way_{task['shot']}shot_{info['model']['channels']}ch"
    method = getattr(model, "label", checkpoint.method)
    if method != HyperTransformer.method:
        name += "_" + re.sub(r"\W+", "_", method.replace("++", "pp"))
    name = FLAGS.name or name
    folder = storage.place(FLAGS.output_dir or place / "evaluation")
    query_per_task = FLAGS.query_batches * query
    records, rows = [], []
    for source in statistics:
        interval = confidence_interval(accuracies[source])
        half_width = None if math.isnan(interval.half_width) else round(100 * interval.half_width, 3)
        record = {
            "method": method,
            "dataset": dataset,
            "split": FLAGS.split,
            "way": task["way"],
            "shot": task["shot"],
            "channels": info["model"]["channels"],
            "generated": info["generated"],
            "parameters": sum(v.shape.num_elements() for v in model.trainable_variables),
            "cnn_parameters": model.cnn.num_parameters,
            "statistics": source,
            "accuracy": round(100 * interval.mean, 3),
            "ci95": half_width,
            "tasks": FLAGS.tasks,
            "query_per_task": query_per_task,
            "query_batch_size": query,
            "classes": images.num_classes,
            "episodes_trained": info["episodes_trained"],
            "train_seconds": info["train_seconds"],
            "seed": info["seed"],
            "evaluation_seed": FLAGS.seed,
            "evaluation_seconds": round(seconds, 1),
            "config": info["operative_config"],
            "checkpoint": _name(checkpoint.path),
            "hardware": hardware(),
            "versions": versions(),
            **({"start": _start(info["start"])} if "start" in info else {}),
        }
        records.append(record)
        write_record(folder / f"{name}_{FLAGS.split}_{source}.json", record)
        rows.append([source, f"{record['accuracy']:.2f}", "-" if half_width is None else f"{half_width:.2f}"])
    write_csv(folder / f"{name}_{FLAGS.split}.csv", records)
    print(
        f"{method}: {dataset}, {FLAGS.split} classes ({images.num_classes}), "
        f"{task['way']}-way {task['shot']}-shot, {FLAGS.tasks} tasks x {query_per_task} query images, "
        f"trained on {info['episodes_trained']:,} episodes, {seconds:.0f} s"
    )
    print(text_table(["BN statistics", "accuracy %", "95% CI +-"], rows))
    if FLAGS.picture:
        draw_episode(model, sampler(tf.constant([0], tf.int64)), Path(FLAGS.picture), statistics[0])
        print(f"picture: {FLAGS.picture}")
    print(f"records: {folder}/{name}_{FLAGS.split}_*.json")


def _name(path: storage.Place) -> str:
    """A checkpoint's name in records, which don't tell where somebody's files lie."""
    return (
        f"{path.parent.parent.name}/{path.name}"
        if path.parent.name == "checkpoints" and (path.name.startswith("best-"))
        else path.name
    )


def _start(info: dict) -> dict:
    """What a record says of the training whose model another one started from, see `train.start`."""
    found = {"episodes_trained": info["episodes_trained"], "config": info["operative_config"]}
    return {**found, "start": _start(info["start"])} if "start" in info else found


if __name__ == "__main__":
    run_program(main)
