"""Imprinting: what it sets, what it leaves alone, and that it starts near class means."""

import numpy as np
import pytest

from hypertransformer_tf.backend import keras
from hypertransformer_tf.models.hypertransformer import HyperTransformer
from hypertransformer_tf.models.initialization import RESIDUAL_GAIN

WAY = 6


def make(**options):
    keras.utils.set_random_seed(0)
    model = HyperTransformer(way=WAY, image_shape=(28, 28, 1), channels=8, **options)
    model.build_variables()
    return model


@pytest.fixture(scope="module")
def models():
    return make(initialization="imprinting"), make(initialization="random")


def test_random_embeddings_are_unrelated(models):
    generator = models[1].generators[-1]
    assert np.abs(generator.placeholders.embeddings - generator.labels.embeddings[:WAY]).max() > 0.1
    attention = generator.encoder.encoder_layers[0].attention
    assert np.abs(attention.key.kernel - attention.query.kernel).max() > 0.1


def test_placeholders_start_as_label_embeddings_and_keys_as_queries(models):
    generator = models[0].generators[-1]
    np.testing.assert_array_equal(generator.placeholders.embeddings, generator.labels.embeddings[:WAY])
    attention = generator.encoder.encoder_layers[0].attention
    np.testing.assert_array_equal(attention.key.kernel, attention.query.kernel)


def test_only_the_named_variables_differ_from_random(models):
    imprinted, random = models
    names = {id(v): path for path, v in _named(imprinted)}
    changed = {
        names[id(one)]
        for one, other in zip(imprinted.trainable_variables, random.trainable_variables)
        if not np.array_equal(one, other)
    }
    expected = set()
    for index in range(5):
        for layer in range(3):
            expected.add(f"{index}/{layer}/outer")
            if layer > 0:
                expected.add(f"{index}/{layer}/output")
    logits = ("placeholders", "features", "0/query", "0/key", "0/value", "0/output", "2/norm")
    assert changed == expected | {f"4/{name}" for name in logits}


def _named(model):
    for index, generator in enumerate(model.generators):
        yield f"{index}/placeholders", generator.placeholders.embeddings
        yield f"{index}/labels", generator.labels.embeddings
        yield f"{index}/features", generator.features.convolutions[0].kernel
        for number, layer in enumerate(generator.encoder.encoder_layers):
            for name in ("query", "key", "value"):
                yield f"{index}/{number}/{name}", getattr(layer.attention, name).kernel
            yield f"{index}/{number}/output", layer.attention.output_projection.kernel
            yield f"{index}/{number}/outer", layer.outer.kernel
            yield f"{index}/{number}/norm", layer.outer_norm.gamma


def test_residual_branches_start_small(models):
    imprinted, random = (m.generators[1].encoder.encoder_layers[1].outer.kernel for m in models)
    np.testing.assert_allclose(imprinted, random * RESIDUAL_GAIN, rtol=1e-6)


def agreement(model) -> float:
    """Mean cosine of generated logits kernels and class-mean features, both less their mean over classes."""
    rng = np.random.default_rng(3)
    patterns = rng.uniform(-1, 1, [WAY, 7, 7]).repeat(4, 1).repeat(4, 2)
    labels = np.repeat(np.arange(WAY), 3)
    images = (patterns[labels] + 0.05 * rng.normal(size=[WAY * 3, 28, 28]))[None, ..., None]
    captured = {}
    extractor = model.generators[-1].features
    extractor.call = lambda x, call=extractor.call: captured.setdefault("x", x) is None or call(x)
    weights = model.generate(images.astype(np.float32), labels[None].astype(np.int32))
    features = captured["x"].numpy().reshape(WAY * 3, -1)
    means = np.stack([features[labels == k].mean(0) for k in range(WAY)], 1)
    kernel = weights["logits"]["kernel"][0].numpy()
    means, kernel = (x - x.mean(1, keepdims=True) for x in (means, kernel))
    norms = np.linalg.norm(means, axis=0) * np.linalg.norm(kernel, axis=0)
    return float(((means * kernel).sum(0) / norms).mean())


def test_generated_logits_start_as_class_means_and_random_ones_do_not():
    assert agreement(make(initialization="imprinting")) > 0.8
    assert abs(agreement(make(initialization="random"))) < 0.5


def test_small_value_sizes_copy_what_fits():
    model = make(value=0.25)
    attention = model.generators[-1].encoder.encoder_layers[0].attention
    size = attention.value.kernel.shape[1]
    product = attention.value.kernel.numpy() @ attention.output_projection.kernel.numpy()
    np.testing.assert_allclose(np.diag(product)[32 : 32 + size], 4.0)
    assert np.count_nonzero(product) == size
