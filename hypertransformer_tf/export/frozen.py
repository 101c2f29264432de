"""A generated CNN by itself: plain weights, batch-normalisation statistics frozen, no Transformer."""

from __future__ import annotations

import dataclasses

import numpy as np

from hypertransformer_tf.backend import tf
from hypertransformer_tf.errors import UserError
from hypertransformer_tf.export.preparation import Preparation
from hypertransformer_tf.models import cnn as cnns
from hypertransformer_tf.models.hypertransformer import HyperTransformer
from hypertransformer_tf.models.normalization import EPSILON

STATISTICS = ("support", "moving")


@dataclasses.dataclass(frozen=True)
class FrozenCNN:
    """The CNN of one task.

    Attributes:
        cnn: its layers; the logits layer has as many outputs as there are class names.
        weights: {layer name: {weight name: float32 array}}; conv layers have kernel, bias, gamma, beta,
            mean and variance, the logits layer kernel and bias.
        names: class names.
        preparation: of the images.
        statistics: where mean and variance come from: "support" or "moving".
    """

    cnn: cnns.CNN
    weights: dict[str, dict[str, np.ndarray]]
    names: tuple[str, ...]
    preparation: Preparation
    statistics: str

    def logits(self, images: tf.Tensor) -> tf.Tensor:
        """Runs the CNN with its weights as constants.

        Args:
            images: float32 [image, height, width, channels] in 0..255, with the polarity of the training.

        Returns:
            float32 [image, class].
        """
        x = images / 128.0 - 1.0
        for layer in self.cnn.conv_layers:
            kernel, bias, scale, shift = self.folded(layer)
            x = tf.nn.conv2d(x, tf.constant(kernel), layer.stride, layer.padding.upper()) + tf.constant(bias)
            x = cnns.ACTIVATIONS[layer.activation](x)
            if layer.pool > 1:
                x = tf.nn.max_pool2d(x, layer.pool, layer.pool, "VALID")
            if scale is not None:
                x = x * tf.constant(scale) + tf.constant(shift)
        if self.cnn.logits.spatial_mean:
            x = tf.reduce_mean(x, [1, 2])
        x = tf.reshape(x, [-1, self.cnn.logits.features])
        last = self.weights["logits"]
        return tf.matmul(x, tf.constant(last["kernel"])) + tf.constant(last["bias"])

    def folded(self, layer: cnns.ConvLayer):
        """(kernel, bias, scale, shift): normalisation as a scale and shift behind the pooling, or, when
        it comes before the nonlinearity, folded into kernel and bias (then None, None)."""
        weights = self.weights[layer.name]
        scale = weights["gamma"] / np.sqrt(weights["variance"] + EPSILON)
        shift = weights["beta"] - weights["mean"] * scale
        if layer.order == "conv-bn-act-pool":
            return weights["kernel"] * scale, weights["bias"] * scale + shift, None, None
        return weights["kernel"], weights["bias"], scale, shift

    @property
    def num_parameters(self) -> int:
        """Weights of the CNN; frozen statistics are not counted."""
        return self.cnn.num_parameters

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of convolutions and the logits layer for one image."""
        total = self.cnn.logits.features * len(self.names)
        for layer in self.cnn.conv_layers:
            height, width, channels = dataclasses.replace(layer, pool=1).output_shape
            total += height * width * channels * layer.kernel_size**2 * layer.input_shape[2]
        return total


def check_frozen(statistics: str) -> None:
    """Raises UserError for statistics that can't be frozen: "query" depends on the other images."""
    if statistics not in STATISTICS:
        raise UserError(
            f"--statistics={statistics}: an exported model treats each image alone, use "
            f"{' or '.join(STATISTICS)}"
        )


def freeze(
    model: HyperTransformer,
    weights: dict[str, dict[str, tf.Tensor]],
    names: tuple[str, ...],
    preparation: Preparation,
    statistics: str = "support",
) -> FrozenCNN:
    """The CNN of one episode, cut to its classes: slots without a class can't be predicted.

    Args:
        model: that generated the weights.
        weights: what `model.generate` gave for one episode.
        names: class names of the slots 0, 1, ...; at most the model's way.
        preparation: of the images.
        statistics: "support" or "moving".

    Raises:
        UserError: for other statistics: "query" depends on the other images of a batch.
    """
    check_frozen(statistics)
    kept = {}
    for layer in model.cnn.conv_layers:
        of_layer = {name: value[0].numpy() for name, value in weights[layer.name].items()}
        kept[layer.name] = {name: of_layer[name] for name in ("kernel", "bias", "gamma", "beta")}
        for name in ("mean", "variance"):
            kept[layer.name][name] = of_layer[f"{statistics}_{name}"]
    way = len(names)
    kept["logits"] = {
        "kernel": weights["logits"]["kernel"][0, :, :way].numpy(),
        "bias": weights["logits"]["bias"][0, :way].numpy(),
    }
    cnn = dataclasses.replace(model.cnn, logits=dataclasses.replace(model.cnn.logits, way=way))
    return FrozenCNN(cnn, kept, tuple(names), preparation, statistics)
