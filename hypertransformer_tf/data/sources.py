"""Finds and loads data sets by name, split into training, validation and test classes."""

from __future__ import annotations

import os
from pathlib import Path

import gin

from hypertransformer_tf.data import omniglot, splits
from hypertransformer_tf.data.glyphs import load_glyphs
from hypertransformer_tf.errors import UserError

DATA_VARIABLE = "HYPERTRANSFORMER_DATA"


@gin.configurable(denylist=["data_dir"])
def load_splits(
    data_dir: str | None = None,
    name: str = "omniglot",
    train: str = splits.OMNIGLOT_RANGES["train"],
    val: str = splits.OMNIGLOT_RANGES["val"],
    test: str = splits.OMNIGLOT_RANGES["test"],
    shuffle_seed: int | None = splits.REFERENCE_SEED,
    image_size: int = 28,
    resampling: str = "bilinear",
) -> splits.Splits:
    """Loads a data set and splits its classes."""
    if name == "glyphs":
        return load_glyphs()
    if name != "omniglot":
        raise UserError(f"unknown data set {name!r}: use omniglot")
    base = Path(data_dir or os.environ.get(DATA_VARIABLE) or "~/tensorflow_datasets").expanduser()
    folder = omniglot.find_omniglot(base)
    if folder is None:
        raise UserError(f"no Omniglot in {base}: use --gin_file=gin/glyphs.gin")
    images = omniglot.load_omniglot(folder, image_size, resampling)
    return splits.split_by_ranges(name, images, {"train": train, "val": val, "test": test}, shuffle_seed)
