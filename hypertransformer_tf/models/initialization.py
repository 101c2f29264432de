"""Starting points of a HyperTransformer.

"random": embeddings from N(0, 1), matrices from Glorot's distribution, as in the paper.

"imprinting": appendix A's construction as a starting point instead of a thing to be discovered.

* Logits generator. Every placeholder starts equal to the label embedding of its class, and in the first
  attention layer the key matrix starts equal to the query matrix: the attention logit of a placeholder
  and a sample of its class is then a squared norm, so each placeholder reads mostly the samples of its
  class. Values start as the samples' features, written to where the weight slice is read, and the
  feature extractor starts as the identity. So the generated logits layer starts near imprinted weights.
* All generators. Residual branches behind the first attention start small, so what the first one
  brings is not drowned in noise; the logits start small as well.

It learns Omniglot in thousands of episodes instead of tens of thousands (README, "Initialisation").
"""

from __future__ import annotations

import numpy as np

from hypertransformer_tf.errors import UserError
from hypertransformer_tf.models.features import ActivationFeatures
from hypertransformer_tf.models.generator import WeightGenerator

INITIALIZATIONS = ("imprinting", "random")

QUERY_GAIN = 1.5  # of the Glorot query matrix: sharper attention to the samples of a class
VALUE_GAIN = 4.0  # of the features read, against the placeholder's own embedding
RESIDUAL_GAIN = 0.1  # of the other residual branches
LOGITS_GAIN = 0.3  # of the last layer normalisation of the logits generator


def check_initialization(name: str) -> str:
    """Returns `name`; raises UserError when there is no such starting point."""
    if name not in INITIALIZATIONS:
        raise UserError(f"unknown initialization {name!r}: use {' or '.join(INITIALIZATIONS)}")
    return name


def imprint(generators: list[WeightGenerator | None]) -> None:
    """Gives the built generators of a model the "imprinting" starting point, in place.

    Args:
        generators: one per layer, None where a layer is learned; the last one writes the logits layer.
    """
    for generator in generators:
        if generator is not None:
            _calm_residual_branches(generator)
    _read_class_means(generators[-1])


def _calm_residual_branches(generator: WeightGenerator) -> None:
    layers = generator.encoder.encoder_layers
    branches = [layer.attention.output_projection for layer in layers[1:]]
    branches += [layer.outer for layer in layers if layer.inner is not None]
    for branch in branches:
        branch.kernel.assign(branch.kernel * RESIDUAL_GAIN)


def _read_class_means(generator: WeightGenerator) -> None:
    labels = generator.labels.embeddings
    generator.placeholders.embeddings.assign(labels[: generator.slices])

    layers = generator.encoder.encoder_layers
    attention = layers[0].attention
    attention.query.kernel.assign(attention.query.kernel * QUERY_GAIN)
    attention.key.kernel.assign(attention.query.kernel)
    start, value = generator.embedding_dim, attention.value.kernel.numpy()
    copied = min(value.shape[1], generator.token_size - start)
    value[:, :copied] = 0.0
    value[start : start + copied, :copied] = np.eye(copied)
    attention.value.kernel.assign(value)
    output = np.zeros(attention.output_projection.kernel.shape)
    output[:copied, start : start + copied] = VALUE_GAIN * np.eye(copied)
    attention.output_projection.kernel.assign(output)
    last = layers[-1].attention_norm if layers[-1].inner is None else layers[-1].outer_norm
    last.gamma.assign(last.gamma * LOGITS_GAIN)

    if not isinstance(generator.features, ActivationFeatures):
        return  # the features begin with the activations themselves, or there are none
    kernel = generator.features.convolutions[0].kernel
    identity = np.zeros(kernel.shape)
    height, width, n_in, n_out = kernel.shape
    identity[(height - 1) // 2, (width - 1) // 2] = np.eye(n_in, n_out)
    kernel.assign(identity)
