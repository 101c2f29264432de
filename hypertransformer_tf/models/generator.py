"""Weight generators: from the support set's activations to the weight slices of one layer."""

from __future__ import annotations

import dataclasses

from hypertransformer_tf.backend import keras, tf
from hypertransformer_tf.errors import UserError
from hypertransformer_tf.models.features import ActivationFeatures
from hypertransformer_tf.models.tokens import LabelTokens, PlaceholderTokens, token_size
from hypertransformer_tf.models.transformer import Encoder, absolute_size


@dataclasses.dataclass(frozen=True)
class GeneratorSizes:
    """Sizes of a weight generator (paper, section 3.2 and appendix C).

    Attributes:
        embedding_dim: E, size of label and placeholder embeddings.
        num_layers: encoder layers of the Transformer.
        heads: attention heads.
        key_query, value, inner: nu, as fractions of the token size; above 3, absolute sizes; an inner
            size of 0 leaves the feed-forward blocks out.
    """

    embedding_dim: int = 32
    num_layers: int = 3
    heads: int = 2
    key_query: float = 1.0
    value: float = 1.0
    inner: float = 1.0

    def __post_init__(self):
        for name in ("embedding_dim", "num_layers", "heads"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} = {getattr(self, name)}: must be at least 1")
        for name in ("key_query", "value"):
            if getattr(self, name) <= 0:
                raise UserError(f"{name} = {getattr(self, name)}: must be above 0")
        if self.inner < 0:
            raise UserError(f"inner = {self.inner}: must be 0 (no feed-forward block) or above")


class WeightGenerator(keras.layers.Layer):
    """The "joint" generator: one encoder over placeholders and samples (paper, figure 3).

    Args:
        input_shape: (height, width, channels) of the layer's input activations.
        way: classes of an episode.
        slices, slice_size: number of weight slices and values in each.
        activation_features, feature_layers: channels and depth of the activation feature extractor.
        shared_features: size of the image embedding, 0 = none.
        sizes: a GeneratorSizes.
    """

    def __init__(
        self,
        input_shape: tuple[int, int, int],
        way: int,
        slices: int,
        slice_size: int,
        activation_features: int,
        feature_layers: int,
        shared_features: int,
        sizes: GeneratorSizes,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.slices, self.slice_size = slices, slice_size
        self.embedding_dim = sizes.embedding_dim
        self.features = ActivationFeatures(
            input_shape, activation_features, feature_layers, name="activation_features"
        )
        size = token_size(sizes.embedding_dim, self.features.size + shared_features, slice_size)
        self.token_size = size
        self.labels = LabelTokens(way, sizes.embedding_dim, size, name="labels")
        self.placeholders = PlaceholderTokens(slices, sizes.embedding_dim, size, name="placeholders")
        self.encoder = Encoder(
            sizes.num_layers,
            sizes.heads,
            absolute_size(sizes.key_query, size, sizes.heads),
            absolute_size(sizes.value, size, sizes.heads),
            absolute_size(sizes.inner, size),
            size,
            name="encoder",
        )

    def call(
        self,
        activations: tf.Tensor,
        labels: tf.Tensor,
        shared: tf.Tensor | None = None,
        mask: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Generates the weight slices of the layer.

        Args:
            activations: float [episode, support, height, width, channels], input of the layer.
            labels: int [episode, support]; `way` = unlabeled.
            shared: float [episode, support, shared_features] image embeddings, or None.
            mask: float [episode, support], 1 = ignore the sample; None = use all.

        Returns:
            float [episode, slice, slice_size].
        """
        features = self.features(activations)
        if shared is not None:
            features = tf.concat([features, shared], -1)
        samples = self.labels(labels, features)
        placeholders = self.placeholders(tf.shape(samples)[0])
        if mask is not None:
            mask = tf.pad(mask, [[0, 0], [self.slices, 0]])
        encoded = self.encoder(tf.concat([placeholders, samples], 1), mask, self.slices)
        return encoded[:, :, self.embedding_dim : self.embedding_dim + self.slice_size]
