"""Starting points of a HyperTransformer.

"random": embeddings from N(0, 1), matrices from Glorot's distribution, as in the paper.

"imprinting": appendix A's construction as a starting point instead of a thing to be discovered. In the
logits generator every placeholder starts equal to the label embedding of its class, and in the first
attention layer the key matrix starts equal to the query matrix; then the attention logit of a
placeholder and a sample of its class is a squared norm, so each placeholder reads mostly the samples of
its class from the first step on and the generated logits layer starts near imprinted weights.
"""

from __future__ import annotations

from hypertransformer_tf.errors import UserError
from hypertransformer_tf.models.generator import WeightGenerator

INITIALIZATIONS = ("imprinting", "random")


def check_initialization(name: str) -> str:
    """Returns `name`; raises UserError when there is no such starting point."""
    if name not in INITIALIZATIONS:
        raise UserError(f"unknown initialization {name!r}: use {' or '.join(INITIALIZATIONS)}")
    return name


def imprint(generator: WeightGenerator) -> None:
    """Makes a built logits generator start as appendix A's class averages, in place.

    Args:
        generator: generator of the logits layer, with one placeholder per class.
    """
    labels = generator.labels.embeddings
    generator.placeholders.embeddings.assign(labels[: generator.slices])
    attention = generator.encoder.encoder_layers[0].attention
    attention.key.kernel.assign(attention.query.kernel)
    attention.key.bias.assign(attention.query.bias)
