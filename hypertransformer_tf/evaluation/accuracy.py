"""Accuracy of generated CNNs over many tasks, for each source of batch statistics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Callable

import numpy as np

from hypertransformer_tf.backend import tf
from hypertransformer_tf.data.episodes import EpisodeSampler
from hypertransformer_tf.models.hypertransformer import HyperTransformer


class TaskEvaluator:
    """Measures accuracies task by task; traced once, used any number of times.

    The weights of a task are generated once from its support set and used for all its query batches.

    Args:
        model: a built HyperTransformer or a baseline's Learner.
        sampler: EpisodeSampler of the classes to evaluate on; its `query` is the size of a query batch.
        statistics: sources of the query images' batch statistics to measure.
        query_batches: query batches of a task; with "query" statistics each has its own.
        tasks_per_call: tasks that are worked on together; changes nothing but speed.
    """

    def __init__(
        self,
        model: HyperTransformer,
        sampler: EpisodeSampler,
        statistics: Sequence[str] = ("support",),
        query_batches: int = 1,
        tasks_per_call: int = 8,
    ):
        self.model, self.sampler = model, sampler
        self.statistics, self.query_batches = tuple(statistics), query_batches
        self.tasks_per_call = tasks_per_call
        self._call = tf.function(self.accuracies)

    def __call__(
        self, tasks: int, progress: Callable[[int], None] = lambda done: None
    ) -> dict[str, np.ndarray]:
        """Accuracy of each task.

        Args:
            tasks: number of tasks; task i is episode i of the sampler.
            progress: called with the number of tasks that were just finished.

        Returns:
            {statistics: float64 [task] in 0..1}.
        """
        found: dict[str, list] = {name: [] for name in self.statistics}
        for first in range(0, tasks, self.tasks_per_call):
            indices = tf.range(first, first + self.tasks_per_call, dtype=tf.int64)
            for name, values in self._call(indices).items():
                found[name].append(values.numpy())
            progress(min(self.tasks_per_call, tasks - first))
        return {name: np.concatenate(values)[:tasks].astype(np.float64) for name, values in found.items()}

    def accuracies(self, indices: tf.Tensor) -> dict[str, tf.Tensor]:
        """Accuracies of the tasks with some indices, in-graph: {statistics: float32 [task]}."""
        episodes = self.sampler(indices, self.query_batches)
        weights = self.model.generate(episodes.support_images, episodes.support_labels, episodes.support_mask)
        results = {}
        for name in self.statistics:
            logits = self._by_query_batch(episodes.query_images, weights, name)
            results[name] = query_accuracy(logits, episodes.query_labels)
        return results

    def _by_query_batch(self, images: tf.Tensor, weights: dict, statistics: str) -> tf.Tensor:
        """Logits [task, query_batches * query, way], batch by batch: what fits into a cache is faster."""
        shape = images.shape
        batches = tf.reshape(images, [shape[0], self.query_batches, -1, *shape[2:]])
        logits = tf.map_fn(
            lambda batch: self.model.classify(batch, weights, statistics),
            tf.transpose(batches, [1, 0, 2, 3, 4, 5]),
        )
        return tf.reshape(tf.transpose(logits, [1, 0, 2, 3]), [shape[0], shape[1], -1])


def query_accuracy(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Share of right answers in each episode.

    Args:
        logits: float [episode, query, way].
        labels: int [episode, query] in 0..way-1.

    Returns:
        float32 [episode] in 0..1.
    """
    hits = tf.equal(tf.argmax(logits, -1, labels.dtype), labels)
    return tf.reduce_mean(tf.cast(hits, tf.float32), -1)
