"""Omniglot from TensorFlow Datasets: `train` and `test` joined to all 1,623 characters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hypertransformer_tf.data import omniglot
from hypertransformer_tf.data.cache import cached, fingerprint
from hypertransformer_tf.data.class_images import ClassImages
from hypertransformer_tf.errors import UserError

SPLITS = ("train", "test")  # small1 and small2 repeat parts of train


def find_omniglot_tfds(data_dir: Path) -> Path | None:
    """The TFDS folder at or under `data_dir` that holds a prepared Omniglot, None if there is none."""
    for folder in (data_dir, data_dir / "tfds"):
        if any((folder / "omniglot").glob("*/dataset_info.json")):
            return folder
    return None


def load_omniglot_tfds(
    folder: Path, image_size: int = 28, resampling: str = "bilinear", download: bool = False
) -> ClassImages:
    """Reads Omniglot from a TFDS folder, from the cache when it was decoded before.

    Args:
        folder: TFDS data folder, with `omniglot/<version>` in it.
        image_size, resampling: as for `omniglot.load_omniglot`.
        download: let TFDS download and prepare what is not there.

    Returns:
        ClassImages in the order of the official zips, with the same pixels; TFDS does not keep who drew
        an image, so the 20 drawings of a character are sorted by their pixels.

    Raises:
        UserError: when nothing is prepared and can't be downloaded, or drawings are missing.
    """
    if download and find_omniglot_tfds(folder) is None:
        _download(folder)
    files = sorted(file for file in folder.glob("omniglot/*/*") if file.is_file())
    key = fingerprint(files, image_size=image_size, resampling=resampling)
    return cached("omniglot-tfds", key, f"Omniglot ({folder})", lambda: _read(folder, image_size, resampling))


def _read(folder: Path, image_size: int, resampling: str) -> ClassImages:
    drawings: dict[str, dict] = {}
    for alphabet, example in _examples(folder):
        identity = f"{int(example['label']) + 1:04d}"
        image = omniglot.decode(example["image"], f"{folder}: {identity}", image_size, resampling)
        name = f"{alphabet}/character{int(example['alphabet_char_id']) + 1:02d}"
        drawing = drawings.setdefault(identity, {"name": name})
        drawing[f"{len(drawing):02d}"] = image
    for drawing in drawings.values():
        images = sorted((v for k, v in drawing.items() if k != "name"), key=np.ndarray.tobytes)
        drawing.update({f"{index + 1:02d}": image for index, image in enumerate(images)})
    return omniglot.group(drawings, str(folder))


def _examples(folder: Path) -> Iterator[tuple[str, dict]]:
    """(alphabet, example) of both splits, images still encoded.

    Raises:
        UserError: when files are missing or damaged.
    """
    from hypertransformer_tf.backend import tf

    tfds = _tfds()
    try:
        builder = tfds.builder("omniglot", data_dir=str(folder))
        for split in SPLITS:
            examples = builder.as_dataset(split=split, decoders={"image": tfds.decode.SkipDecoding()})
            for example in tfds.as_numpy(examples):
                yield builder.info.features["alphabet"].int2str(int(example["alphabet"])), example
    except (tf.errors.OpError, AssertionError, OSError, ValueError) as error:
        text = str(error).splitlines()[0]
        raise UserError(
            f"{folder}/omniglot can't be read ({text}): remove it and let TFDS prepare it again"
        ) from error


def _download(folder: Path) -> None:
    try:
        _tfds().builder("omniglot", data_dir=str(folder)).download_and_prepare()
    except Exception as error:
        raise UserError(
            f"TFDS can't bring Omniglot to {folder} ({type(error).__name__}: {error}): give the folder with "
            "images_background.zip and images_evaluation.zip as --data_dir"
        ) from error


def _tfds():
    import tensorflow_datasets as tfds

    return tfds
