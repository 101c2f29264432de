"""Draws what each augmentation does to the images of an episode.

    python scripts/augmentation_sheet.py --output=sheet.png
    python scripts/augmentation_sheet.py --gin_file=FILE.gin --scope=image

A row for each augmentation, always on, over the same images; the last row is the configuration's own
augmentation. Two columns for each class: with --scope=class the two are changed alike.
"""

import dataclasses
import os
import sys
from pathlib import Path

import numpy as np
from absl import flags
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from hypertransformer_tf import configuration  # noqa: E402
from hypertransformer_tf.analysis.episode_picture import show_image  # noqa: E402
from hypertransformer_tf.backend import tf  # noqa: E402
from hypertransformer_tf.data.augmentation import SCOPES, Augmentation  # noqa: E402
from hypertransformer_tf.data.class_images import ClassImages  # noqa: E402
from hypertransformer_tf.data.episodes import EpisodeSampler  # noqa: E402
from hypertransformer_tf.data.sources import load_splits  # noqa: E402
from hypertransformer_tf.errors import run_program  # noqa: E402

FLAGS = flags.FLAGS
flags.DEFINE_multi_string("gin_file", ["gin/glyphs.gin"], "Configuration: data set, ranges of the changes.")
flags.DEFINE_multi_string("gin_bindings", [], "One binding; wins over files.")
flags.DEFINE_string("data_dir", None, "Where data sets are; default: $HYPERTRANSFORMER_DATA.")
flags.DEFINE_enum("scope", "class", SCOPES, "Who shares a draw.")
flags.DEFINE_integer("way", 6, "Classes, two images of each.", 2)
flags.DEFINE_integer("task", 0, "Number of the episode.", 0)
flags.DEFINE_string("output", "augmentations.png", "Picture to write.")


def rows_of(images: ClassImages) -> dict[str, Augmentation]:
    """{name of a row: augmentation}, those that the images allow."""
    configured = Augmentation()
    chances = [f.name for f in dataclasses.fields(Augmentation) if f.name.endswith("_probability")]
    nothing = {**dict.fromkeys(chances, 0.0), "quarter_turns": False, "image_augmentations": False}
    height, width, channels = images.image_shape
    singles = {name[: -len("_probability")]: {name: 1.0} for name in chances}
    if height == width:
        singles["quarter turns"] = {"quarter_turns": True}
    if channels == 3:
        singles["photograph"] = {"image_augmentations": True, "augment_individually": FLAGS.scope == "image"}
    rows = {
        name: dataclasses.replace(configured, scope=FLAGS.scope, **{**nothing, **options})
        for name, options in {"none": {}, **singles}.items()
    }
    return {**rows, "configured": configured}


def main(_):
    configuration.load(FLAGS.gin_file, FLAGS.gin_bindings)
    images = load_splits(FLAGS.data_dir).train
    rows = rows_of(images)
    columns = 2 * FLAGS.way
    figure = Figure(figsize=(0.9 * columns, 1.0 * len(rows)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(rows), columns)
    for (name, augmentation), line in zip(rows.items(), axes):
        sampler = EpisodeSampler(images, FLAGS.way, 1, columns, augmentation=augmentation)
        episode = sampler(tf.constant([FLAGS.task], tf.int64))
        order = np.argsort(episode.query_labels[0].numpy(), kind="stable")
        for axis, number in zip(line, order):
            show_image(axis, episode.query_images[0, number].numpy(), "", "black", 1.0)
        line[0].set_ylabel(name, fontsize=7)
    path = Path(FLAGS.output)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.part{path.suffix}")
    figure.savefig(temporary, dpi=110)
    os.replace(temporary, path)
    print(f"{len(rows)} rows x {columns} images of {images.source}: {path}")


if __name__ == "__main__":
    run_program(main)
