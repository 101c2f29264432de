"""What flows through generated CNNs: the input of every layer."""

from __future__ import annotations

from hypertransformer_tf.backend import tf
from hypertransformer_tf.models import cnn as cnns
from hypertransformer_tf.models.hypertransformer import HyperTransformer
from hypertransformer_tf.models.normalization import Moments


def layer_inputs(model: HyperTransformer, images: tf.Tensor, weights: dict) -> list[tf.Tensor]:
    """Runs generated CNNs with the support set's batch statistics and keeps what each layer receives.

    Args:
        model: a built HyperTransformer.
        images: float32 [episode, image, height, width, channels] in -1..1.
        weights: what `model.generate` gave.

    Returns:
        One float32 [episode, image, height', width', channels'] for each conv layer and, last, for the
        logits layer.
    """
    inputs = [images]
    for layer in model.cnn.conv_layers:
        of_layer = weights[layer.name]
        statistics = Moments(of_layer["support_mean"], of_layer["support_variance"])
        convolved = cnns.convolve(layer, inputs[-1], of_layer, model.conv_method)
        inputs.append(cnns.finish(layer, convolved, statistics, of_layer))
    return inputs


def embeddings(model: HyperTransformer, images: tf.Tensor, weights: dict) -> tf.Tensor:
    """The flattened input of the logits layer, e(x) of appendix A: float32 [episode, image, feature]."""
    last = layer_inputs(model, images, weights)[-1]
    return tf.reshape(last, [tf.shape(last)[0], tf.shape(last)[1], model.cnn.logits.features])
