"""Small models, frozen CNNs and checkpoints for the tests of exports."""

import numpy as np

from hypertransformer_tf.backend import keras
from hypertransformer_tf.export.generate import generate_cnn
from hypertransformer_tf.export.preparation import Preparation
from hypertransformer_tf.export.support_folder import Support
from hypertransformer_tf.models.hypertransformer import HyperTransformer
from hypertransformer_tf.training.checkpoints import save_model

SIZES = dict(embedding_dim=8, transformer_layers=1, shared_features=4, shared_layers=2)


def make_model(way=5, channels=4, image_shape=(16, 16, 1), **options):
    """A model with random weights and moving averages that are not at their start."""
    keras.utils.set_random_seed(0)
    model = HyperTransformer(way, image_shape, channels, **{**SIZES, **options})
    model.build_variables()
    random = np.random.default_rng(0)
    for name, variable in model.named_variables().items():
        if name.endswith(("moving_mean", "gamma", "beta", "bias")):
            variable.assign(variable + random.normal(0.0, 0.2, variable.shape))
    return model


def make_support(counts=(2, 1, 3), image_shape=(16, 16, 1), seed=1):
    """A support set with random images."""
    random = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(counts)), counts).astype(np.int32)
    images = random.integers(0, 256, [len(labels), *image_shape]).astype(np.uint8)
    names = tuple(f"class {index}" for index in range(len(counts)))
    return Support(images, labels, names, tuple(counts), 0, ())


def make_frozen(model, support, statistics="support", polarity="keep"):
    """The frozen CNN of a support set."""
    return generate_cnn(model, support, Preparation(*model.image_shape, polarity), statistics)


def make_checkpoint(folder, model, dataset="npy", unlabeled=0):
    """A model checkpoint as training writes it."""
    info = {
        "step": 1,
        "episodes_trained": 16,
        "model": model.config(),
        "task": {"way": model.way, "shot": 1, "query": 5, "unlabeled": unlabeled, "rotate": False},
        "dataset": dataset,
        "generated": model.generated,
        "versions": {},
    }
    save_model(folder, model.named_variables(), info)
    return folder
