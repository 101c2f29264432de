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
from hypertransformer_tf.models.convolution import episode_conv2d
from hypertransformer_tf.models.normalization import Moments, moments, normalize

BLOCK_ORDERS = ("conv-act-pool-bn", "conv-bn-act-pool")


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
    """

    name: str
    input_shape: tuple[int, int, int]
    channels: int
    kernel_size: int = 3
    stride: int = 1
    padding: str = "same"
    pool: int = 2
    order: str = "conv-act-pool-bn"

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
    """The final fully-connected layer on flattened features."""

    name: str
    input_shape: tuple[int, int, int]
    way: int

    @property
    def features(self) -> int:
        """Number of flattened input features."""
        height, width, channels = self.input_shape
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
    def layers(self) -> tuple:
        """All layers in order."""
        return (*self.conv_layers, self.logits)

    @property
    def num_parameters(self) -> int:
        """Weights of one CNN, BN scales and shifts included, BN statistics not."""
        shapes = [shape for layer in self.layers for shape in layer.weight_shapes.values()]
        return sum(int(tf.TensorShape(shape).num_elements()) for shape in shapes)


def maxpool_4_layer(image_shape, channels: int, way: int, order: str) -> CNN:
    """Four 3x3 conv blocks, each halved by 2x2 max-pooling, then logits (section 4.1)."""
    layers, shape = [], tuple(image_shape)
    for index in range(4):
        layers.append(ConvLayer(f"layer_{index + 1}", shape, channels, order=order))
        shape = layers[-1].output_shape
    if min(shape) < 1:
        raise UserError(f"maxpool-4-layer needs images of at least 16x16, got {tuple(image_shape[:2])}")
    return CNN(tuple(layers), LogitsLayer("logits", shape, way))


ARCHITECTURES = {"maxpool-4-layer": maxpool_4_layer}


def make_cnn(architecture: str, image_shape, channels: int, way: int, order: str) -> CNN:
    """Builds the description of a CNN.

    Args:
        architecture: a name in ARCHITECTURES.
        image_shape: (height, width, channels) of the images.
        channels: output channels of every conv layer.
        way: number of classes.
        order: one of BLOCK_ORDERS.

    Raises:
        UserError: for an unknown architecture or order, or an image that is too small.
    """
    if architecture not in ARCHITECTURES:
        raise UserError(f"unknown CNN architecture {architecture!r}: use {', '.join(ARCHITECTURES)}")
    if order not in BLOCK_ORDERS:
        raise UserError(f"unknown block order {order!r}: use {' or '.join(BLOCK_ORDERS)}")
    return ARCHITECTURES[architecture](image_shape, channels, way, order)


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
    return tf.nn.relu(result) if bn_last else result


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
    flat = tf.reshape(tf.nn.relu(result), [-1, *result.shape[2:]])
    if layer.pool > 1:
        flat = tf.nn.max_pool2d(flat, layer.pool, layer.pool, "VALID")
    return tf.reshape(flat, [tf.shape(result)[0], tf.shape(result)[1], *flat.shape[1:]])


def logits(activations: tf.Tensor, weights: dict) -> tf.Tensor:
    """The logits layer: [episode, image, height, width, channels] -> [episode, image, way]."""
    features = activations.shape[2] * activations.shape[3] * activations.shape[4]
    flat = tf.reshape(activations, [tf.shape(activations)[0], tf.shape(activations)[1], features])
    return tf.matmul(flat, weights["kernel"]) + weights["bias"][:, None, :]


class Run(NamedTuple):
    """What `run` gives.

    Attributes:
        logits: float [episode, image, way].
        statistics: the Moments that each conv layer was normalised with.
    """

    logits: tf.Tensor
    statistics: tuple[Moments, ...]


def run(cnn: CNN, images: tf.Tensor, weights: dict, statistics: str, method: str = "auto") -> Run:
    """Classifies images with given weights.

    Args:
        cnn: description of the CNN.
        images: float [episode, image, height, width, channels].
        weights: {layer name: {weight name: tensor}} with a leading axis of episodes or 1; conv layers
            also hold "<statistics>_mean" and "<statistics>_variance" unless `statistics` is "query".
        statistics: "support" or "moving": each image alone; "query": statistics over `images`.
        method: see `convolution.episode_conv2d`.
    """
    used = []
    for layer in cnn.conv_layers:
        of_layer = weights[layer.name]
        convolved = convolve(layer, images, of_layer, method)
        if statistics == "query":
            used.append(moments(convolved))
        else:
            used.append(Moments(of_layer[f"{statistics}_mean"], of_layer[f"{statistics}_variance"]))
        images = finish(layer, convolved, used[-1], of_layer)
    return Run(logits(images, weights["logits"]), tuple(used))
