"""Finds and loads data sets by name, split into training, validation and test classes."""

from __future__ import annotations

import os
import re
from pathlib import Path

import gin

from hypertransformer_tf.data import splits as class_splits
from hypertransformer_tf.data.array_file import load_array
from hypertransformer_tf.data.cifar_fs import load_cifar_fs
from hypertransformer_tf.data.class_images import ClassImages
from hypertransformer_tf.data.embeddings import load_embeddings
from hypertransformer_tf.data.glyphs import load_glyphs
from hypertransformer_tf.data.image_folder import load_image_folder
from hypertransformer_tf.data.mini_imagenet import load_mini_imagenet
from hypertransformer_tf.data.omniglot import find_omniglot, load_omniglot
from hypertransformer_tf.data.omniglot_tfds import find_omniglot_tfds, load_omniglot_tfds
from hypertransformer_tf.data.splits import Splits
from hypertransformer_tf.data.tfds_classes import load_tfds
from hypertransformer_tf.data.tiered_imagenet import load_tiered_imagenet
from hypertransformer_tf.errors import UserError

DATA_VARIABLE = "HYPERTRANSFORMER_DATA"
TFDS_DEFAULT = "~/tensorflow_datasets"
OMNIGLOT_SIZE = 28
# Data sets whose files are split already: functions of the folder and the size of the images.
SPLIT_SETS = {
    "miniimagenet": load_mini_imagenet,
    "tieredimagenet": load_tiered_imagenet,
    "cifar_fs": load_cifar_fs,
}
NAMES = ("omniglot", "omniglot_tfds", "npy", "embeddings", "folder", "glyphs", *SPLIT_SETS, "tfds:<name>")


@gin.configurable(denylist=["data_dir"])
def load_splits(
    data_dir: str | None = None,
    name: str = "omniglot",
    split: str = "reference",
    train: str = class_splits.OMNIGLOT_RANGES["train"],
    val: str = class_splits.OMNIGLOT_RANGES["val"],
    test: str = class_splits.OMNIGLOT_RANGES["test"],
    shuffle_seed: int | None = class_splits.REFERENCE_SEED,
    split_dir: str | None = None,
    rotated_classes: bool = True,
    rotated_training: bool = False,
    image_size: int | None = None,
    resampling: str = "bilinear",
    channels: int = 1,
    images_per_class: int = 20,
    download: bool = False,
    label: str | None = None,
) -> Splits:
    """Loads a data set and splits its classes.

    Args:
        data_dir: where the data is; None = $HYPERTRANSFORMER_DATA, else TFDS's default folder.
        name: "omniglot": the official zips or their unpacked folders, in `data_dir` or `data_dir`/omniglot;
            "omniglot_tfds": a prepared TFDS folder, `data_dir` or `data_dir`/tfds; "npy": `data_dir` is an
            .npy file [classes, images, height, width, channels]; "embeddings": it is an .npz file with an
            array [images, size] for each class; "folder": `data_dir` holds a folder of
            images for each class, or a zip of them; "tfds:<name>": any classification set of TFDS, as
            "tfds:kmnist"; "glyphs": drawn from fonts, needs no data, split by script; "miniimagenet",
            "tieredimagenet", "cifar_fs": `data_dir` or a folder of that name in it holds one of the
            published forms, whose files are the split; "omniglot+glyphs": Omniglot, with the training
            classes of glyphs as further training classes.
        split: "reference": seeded permutation and ranges; "names": train.txt, val.txt and test.txt with
            class names in `split_dir`; "vinyals": the same with names like "Hebrew/character01/rot090".
        train, val, test: ranges of class numbers, with or without a name before: "0-9,20" or
            "omniglot:0-9,20".
        shuffle_seed: of the permutation of the classes; None = none.
        split_dir: folder of split files; None = `data_dir`, for "vinyals"
            `data_dir`/splits/omniglot_vinyals.
        rotated_classes: with "vinyals", keep rotated characters as classes; else the unrotated ones only.
        rotated_training: training classes turned by 90, 180 and 270 degrees are further training classes, for
            methods that tell all of them apart; those that learn from episodes have Task.rotate.
        image_size: side that images are resized to; None = 28 for Omniglot and folders, 84 and 32 for
            loose files of miniImageNet and CIFAR-FS, else as stored. Not for "npy" and "glyphs".
        resampling: see `load_omniglot`.
        channels: of the images of folders: 1 = grey, 3 = RGB.
        images_per_class: of glyphs.
        download: let TFDS download what is not there.
        label: what results call a "folder", "npy" or "embeddings" data set; None = its `name`.

    Returns:
        Splits.

    Raises:
        UserError: for unknown names, data that is nowhere, or an impossible split.
    """
    given = dict(locals())
    if rotated_training:
        if split == "vinyals" and rotated_classes:
            raise UserError("load_splits.rotated_training: the split 'vinyals' has rotated classes already")
        splits = load_splits(**{**given, "rotated_training": False})
        height, width, _ = splits.train.image_shape
        if height != width or name == "embeddings":
            raise UserError(f"load_splits.rotated_training needs square images, {name} has {height}x{width}")
        return splits._replace(train=class_splits.add_rotations(splits.train))
    if name.endswith("+glyphs"):
        first = load_splits(**{**given, "name": name[: -len("+glyphs")]})
        return class_splits.join_training(name, [first, load_glyphs(images_per_class)])
    known = name in NAMES or name.startswith("tfds:")
    if not known or name == NAMES[-1]:
        raise UserError(f"unknown data set load_splits.name = {name!r}: use {', '.join(NAMES)}")
    if name == "glyphs" or name in SPLIT_SETS:
        if (split, train, val, test) != ("reference", *class_splits.OMNIGLOT_RANGES.values()):
            how = "by script" if name == "glyphs" else "by their files"
            raise UserError(f"{name} are split {how}: remove load_splits.split, .train, .val and .test")
        if name == "glyphs":
            return load_glyphs(images_per_class)
    base = Path(data_dir or os.environ.get(DATA_VARIABLE) or TFDS_DEFAULT).expanduser()
    if name in SPLIT_SETS:
        return SPLIT_SETS[name](base, image_size)
    if name == "folder":
        images = load_image_folder(base, image_size or OMNIGLOT_SIZE, channels)
    elif name.startswith("tfds:"):
        images = load_tfds(base, name[len("tfds:") :], image_size, download)
    else:
        images = _load_images(name, base, image_size or OMNIGLOT_SIZE, resampling, download)
    label = re.sub(r"[^\w.+-]", "-", label or name)  # it becomes part of file names
    if split == "reference":
        ranges = {"train": train, "val": val, "test": test}
        for part, text in ranges.items():
            prefix, colon, numbers = text.rpartition(":")
            if colon and prefix != name:
                raise UserError(
                    f"load_splits.{part} = {text!r} is of {prefix!r}, load_splits.name is {name!r}"
                )
            ranges[part] = numbers
        return class_splits.split_by_ranges(label, images, ranges, shuffle_seed)
    if split == "names":
        folder = Path(split_dir).expanduser() if split_dir else base if base.is_dir() else base.parent
        if split_dir is None and not (folder / "train.txt").is_file():
            raise UserError(
                f"load_splits.split = 'names' needs train.txt, val.txt and test.txt in {folder}, or "
                "load_splits.split_dir, the folder that holds them"
            )
        return class_splits.split_by_names(label, images, class_splits.read_names(folder), str(folder))
    if split == "vinyals":
        folder = Path(split_dir).expanduser() if split_dir else base / "splits" / "omniglot_vinyals"
        lists = class_splits.read_names(folder)
        if not rotated_classes:
            lists = {part: [n for n in names if n.endswith("/rot000")] for part, names in lists.items()}
        return class_splits.split_by_names(label, class_splits.add_rotations(images), lists, str(folder))
    raise UserError(f"unknown load_splits.split = {split!r}: use reference, names or vinyals")


def _load_images(name: str, base: Path, image_size: int, resampling: str, download: bool) -> ClassImages:
    if name == "npy":
        return load_array(base)
    if name == "embeddings":
        return load_embeddings(base)
    if name == "omniglot":
        folder = find_omniglot(base)
        if folder is not None:
            return load_omniglot(folder, image_size, resampling)
    folder = find_omniglot_tfds(base)
    if folder is not None or download:
        return load_omniglot_tfds(folder or base, image_size, resampling, download)
    raise UserError(
        f"no Omniglot in {base}: give --data_dir (or {DATA_VARIABLE}) with images_background.zip and "
        "images_evaluation.zip, or a TFDS folder; or let TFDS download it with "
        "--gin_bindings='load_splits.download = True'; or try --gin_file=gin/glyphs.gin, which needs no data"
    )
