"""The oracle learns its own images, and says what it does on others."""

import numpy as np
import pytest

from hypertransformer_tf.baselines.oracle import train_oracle
from hypertransformer_tf.data.array_file import load_array
from hypertransformer_tf.errors import UserError
from hypertransformer_tf.models.cnn import make_cnn


def cnn(way=4):
    return make_cnn("maxpool-4-layer", (16, 16, 1), 8, way, "conv-act-pool-bn")


def test_it_learns_and_repeats(tiny_data):
    images = load_array(tiny_data)
    options = {"held_out": 2, "steps": 60, "batch_size": 24, "learning_rate": 0.01}
    first = train_oracle(images, cnn(), **options)
    assert first.trained > 0.9 and first.held_out > 0.7
    assert first == train_oracle(images, cnn(), **options)
    untrained = train_oracle(images, cnn(), **{**options, "steps": 0})
    assert untrained.trained < first.trained
    assert np.isnan(train_oracle(images, cnn(), **{**options, "held_out": 0, "steps": 1}).held_out)


def test_too_few_classes_or_images(tiny_data):
    images = load_array(tiny_data)
    with pytest.raises(UserError, match="an oracle of 30 classes"):
        train_oracle(images, cnn(30))
    with pytest.raises(UserError, match="held_out = 8"):
        train_oracle(images, cnn(), held_out=8)
