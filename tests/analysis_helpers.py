"""Episodes of noise for the tests of analyses."""

import numpy as np

from hypertransformer_tf.data.class_images import ClassImages
from hypertransformer_tf.data.episodes import EpisodeSampler


def make_sampler(way, shot=2, unlabeled=1, classes=None, seed=0):
    """An EpisodeSampler of classes of 6 random 16x16 images, with one query image."""
    images = np.random.default_rng(seed).integers(0, 256, [classes or way + 2, 6, 16, 16, 1], np.uint8)
    source = ClassImages.from_class_arrays(images, [f"class {i}" for i in range(len(images))], "noise")
    return EpisodeSampler(source, way, shot, 1, unlabeled)
