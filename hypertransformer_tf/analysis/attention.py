"""Attention maps of the weight generators (appendix E), with tokens in an order that can be read.

Placeholder tokens come first, then the samples by label, unlabeled ones last. Numbers of CNN layers are
those of the generators, numbers of Transformer layers and heads start at 1.
"""

from __future__ import annotations

import dataclasses
from typing import Callable

import numpy as np

from hypertransformer_tf.backend import tf
from hypertransformer_tf.data.episodes import EpisodeSampler
from hypertransformer_tf.models.hypertransformer import HyperTransformer
from hypertransformer_tf.models.transformer import recorded_attention

# Where the attention of a weight slice can go. Every share is a part of 1.
SHARES = ("own_class", "other_classes", "unlabeled", "itself", "other_placeholders")


@dataclasses.dataclass(frozen=True)
class AttentionMap:
    """The attention of one Transformer layer in the generator of one CNN layer.

    Attributes:
        cnn_layer: "layer_1", ..., "logits".
        transformer_layer: from 1.
        weights: float [head, query_token, token], averaged over episodes; each row sums to 1. In the last
            Transformer layer only placeholders are queries.
        placeholders: how many of the tokens are weight placeholders.
        labels: int [sample] in ascending order, the labels of the other tokens; `way` = unlabeled.
        way: classes of an episode.
    """

    cnn_layer: str
    transformer_layer: int
    weights: np.ndarray
    placeholders: int
    labels: np.ndarray
    way: int

    def shares(self) -> np.ndarray:
        """float [head, slice, share] in the order of SHARES: where each weight slice attends to.

        A slice has a class of its own in the logits layer only; elsewhere `own_class` is NaN and all
        labeled samples count as `other_classes`.
        """
        rows = self.weights[:, : self.placeholders]
        slices = np.arange(self.placeholders)
        samples = rows[:, :, self.placeholders :]
        unlabeled = samples[:, :, self.labels == self.way].sum(-1)
        labeled = samples[:, :, self.labels < self.way].sum(-1)
        own = np.full(labeled.shape, np.nan)
        if self.cnn_layer == "logits":
            own = (samples * (self.labels == slices[:, None])).sum(-1)
        itself = rows[:, slices, slices]
        others = rows[:, :, : self.placeholders].sum(-1) - itself
        return np.stack([own, labeled - np.nan_to_num(own), unlabeled, itself, others], -1)

    def even_shares(self) -> np.ndarray:
        """float [share]: `shares` of a head that attends to all tokens alike."""
        tokens = self.placeholders + len(self.labels)
        even = np.full([1, self.placeholders, tokens], 1.0 / tokens)
        return dataclasses.replace(self, weights=even).shares()[0].mean(0)


def attention_maps(
    model: HyperTransformer,
    sampler: EpisodeSampler,
    episodes: int,
    first: int = 0,
    progress: Callable[[int], object] = lambda count: None,
) -> list[AttentionMap]:
    """Records the attention of all generators, averaged over episodes.

    Args:
        model: a built HyperTransformer.
        sampler: gives episodes with the same number of samples in each class.
        episodes: how many episodes to average over, at least 1.
        first: index of the first one.
        progress: called with the number of episodes done since its last call.

    Returns:
        One AttentionMap for each generated CNN layer and Transformer layer.
    """
    places = {}
    for layer, generator in zip(model.cnn.layers, model.generators):
        for number, encoder in enumerate(generator.encoder.encoder_layers if generator else (), 1):
            places[id(encoder.attention)] = (layer.name, number, generator.slices)
    sums: dict[tuple, np.ndarray] = {}
    labels = None
    for index in range(first, first + episodes):
        drawn = sampler(tf.constant([index], tf.int64))
        order = tf.argsort(drawn.support_labels[0], stable=True)
        labels = tf.gather(drawn.support_labels, order, axis=1)
        with recorded_attention() as recorded:
            model.generate(tf.gather(drawn.support_images, order, axis=1), labels)
        for attention, weights in recorded:
            place = places[id(attention)]
            sums[place] = sums.get(place, 0.0) + weights[0].numpy().astype(np.float64)
        progress(1)
    return [
        AttentionMap(name, number, total / episodes, slices, labels[0].numpy(), model.way)
        for (name, number, slices), total in sums.items()
    ]


def shares_record(maps: list[AttentionMap]) -> list[dict]:
    """The shares of all maps as JSON values: each head's mean over its slices, and each slice's own.

    Shares are rounded to 4 places; None where a slice has no class of its own.
    """
    records = []
    for each in maps:
        of_heads = each.shares()
        for head, of_slices in enumerate(of_heads, 1):
            records.append(
                {
                    "cnn_layer": each.cnn_layer,
                    "transformer_layer": each.transformer_layer,
                    "head": head,
                    "mean": _named(of_slices.mean(0)),
                    "even": _named(each.even_shares()),
                    "slices": [_named(shares) for shares in of_slices],
                }
            )
    return records


def _named(shares: np.ndarray) -> dict[str, float | None]:
    return {name: None if np.isnan(share) else round(float(share), 4) for name, share in zip(SHARES, shares)}
