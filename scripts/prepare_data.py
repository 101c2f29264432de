"""Decodes a data set into the cache and says what is in it.

    python scripts/prepare_data.py --gin_file=gin/miniimagenet.gin --data_dir=FOLDER_WITH_THE_FILES
    python scripts/prepare_data.py --data_dir=FOLDER --gin_bindings='load_splits.name = "cifar_fs"'

Prints classes, images and sizes of each split, and how many images lie in more than one split or more than
once in one. A training does the same decoding by itself when it starts.
"""

import hashlib
import itertools
import sys
from pathlib import Path

import numpy as np
from absl import flags

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from hypertransformer_tf import configuration  # noqa: E402
from hypertransformer_tf.data.cache import cache_dir  # noqa: E402
from hypertransformer_tf.data.class_images import ClassImages  # noqa: E402
from hypertransformer_tf.data.sources import load_splits  # noqa: E402
from hypertransformer_tf.errors import run_program  # noqa: E402

FLAGS = flags.FLAGS
flags.DEFINE_multi_string("gin_file", [], "Configurations that name the data set.")
flags.DEFINE_multi_string("gin_bindings", [], "Bindings on top of the files.")
flags.DEFINE_string("data_dir", None, "Where the data is; default: $HYPERTRANSFORMER_DATA.")


def describe(images: ClassImages) -> str:
    """Classes, images and sizes in one line."""
    height, width, channels = images.image_shape
    least, most = int(images.counts.min()), int(images.counts.max())
    per_class = f"{least}" if least == most else f"{least} to {most}"
    size = images.num_images * height * width * channels / 1e6
    return (
        f"{images.num_classes} classes, {images.num_images:,} images ({per_class} a class), "
        f"{height}x{width}x{channels}, {size:,.1f} MB decoded"
    )


def hashes(images: ClassImages) -> np.ndarray:
    """uint64 [image], a hash of the pixels of each image."""
    found = [
        int.from_bytes(hashlib.blake2b(np.ascontiguousarray(image), digest_size=8).digest(), "little")
        for index in range(images.num_classes)
        for image in images.class_array(index)
    ]
    return np.array(found, np.uint64)


def duplicates(parts: dict[str, ClassImages]) -> list[str]:
    """Lines that say how many different images come again, within each split and between two splits."""
    of_part = {name: np.unique(hashes(images), return_counts=True) for name, images in parts.items()}
    lines = [
        f"{(counts > 1).sum()} images come more than once in {name}" for name, (_, counts) in of_part.items()
    ]
    for (one, (first, _)), (other, (second, _)) in itertools.combinations(of_part.items(), 2):
        lines.append(f"{len(np.intersect1d(first, second))} images are in both {one} and {other}")
    return lines


def main(_):
    configuration.load(FLAGS.gin_file, FLAGS.gin_bindings)
    splits = load_splits(FLAGS.data_dir)
    parts = {"train": splits.train, "val": splits.val, "test": splits.test}
    print(f"{splits.name}: {sum(p.num_classes for p in parts.values())} classes, cache {cache_dir()}")
    for name, images in parts.items():
        print(f"{name}: {describe(images)}")
    for line in duplicates(parts):
        print(line)


if __name__ == "__main__":
    run_program(main)
