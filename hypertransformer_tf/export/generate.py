"""From a support set to a frozen CNN, and what accuracy may be expected of it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hypertransformer_tf.backend import tf
from hypertransformer_tf.export.frozen import FrozenCNN, freeze
from hypertransformer_tf.export.preparation import Preparation
from hypertransformer_tf.export.support_folder import Support
from hypertransformer_tf.models.hypertransformer import HyperTransformer


class Expected(NamedTuple):
    """Leave-one-out on the support set: images asked, and how many were answered rightly."""

    images: int
    right: int


def generate_cnn(
    model: HyperTransformer, support: Support, preparation: Preparation, statistics: str = "support"
) -> FrozenCNN:
    """Writes the CNN of a support set in one pass; arguments as for `freeze`."""
    weights = model.generate(_as_floats(support.images)[None], support.labels[None])
    return freeze(model, weights, support.names, preparation, statistics)


def leave_one_out(
    model: HyperTransformer,
    support: Support,
    statistics: str = "support",
    most_images: int = 20_000,
    episodes: int = 8,
) -> Expected:
    """Classifies support images by CNNs that were generated without them.

    Args:
        model, support, statistics: as for `generate_cnn`.
        most_images: limit on left-out images times images of the support set; with more, the left-out
            ones are taken at even distances.
        episodes: generated together.

    Returns:
        Expected; no images are asked when every class has a single one.
    """
    counts = np.array(support.counts)
    total = len(support.labels)
    labeled = np.flatnonzero(support.labels < len(counts))
    asked = labeled[counts[support.labels[labeled]] >= 2]
    most = max(10, most_images // total)
    if len(asked) > most:
        asked = asked[np.linspace(0, len(asked) - 1, most).round().astype(int)]
    images = _as_floats(support.images)
    right = 0
    for first in range(0, len(asked), episodes):
        chosen = asked[first : first + episodes]
        mask = np.zeros([len(chosen), total], np.float32)
        mask[np.arange(len(chosen)), chosen] = 1.0
        weights = model.generate(
            tf.tile(images[None], [len(chosen), 1, 1, 1, 1]),
            tf.tile(support.labels[None], [len(chosen), 1]),
            mask,
        )
        logits = model.classify(tf.gather(images, chosen)[:, None], weights, statistics)
        answers = tf.argmax(logits[:, 0, : len(counts)], -1).numpy()
        right += int(np.sum(answers == support.labels[chosen]))
    return Expected(len(asked), right)


def _as_floats(images: np.ndarray) -> tf.Tensor:
    return tf.cast(images, tf.float32) / 128.0 - 1.0
