"""How well appendix A's hand-set attention classifies on learned embeddings, beside the trained generator."""

from __future__ import annotations

from typing import Callable

import numpy as np

from hypertransformer_tf.analysis.activations import embeddings
from hypertransformer_tf.analysis.imprinting import HandSetGenerator
from hypertransformer_tf.backend import tf
from hypertransformer_tf.data.episodes import EpisodeSampler
from hypertransformer_tf.models.hypertransformer import HyperTransformer

# What is done to embeddings before anything reads them. Appendix A assumes that their mean is zero.
PREPARATIONS = ("as they are", "centred", "centred, length 1")
RULES = ("trained generator", "nearest class mean", "class means", "gradient step")
WITH_UNLABELED = ("class means, neighbours marked",)


def imprinting_accuracies(
    model: HyperTransformer,
    sampler: EpisodeSampler,
    tasks: int,
    batch: int = 8,
    progress: Callable[[int], object] = lambda count: None,
) -> dict[tuple[str, str], np.ndarray]:
    """Classifies the query images of the same tasks with differently made logits layers.

    All see the embeddings of the same generated conv layers, normalised with the support set's statistics.
    "class means" and "gradient step" are HandSetGenerators; with unlabeled samples "class means, neighbours
    marked" is its semi-supervised version. "nearest class mean" takes Euclidean distances.

    Args:
        model: a built HyperTransformer.
        sampler: gives the tasks, 0 ... `tasks` - 1.
        tasks: at least 1.
        batch: tasks at a time.
        progress: called with the number of tasks done since its last call.

    Returns:
        {(rule, preparation): float [task], share of the query images that are right}. The trained generator
        knows one preparation, "as they are".
    """
    way, labeled = model.way, sampler.way * sampler.shot
    features = model.cnn.logits.features
    rules = {
        "class means": HandSetGenerator(way, features),
        "gradient step": HandSetGenerator(way, features, "gradient", labeled),
    }
    if sampler.unlabeled:
        rules[WITH_UNLABELED[0]] = HandSetGenerator(way, features, propagate=True)

    @tf.function
    def of_batch(indices):
        drawn = sampler(indices)
        weights = model.generate(drawn.support_images, drawn.support_labels)
        answers = {("trained generator", PREPARATIONS[0]): model.classify(drawn.query_images, weights)}
        support = embeddings(model, drawn.support_images, weights)
        query = embeddings(model, drawn.query_images, weights)
        for name in PREPARATIONS:
            if name == "centred":
                mean = tf.reduce_mean(support, 1, keepdims=True)
                support, query = support - mean, query - mean
            elif name != PREPARATIONS[0]:
                support, query = tf.math.l2_normalize(support, -1), tf.math.l2_normalize(query, -1)
            for rule, generator in rules.items():
                slices = generator(support, drawn.support_labels)
                logits = tf.matmul(query, slices[:, :, :-1], transpose_b=True) + slices[:, None, :, -1]
                answers[rule, name] = logits
            means = rules["class means"](support, drawn.support_labels)[:, None, :, :-1]
            distances = tf.reduce_sum(tf.square(query[:, :, None] - means), -1)
            answers["nearest class mean", name] = -distances
        right = {}
        for key, logits in answers.items():
            hits = tf.equal(tf.argmax(logits, -1, tf.int32), drawn.query_labels)
            right[" | ".join(key)] = tf.reduce_mean(tf.cast(hits, tf.float32), 1)
        return right

    found: dict[str, list] = {}
    for first in range(0, tasks, batch):
        for key, value in of_batch(tf.range(first, first + batch, dtype=tf.int64)).items():
            found.setdefault(key, []).append(value.numpy())
        progress(min(batch, tasks - first))
    return {tuple(key.split(" | ")): np.concatenate(values)[:tasks] for key, values in found.items()}
