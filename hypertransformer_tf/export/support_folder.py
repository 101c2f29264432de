"""A support set from a folder of class folders."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hypertransformer_tf.data.image_folder import find_images
from hypertransformer_tf.errors import UserError
from hypertransformer_tf.export.preparation import Preparation

UNLABELED = "unlabeled"


class Support(NamedTuple):
    """A support set.

    Attributes:
        images: uint8 [support, height, width, channels].
        labels: int32 [support], class numbers in the order of `names`; `way` of the model = unlabeled.
        names: class names in alphabetical order.
        counts: labeled images of each class.
        unlabeled: number of unlabeled images, at the end.
        skipped: a line for each file that could not be used.
    """

    images: np.ndarray
    labels: np.ndarray
    names: tuple[str, ...]
    counts: tuple[int, ...]
    unlabeled: int
    skipped: tuple[str, ...]


def read_support(
    folder: Path,
    preparation: Preparation,
    way: int,
    semi_supervised: bool = False,
    max_per_class: int = 100,
    strict: bool = False,
) -> Support:
    """Reads a support set; says on stderr which files it has to leave out, one line each.

    Args:
        folder: holds a folder of images for each class, and possibly a folder "unlabeled".
        preparation: of the images.
        way: classes that the model has label embeddings for.
        semi_supervised: the model was trained with unlabeled samples; others pass "unlabeled" over.
        max_per_class: most images of a class; of more, as many are taken at even distances.
        strict: a file that is no image is an error.

    Raises:
        UserError: for fewer than two classes, more than `way`, a class without a readable image, class
            names that differ in case only, or what `find_images` finds wrong.
    """
    files = find_images(folder)
    unlabeled = files.pop(UNLABELED, [])
    if len(files) < 2:
        raise UserError(
            f"{folder} holds {len(files)} class folder{'s'[: len(files) != 1]}: "
            "a classifier needs at least 2 classes"
        )
    if len(files) > way:
        raise UserError(
            f"{folder} holds {len(files)} classes, the checkpoint has label embeddings for {way}: "
            f"remove some, or train with Task.way = {len(files)}"
        )
    if all(file.parent.parent != folder for of_class in files.values() for file in of_class):
        _warn(
            f"the class folders {', '.join(list(files)[:3])} of {folder} hold folders only: if those are the "
            "classes, name the folder that holds them"
        )
    lowered: dict[str, str] = {}
    for name in files:
        other = lowered.setdefault(name.casefold(), name)
        if other != name:
            raise UserError(
                f"the class folders {other!r} and {name!r} differ only in upper and lower case: rename one"
            )
    if unlabeled and not semi_supervised:
        _warn(f"{folder / UNLABELED} is passed over: the checkpoint was trained without unlabeled samples")
        unlabeled = []

    skipped: list[str] = []
    arrays, labels = [], []
    for label, (name, of_class) in enumerate([*files.items(), (UNLABELED, unlabeled)]):
        chosen = _spread(of_class, max_per_class)
        if len(chosen) < len(of_class):
            _warn(f"{folder / name}: {len(chosen)} of {len(of_class)} images are used (--max_per_class)")
        images = _read_all(chosen, preparation, strict, skipped)
        if not images and name in files:
            raise UserError(f"the class folder {folder / name} holds no readable image: {skipped[-1]}")
        arrays += images
        labels += [label if name in files else way] * len(images)
    counts = np.bincount(labels, minlength=len(files))
    return Support(
        np.stack(arrays),
        np.array(labels, np.int32),
        tuple(os.fsencode(name).decode("utf-8", "replace") for name in files),
        tuple(counts[: len(files)].tolist()),
        int(np.sum(np.array(labels) == way)) if unlabeled else 0,
        tuple(skipped),
    )


def _read_all(files, preparation: Preparation, strict: bool, skipped: list[str]) -> list[np.ndarray]:
    images = []
    for file in files:
        try:
            images.append(preparation.read(file))
        except UserError as error:
            if strict:
                raise
            skipped.append(str(error))
            _warn(f"left out: {error}")
    return images


def _spread(items: list, most: int) -> list:
    if len(items) <= most:
        return items
    return [items[i] for i in np.linspace(0, len(items) - 1, most).round().astype(int)]


def _warn(text: str) -> None:
    print(f"warning: {' '.join(text.split())}", file=sys.stderr)
