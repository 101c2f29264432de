"""The conv layers of a CNN without its logits layer: features, and the batch statistics used for them."""

from __future__ import annotations

from typing import NamedTuple

from hypertransformer_tf.backend import tf
from hypertransformer_tf.models import cnn as cnns
from hypertransformer_tf.models.normalization import Moments


class ConvPass(NamedTuple):
    """What `run_conv` gives.

    Attributes:
        features: float [episode, image, feature], the inputs of the logits layer.
        statistics: the Moments that each conv layer was normalised with.
    """

    features: tf.Tensor
    statistics: tuple[Moments, ...]


def run_conv(
    cnn: cnns.CNN, images: tf.Tensor, weights: dict, statistics: str, mask: tf.Tensor | None = None
) -> ConvPass:
    """Runs the conv layers.

    Args:
        cnn: description of the CNN.
        images: float [episode, image, height, width, channels].
        weights: {layer name: {weight name: tensor}} with a leading axis of episodes or 1, as for `cnn.run`.
        statistics: "support" or "moving", which are in the weights, or "own": over `images`.
        mask: float [episode, image], 1 = the image doesn't count in its own statistics; None = all count.
    """
    source = None if statistics == "own" else statistics
    activations, used = cnns.run_conv_layers(cnn, images, weights, source, mask)
    return ConvPass(cnns.flat_features(cnn.logits, activations[-1]), used)


def with_support_statistics(cnn: cnns.CNN, weights: dict, statistics: tuple[Moments, ...]) -> dict:
    """The weights with "support_mean" and "support_variance" in every conv layer."""
    found = dict(weights)
    for layer, (mean, variance) in zip(cnn.conv_layers, statistics):
        found[layer.name] = {**weights[layer.name], "support_mean": mean, "support_variance": variance}
    return found
