"""Any image classification set of TensorFlow Datasets: its splits joined, grouped by label."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hypertransformer_tf.data.cache import cached, fingerprint
from hypertransformer_tf.data.class_images import ClassImages
from hypertransformer_tf.data.rows import Rows, in_chunks, number_classes, resize_image, rows_by_label
from hypertransformer_tf.errors import UserError

SPLITS = ("train", "validation", "test")
_TRANSPOSED = ("emnist",)  # TFDS keeps these as the original files do, rows and columns exchanged


def load_tfds(base: Path, name: str, image_size: int | None = None, download: bool = False) -> ClassImages:
    """Reads a set from a TFDS folder, from the cache when it was decoded before.

    Args:
        base: TFDS data folder, with `<name>/<version>` in it, or a folder with such a one named `tfds`.
        name: of the set in TFDS, as "kmnist" or "emnist/balanced".
        image_size: side of the square that images are resized to; None = as stored.
        download: let TFDS download and prepare what is not there.

    Returns:
        ClassImages of the labeled images of train, validation and test together, uint8 [image, height,
        width, channels]; classes in the order of TFDS's labels, those without images left out; images in
        the order of TFDS. Images of emnist are the right way up.

    Raises:
        UserError: when TFDS has no such set, it has no images with one label each, it is not prepared and
            can't be downloaded, it is damaged, or its images differ in shape and no size is given.
    """
    prepared = f"{name.split('/')[0]}/**/dataset_info.json"
    folder = next((f for f in (base, base / "tfds") if any(f.glob(prepared))), base)
    builder = _builder(name, folder)
    if download:
        _download(builder, name, folder)
    files = sorted(file for file in (folder / builder.info.full_name).glob("*") if file.is_file())
    options = {"set": builder.info.full_name, "folder": str(folder.resolve()), "image_size": image_size}
    source = f"{name} of TFDS ({folder})"
    label = "tfds-" + re.sub(r"\W+", "-", name)
    return cached(
        label, fingerprint(files, **options), source, lambda: _rows(builder, name, source, image_size)
    )


def _rows(builder, name: str, source: str, image_size: int | None) -> Rows:
    import tensorflow_datasets as tfds

    image_key, label_key = _keys(builder, name)
    encoded = {image_key: tfds.decode.SkipDecoding()}
    labels = [int(example[label_key]) for example in _examples(builder, source, encoded)]
    if not labels:
        raise UserError(f"{source} holds no images: remove it and let TFDS prepare it again")
    labeled = np.array(labels) >= 0  # some sets have test images without a label
    numbers = np.full(len(labels), -1)
    numbers[labeled], values = number_classes(np.array(labels)[labeled], source)
    to_name = builder.info.features[label_key].int2str

    def prepare(image: np.ndarray) -> np.ndarray:
        image = image.swapaxes(0, 1) if name.split("/")[0] in _TRANSPOSED else image
        return resize_image(image, image_size, image_size) if image_size else image

    def stream() -> Iterator[np.ndarray]:
        images = (prepare(example[image_key]) for example in _examples(builder, source, None))
        return in_chunks(images, source, "set load_splits.image_size")

    first = prepare(next(_examples(builder, source, None))[image_key])
    if first.dtype != np.uint8:
        raise UserError(f"{source} has images of type {first.dtype}: only uint8 images are read")
    return rows_by_label(numbers, [to_name(int(v)) for v in values], first.shape, stream, source)


def _keys(builder, name: str) -> tuple[str, str]:
    """Names of the image and of the label in an example."""
    import tensorflow_datasets as tfds

    features = dict(getattr(builder.info.features, "items", dict().items)())
    keys = builder.info.supervised_keys
    if keys and len(keys) == 2 and all(isinstance(key, str) for key in keys):
        image, label = keys
    else:
        image, label = "image", "label"
    is_image = isinstance(features.get(image), tfds.features.Image)
    if not is_image or not isinstance(features.get(label), tfds.features.ClassLabel):
        raise UserError(
            f"load_splits.name = 'tfds:{name}' has no images with one label each: use another set"
        )
    return image, label


def _examples(builder, source: str, decoders) -> Iterator[dict]:
    import tensorflow_datasets as tfds

    from hypertransformer_tf.backend import tf

    splits = [split for split in SPLITS if split in builder.info.splits] or ["train", "test"]
    try:
        for split in splits:
            yield from tfds.as_numpy(builder.as_dataset(split=split, decoders=decoders, shuffle_files=False))
    except (tf.errors.OpError, AssertionError, OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"{source} can't be read ({reason}): let TFDS prepare it with "
            "--gin_bindings='load_splits.download = True', or give its folder as --data_dir"
        ) from error


def _builder(name: str, folder: Path):
    import tensorflow_datasets as tfds

    try:
        return tfds.builder(name, data_dir=str(folder))
    except Exception as error:  # unknown names, unknown configurations, modules that a set needs
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"load_splits.name = 'tfds:{name}': TFDS can't make it ({reason})") from error


def _download(builder, name: str, folder: Path) -> None:
    try:
        builder.download_and_prepare()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise UserError(
            f"TFDS can't bring {name} to {folder} ({reason}): prepare it elsewhere and "
            "give its folder as --data_dir"
        ) from error
