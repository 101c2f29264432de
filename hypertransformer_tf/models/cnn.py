"""Generated CNNs: their shapes, and the function that runs one with given weights.

An architecture is one function in this file that lists layers; `ARCHITECTURES` names it for gin. A
CNN has no variables: `run(cnn, images, weights, statistics)` is a plain function, so one call serves a
batch of episodes that each have their own kernels.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from hypertransformer_tf.backend import tf
from hypertransformer_tf.errors import UserError
from hypertransformer_tf.models.convolution import (
    episode_conv2d,
    episode_conv2d_with_moments,
    has_accelerator,
)
from hypertransformer_tf.models.dropout import dropout
from hypertransformer_tf.models.normalization import (
    Moments,
    mean_and_square,
    moments,
    normalize,
    scale_and_shift,
)

BLOCK_ORDERS = ("conv-act-pool-bn", "conv-bn-act-pool")
ACTIVATIONS = {"relu": tf.nn.relu, "lrelu": lambda x: tf.nn.leaky_relu(x, 0.01)}


@dataclasses.dataclass(frozen=True)
class ConvLayer:
    """A convolutional block.

    Attributes:
        name: "layer_1", "layer_2", ... as in the paper's theta_1, theta_2.
        input_shape: (height, width, channels) of what it receives.
        channels: output channels.
        kernel_size, stride, padding: of the convolution.
        pool: side of the max-pooling windows, 1 = none.
        order: "conv-act-pool-bn" (the reference code: features are centred) or "conv-bn-act-pool"
            (the paper's text).
        activation: "relu" or "lrelu" (slope 0.01).
    """

    name: str
    input_shape: tuple[int, int, int]
    channels: int
    kernel_size: int = 3
    stride: int = 1
    padding: str = "same"
    pool: int = 2
    order: str = "conv-act-pool-bn"
    activation: str = "relu"

    @property
    def output_shape(self) -> tuple[int, int, int]:
        """(height, width, channels) of what it gives."""
        sides = []
        for side in self.input_shape[:2]:
            lost = 0 if self.padding == "same" else self.kernel_size - 1
            sides.append(-(-(side - lost) // self.stride) // self.pool)
        return (sides[0], sides[1], self.channels)

    @property
    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of its weights without the episode axis."""
        kernel = (self.kernel_size, self.kernel_size, self.input_shape[2], self.channels)
        return {"kernel": kernel, **{name: (self.channels,) for name in ("bias", "gamma", "beta")}}


@dataclasses.dataclass(frozen=True)
class LogitsLayer:
    """The final fully-connected layer, on flattened features or on their means over all positions.

    Attributes:
        name: "logits".
        input_shape: (height, width, channels) of what it receives.
        way: number of classes.
        spatial_mean: average over the positions instead of flattening.
    """

    name: str
    input_shape: tuple[int, int, int]
    way: int
    spatial_mean: bool = False

    @property
    def reduced_shape(self) -> tuple[int, int, int]:
        """(height, width, channels) behind `logits_input`."""
        return (1, 1, self.input_shape[2]) if self.spatial_mean else self.input_shape

    @property
    def features(self) -> int:
        """Number of its input features."""
        height, width, channels = self.reduced_shape
        return height * width * channels

    @property
    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of its weights without the episode axis."""
        return {"kernel": (self.features, self.way), "bias": (self.way,)}


@dataclasses.dataclass(frozen=True)
class CNN:
    """A chain of conv layers and the logits layer."""

    conv_layers: tuple[ConvLayer, ...]
    logits: LogitsLayer

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """(height, width, channels) of the images."""
        return self.layers[0].input_shape

    @property
    def layers(self) -> tuple:
        """All layers in order."""
        return (*self.conv_layers, self.logits)

    @property
    def num_parameters(self) -> int:
        """Weights of one CNN, BN scales and shifts included, BN statistics not."""
        shapes = [shape for layer in self.layers for shape in layer.weight_shapes.values()]
        return sum(int(tf.TensorShape(shape).num_elements()) for shape in shapes)


def maxpool_4_layer(image_shape, channels: int, way: int, **options) -> CNN:
    """Four 3x3 conv blocks, each halved by 2x2 max-pooling, then logits (section 4.1)."""
    return _chain(image_shape, [{"channels": channels}] * 4, way, options)


def strided_3_layer(image_shape, channels: int, way: int, **options) -> CNN:
    """Three unpadded 3x3 convolutions of stride 2, averaged over all positions, then logits."""
    return _chain(image_shape, [{"channels": channels, **_STRIDED}] * 3, way, options, spatial_mean=True)


def strided_4_layer(image_shape, channels: int, way: int, **options) -> CNN:
    """Four unpadded 3x3 convolutions of stride 2, averaged over all positions, then logits."""
    return _chain(image_shape, [{"channels": channels, **_STRIDED}] * 4, way, options, spatial_mean=True)


def large_kernels_2_layer(image_shape, channels: int, way: int, **options) -> CNN:
    """Two unpadded 9x9 convolutions of stride 4, averaged, then logits (section 4.4, appendix G)."""
    block = {"channels": channels, **_STRIDED, "kernel_size": 9, "stride": 4}
    return _chain(image_shape, [block] * 2, way, options, spatial_mean=True)


def lgm_net(image_shape, channels: int, way: int, **options) -> CNN:
    """Four max-pooled 3x3 blocks and two without pooling, averaged, then logits (appendix D, LGM-Net).

    The comparison learns the first four (`num_learned_layers` = 4) and has 64 channels.
    """
    blocks = [{"channels": channels}] * 4 + [{"channels": channels, "pool": 1}] * 2
    return _chain(image_shape, blocks, way, options, spatial_mean=True)


def logits_only(image_shape, channels: int, way: int, **options) -> CNN:
    """Logits alone, on given embeddings (appendix D, LEO): images of shape (1, 1, embedding size)."""
    return _chain(image_shape, [], way, options)


_STRIDED = {"stride": 2, "padding": "valid", "pool": 1}

ARCHITECTURES = {
    "maxpool-4-layer": maxpool_4_layer,
    "3-layer": strided_3_layer,
    "4-layer": strided_4_layer,
    "2-layer-9x9": large_kernels_2_layer,
    "lgm-net": lgm_net,
    "logits-only": logits_only,
}


def _chain(image_shape, blocks: list[dict], way: int, options: dict, spatial_mean: bool = False) -> CNN:
    """Conv layers one behind the other, named layer_1, layer_2, ..., and the logits layer."""
    layers, shape = [], tuple(image_shape)
    for index, block in enumerate(blocks):
        layers.append(ConvLayer(f"layer_{index + 1}", shape, **block, **options))
        shape = layers[-1].output_shape
        if min(shape) < 1:
            height, width = image_shape[:2]
            raise UserError(
                f"images of {height}x{width} are too small for conv layer {index + 1} of this CNN"
            )
    return CNN(tuple(layers), LogitsLayer("logits", shape, way, spatial_mean))


def make_cnn(
    architecture: str, image_shape, channels: int, way: int, order: str, activation: str = "relu"
) -> CNN:
    """Builds the description of a CNN.

    Args:
        architecture: a name in ARCHITECTURES.
        image_shape: (height, width, channels) of the images.
        channels: output channels of every conv layer.
        way: number of classes.
        order: one of BLOCK_ORDERS.
        activation: one of ACTIVATIONS.

    Raises:
        UserError: for an unknown architecture, order or activation, or an image that is too small.
    """
    for name, value, known in (
        ("CNN architecture", architecture, ARCHITECTURES),
        ("block order", order, BLOCK_ORDERS),
        ("cnn_activation", activation, ACTIVATIONS),
    ):
        if value not in known:
            raise UserError(f"unknown {name} {value!r}: use {', '.join(known)}")
    make = ARCHITECTURES[architecture]
    return make(tuple(image_shape), channels, way, order=order, activation=activation)


def convolve(layer: ConvLayer, images: tf.Tensor, weights: dict, method: str = "auto") -> tf.Tensor:
    """The part of a conv block that comes before batch normalisation.

    Args:
        images: float [episode, image, height, width, in_channels].
        weights: kernel, bias; each with a leading axis of episodes or 1.
        method: see `convolution.episode_conv2d`.

    Returns:
        float [episode, image, height', width', channels].
    """
    bn_last = layer.order == "conv-act-pool-bn"
    result = episode_conv2d(
        images,
        weights["kernel"],
        weights["bias"],
        layer.stride,
        layer.padding,
        layer.pool if bn_last else 1,
        method,
    )
    return ACTIVATIONS[layer.activation](result) if bn_last else result


def finish(layer: ConvLayer, activations: tf.Tensor, statistics: Moments, weights: dict) -> tf.Tensor:
    """The rest of a conv block: batch normalisation, and what the order puts behind it.

    Args:
        activations: what `convolve` gave.
        statistics: Moments of [episode or 1, channels].
        weights: gamma, beta; each [episode or 1, channels].
    """
    result = normalize(activations, statistics, weights["gamma"], weights["beta"])
    if layer.order == "conv-act-pool-bn":
        return result
    flat = tf.reshape(ACTIVATIONS[layer.activation](result), [-1, *result.shape[2:]])
    if layer.pool > 1:
        flat = tf.nn.max_pool2d(flat, layer.pool, layer.pool, "VALID")
    return tf.reshape(flat, [tf.shape(result)[0], tf.shape(result)[1], *flat.shape[1:]])


def block(
    layer: ConvLayer,
    images: tf.Tensor,
    weights: dict,
    statistics: Moments | None = None,
    mask: tf.Tensor | None = None,
    method: str = "auto",
) -> tuple[tf.Tensor, Moments]:
    """A whole conv block: `convolve`, then `finish`, in the order that is cheapest.

    Where batch normalisation comes before the pooling, the pooling is done first: given statistics are
    folded into the kernel; else a sign is (max-pooling passes by an increasing function).

    Args:
        images: float [episode, image, height, width, in_channels].
        weights: kernel, bias, gamma, beta; each with a leading axis of episodes or 1.
        statistics: Moments of [episode or 1, channels]; None = those of `images`.
        mask: float [episode, image], 1 = leave the image out of the statistics; None = all count.
        method: see `convolution.episode_conv2d`; "plain": the two halves one after the other.

    Returns:
        float [episode, image, height', width', channels] and the statistics used.
    """
    if method == "plain" or layer.order == "conv-act-pool-bn":
        convolved = convolve(layer, images, weights, "unrolled" if method == "plain" else method)
        used = moments(convolved, mask) if statistics is None else statistics
        return finish(layer, convolved, used, weights), used
    activation = ACTIVATIONS[layer.activation]
    kernel, bias, gamma, beta = (weights[name] for name in ("kernel", "bias", "gamma", "beta"))
    options = {"stride": layer.stride, "padding": layer.padding, "pool": layer.pool, "method": method}
    if statistics is not None:
        scale, shift = scale_and_shift(statistics, gamma, beta)
        # On an accelerator one call with a kernel that all episodes share beats many with their own.
        if kernel.shape[0] != 1 or scale.shape[0] == 1 or not has_accelerator():
            kernel, bias = kernel * scale[:, None, None, None], bias * scale + shift
            return activation(episode_conv2d(images, kernel, bias, **options)), statistics
    sign = tf.stop_gradient(tf.where(gamma < 0.0, -1.0, 1.0))
    kernel, bias = kernel * sign[:, None, None, None], bias * sign
    if statistics is None:
        pooled, (mean, variance) = episode_conv2d_with_moments(images, kernel, bias, mask=mask, **options)
        statistics = Moments(mean * sign, variance)
    else:
        pooled, mean, variance = (
            episode_conv2d(images, kernel, bias, **options),
            statistics.mean * sign,
            statistics.variance,
        )
    return activation(normalize(pooled, Moments(mean, variance), gamma * sign, beta)), statistics


def logits_input(layer: LogitsLayer, activations: tf.Tensor) -> tf.Tensor:
    """What the logits layer works on: the activations, or their means over all positions, of size 1x1."""
    return tf.reduce_mean(activations, [2, 3], keepdims=True) if layer.spatial_mean else activations


def flat_features(layer: LogitsLayer, activations: tf.Tensor) -> tf.Tensor:
    """The logits layer's input [episode, image, feature], from what the last conv layer gave."""
    last = logits_input(layer, activations)
    return tf.reshape(last, [tf.shape(last)[0], tf.shape(last)[1], layer.features])


def logits(layer: LogitsLayer, activations: tf.Tensor, weights: dict, dropout_rate: float = 0.0) -> tf.Tensor:
    """The logits layer: [episode, image, height, width, channels] -> [episode, image, way]."""
    features = dropout(flat_features(layer, activations), dropout_rate)
    return tf.matmul(features, weights["kernel"]) + weights["bias"][:, None, :]


def stored_moments(layer_weights: dict, statistics: str) -> Moments:
    """What a conv layer's weights hold of a source, "support" or "moving"."""
    return Moments(layer_weights[f"{statistics}_mean"], layer_weights[f"{statistics}_variance"])


def run_conv_layers(
    cnn: CNN,
    images: tf.Tensor,
    weights: dict,
    statistics: str | None,
    mask: tf.Tensor | None = None,
    method: str = "auto",
) -> tuple[list[tf.Tensor], tuple[Moments, ...]]:
    """Runs the conv layers.

    Args:
        cnn: description of the CNN.
        images: float [episode, image, height, width, channels].
        weights: as for `run`.
        statistics: "support" or "moving", which are in the weights; None = those of `images`.
        mask: float [episode, image], 1 = the image doesn't count in statistics of `images`; None = all count.
        method: see `convolution.episode_conv2d`.

    Returns:
        The images and what each conv layer gave; the Moments that each was normalised with.
    """
    used, activations = [], [images]
    for layer in cnn.conv_layers:
        of_layer = weights[layer.name]
        given = None if statistics is None else stored_moments(of_layer, statistics)
        result, moments_used = block(layer, activations[-1], of_layer, given, mask, method)
        used.append(moments_used)
        activations.append(result)
    return activations, tuple(used)


class Run(NamedTuple):
    """What `run` gives.

    Attributes:
        logits: float [episode, image, way].
        statistics: the Moments that each conv layer was normalised with.
        activations: what each conv layer gave.
    """

    logits: tf.Tensor
    statistics: tuple[Moments, ...]
    activations: tuple[tf.Tensor, ...]


def run(
    cnn: CNN,
    images: tf.Tensor,
    weights: dict,
    statistics: str,
    method: str = "auto",
    dropout_rate: float = 0.0,
) -> Run:
    """Classifies images with given weights.

    Args:
        cnn: description of the CNN.
        images: float [episode, image, height, width, channels].
        weights: {layer name: {weight name: tensor}} with a leading axis of episodes or 1; conv layers
            also hold "<statistics>_mean" and "<statistics>_variance" unless `statistics` is "query".
        statistics: "support" or "moving": each image alone; "query": statistics over `images`.
        method: see `convolution.episode_conv2d`.
        dropout_rate: share of the logits layer's inputs that is dropped in training.
    """
    source = None if statistics == "query" else statistics
    activations, used = run_conv_layers(cnn, images, weights, source, method=method)
    result = logits(cnn.logits, activations[-1], weights["logits"], dropout_rate)
    return Run(result, used, tuple(activations[1:]))


def observed(cnn: CNN, weights: dict, run: Run, statistics: str) -> tuple[Moments, ...]:
    """Batch statistics for the moving averages: those used, or with "moving" the support set's.

    Args:
        cnn, weights, statistics: as for `run`.
        run: what `run` gave with them.

    Returns:
        For each conv layer Moments (mean, mean of squares), each [channels].
    """
    used = run.statistics
    if statistics == "moving":
        used = [stored_moments(weights[layer.name], "support") for layer in cnn.conv_layers]
    return tuple(mean_and_square(each) for each in used)
