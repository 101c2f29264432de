"""Class splits: which classes are for training, validation and test."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hypertransformer_tf.data.class_images import ClassImages
from hypertransformer_tf.errors import UserError

REFERENCE_SEED = 2022
# Omniglot's ranges in the reference implementation, after its seeded permutation.
OMNIGLOT_RANGES = {"train": "0-1149", "val": "1150-1199", "test": "1200-1622"}


class Splits(NamedTuple):
    """A data set's name and its classes for training, for choices made while training, and for results."""

    name: str
    train: ClassImages
    val: ClassImages
    test: ClassImages


def parse_ranges(text: str) -> list[int]:
    """Class numbers of a list of inclusive ranges: "1-3,7" -> [1, 2, 3, 7].

    Raises:
        UserError: when the text is no such list.
    """
    numbers = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last:
            raise UserError(f"class ranges {text!r}: {part.strip()!r} is no range like 0-1149 or 7")
        numbers.extend(range(first, last + 1))
    if len(set(numbers)) != len(numbers):
        raise UserError(f"class ranges {text!r} name a class twice")
    return numbers


def parse_spec(spec: str) -> tuple[str, list[int] | None]:
    """Data set and classes of a spec: "omniglot:0-1149" -> ("omniglot", [0, ..., 1149]).

    Without a colon the classes are None: all of them.
    """
    name, colon, ranges = spec.partition(":")
    return name, parse_ranges(ranges) if colon else None


def reference_permutation(num_classes: int, seed: int = REFERENCE_SEED) -> list[int]:
    """Order of the classes after the reference implementation's seeded shuffle."""
    order = list(range(num_classes))
    random.Random(seed).shuffle(order)
    return order


def split_by_ranges(
    name: str, images: ClassImages, ranges: dict[str, str], seed: int | None = REFERENCE_SEED
) -> Splits:
    """Splits classes by ranges of their numbers, after a seeded permutation.

    Args:
        name: of the data set.
        images: all classes.
        ranges: {"train": "0-1149", "val": ..., "test": ...}.
        seed: of the permutation; None = keep the order.

    Raises:
        UserError: when ranges overlap or reach beyond the classes.
    """
    order = (
        list(range(images.num_classes)) if seed is None else reference_permutation(images.num_classes, seed)
    )
    taken: dict[int, str] = {}
    parts = []
    for split in ("train", "val", "test"):
        numbers = parse_ranges(ranges[split])
        for number in numbers:
            if number in taken:
                raise UserError(
                    f"class {number} is in the splits {taken[number]} and {split}: part the ranges"
                )
            if number >= images.num_classes:
                raise UserError(
                    f"the {split} range {ranges[split]!r} reaches class {number}, {images.source} has "
                    f"{images.num_classes} classes (from 0)"
                )
            taken[number] = split
        parts.append(images.select([order[n] for n in numbers], f"{images.source}, {split} classes"))
    return Splits(name, *parts)


def split_by_names(name: str, images: ClassImages, lists: dict[str, list[str]], where: str) -> Splits:
    """Splits classes by lists of their names.

    Args:
        name: of the data set.
        images: all classes.
        lists: {"train": names, "val": names, "test": names}.
        where: origin of the lists, for messages.

    Raises:
        UserError: for a name that is no class or is in two lists.
    """
    number_of = {class_name: number for number, class_name in enumerate(images.names)}
    taken: dict[str, str] = {}
    parts = []
    for split in ("train", "val", "test"):
        for class_name in lists[split]:
            if class_name not in number_of:
                raise UserError(f"{where}: the {split} class {class_name!r} is not in {images.source}")
            if class_name in taken:
                raise UserError(f"{where}: class {class_name!r} is in {taken[class_name]} and in {split}")
            taken[class_name] = split
        parts.append(images.select([number_of[n] for n in lists[split]], f"{images.source}, {split} classes"))
    return Splits(name, *parts)


def read_names(folder: Path) -> dict[str, list[str]]:
    """Names, one a line, of train.txt, val.txt and test.txt in a folder.

    Raises:
        UserError: when a file is missing or empty.
    """
    lists = {}
    for split in ("train", "val", "test"):
        path = folder / f"{split}.txt"
        if not path.is_file():
            raise UserError(
                f"split file {path} does not exist: give the folder of train.txt, val.txt, test.txt"
            )
        lists[split] = [line.strip() for line in path.read_text().splitlines() if line.strip()]
        if not lists[split]:
            raise UserError(f"split file {path} names no class")
    return lists


def join_training(name: str, splits: list[Splits]) -> Splits:
    """The first data set with the training classes of the others as further training classes.

    Args:
        name: of the result.
        splits: of the data sets; validation and test classes are those of the first.

    Raises:
        UserError: when images differ in shape.
    """
    parts = [each.train for each in splits]
    arrays = [part.class_array(index) for part in parts for index in range(part.num_classes)]
    names = [class_name for part in parts for class_name in part.names]
    train = ClassImages.from_class_arrays(arrays, names, " + ".join(part.source for part in parts))
    return Splits(name, train, splits[0].val, splits[0].test)


def add_rotations(images: ClassImages) -> ClassImages:
    """Four classes for each one: turned by 0, 90, 180 and 270 degrees, named ".../rot000" to ".../rot270".

    Vinyals' split of Omniglot counts rotated characters as classes of their own.
    """
    arrays, names = [], []
    for index, class_name in enumerate(images.names):
        for turns in range(4):
            arrays.append(np.rot90(images.class_array(index), turns, (1, 2)))
            names.append(f"{class_name}/rot{90 * turns:03d}")
    return ClassImages.from_class_arrays(arrays, names, images.source)
