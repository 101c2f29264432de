"""The HyperTransformer: weight generators, layer by layer, and the CNN that they write (section 3.2).

`generate` reads support sets and writes weights; `classify` runs the CNN with given weights and nothing
else; `call` does both, for training and evaluation. All work on batches of episodes whose CNNs have
different kernels.
"""

from __future__ import annotations

from typing import NamedTuple

import gin

from hypertransformer_tf.backend import keras, tf
from hypertransformer_tf.errors import UserError
from hypertransformer_tf.models import cnn as cnns
from hypertransformer_tf.models.allocation import assemble_kernel, slice_shape
from hypertransformer_tf.models.features import SharedFeatures
from hypertransformer_tf.models.generator import GeneratorSizes, WeightGenerator
from hypertransformer_tf.models.initialization import check_initialization, imprint
from hypertransformer_tf.models.normalization import Moments, check_statistics, moments


class Outputs(NamedTuple):
    """What `HyperTransformer.call` gives.

    Attributes:
        logits: float32 [episode, query, way].
        batch_statistics: for each conv layer Moments (mean, mean of squares), each [channels],
            averaged over the episodes; to be folded into the moving averages.
    """

    logits: tf.Tensor
    batch_statistics: tuple[Moments, ...]


@gin.configurable
class HyperTransformer(keras.layers.Layer):
    """Generates the weights of a CNN from a support set and classifies query images with it.

    Args:
        way: classes of an episode.
        image_shape: (height, width, channels) of the images.
        channels: output channels of every conv layer of the CNN, 4 to 64 in the paper.
        architecture: name of the CNN, see `cnn.ARCHITECTURES`.
        num_learned_layers: n > 0: the first n conv layers are learned instead of generated; n < 0: the
            last |n|; 0: all are generated. The logits layer is always generated.
        allocation: "output" or "spatial" weight slices of conv layers.
        block_order: "conv-act-pool-bn" (reference code) or "conv-bn-act-pool" (paper's text).
        embedding_dim, transformer_layers, heads, key_query, value, inner: see GeneratorSizes.
        activation_features: channels of the activation feature extractors; None = `channels`.
        shared_features: size of the image embedding; 0 = none.
        shared_layers, shared_batch_norm, shared_padding: see SharedFeatures.
        initialization: "imprinting" or "random", see `initialization`.
        moving_momentum: share of the old value in a step of the moving BN averages.
        conv_method: how generated convolutions run, see `convolution`.

    Raises:
        UserError: for impossible values or combinations.
    """

    def __init__(
        self,
        way: int = 20,
        image_shape: tuple[int, int, int] = (28, 28, 1),
        channels: int = 8,
        architecture: str = "maxpool-4-layer",
        num_learned_layers: int = 0,
        allocation: str = "output",
        block_order: str = "conv-act-pool-bn",
        embedding_dim: int = 32,
        transformer_layers: int = 3,
        heads: int = 2,
        key_query: float = 1.0,
        value: float = 1.0,
        inner: float = 1.0,
        activation_features: int | None = None,
        shared_features: int = 32,
        shared_layers: int = 4,
        shared_batch_norm: bool = False,
        shared_padding: str = "same",
        initialization: str = "imprinting",
        moving_momentum: float = 0.99,
        conv_method: str = "auto",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self._config = {
            "way": way,
            "image_shape": list(image_shape),
            "channels": channels,
            "architecture": architecture,
            "num_learned_layers": num_learned_layers,
            "allocation": allocation,
            "block_order": block_order,
            "embedding_dim": embedding_dim,
            "transformer_layers": transformer_layers,
            "heads": heads,
            "key_query": key_query,
            "value": value,
            "inner": inner,
            "activation_features": activation_features or channels,
            "shared_features": shared_features,
            "shared_layers": shared_layers,
            "shared_batch_norm": shared_batch_norm,
            "shared_padding": shared_padding,
            "initialization": check_initialization(initialization),
        }
        if way < 2:
            raise UserError(f"HyperTransformer.way = {way}: an episode needs at least 2 classes")
        if channels < 1:
            raise UserError(f"HyperTransformer.channels = {channels}: must be at least 1")
        self.way, self.image_shape = way, tuple(image_shape)
        self.moving_momentum, self.conv_method = moving_momentum, conv_method
        self.cnn = cnns.make_cnn(architecture, image_shape, channels, way, block_order)
        self.learned = _learned_layers(len(self.cnn.conv_layers), num_learned_layers)
        sizes = GeneratorSizes(embedding_dim, transformer_layers, heads, key_query, value, inner)
        features = activation_features or channels

        self.shared = None
        if shared_features:
            self.shared = SharedFeatures(
                shared_features, shared_layers, shared_batch_norm, shared_padding, name="shared_features"
            )

        def generator(layer, shape, feature_layers):
            return WeightGenerator(
                layer.input_shape,
                way,
                *shape,
                features,
                feature_layers,
                shared_features,
                sizes,
                name=f"generator_{layer.name}",
            )

        self.allocation = allocation
        self.generators = []
        self.layer_variables = []
        for layer, learned in zip(self.cnn.conv_layers, self.learned):
            shape = slice_shape(allocation, layer.kernel_size, layer.input_shape[2], layer.channels)
            self.generators.append(None if learned else generator(layer, shape, 2))
            self.layer_variables.append(self._add_layer_variables(layer, learned))
        logits = self.cnn.logits
        self.generators.append(generator(logits, (way, logits.features + 1), 1))

    def _add_layer_variables(self, layer, learned: bool) -> dict[str, tf.Variable]:
        """Weights of a conv layer that are not generated, and its moving averages."""
        starts = {"bias": "zeros", "gamma": "ones", "beta": "zeros"}
        if learned:
            starts["kernel"] = "glorot_uniform"
        variables = {
            name: self.add_weight(
                name=f"{layer.name}_{name}", shape=layer.weight_shapes[name], initializer=start
            )
            for name, start in starts.items()
        }
        for name, start in (("moving_mean", "zeros"), ("moving_square", "ones")):
            variables[name] = self.add_weight(
                name=f"{layer.name}_{name}",
                shape=[layer.channels],
                initializer=start,
                trainable=False,
                aggregation=tf.VariableAggregation.MEAN,
            )
        return variables

    def build_variables(self) -> None:
        """Creates every variable and applies the initialization; call once, before any tf.function."""
        image = tf.zeros([1, 2, *self.image_shape])
        self(image, tf.zeros([1, 2], tf.int32), None, image)
        if self._config["initialization"] == "imprinting":
            imprint(self.generators)

    def call(
        self,
        support_images: tf.Tensor,
        support_labels: tf.Tensor,
        support_mask: tf.Tensor | None,
        query_images: tf.Tensor,
        statistics: str = "support",
    ) -> Outputs:
        """Generates CNNs from support sets and classifies query images with them.

        Args:
            support_images: float32 [episode, support, height, width, channels] in -1..1.
            support_labels: int [episode, support] in 0..way; `way` = unlabeled.
            support_mask: float32 [episode, support], 1 = ignore the sample; None = use all.
            query_images: float32 [episode, query, height, width, channels].
            statistics: source of the query images' batch statistics: "support", "query" or "moving".

        Returns:
            Outputs. Support activations are always normalised with the support set's statistics.
        """
        weights = self.generate(support_images, support_labels, support_mask)
        run = cnns.run(self.cnn, query_images, weights, check_statistics(statistics), self.conv_method)
        observed = run.statistics
        if statistics == "moving":
            of_layers = [weights[layer.name] for layer in self.cnn.conv_layers]
            observed = [Moments(w["support_mean"], w["support_variance"]) for w in of_layers]
        return Outputs(run.logits, tuple(_average_over_episodes(each) for each in observed))

    def generate(
        self,
        support_images: tf.Tensor,
        support_labels: tf.Tensor,
        support_mask: tf.Tensor | None = None,
    ) -> dict[str, dict[str, tf.Tensor]]:
        """Writes the weights of one CNN per episode.

        Args:
            support_images, support_labels, support_mask: as for `call`.

        Returns:
            {"layer_1": {"kernel", "bias", "gamma", "beta", "support_mean", "support_variance",
            "moving_mean", "moving_variance"}, ..., "logits": {"kernel", "bias"}}. Every tensor has a
            leading axis of episodes, or of 1 where it is learned and the same for all episodes.
        """
        activations = support_images
        shared = self._image_embeddings(support_images, support_mask)
        generated = {}
        for index, layer in enumerate(self.cnn.conv_layers):
            weights = self._conv_weights(index, activations, support_labels, shared, support_mask)
            convolved = cnns.convolve(layer, activations, weights, self.conv_method)
            statistics = moments(convolved, support_mask)
            activations = cnns.finish(layer, convolved, statistics, weights)
            moving = self._moving_statistics(index)
            generated[layer.name] = {
                **weights,
                "support_mean": statistics.mean,
                "support_variance": statistics.variance,
                "moving_mean": moving.mean,
                "moving_variance": moving.variance,
            }
        generated["logits"] = self._logits_weights(activations, support_labels, shared, support_mask)
        return generated

    def classify(self, images: tf.Tensor, weights: dict, statistics: str = "support") -> tf.Tensor:
        """Runs generated CNNs.

        Args:
            images: float32 [episode, image, height, width, channels] in -1..1.
            weights: what `generate` gave.
            statistics: "support", "moving" (each image alone) or "query" (over `images`).

        Returns:
            float32 [episode, image, way] logits.
        """
        return cnns.run(self.cnn, images, weights, check_statistics(statistics), self.conv_method).logits

    def update_moving_averages(self, batch_statistics: tuple[Moments, ...]) -> None:
        """Folds the statistics of a training step into the moving averages (mean over replicas)."""
        for variables, observed in zip(self.layer_variables, batch_statistics):
            for name, value in (("moving_mean", observed.mean), ("moving_square", observed.variance)):
                old = variables[name]
                old.assign(self.moving_momentum * old + (1.0 - self.moving_momentum) * value)

    def named_variables(self) -> dict[str, tf.Variable]:
        """Every variable under a name that depends on the options alone, in a fixed order."""
        return {v.name.split(":")[0].removeprefix(f"{self.name}/"): v for v in self.variables}

    def config(self) -> dict:
        """The model's options as JSON values; two models with equal ones have equal variables."""
        return dict(self._config)

    @property
    def generated(self) -> str:
        """Generated layers: "all", "logits" alone, or logits and the "first:n" or "last:n" conv layers."""
        count = self._config["num_learned_layers"]
        if count == 0:
            return "all"
        if all(self.learned):
            return "logits"
        total = len(self.learned)
        return f"last:{total - count}" if count > 0 else f"first:{total + count}"

    def _image_embeddings(self, images, mask):
        return None if self.shared is None else self.shared(images, mask)

    def _conv_weights(self, index, activations, labels, shared, mask) -> dict[str, tf.Tensor]:
        layer, variables = self.cnn.conv_layers[index], self.layer_variables[index]
        weights = {name: variables[name][None] for name in ("bias", "gamma", "beta")}
        if self.learned[index]:
            weights["kernel"] = variables["kernel"][None]
        else:
            slices = self.generators[index](activations, labels, shared, mask)
            weights["kernel"] = assemble_kernel(
                slices, self.allocation, layer.kernel_size, layer.input_shape[2], layer.channels
            )
        return weights

    def _logits_weights(self, activations, labels, shared, mask) -> dict[str, tf.Tensor]:
        slices = self.generators[-1](activations, labels, shared, mask)
        return {"kernel": tf.transpose(slices[:, :, :-1], [0, 2, 1]), "bias": slices[:, :, -1]}

    def _moving_statistics(self, index) -> Moments:
        variables = self.layer_variables[index]
        mean = variables["moving_mean"][None]
        return Moments(mean, tf.maximum(variables["moving_square"][None] - tf.square(mean), 0.0))


def _learned_layers(total: int, count: int) -> list[bool]:
    if abs(count) > total:
        raise UserError(f"num_learned_layers = {count}: use -{total}..{total}, the conv layers")
    return [i < count if count >= 0 else i >= total + count for i in range(total)]


def _average_over_episodes(statistics: Moments) -> Moments:
    squares = statistics.variance + tf.square(statistics.mean)
    return Moments(
        tf.stop_gradient(tf.reduce_mean(statistics.mean, 0)), tf.stop_gradient(tf.reduce_mean(squares, 0))
    )
