"""What flows through generated CNNs: the input of every layer."""

from __future__ import annotations

from hypertransformer_tf.backend import tf
from hypertransformer_tf.models import cnn as cnns
from hypertransformer_tf.models.hypertransformer import HyperTransformer


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
    return cnns.run_conv_layers(model.cnn, images, weights, "support", method=model.conv_method)[0]


def embeddings(model: HyperTransformer, images: tf.Tensor, weights: dict) -> tf.Tensor:
    """The flattened input of the logits layer, e(x) of appendix A: float32 [episode, image, feature]."""
    return cnns.flat_features(model.cnn.logits, layer_inputs(model, images, weights)[-1])
