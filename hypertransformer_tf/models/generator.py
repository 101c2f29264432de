"""Weight generators: from the support set's activations to the weight slices of one layer."""

from __future__ import annotations

import dataclasses

from hypertransformer_tf.backend import keras, tf
from hypertransformer_tf.errors import UserError
from hypertransformer_tf.models.dropout import check_rate
from hypertransformer_tf.models.features import make_features
from hypertransformer_tf.models.tokens import LabelTokens, PlaceholderTokens, token_size
from hypertransformer_tf.models.transformer import (
    ACTIVATIONS,
    ATTENTIONS,
    Decoder,
    Encoder,
    LayerSizes,
    absolute_size,
)

KINDS = ("joint", "separate")


@dataclasses.dataclass(frozen=True)
class GeneratorOptions:
    """Options of a weight generator (paper, section 3.2, section 4.1 and appendix C).

    Attributes:
        embedding_dim: E, size of label and placeholder embeddings.
        num_layers: encoder (and decoder) layers of the Transformer.
        heads: attention heads.
        key_query, value, inner: nu, as fractions of the token size; above 3, absolute sizes; an inner
            size of 0 leaves the feed-forward blocks out.
        kind: "joint": placeholders and samples in one sequence; "separate": samples go to an encoder,
            placeholders to a decoder that attends to it.
        use_decoder: with "joint", the sequence goes to an encoder and a decoder (appendix D).
        skip_last_nonlinearity: the last layer ends after its attention block.
        attention: "softmax" or "sigmoid".
        activation: of the feed-forward blocks: "relu", "gelu" or "lrelu".
        activation_features: channels of the activation feature extractor, 0 = none.
        nonlinear_features: activation features behind a ReLU.
        dropout, feature_dropout: of Transformer layers and activation features.
    """

    embedding_dim: int = 32
    num_layers: int = 3
    heads: int = 2
    key_query: float = 1.0
    value: float = 1.0
    inner: float = 1.0
    kind: str = "joint"
    use_decoder: bool = False
    skip_last_nonlinearity: bool = False
    attention: str = "softmax"
    activation: str = "relu"
    activation_features: int = 8
    nonlinear_features: bool = False
    dropout: float = 0.0
    feature_dropout: float = 0.0

    def __post_init__(self):
        for name in ("embedding_dim", "num_layers", "heads"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} = {getattr(self, name)}: must be at least 1")
        for name in ("key_query", "value"):
            if getattr(self, name) <= 0:
                raise UserError(f"{name} = {getattr(self, name)}: must be above 0")
        if self.inner < 0:
            raise UserError(f"inner = {self.inner}: must be 0 (no feed-forward block) or above")
        for name, value, known in (
            ("generator", self.kind, KINDS),
            ("attention", self.attention, ATTENTIONS),
            ("transformer_activation", self.activation, ACTIVATIONS),
        ):
            if value not in known:
                raise UserError(f"unknown {name} = {value!r}: use {', '.join(known)}")
        if self.use_decoder and self.kind == "separate":
            raise UserError("use_decoder = True with generator = 'separate', which always has one: remove it")
        if self.skip_last_nonlinearity and self.inner == 0:
            raise UserError("skip_last_nonlinearity = True with inner = 0: there is no nonlinearity to skip")
        check_rate("transformer_dropout", self.dropout)
        check_rate("activation_feature_dropout", self.feature_dropout)

    @property
    def has_decoder(self) -> bool:
        """Whether a decoder gives the weight slices."""
        return self.use_decoder or self.kind == "separate"

    def layer_sizes(self, size: int) -> LayerSizes:
        """LayerSizes for tokens of a size."""
        return LayerSizes(
            self.heads,
            absolute_size(self.key_query, size, self.heads),
            absolute_size(self.value, size, self.heads),
            absolute_size(self.inner, size),
            size,
            self.attention,
            self.activation,
            self.dropout,
        )


class WeightGenerator(keras.layers.Layer):
    """Writes the weight slices of one layer (paper, figure 3).

    Args:
        input_shape: (height, width, channels) of the layer's input activations.
        way: classes of an episode.
        slices, slice_size: number of weight slices and values in each.
        feature_layers: depth of the activation feature extractor.
        shared_features: size of the image embedding, 0 = none.
        options: a GeneratorOptions.
        features: kind of activation features, see `make_features`.

    Raises:
        UserError: when samples would have no features at all.
    """

    def __init__(
        self,
        input_shape: tuple[int, int, int],
        way: int,
        slices: int,
        slice_size: int,
        feature_layers: int,
        shared_features: int,
        options: GeneratorOptions,
        features: str = "default",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.slices, self.slice_size, self.options = slices, slice_size, options
        self.embedding_dim = options.embedding_dim
        self.features = make_features(
            features,
            input_shape,
            options.activation_features,
            feature_layers,
            options.nonlinear_features,
            options.feature_dropout,
        )
        sample_features = (self.features.size if self.features else 0) + shared_features
        if not sample_features:
            raise UserError(
                "shared_features = 0 and activation_features = 0: a generator would see labels only; "
                "switch one of them on"
            )
        if options.kind == "separate":
            self.token_size = token_size(self.embedding_dim, 0, slice_size)
            sample_size = token_size(self.embedding_dim, sample_features, 0)
        else:
            self.token_size = sample_size = token_size(self.embedding_dim, sample_features, slice_size)
        self.labels = LabelTokens(way, self.embedding_dim, sample_size, name="labels")
        self.placeholders = PlaceholderTokens(
            slices, self.embedding_dim, self.token_size, name="placeholders"
        )
        self.encoder = Encoder(
            options.num_layers,
            options.layer_sizes(sample_size),
            options.skip_last_nonlinearity and not options.has_decoder,
            name="encoder",
        )
        self.decoder = None
        if options.has_decoder:
            self.decoder = Decoder(
                options.num_layers,
                options.layer_sizes(self.token_size),
                options.skip_last_nonlinearity,
                name="decoder",
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
        features = [] if self.features is None else [self.features(activations)]
        if shared is not None:
            features.append(shared)
        samples = self.labels(labels, features[0] if len(features) == 1 else tf.concat(features, -1))
        placeholders = self.placeholders(tf.shape(samples)[0])
        if self.options.kind == "separate":
            memory = self.encoder(samples, mask)
            result = self.decoder(placeholders, memory, None, mask, self.slices)
        else:
            tokens = tf.concat([placeholders, samples], 1)
            if mask is not None:
                mask = tf.pad(mask, [[0, 0], [self.slices, 0]])
            if self.decoder is None:
                result = self.encoder(tokens, mask, self.slices)
            else:
                result = self.decoder(tokens, self.encoder(tokens, mask), mask, mask, self.slices)
        return result[:, :, self.embedding_dim : self.embedding_dim + self.slice_size]
