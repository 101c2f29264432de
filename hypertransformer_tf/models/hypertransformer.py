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
from hypertransformer_tf.models.dropout import check_rate
from hypertransformer_tf.models.features import SharedFeatures
from hypertransformer_tf.models.generator import GeneratorOptions, WeightGenerator
from hypertransformer_tf.models.initialization import check_initialization, imprint
from hypertransformer_tf.models.normalization import (
    Moments,
    check_statistics,
    fold_into_moving,
    moving_moments,
)


class Outputs(NamedTuple):
    """What `HyperTransformer.call` gives.

    Attributes:
        logits: float32 [episode, query, way].
        batch_statistics: for each conv layer Moments (mean, mean of squares), each [channels],
            averaged over the episodes; to be folded into the moving averages.
        slices: {layer name: float [episode, slice, value]}, what the generators wrote.
        head_logits: for each warm-up head float [episode, query, way]; empty unless asked for.
        embeddings: float [episode, support, feature], the shared image embeddings, or None.
    """

    logits: tf.Tensor
    batch_statistics: tuple[Moments, ...]
    slices: dict[str, tf.Tensor]
    head_logits: tuple[tf.Tensor, ...]
    embeddings: tf.Tensor | None


class _SupportPass(NamedTuple):
    """Weights and weight slices by layer, activations of the support set, its image embeddings."""

    weights: dict[str, dict[str, tf.Tensor]]
    slices: dict[str, tf.Tensor]
    activations: tuple[tf.Tensor, ...]
    shared: tf.Tensor | None


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
        cnn_activation: nonlinearity of the CNN: "relu" or "lrelu" (slope 0.01).
        cnn_dropout: share of the logits layer's inputs that is dropped in training.
        embedding_dim, transformer_layers, heads, key_query, value, inner, generator (its `kind`),
            use_decoder, skip_last_nonlinearity, attention, transformer_activation, transformer_dropout,
            nonlinear_features, activation_feature_dropout: see GeneratorOptions.
        activation_features: channels of the activation feature extractors; None = `channels`, 0 = none.
        logits_features: "default", "passthrough" or "mix", see `features.make_features`.
        shared_features: size of the image embedding; 0 = none.
        shared_layers, shared_batch_norm, shared_padding, shared_feature_dropout: see SharedFeatures.
        generate_bias: biases of generated conv layers are generated, too.
        generate_bn: so are BN scales and shifts (section 4.1: of little difference).
        add_learned_weights: generated kernels are added to learned ones.
        separate_support_bn: the support pass has BN scales and shifts of its own.
        warmup_heads: each conv layer but the last has a generated logits layer of its own, for the
            beginning of the training (see `training.warmup`).
        initialization: "imprinting" or "random", see `initialization`.
        moving_momentum: share of the old value in a step of the moving BN averages.
        conv_method: how generated convolutions run, see `convolution`.

    Raises:
        UserError: for impossible values or combinations.
    """

    method = "hypertransformer"

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
        cnn_activation: str = "relu",
        cnn_dropout: float = 0.0,
        generator: str = "joint",
        use_decoder: bool = False,
        skip_last_nonlinearity: bool = False,
        attention: str = "softmax",
        transformer_activation: str = "relu",
        transformer_dropout: float = 0.0,
        nonlinear_features: bool = False,
        activation_feature_dropout: float = 0.0,
        shared_feature_dropout: float = 0.0,
        logits_features: str = "default",
        generate_bias: bool = False,
        generate_bn: bool = False,
        add_learned_weights: bool = False,
        separate_support_bn: bool = False,
        warmup_heads: bool = False,
        moving_momentum: float = 0.99,
        conv_method: str = "auto",
        **kwargs,
    ):
        super().__init__(**kwargs)
        features = channels if activation_features is None else activation_features
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
            "activation_features": features,
            "shared_features": shared_features,
            "shared_layers": shared_layers,
            "shared_batch_norm": shared_batch_norm,
            "shared_padding": shared_padding,
            "initialization": check_initialization(initialization),
            "cnn_activation": cnn_activation,
            "cnn_dropout": check_rate("cnn_dropout", cnn_dropout),
            "generator": generator,
            "use_decoder": use_decoder,
            "skip_last_nonlinearity": skip_last_nonlinearity,
            "attention": attention,
            "transformer_activation": transformer_activation,
            "transformer_dropout": transformer_dropout,
            "nonlinear_features": nonlinear_features,
            "activation_feature_dropout": activation_feature_dropout,
            "shared_feature_dropout": check_rate("shared_feature_dropout", shared_feature_dropout),
            "logits_features": logits_features,
            "generate_bias": generate_bias,
            "generate_bn": generate_bn,
            "add_learned_weights": add_learned_weights,
            "separate_support_bn": separate_support_bn,
            "warmup_heads": warmup_heads,
        }
        if way < 2:
            raise UserError(f"HyperTransformer.way = {way}: an episode needs at least 2 classes")
        if channels < 1:
            raise UserError(f"HyperTransformer.channels = {channels}: must be at least 1")
        self.way, self.image_shape = way, tuple(image_shape)
        self.moving_momentum, self.conv_method = moving_momentum, conv_method
        self.cnn = cnns.make_cnn(architecture, image_shape, channels, way, block_order, cnn_activation)
        self.learned = _learned_layers(len(self.cnn.conv_layers), num_learned_layers)
        self._check_combinations()
        options = GeneratorOptions(
            embedding_dim,
            transformer_layers,
            heads,
            key_query,
            value,
            inner,
            generator,
            use_decoder,
            skip_last_nonlinearity,
            attention,
            transformer_activation,
            features,
            nonlinear_features,
            transformer_dropout,
            activation_feature_dropout,
        )
        self.shared = None
        if shared_features:
            self.shared = SharedFeatures(
                shared_features,
                shared_layers,
                shared_batch_norm,
                shared_padding,
                shared_feature_dropout,
                name="shared_features",
            )

        def logits_generator(layer):
            return WeightGenerator(
                layer.reduced_shape,
                way,
                way,
                layer.features + 1,
                1,
                shared_features,
                options,
                logits_features,
                name=f"generator_{layer.name}",
            )

        self.allocation = allocation
        self._extras = [name for name in ("bias", "gamma", "beta") if self._is_generated(name)]
        self.generators = []
        self.layer_variables = []
        for layer, learned in zip(self.cnn.conv_layers, self.learned):
            extras = len(self._extras)
            shape = slice_shape(allocation, layer.kernel_size, layer.input_shape[2], layer.channels, extras)
            conv_generator = None
            if not learned:
                conv_generator = WeightGenerator(
                    layer.input_shape,
                    way,
                    *shape,
                    2,
                    shared_features,
                    options,
                    name=f"generator_{layer.name}",
                )
            self.generators.append(conv_generator)
            self.layer_variables.append(self._add_layer_variables(layer, learned))
        self.generators.append(logits_generator(self.cnn.logits))
        self.head_layers, self.heads = (), []
        if warmup_heads:
            self.head_layers = tuple(
                cnns.LogitsLayer(f"head_{index + 1}", layer.output_shape, way, spatial_mean=True)
                for index, layer in enumerate(self.cnn.conv_layers[:-1])
            )
            self.heads = [logits_generator(layer) for layer in self.head_layers]

    def _check_combinations(self) -> None:
        """Raises UserError for options that make no sense together."""
        options = self._config
        for name in ("generate_bias", "generate_bn", "add_learned_weights"):
            if options[name] and all(self.learned):
                raise UserError(f"{name} = True, but no conv layer is generated: lower num_learned_layers")
        if options["generate_bn"] and options["separate_support_bn"]:
            raise UserError("separate_support_bn = True with generate_bn = True: generated ones are shared")
        if options["warmup_heads"] and len(self.cnn.conv_layers) < 2:
            raise UserError("warmup_heads = True needs a CNN with at least two conv layers")
        if options["initialization"] == "imprinting" and (
            options["use_decoder"] or options["generator"] == "separate"
        ):
            raise UserError(
                "initialization = 'imprinting' is for generators without a decoder: "
                "set HyperTransformer.initialization = 'random'"
            )

    def _is_generated(self, name: str) -> bool:
        return self._config["generate_bias" if name == "bias" else "generate_bn"]

    def _add_layer_variables(self, layer, learned: bool) -> dict[str, tf.Variable]:
        """Weights of a conv layer that are not generated, and its moving averages."""
        starts = {"bias": "zeros", "gamma": "ones", "beta": "zeros"}
        if not learned:
            starts = {name: start for name, start in starts.items() if name not in self._extras}
        if learned or self._config["add_learned_weights"]:
            starts["kernel"] = "glorot_uniform"
        if self._config["separate_support_bn"]:
            starts.update(support_gamma="ones", support_beta="zeros")
        shapes = layer.weight_shapes
        variables = {
            name: self.add_weight(
                name=f"{layer.name}_{name}",
                shape=shapes[name.removeprefix("support_")],
                initializer=start,
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
        self(image, tf.zeros([1, 2], tf.int32), None, image, with_heads=True)
        if self._config["initialization"] == "imprinting":
            imprint(self.generators)
            for head in self.heads:
                imprint([head])

    def call(
        self,
        support_images: tf.Tensor,
        support_labels: tf.Tensor,
        support_mask: tf.Tensor | None,
        query_images: tf.Tensor,
        statistics: str = "support",
        with_heads: bool = False,
    ) -> Outputs:
        """Generates CNNs from support sets and classifies query images with them.

        Args:
            support_images: float32 [episode, support, height, width, channels] in -1..1.
            support_labels: int [episode, support] in 0..way; `way` = unlabeled.
            support_mask: float32 [episode, support], 1 = ignore the sample; None = use all.
            query_images: float32 [episode, query, height, width, channels].
            statistics: source of the query images' batch statistics: "support", "query" or "moving".
            with_heads: also compute the logits of the warm-up heads.

        Returns:
            Outputs. Support activations are always normalised with the support set's statistics.
        """
        support = self._read_support(support_images, support_labels, support_mask)
        weights = support.weights
        run = cnns.run(
            self.cnn,
            query_images,
            weights,
            check_statistics(statistics),
            self.conv_method,
            self._config["cnn_dropout"],
        )
        heads = []
        for index, layer in enumerate(self.head_layers if with_heads else ()):
            activations = cnns.logits_input(layer, support.activations[index])
            slices = self.heads[index](activations, support_labels, support.shared, support_mask)
            heads.append(cnns.logits(layer, run.activations[index], _logits_weights(slices)))
        return Outputs(
            run.logits,
            cnns.observed(self.cnn, weights, run, statistics),
            support.slices,
            tuple(heads),
            support.shared,
        )

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
        return self._read_support(support_images, support_labels, support_mask).weights

    def _read_support(self, images, labels, mask) -> _SupportPass:
        """Runs the support set through the layers as they are generated, one after the other."""
        shared = None if self.shared is None else self.shared(images, mask)
        activations, weights, slices = [images], {}, {}
        for index, layer in enumerate(self.cnn.conv_layers):
            if not self.learned[index]:
                slices[layer.name] = self.generators[index](activations[-1], labels, shared, mask)
            of_layer = self._conv_weights(index, slices.get(layer.name))
            result, statistics = cnns.block(
                layer,
                activations[-1],
                {**of_layer, **self._support_bn(index)},
                mask=mask,
                method=self.conv_method,
            )
            activations.append(result)
            weights[layer.name] = {
                **of_layer,
                "support_mean": statistics.mean,
                "support_variance": statistics.variance,
                **moving_moments(self.layer_variables[index]),
            }
        last = cnns.logits_input(self.cnn.logits, activations[-1])
        slices["logits"] = self.generators[-1](last, labels, shared, mask)
        weights["logits"] = _logits_weights(slices["logits"])
        return _SupportPass(weights, slices, tuple(activations[1:]), shared)

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

    def update_moving_averages(self, batch_statistics: tuple[Moments, ...], step: tf.Tensor) -> None:
        """Folds the statistics of a training step into the moving averages (mean over replicas).

        Args:
            batch_statistics: mean and mean of squares of each conv layer.
            step: number of steps done before. Early ones count for more, so that the start is soon forgotten.
        """
        fold_into_moving(self.layer_variables, batch_statistics, step, self.moving_momentum)

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
        if all(self.learned):
            return "logits"
        if count == 0:
            return "all"
        total = len(self.learned)
        return f"last:{total - count}" if count > 0 else f"first:{total + count}"

    def _conv_weights(self, index, slices) -> dict[str, tf.Tensor]:
        """kernel, bias, gamma and beta of a conv layer from what is learned and what is generated."""
        layer, variables = self.cnn.conv_layers[index], self.layer_variables[index]
        names = ("kernel", "bias", "gamma", "beta")
        weights = {name: variables[name][None] for name in names if name in variables}
        if slices is None:
            return weights
        kernel_size = slices.shape[2] - len(self._extras)
        kernel = assemble_kernel(
            slices[:, :, :kernel_size],
            self.allocation,
            layer.kernel_size,
            layer.input_shape[2],
            layer.channels,
        )
        weights["kernel"] = kernel + weights["kernel"] if "kernel" in weights else kernel
        for offset, name in enumerate(self._extras):
            weights[name] = slices[:, :, kernel_size + offset]
        return weights

    def _support_bn(self, index) -> dict:
        """Scale and shift of the support pass, where it has its own."""
        if not self._config["separate_support_bn"]:
            return {}
        variables = self.layer_variables[index]
        return {name: variables[f"support_{name}"][None] for name in ("gamma", "beta")}


def _learned_layers(total: int, count: int) -> list[bool]:
    if abs(count) > total:
        raise UserError(f"num_learned_layers = {count}: use -{total}..{total}, the conv layers")
    return [i < count if count >= 0 else i >= total + count for i in range(total)]


def _logits_weights(slices: tf.Tensor) -> dict[str, tf.Tensor]:
    """Kernel and bias of a logits layer from its slices [episode, way, features + 1]."""
    return {"kernel": tf.transpose(slices[:, :, :-1], [0, 2, 1]), "bias": slices[:, :, -1]}
