"""The Transformer of a weight generator: post-norm encoder layers without positional encoding.

Shapes are `[episode, token, features]`. A mask hides sample tokens (1 = ignore); it is added to the
attention logits, so a masked token changes nothing in the others.
"""

from __future__ import annotations

import contextlib

from hypertransformer_tf.backend import keras, tf
from hypertransformer_tf.models.shapes import axis_length

MASKED_LOGIT = -1e8
LAYER_NORM_EPSILON = 1e-6

_recordings: list[list] = []


@contextlib.contextmanager
def recorded_attention():
    """Yields a list that gets (Attention, weights [episode, head, query, token]) of every eager call."""
    _recordings.append([])
    try:
        yield _recordings[-1]
    finally:
        _recordings.pop()


def absolute_size(fraction: float, token_size: int, heads: int = 1) -> int:
    """Size that a "fraction" of the token size stands for, rounded up to a multiple of the heads.

    A fraction above 3 is an absolute size (REFERENCE: nu of appendix C is 0.5 or 1).
    """
    size = int(fraction if fraction > 3 else fraction * token_size)
    return -(-size // heads) * heads


class LayerNorm(keras.layers.Layer):
    """Layer normalisation over the last axis in plain operations (faster than Keras's on a CPU)."""

    def build(self, input_shape):
        size = input_shape[-1]
        self.gamma = self.add_weight(name="gamma", shape=[size], initializer="ones")
        self.beta = self.add_weight(name="beta", shape=[size], initializer="zeros")

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        mean = tf.reduce_mean(inputs, -1, keepdims=True)
        centred = inputs - mean
        variance = tf.reduce_mean(tf.square(centred), -1, keepdims=True)
        return centred * tf.math.rsqrt(variance + LAYER_NORM_EPSILON) * self.gamma + self.beta


class Attention(keras.layers.Layer):
    """Multi-head attention with logits scaled by 1/sqrt(head size).

    Args:
        heads: number of heads.
        key_query_size, value_size: sizes over all heads together (multiples of `heads`).
        output_size: size of a result token.
    """

    def __init__(self, heads: int, key_query_size: int, value_size: int, output_size: int, **kwargs):
        super().__init__(**kwargs)
        self.heads = heads
        self.query = keras.layers.Dense(key_query_size, name="query")
        self.key = keras.layers.Dense(key_query_size, name="key")
        self.value = keras.layers.Dense(value_size, name="value")
        self.output_projection = keras.layers.Dense(output_size, name="output")
        self.scale = (key_query_size // heads) ** -0.5

    def call(self, queries: tf.Tensor, tokens: tf.Tensor, mask: tf.Tensor | None = None) -> tf.Tensor:
        """Attends from `queries` to `tokens`.

        Args:
            queries: float [episode, query_token, features].
            tokens: float [episode, token, features], both keys and values.
            mask: float [episode, token], 1 = ignore; None = attend to all.

        Returns:
            float [episode, query_token, output_size].
        """
        query = self._split_heads(self.query(queries) * self.scale)
        key = self._split_heads(self.key(tokens))
        value = self._split_heads(self.value(tokens))
        logits = tf.matmul(query, key, transpose_b=True)
        if mask is not None:
            logits += mask[:, None, None, :] * MASKED_LOGIT
        weights = tf.nn.softmax(logits)
        for recording in _recordings:
            recording.append((self, weights))
        mixed = tf.transpose(tf.matmul(weights, value), [0, 2, 1, 3])
        shape = [axis_length(mixed, 0), axis_length(mixed, 1), mixed.shape[2] * mixed.shape[3]]
        return self.output_projection(tf.reshape(mixed, shape))

    def _split_heads(self, tokens: tf.Tensor) -> tf.Tensor:
        """[episode, token, features] -> [episode, head, token, head_features]."""
        shape = [axis_length(tokens, 0), axis_length(tokens, 1), self.heads, tokens.shape[2] // self.heads]
        return tf.transpose(tf.reshape(tokens, shape), [0, 2, 1, 3])


class EncoderLayer(keras.layers.Layer):
    """LN(x + attention(x)), then LN(x + feed-forward(x)) (post-norm).

    Args:
        heads, key_query_size, value_size: as for Attention.
        inner_size: hidden size of the two-layer ReLU feed-forward block; 0 leaves the block out.
        token_size: size of a token.
    """

    def __init__(self, heads, key_query_size, value_size, inner_size, token_size, **kwargs):
        super().__init__(**kwargs)
        self.attention = Attention(heads, key_query_size, value_size, token_size, name="attention")
        self.attention_norm = LayerNorm(name="attention_norm")
        self.inner = keras.layers.Dense(inner_size, activation="relu", name="inner") if inner_size else None
        if inner_size:
            self.outer = keras.layers.Dense(token_size, name="outer")
            self.outer_norm = LayerNorm(name="outer_norm")

    def call(self, tokens: tf.Tensor, mask: tf.Tensor | None = None, outputs: int | None = None) -> tf.Tensor:
        """Encodes tokens.

        Args:
            tokens: float [episode, token, token_size].
            mask: float [episode, token] or None, 1 = ignore.
            outputs: how many of the first tokens to encode; the others are only attended to.

        Returns:
            float [episode, outputs, token_size].
        """
        kept = tokens if outputs is None else tokens[:, :outputs]
        kept = self.attention_norm(kept + self.attention(kept, tokens, mask))
        if self.inner is None:
            return kept
        return self.outer_norm(kept + self.outer(self.inner(kept)))


class Encoder(keras.layers.Layer):
    """A stack of encoder layers; the last one encodes only the tokens that are read out."""

    def __init__(self, num_layers, heads, key_query_size, value_size, inner_size, token_size, **kwargs):
        super().__init__(**kwargs)
        self.encoder_layers = [
            EncoderLayer(heads, key_query_size, value_size, inner_size, token_size, name=f"layer_{i + 1}")
            for i in range(num_layers)
        ]

    def call(self, tokens: tf.Tensor, mask: tf.Tensor | None, outputs: int) -> tf.Tensor:
        """Returns float [episode, outputs, token_size], the encoded first `outputs` tokens."""
        for layer in self.encoder_layers[:-1]:
            tokens = layer(tokens, mask)
        return tf.ensure_shape(self.encoder_layers[-1](tokens, mask, outputs), [None, outputs, None])
