"""Draws what a model does: python visualize.py --what=attention --checkpoint=runs/omniglot_fast"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from absl import flags
from tqdm import tqdm

from hypertransformer_tf import configuration
from hypertransformer_tf.analysis import kernels, weight_map
from hypertransformer_tf.analysis.attention import SHARES, attention_maps, shares_record
from hypertransformer_tf.analysis.attention_picture import NAMES, draw_attention, draw_shares
from hypertransformer_tf.analysis.episode_picture import draw_episode
from hypertransformer_tf.analysis.figures import FORMATS, check_folder
from hypertransformer_tf.analysis.generated_weights import generate_many
from hypertransformer_tf.analysis.imprinting_accuracy import PREPARATIONS, imprinting_accuracies
from hypertransformer_tf.analysis.minimum_tracking import (
    logistic_regression,
    task_path,
    track_minimum,
    two_layer_net,
    two_tasks,
)
from hypertransformer_tf.analysis.sample_features import draw_features, sample_features
from hypertransformer_tf.analysis.tracking_picture import draw_tracking
from hypertransformer_tf.analysis.training_curves import draw_training, read_log
from hypertransformer_tf.analysis.weight_picture import draw_weights
from hypertransformer_tf.backend import tf
from hypertransformer_tf.data.episodes import EpisodeSampler
from hypertransformer_tf.data.sources import load_splits
from hypertransformer_tf.errors import UserError, run_program
from hypertransformer_tf.evaluation.intervals import confidence_interval
from hypertransformer_tf.evaluation.paper import PAPER
from hypertransformer_tf.evaluation.records import text_table
from hypertransformer_tf.models.normalization import check_statistics
from hypertransformer_tf.training import trained
from hypertransformer_tf.training.strategy import configure_threads

# What can be drawn, and how many episodes it takes unless --episodes says otherwise.
EPISODES = {
    "attention": 100,
    "weights": 1242,
    "kernels": 100,
    "episode": 1,
    "features": 1,
    "training": 1,
    "imprinting": 1000,
    "tracking": 1,
}
TRACKED_WAY, TRACKED_SHOT = 5, 4  # of the tasks between which --what=tracking follows a minimum

FLAGS = flags.FLAGS
flags.DEFINE_string("what", None, f"{', '.join(EPISODES)}.")
flags.DEFINE_string("checkpoint", None, "A run's workdir or a checkpoint folder.")
flags.DEFINE_string("output_dir", "pictures", "Folder for pictures and numbers.")
flags.DEFINE_string("format", "png", f"{', '.join(FORMATS)}.")
flags.DEFINE_multi_string("gin_file", [], "Configuration; default: the one kept in the checkpoint.")
flags.DEFINE_multi_string("gin_bindings", [], "One binding; wins over files and checkpoint.")
flags.DEFINE_string("data_dir", None, "Where data sets are; default: $HYPERTRANSFORMER_DATA.")
flags.DEFINE_string("split", "test", "Classes that episodes are made of: train, val or test.")
flags.DEFINE_integer("episodes", None, "Episodes to average over or to map; default: depends on --what.")
flags.DEFINE_integer("shot", None, "Labeled support images per class; default: as in training.")
flags.DEFINE_integer("unlabeled", None, "Unlabeled support images per class; default: as in training.")
flags.DEFINE_integer("seed", 0, "Of the episodes.", 0)
flags.DEFINE_string("statistics", "support", "Batch statistics of query images, for --what=episode.")
flags.DEFINE_string("embedding", "auto", "For --what=weights: auto, umap or pca.")
flags.DEFINE_integer("highlighted", 6, "For --what=weights: classes to highlight.")
flags.DEFINE_multi_string("run", [], "For --what=training: a run's workdir; may be repeated.")
flags.DEFINE_float("paper", None, "For --what=training: the paper's accuracy in percent, if it isn't known.")


def main(argv):
    if len(argv) > 1:
        raise UserError(f"unexpected argument {argv[1]!r}: flags are written as --name=value")
    if not FLAGS.what:
        raise UserError(f"--what is missing: use {', '.join(DRAW)}")
    if FLAGS.what not in DRAW:
        raise UserError(f"--what={FLAGS.what}: unknown, use {', '.join(DRAW)}")
    if FLAGS.format not in FORMATS:
        raise UserError(f"--format={FLAGS.format}: unknown, use {', '.join(FORMATS)}")
    check_statistics(FLAGS.statistics)
    episodes = EPISODES[FLAGS.what] if FLAGS.episodes is None else FLAGS.episodes
    for name, value in (("episodes", episodes), ("highlighted", FLAGS.highlighted)):
        if value < 1:
            raise UserError(f"--{name}={value}: must be at least 1")
    folder = check_folder(Path(FLAGS.output_dir))
    configure_threads()
    DRAW[FLAGS.what](folder, episodes)


def _attention(folder: Path, episodes: int) -> None:
    loaded = _Loaded()
    with _bar(episodes) as bar:
        maps = attention_maps(loaded.model, loaded.sampler(1), episodes, progress=bar.update)
    for name in dict.fromkeys(each.cnn_layer for each in maps):
        of_layer = [each for each in maps if each.cnn_layer == name]
        _say(draw_attention(of_layer, _file(folder, f"attention_{name}"), episodes))
    _say(draw_shares(maps, _file(folder, "attention_shares"), episodes))
    records = shares_record(maps)
    _write(folder / "attention.json", {**loaded.about, "episodes": episodes, "shares": records})
    rows = []
    for each in records:
        shares = ["-" if each["mean"][name] is None else f"{each['mean'][name]:.2f}" for name in SHARES]
        rows.append([each["cnn_layer"], str(each["transformer_layer"]), str(each["head"]), *shares])
    print(text_table(["CNN layer", "Transformer layer", "head", *(NAMES[name] for name in SHARES)], rows))


def _weights(folder: Path, episodes: int) -> None:
    if episodes < weight_map.FEWEST:
        raise UserError(f"--episodes={episodes}: a map of weights needs at least {weight_map.FEWEST}")
    method = weight_map.choose_method(FLAGS.embedding)
    if method == "pca" and FLAGS.embedding == "auto":
        print("umap-learn is missing (requirements-visualize.txt): principal components instead of UMAP")
    loaded = _Loaded()
    with _bar(episodes) as bar:
        weights = generate_many(loaded.model, loaded.sampler(1), episodes, progress=bar.update)
    names = list(weights.layers)
    if len(names) > 1:
        names.append("all")
    points = {}
    for name in tqdm(names, unit=f" {method} maps", dynamic_ncols=True):
        points[name] = weight_map.embed(weights.flat(name), method, FLAGS.seed)
    main_map = points[names[-1]]
    chosen = weight_map.tightest_classes(main_map, weights.class_ids, FLAGS.highlighted)
    if not chosen:
        raise UserError(f"--episodes={episodes}: no class is in two of them, use more")
    arrays = {f"weights_{name}": value for name, value in weights.layers.items()}
    arrays.update({f"embedding_{name}": value for name, value in points.items()})
    np.savez_compressed(folder / "weights.npz", class_ids=weights.class_ids, highlighted=chosen, **arrays)
    _say(folder / "weights.npz")
    the_map = weight_map.WeightMap(method, points)
    _say(draw_weights(the_map, weights.class_ids, chosen, loaded.images, _file(folder, "weights")))
    table = {name: weight_map.spreads(each, weights.class_ids, 2) for name, each in points.items()}
    rows = []
    for each in chosen:
        rows.append([str(each), loaded.images.names[each], *(f"{table[name][each]:.2f}" for name in names)])
    chances = [weight_map.chance_spread(points[name], weights.class_ids, len(chosen) - 1) for name in names]
    rows.append(["", f"rank {len(chosen)} by chance", *(f"{value:.2f}" for value in chances)])
    print(text_table(["class", "name", *(f"spread {name}" for name in names)], rows))


def _kernels(folder: Path, episodes: int) -> None:
    if episodes < 2:
        raise UserError(f"--episodes={episodes}: kernels of two episodes are compared, use at least 2")
    loaded = _Loaded(data=False)
    model = loaded.model
    if model.generated == "logits":
        raise UserError(
            f"checkpoint {loaded.checkpoint.path} generates the logits layer only, its conv kernels are "
            "learned: use --what=weights, or a model with HyperTransformer.num_learned_layers = 0"
        )
    loaded.load_data()
    with _bar(episodes) as bar:
        weights = generate_many(model, loaded.sampler(1), episodes, progress=bar.update)
    changes = {name: kernels.relative_change(value) for name, value in weights.layers.items()}
    shown, learned = {}, set()
    for layer, variables in zip(model.cnn.conv_layers, model.layer_variables):
        if layer.name in weights.layers:
            shown[layer.name] = weights.layers[layer.name][:2]
        else:
            learned.add(layer.name)
            shown[layer.name] = np.stack([variables["kernel"].numpy()] * 2)
    _say(kernels.draw_kernels(shown, changes, _file(folder, "kernels"), frozenset(learned)))
    record = {name: round(change, 4) for name, change in changes.items()}
    _write(folder / "kernels.json", {**loaded.about, "episodes": episodes, "relative_change": record})
    rows = [[name, f"{100 * change:.1f}"] for name, change in changes.items()]
    print(text_table(["layer", "change between episodes, %"], rows))


def _episode(folder: Path, episodes: int) -> None:
    loaded = _Loaded()
    sampler = loaded.sampler(5 * loaded.model.way)
    for index in range(episodes):
        path = _file(folder, "episode" if episodes == 1 else f"episode_{index}")
        accuracy = draw_episode(loaded.model, sampler(tf.constant([index], tf.int64)), path, FLAGS.statistics)
        print(f"{path}: {100 * accuracy:.1f}% of the query images right")


def _features(folder: Path, episodes: int) -> None:
    loaded = _Loaded()
    sampler = loaded.sampler(1)
    for index in range(episodes):
        path = _file(folder, "features" if episodes == 1 else f"features_{index}")
        drawn = sampler(tf.constant([index], tf.int64))
        features = sample_features(loaded.model, drawn.support_images, drawn.support_labels)
        _say(draw_features(features, drawn.support_labels[0].numpy(), loaded.model.way, path))


def _training(folder: Path, episodes: int) -> None:
    places = [Path(place) for place in FLAGS.run or [FLAGS.checkpoint] if place]
    if not places:
        raise UserError("--run is missing: give the workdir of a training run, or several")
    names = [place.name or str(place) for place in places]
    if len(set(names)) < len(names):
        names = [str(place) for place in places]
    runs = {name: read_log(place) for name, place in zip(names, places)}
    paper = _paper_accuracy(places) if FLAGS.paper is None else FLAGS.paper
    _say(draw_training(runs, _file(folder, "training"), paper))
    for name, log in runs.items():
        if "val_accuracy" in log:
            episodes, accuracy = log["val_accuracy"][:, log["val_accuracy"][1].argmax()]
            print(f"{name}: best validation accuracy {100 * accuracy:.2f}% after {episodes:,.0f} episodes")


def _imprinting(folder: Path, episodes: int) -> None:
    loaded = _Loaded()
    sampler = loaded.sampler(5 * loaded.model.way)
    with _bar(episodes) as bar:
        found = imprinting_accuracies(loaded.model, sampler, episodes, progress=bar.update)
    table = {name: {} for name in PREPARATIONS}
    for (rule, name), accuracies in found.items():
        interval = confidence_interval(accuracies)
        table[name][rule] = {"accuracy": round(100 * interval.mean, 2), "ci95": None}
        if episodes > 1:
            table[name][rule]["ci95"] = round(100 * interval.half_width, 2)
    rules = list(dict.fromkeys(rule for rule, _ in found))
    about = {**loaded.about, "query_per_task": sampler.query, "statistics": "support", "tasks": episodes}
    _write(folder / f"imprinting{_suffix(loaded)}.json", {**about, "percent_by_embeddings": table})
    cells = [
        [f"{table[name][rule]['accuracy']:.2f}" if rule in table[name] else "-" for rule in rules]
        for name in table
    ]
    print(text_table(["embeddings", *rules], [[name, *row] for name, row in zip(table, cells)]))


def _suffix(loaded: _Loaded) -> str:
    return f"_{loaded.unlabeled}_unlabeled" if loaded.unlabeled else ""


def _tracking(folder: Path, episodes: int) -> None:
    loaded = _Loaded(shot=TRACKED_SHOT)
    way = min(TRACKED_WAY, loaded.model.way)
    first, last, labels = two_tasks(loaded.model, loaded.sampler(1), way)
    trackings, record = {}, {**loaded.about, "way": way}
    for name, make in (("Logistic regression", logistic_regression), ("Two-layer net", two_layer_net)):
        loss, size = make(task_path(first, last), labels, way)
        start = np.random.default_rng(FLAGS.seed).normal(0.0, 0.5, size)
        try:
            found = trackings[name] = track_minimum(loss, start)
        except ValueError as error:
            raise UserError(f"{name} on --seed={FLAGS.seed}: {error}; try another seed") from error
        record[name] = {
            "weights": size,
            "followed_to": round(found.reach, 4),
            "largest_relative_error": float(found.relative_errors().max()),
            "optimum_moved_by": round(float(found.relative_moves()[-1]), 4),
            "smallest_curvature": float(found.curvatures.min()),
            "last_loss": {
                "followed": round(float(found.tracked_losses[-1]), 6) if found.reach == 1 else None,
                "optimised": round(float(found.optimised_losses[-1]), 6),
                "first_task_kept": round(float(found.kept_losses[-1]), 6),
            },
        }
    _say(draw_tracking(trackings, _file(folder, "tracking")))
    _write(folder / "tracking.json", record)
    print(json.dumps({name: record[name] for name in trackings}, indent=1))


DRAW = {
    "attention": _attention,
    "weights": _weights,
    "kernels": _kernels,
    "episode": _episode,
    "features": _features,
    "training": _training,
    "imprinting": _imprinting,
    "tracking": _tracking,
}


class _Loaded:
    """The model of --checkpoint and the classes of --split."""

    def __init__(self, data: bool = True, shot: int | None = None):
        if not FLAGS.checkpoint:
            raise UserError(
                "--checkpoint is missing: give a run's workdir, or results/checkpoints/omniglot_fast"
            )
        self.checkpoint = trained.find(FLAGS.checkpoint)
        self.model = self.checkpoint.load_model()
        info = self.checkpoint.manifest
        task = info["task"]
        self.shot = (shot or task["shot"]) if FLAGS.shot is None else FLAGS.shot
        self.unlabeled = task["unlabeled"] if FLAGS.unlabeled is None else FLAGS.unlabeled
        self.images = None
        if data:
            self.load_data()

    def load_data(self) -> None:
        info = self.checkpoint.manifest
        if FLAGS.gin_file:
            configuration.load(FLAGS.gin_file, FLAGS.gin_bindings)
        else:
            configuration.load_text(info.get("config", ""), FLAGS.gin_bindings)
        if FLAGS.split not in ("train", "val", "test"):
            raise UserError(f"--split={FLAGS.split}: unknown, use train, val or test")
        self.images = getattr(load_splits(FLAGS.data_dir), FLAGS.split)

    def sampler(self, query: int) -> EpisodeSampler:
        way = self.model.way
        return EpisodeSampler(
            self.images, way, self.shot, query, self.unlabeled, FLAGS.seed, stream=FLAGS.split
        )

    @property
    def about(self) -> dict:
        """What a record says of its origin."""
        return {
            "checkpoint": str(FLAGS.checkpoint),
            "split": FLAGS.split,
            "classes": self.images.num_classes,
            "way": self.model.way,
            "shot": self.shot,
            "unlabeled": self.unlabeled,
            "seed": FLAGS.seed,
        }


def _paper_accuracy(places: list[Path]) -> float | None:
    """The paper's accuracy for the task of all runs, if it has one."""
    found = set()
    for place in places:
        checkpoint = trained.find(place, must=False) if place.is_dir() else None
        if checkpoint:
            info = checkpoint.manifest
            key = (info["task"]["way"], info["task"]["shot"], info["model"]["channels"])
            found.add(PAPER.get((info["dataset"], *key)))
    return found.pop() if len(found) == 1 else None


def _bar(total: int):
    return tqdm(total=total, unit="episode", dynamic_ncols=True)


def _file(folder: Path, name: str) -> Path:
    return folder / f"{name}.{FLAGS.format}"


def _say(path: Path) -> None:
    print(path)


def _write(path: Path, record: dict) -> None:
    path.write_text(json.dumps(record, indent=1) + "\n")
    _say(path)


if __name__ == "__main__":
    run_program(main)
