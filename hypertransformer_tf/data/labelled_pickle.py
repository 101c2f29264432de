"""Pickled {"data": images, "labels": labels}, one file for each split."""

from __future__ import annotations

from pathlib import Path

from hypertransformer_tf.data.cache import cached, fingerprint
from hypertransformer_tf.data.class_images import ClassImages
from hypertransformer_tf.data.rows import number_classes, rows_of_array
from hypertransformer_tf.data.unpickling import read_dict


def load_labelled_pickle(file: Path, image_size: int | None = None) -> ClassImages:
    """Reads a pickled dict with `data`, uint8 [image, height, width, channels] in RGB, and `labels` [image].

    Args:
        file: the pickle.
        image_size: side of the square that images are resized to; None = as they are.

    Returns:
        ClassImages with classes in the order of their labels, named by them.

    Raises:
        UserError: when the file is missing, damaged, or holds something else.
    """

    def build():
        content = read_dict(file, "data", "labels")
        numbers, values = number_classes(content["labels"], str(file))
        return rows_of_array(content["data"], numbers, [str(v) for v in values], str(file), image_size)

    key = fingerprint([file], image_size=image_size)
    return cached(file.stem.lower().replace("_", "-"), key, str(file), build)
