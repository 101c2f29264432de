"""Features of support samples: what the generators' tokens carry."""

import numpy as np
import pytest
from analysis_helpers import make_sampler
from export_helpers import make_model

from hypertransformer_tf.analysis.activations import embeddings, layer_inputs
from hypertransformer_tf.analysis.sample_features import class_separation, draw_features, sample_features
from hypertransformer_tf.backend import tf
from hypertransformer_tf.models import cnn


def test_layer_inputs_are_those_of_the_cnn():
    model = make_model(way=3)
    drawn = make_sampler(3)(tf.constant([0, 1], tf.int64))
    weights = model.generate(drawn.support_images, drawn.support_labels)
    inputs = layer_inputs(model, drawn.query_images, weights)
    assert [tuple(x.shape[2:]) for x in inputs] == [layer.input_shape for layer in model.cnn.layers]
    logits = cnn.logits(model.cnn.logits, inputs[-1], weights["logits"])
    np.testing.assert_allclose(logits, model.classify(drawn.query_images, weights), atol=1e-5)
    flat = embeddings(model, drawn.query_images, weights)
    np.testing.assert_array_equal(flat, np.reshape(inputs[-1], flat.shape))


def test_features_are_what_the_tokens_of_the_generators_carry():
    model = make_model(way=3, num_learned_layers=1)
    drawn = make_sampler(3)(tf.constant([0], tf.int64))
    seen = {}
    for layer, generator in zip(model.cnn.layers, model.generators):
        if generator is not None:
            labels, name = generator.labels, layer.name
            generator.labels = lambda slots, x, labels=labels, name=name: (
                seen.update({name: x}) or labels(slots, x)
            )
    features = sample_features(model, drawn.support_images, drawn.support_labels)
    assert list(features) == ["shared", "layer_2", "layer_3", "layer_4", "logits"]
    for name, token in seen.items():
        together = np.concatenate([features[name], features["shared"]], -1)
        np.testing.assert_allclose(token[0], together, atol=1e-4)


def test_class_separation():
    labels = np.repeat(np.arange(3), 4)
    random = np.random.default_rng(0)
    centres = random.normal(size=[3, 5])
    assert class_separation(centres[labels], labels) == pytest.approx(1.0)
    assert class_separation(random.normal(size=[12, 5]), labels) < 0.5


@pytest.mark.parametrize("way, shot, unlabeled", [(2, 1, 0), (100, 5, 1)])
def test_picture(tmp_path, way, shot, unlabeled):
    labels = np.concatenate([np.tile(np.arange(way), shot), np.full(way * unlabeled, way)])
    random = np.random.default_rng(0)
    features = {name: random.normal(size=[len(labels), 8]) for name in ("shared", "layer_1", "logits")}
    path = draw_features(features, labels, way, tmp_path / "features.png")
    assert path.stat().st_size > 10_000
