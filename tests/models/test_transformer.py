"""Attention and encoder against a slow plain version, masks, and sizes."""

import dataclasses

import numpy as np
import pytest

from hypertransformer_tf.backend import keras
from hypertransformer_tf.models.transformer import (
    Attention,
    Encoder,
    EncoderLayer,
    LayerNorm,
    LayerSizes,
    absolute_size,
)

SIZES = LayerSizes(heads=2, key_query_size=8, value_size=8, inner_size=16, token_size=12)


@pytest.fixture
def tokens():
    return np.random.default_rng(0).normal(size=[2, 7, 12]).astype(np.float32)


def weights(dense):
    return dense.kernel.numpy(), dense.bias.numpy()


def test_attention_equals_loops(tokens):
    attention = Attention(heads=2, key_query_size=8, value_size=6, output_size=12)
    result = attention(tokens, tokens).numpy()
    (wq, bq), (wk, bk), (wv, bv) = (weights(d) for d in (attention.query, attention.key, attention.value))
    wo, bo = weights(attention.output_projection)
    for episode in range(2):
        query, key, value = (tokens[episode] @ w + b for w, b in ((wq, bq), (wk, bk), (wv, bv)))
        heads = []
        for head in range(2):
            q, k, v = query[:, head * 4 :][:, :4], key[:, head * 4 :][:, :4], value[:, head * 3 :][:, :3]
            scores = np.exp(q @ k.T / 2.0)
            heads.append(scores / scores.sum(-1, keepdims=True) @ v)
        np.testing.assert_allclose(result[episode], np.concatenate(heads, -1) @ wo + bo, atol=1e-5)


def test_post_norm_encoder_layer(tokens):
    layer = EncoderLayer(SIZES)
    result = layer(tokens)
    attended = layer.attention_norm(tokens + layer.attention(tokens, tokens))
    hidden = np.maximum(attended @ layer.inner.kernel.numpy() + layer.inner.bias.numpy(), 0.0)
    expected = layer.outer_norm(attended + hidden @ layer.outer.kernel.numpy() + layer.outer.bias.numpy())
    np.testing.assert_allclose(result, expected, atol=1e-5)


def test_inner_size_0_leaves_the_feed_forward_block_out(tokens):
    layer = EncoderLayer(dataclasses.replace(SIZES, inner_size=0))
    np.testing.assert_allclose(
        layer(tokens), layer.attention_norm(tokens + layer.attention(tokens, tokens)), atol=1e-6
    )


def test_layer_norm_equals_keras(tokens):
    reference = keras.layers.LayerNormalization(epsilon=1e-6)
    np.testing.assert_allclose(LayerNorm()(tokens), reference(tokens), atol=1e-5)


def test_reading_fewer_outputs_gives_the_first_of_all(tokens):
    encoder = Encoder(3, SIZES)
    some, every = encoder(tokens, None, 3), encoder(tokens, None, 7)
    np.testing.assert_allclose(some, every[:, :3], atol=1e-6)


def test_a_masked_token_changes_nothing_in_the_others(tokens):
    encoder = Encoder(2, SIZES)
    mask = np.zeros([2, 7], np.float32)
    mask[:, 6] = 1.0
    before = encoder(tokens, mask, 6).numpy()
    tokens[:, 6] = 1e3
    np.testing.assert_array_equal(encoder(tokens, mask, 6), before)
    np.testing.assert_allclose(before, encoder(tokens[:, :6], None, 6), atol=1e-5)


@pytest.mark.parametrize(
    "fraction, token_size, heads, size",
    [
        (1.0, 104, 2, 104),
        (0.5, 104, 8, 56),
        (0.5, 105, 1, 52),
        (48, 104, 2, 48),
        (1.0, 81, 2, 82),
        (0, 80, 1, 0),
    ],
)
def test_absolute_size(fraction, token_size, heads, size):
    assert absolute_size(fraction, token_size, heads) == size
