"""The Transformer of a weight generator: post-norm layers without positional encoding.

Shapes are `[episode, token, features]`. A mask hides sample tokens (1 = ignore); it is added to the
attention logits, so a masked token changes nothing in the others.
"""

from __future__ import annotations

import contextlib
import dataclasses

from hypertransformer_tf.backend import keras, tf
from hypertransformer_tf.models.dropout import dropout
from hypertransformer_tf.models.shapes import axis_length

MASKED_LOGIT = -1e8
LAYER_NORM_EPSILON = 1e-6
ATTENTIONS = {"softmax": tf.nn.softmax, "sigmoid": tf.nn.sigmoid}
ACTIVATIONS = {
    "relu": tf.nn.relu,
    "gelu": tf.nn.gelu,
    "lrelu": lambda x: tf.nn.leaky_relu(x, 0.1),
}

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
        activation: "softmax", or "sigmoid": every weight by itself, they don't sum to 1.
    """

    def __init__(
        self,
        heads: int,
        key_query_size: int,
        value_size: int,
        output_size: int,
        activation: str = "softmax",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.heads = heads
        self.query = keras.layers.Dense(key_query_size, name="query")
        self.key = keras.layers.Dense(key_query_size, name="key")
        self.value = keras.layers.Dense(value_size, name="value")
        self.output_projection = keras.layers.Dense(output_size, name="output")
        self.scale = (key_query_size // heads) ** -0.5
        self.activation = ATTENTIONS[activation]

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
        weights = self.activation(logits)
        for recording in _recordings:
            recording.append((self, weights))
        mixed = tf.transpose(tf.matmul(weights, value), [0, 2, 1, 3])
        shape = [axis_length(mixed, 0), axis_length(mixed, 1), mixed.shape[2] * mixed.shape[3]]
        return self.output_projection(tf.reshape(mixed, shape))

    def _split_heads(self, tokens: tf.Tensor) -> tf.Tensor:
        """[episode, token, features] -> [episode, head, token, head_features]."""
        shape = [axis_length(tokens, 0), axis_length(tokens, 1), self.heads, tokens.shape[2] // self.heads]
        return tf.transpose(tf.reshape(tokens, shape), [0, 2, 1, 3])


@dataclasses.dataclass(frozen=True)
class LayerSizes:
    """Sizes and kinds of the layers of a Transformer.

    Attributes:
        heads, key_query_size, value_size, attention: as for Attention.
        inner_size: hidden size of the two-layer feed-forward block; 0 leaves the block out.
        token_size: size of a token.
        activation: of the feed-forward block: "relu", "gelu" or "lrelu" (slope 0.1).
        dropout: share of what attention and feed-forward blocks add that is dropped in training.
    """

    heads: int
    key_query_size: int
    value_size: int
    inner_size: int
    token_size: int
    attention: str = "softmax"
    activation: str = "relu"
    dropout: float = 0.0

    def make_attention(self, name: str) -> Attention:
        """An Attention of these sizes."""
        return Attention(
            self.heads, self.key_query_size, self.value_size, self.token_size, self.attention, name=name
        )


class EncoderLayer(keras.layers.Layer):
    """LN(x + attention(x)), then LN(x + feed-forward(x)) (post-norm).

    Args:
        sizes: LayerSizes.
        feed_forward: False leaves the feed-forward block out.
    """

    def __init__(self, sizes: LayerSizes, feed_forward: bool = True, **kwargs):
        super().__init__(**kwargs)
        self.dropout_rate = sizes.dropout
        self.attention = sizes.make_attention("attention")
        self.attention_norm = LayerNorm(name="attention_norm")
        self.inner = None
        if sizes.inner_size and feed_forward:
            self.inner = keras.layers.Dense(
                sizes.inner_size, activation=ACTIVATIONS[sizes.activation], name="inner"
            )
            self.outer = keras.layers.Dense(sizes.token_size, name="outer")
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
        kept = self.attention_norm(kept + dropout(self.attention(kept, tokens, mask), self.dropout_rate))
        return self.feed_forward(kept)

    def feed_forward(self, tokens: tf.Tensor) -> tf.Tensor:
        """The second half of the layer, if it has one."""
        if self.inner is None:
            return tokens
        return self.outer_norm(tokens + dropout(self.outer(self.inner(tokens)), self.dropout_rate))


class DecoderLayer(EncoderLayer):
    """An encoder layer that, between its two halves, attends to the tokens of an encoder."""

    def __init__(self, sizes: LayerSizes, feed_forward: bool = True, **kwargs):
        super().__init__(sizes, feed_forward, **kwargs)
        self.cross_attention = sizes.make_attention("cross_attention")
        self.cross_norm = LayerNorm(name="cross_norm")

    def call(
        self,
        tokens: tf.Tensor,
        memory: tf.Tensor,
        mask: tf.Tensor | None = None,
        memory_mask: tf.Tensor | None = None,
        outputs: int | None = None,
    ) -> tf.Tensor:
        """Decodes tokens.

        Args:
            tokens: float [episode, token, token_size].
            memory: float [episode, memory_token, memory_size], what an Encoder gave.
            mask, memory_mask: float [episode, token], [episode, memory_token]; 1 = ignore; or None.
            outputs: as for EncoderLayer.

        Returns:
            float [episode, outputs, token_size].
        """
        kept = tokens if outputs is None else tokens[:, :outputs]
        kept = self.attention_norm(kept + dropout(self.attention(kept, tokens, mask), self.dropout_rate))
        crossed = self.cross_attention(kept, memory, memory_mask)
        kept = self.cross_norm(kept + dropout(crossed, self.dropout_rate))
        return self.feed_forward(kept)


class Encoder(keras.layers.Layer):
    """A stack of encoder layers.

    Args:
        num_layers: number of layers.
        sizes: LayerSizes of each.
        skip_last_nonlinearity: the last layer ends after its attention block ("simplified", section 4.1).
    """

    def __init__(self, num_layers: int, sizes: LayerSizes, skip_last_nonlinearity: bool = False, **kwargs):
        super().__init__(**kwargs)
        self.encoder_layers = [
            EncoderLayer(sizes, not skip_last_nonlinearity or i < num_layers - 1, name=f"layer_{i + 1}")
            for i in range(num_layers)
        ]

    def call(self, tokens: tf.Tensor, mask: tf.Tensor | None, outputs: int | None = None) -> tf.Tensor:
        """Encodes tokens.

        Args:
            tokens: float [episode, token, token_size].
            mask: float [episode, token] or None, 1 = ignore.
            outputs: how many of the first tokens are wanted, None = all; the last layer encodes no others.

        Returns:
            float [episode, outputs, token_size].
        """
        for layer in self.encoder_layers[:-1]:
            tokens = layer(tokens, mask)
        encoded = self.encoder_layers[-1](tokens, mask, outputs)
        return encoded if outputs is None else tf.ensure_shape(encoded, [None, outputs, None])


class Decoder(keras.layers.Layer):
    """A stack of decoder layers; arguments as for Encoder."""

    def __init__(self, num_layers: int, sizes: LayerSizes, skip_last_nonlinearity: bool = False, **kwargs):
        super().__init__(**kwargs)
        self.decoder_layers = [
            DecoderLayer(sizes, not skip_last_nonlinearity or i < num_layers - 1, name=f"layer_{i + 1}")
            for i in range(num_layers)
        ]

    def call(
        self,
        tokens: tf.Tensor,
        memory: tf.Tensor,
        mask: tf.Tensor | None,
        memory_mask: tf.Tensor | None,
        outputs: int,
    ) -> tf.Tensor:
        """Returns float [episode, outputs, token_size]; arguments as for DecoderLayer."""
        for layer in self.decoder_layers[:-1]:
            tokens = layer(tokens, memory, mask, memory_mask)
        decoded = self.decoder_layers[-1](tokens, memory, mask, memory_mask, outputs)
        return tf.ensure_shape(decoded, [None, outputs, None])
