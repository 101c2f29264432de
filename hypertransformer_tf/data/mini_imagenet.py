"""miniImageNet in the forms in which it is handed around: 64 / 16 / 20 classes of 600 images, 84x84 RGB.

mini-imagenet-cache-{train,val,test}.pkl: `image_data` and `class_dict` {class: rows of its images}
miniImageNet_category_split_{train_phase_train,val,test}.pickle: `data` and `labels`
images/ with {train,val,test}.csv: lines "file name,class" below a header
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from hypertransformer_tf.data.cache import cached, fingerprint
from hypertransformer_tf.data.class_images import ClassImages
from hypertransformer_tf.data.file_tree import read_text
from hypertransformer_tf.data.found import PARTS, find_forms
from hypertransformer_tf.data.image_folder import rows_of_files
from hypertransformer_tf.data.labelled_pickle import load_labelled_pickle
from hypertransformer_tf.data.rows import Rows, check_images, rows_of_array
from hypertransformer_tf.data.splits import Splits
from hypertransformer_tf.data.unpickling import read_dict
from hypertransformer_tf.errors import UserError

IMAGE_SIZE = 84
FOLDERS = ("miniimagenet", "mini-imagenet", "mini_imagenet", "miniImageNet")
FORMS = {
    "class_dict": {
        "train": ["mini-imagenet-cache-train.pkl"],
        "val": ["mini-imagenet-cache-val.pkl", "mini-imagenet-cache-validation.pkl"],
        "test": ["mini-imagenet-cache-test.pkl"],
    },
    "labels": {
        "train": ["miniImageNet_category_split_train_phase_train.pickle"],
        "val": ["miniImageNet_category_split_val.pickle"],
        "test": ["miniImageNet_category_split_test.pickle"],
    },
    "csv": {"train": ["train.csv"], "val": ["val.csv"], "test": ["test.csv"]},
}


def load_mini_imagenet(base: Path, image_size: int | None = None) -> Splits:
    """Reads miniImageNet, from the cache when it was decoded before.

    Args:
        base: folder with the files of one form, or with a folder `miniimagenet` or `mini-imagenet` of them.
        image_size: side of the images; None = as stored, and 84 for loose image files.

    Returns:
        Splits as the files have them, images uint8 [image, height, width, 3] in RGB; classes in the order
        of the files: that of `class_dict`, of the labels, or of the first mention in the csv file.

    Raises:
        UserError: naming the file that is missing, damaged, or holds something else.
    """
    form, files = find_forms(base, FOLDERS, FORMS, "miniImageNet")
    load = {"class_dict": _load_class_dict, "labels": load_labelled_pickle, "csv": _load_csv}[form]
    return Splits("miniimagenet", *(load(files[part], image_size) for part in PARTS))


def _load_class_dict(file: Path, image_size: int | None) -> ClassImages:
    def build():
        content = read_dict(file, "image_data", "class_dict")
        images, rows_of = content["image_data"], content["class_dict"]
        check_images(images, str(file))
        if not isinstance(rows_of, dict) or not rows_of:
            raise UserError(f"{file}: class_dict holds no classes: fetch it again")
        labels = _labels_of(rows_of, len(images), file)
        return rows_of_array(images, labels, [str(name) for name in rows_of], str(file), image_size)

    return cached(file.stem.lower(), fingerprint([file], image_size=image_size), str(file), build)


def _labels_of(rows_of: dict, num_images: int, file: Path) -> np.ndarray:
    """int64 [image]: class of each image; -1 for images of no class."""
    labels = np.full(num_images, -1, np.int64)
    for number, (name, rows) in enumerate(rows_of.items()):
        rows = np.asarray(rows)
        if rows.ndim != 1 or rows.dtype.kind not in "iu" or (rows < 0).any() or (rows >= num_images).any():
            raise UserError(f"{file}: the rows of class {name!r} are not in its {num_images} images")
        if (labels[rows] >= 0).any() or len(np.unique(rows)) != len(rows):
            raise UserError(f"{file}: an image of class {name!r} is listed twice in class_dict")
        labels[rows] = number
    return labels


def _load_csv(file: Path, image_size: int | None) -> ClassImages:
    size = image_size or IMAGE_SIZE
    folder = file.parent / "images"
    classes = _read_csv(file, folder)
    key = fingerprint([file, *(path for paths in classes.values() for path in paths)], image_size=size)

    def build() -> Rows:
        return rows_of_files(list(classes), list(classes.values()), str(file), size, 3)

    return cached(f"miniimagenet-{file.stem}", key, str(file), build)


def _read_csv(file: Path, folder: Path) -> dict[str, list[Path]]:
    """Image files of each class, both in the order of the lines."""
    classes: dict[str, list[Path]] = {}
    for line in csv.reader(read_text(file).splitlines()[1:]):
        if not line:
            continue
        if len(line) != 2:
            raise UserError(f"{file}: line {','.join(line)!r} is not 'file name,class'")
        path = folder / line[0]
        if not path.is_file():
            raise UserError(f"{file} names {path}, which does not exist: put the images into {folder}")
        classes.setdefault(line[1], []).append(path)
    if not classes:
        raise UserError(f"{file} names no images: fetch it again")
    return classes
