"""Tokens of a weight generator (paper, section 3.2 and figure 3).

A sample token is `[label embedding | features of the sample | zeros]`, a placeholder token
`[placeholder embedding | zeros]`; placeholders come first.
"""

from __future__ import annotations

from hypertransformer_tf.backend import keras, tf


def token_size(embedding_dim: int, features: int, slice_size: int) -> int:
    """Size of a token that can carry both a sample's features and a weight slice."""
    return embedding_dim + max(features, slice_size)


class LabelTokens(keras.layers.Layer):
    """Sample tokens from labels and features.

    Args:
        way: classes of an episode; label `way` stands for "unlabeled".
        embedding_dim: size of a label embedding.
        token_size: size of a token; features are padded with zeros to it.
    """

    def __init__(self, way: int, embedding_dim: int, token_size: int, **kwargs):
        super().__init__(**kwargs)
        self.way, self.embedding_dim, self.token_size = way, embedding_dim, token_size

    def build(self, input_shape):
        self.embeddings = _add_embeddings(self, self.way + 1, self.embedding_dim)

    def call(self, labels: tf.Tensor, features: tf.Tensor) -> tf.Tensor:
        """Builds tokens.

        Args:
            labels: int [episode, sample] in 0..way.
            features: float [episode, sample, feature].

        Returns:
            float [episode, sample, token_size].
        """
        tokens = tf.concat([tf.gather(self.embeddings, labels), features], -1)
        return _pad_last(tokens, self.token_size)


class PlaceholderTokens(keras.layers.Layer):
    """One learned token for each weight slice, the same in every episode."""

    def __init__(self, count: int, embedding_dim: int, token_size: int, **kwargs):
        super().__init__(**kwargs)
        self.count, self.embedding_dim, self.token_size = count, embedding_dim, token_size

    def build(self, input_shape):
        self.embeddings = _add_embeddings(self, self.count, self.embedding_dim)

    def call(self, episodes) -> tf.Tensor:
        """Returns float [episode, placeholder, token_size] for a number of episodes."""
        tokens = _pad_last(self.embeddings[None], self.token_size)
        return tf.tile(tokens, [episodes, 1, 1])


def _add_embeddings(layer: keras.layers.Layer, count: int, size: int) -> tf.Variable:
    start = keras.initializers.RandomNormal(stddev=1.0)
    return layer.add_weight(name="embeddings", shape=[count, size], initializer=start)


def _pad_last(tokens: tf.Tensor, size: int) -> tf.Tensor:
    return tf.pad(tokens, [[0, 0], [0, 0], [0, size - tokens.shape[-1]]])
