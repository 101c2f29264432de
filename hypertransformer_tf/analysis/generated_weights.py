"""Collects the weights that are generated for many episodes."""

from __future__ import annotations

import dataclasses
from typing import Callable

import numpy as np

from hypertransformer_tf.backend import tf
from hypertransformer_tf.data.episodes import EpisodeSampler
from hypertransformer_tf.models.hypertransformer import HyperTransformer


@dataclasses.dataclass(frozen=True)
class GeneratedWeights:
    """Weights of many episodes.

    Attributes:
        layers: for each generated layer float32 [episode, *shape]: "layer_1", ... [episode, kernel, kernel,
            in, out]; "logits" [episode, feature + 1, way], the bias in the last row.
        class_ids: int32 [episode, way], the classes of each episode by slot.
    """

    layers: dict[str, np.ndarray]
    class_ids: np.ndarray

    @property
    def episodes(self) -> int:
        """Number of episodes."""
        return len(self.class_ids)

    def flat(self, name: str) -> np.ndarray:
        """float32 [episode, weight] of a layer, or of all conv layers side by side for the name "all"."""
        if name == "all":
            return np.concatenate([self.flat(each) for each in self.layers if each != "logits"], 1)
        return self.layers[name].reshape(self.episodes, -1)


def generate_many(
    model: HyperTransformer,
    sampler: EpisodeSampler,
    episodes: int,
    batch: int = 9,
    progress: Callable[[int], object] = lambda count: None,
) -> GeneratedWeights:
    """Generates weights for the episodes 0 ... `episodes` - 1 of a sampler.

    Args:
        model: a built HyperTransformer.
        sampler: gives the episodes.
        episodes: at least 1.
        batch: episodes at a time.
        progress: called with the number of episodes done since its last call.
    """
    generated = [layer.name for layer, each in zip(model.cnn.layers, model.generators) if each is not None]

    @tf.function
    def of_batch(indices):
        drawn = sampler(indices)
        weights = model.generate(drawn.support_images, drawn.support_labels)
        kept = {name: weights[name]["kernel"] for name in generated}
        kept["logits"] = tf.concat([kept["logits"], weights["logits"]["bias"][:, None]], 1)
        return kept, drawn.class_ids

    parts = []
    for first in range(0, episodes, batch):
        kept, class_ids = of_batch(tf.range(first, first + batch, dtype=tf.int64))
        parts.append(({name: value.numpy() for name, value in kept.items()}, class_ids.numpy()))
        progress(min(batch, episodes - first))
    layers = {name: np.concatenate([part[name] for part, _ in parts])[:episodes] for name in generated}
    return GeneratedWeights(layers, np.concatenate([ids for _, ids in parts])[:episodes])
