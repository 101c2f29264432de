"""One training step over a batch of episodes, as run by each replica of a strategy."""

from __future__ import annotations

import gin

from hypertransformer_tf.backend import tf
from hypertransformer_tf.data.episodes import EpisodeSampler
from hypertransformer_tf.errors import UserError
from hypertransformer_tf.evaluation.accuracy import query_accuracy
from hypertransformer_tf.models.hypertransformer import HyperTransformer
from hypertransformer_tf.models.normalization import check_statistics
from hypertransformer_tf.training.losses import query_cross_entropy


@gin.configurable(denylist=["model", "optimizer", "sampler", "average"])
class TrainingStep:
    """Draws episodes, computes the query loss through the generated CNNs and updates the parameters.

    Called in replica context and inside a tf.function. The global batch is split evenly over the
    replicas: step s works on the episodes s * episodes_per_step ... (s + 1) * episodes_per_step - 1 of
    the sampler's sequence, whatever the number of devices, and the loss is divided by the global
    number of episodes, so the parameters do not depend on that number either.

    Args:
        model: a built HyperTransformer.
        optimizer: has `apply(gradients, variables, step)`, which takes gradients already summed over
            the replicas and returns scalar metrics.
        sampler: the training EpisodeSampler.
        average: has `update(step)`, the running average of the parameters; None = keep none.
        statistics: batch-normalisation statistics of the query images in training.
        episodes_per_step: global batch, in episodes.
        towers: parts that a replica's episodes are split into; the parts are independent in the graph,
            so that several CPU cores have work all the time. The result is the same.
        label_smoothing: see `query_cross_entropy`.

    Raises:
        UserError: when the batch can't be divided by replicas and towers.
    """

    def __init__(
        self,
        model: HyperTransformer,
        optimizer,
        sampler: EpisodeSampler,
        average=None,
        statistics: str = "support",
        episodes_per_step: int = 16,
        towers: int = 1,
        label_smoothing: float = 0.0,
    ):
        self.model, self.optimizer, self.sampler, self.average = model, optimizer, sampler, average
        self.statistics = check_statistics(statistics)
        self.episodes_per_step, self.towers = episodes_per_step, towers
        self.label_smoothing = label_smoothing
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        if episodes_per_step < 1 or episodes_per_step % (replicas * towers):
            raise UserError(
                f"TrainingStep.episodes_per_step = {episodes_per_step} can't be divided by {replicas} "
                f"replicas x {towers} towers: use a multiple of {replicas * towers}"
            )

    def __call__(self, step: tf.Tensor) -> dict[str, tf.Tensor]:
        """Runs one step.

        Args:
            step: int64 scalar tensor, number of steps done before.

        Returns:
            Scalars of this replica: "loss" (nats) and "accuracy" (0..1), each the replica's share, to be
            summed over replicas, and the optimizer's metrics, the same on every replica.
        """
        context = tf.distribute.get_replica_context()
        part = self.episodes_per_step // (context.num_replicas_in_sync * self.towers)
        first = step * self.episodes_per_step
        first += tf.cast(context.replica_id_in_sync_group, tf.int64) * part * self.towers
        towers = [self._tower(first + i * part + tf.range(part, dtype=tf.int64)) for i in range(self.towers)]
        losses, accuracies, gradients, statistics = zip(*towers)
        gradients = [tf.add_n(each) for each in zip(*gradients)]
        if context.num_replicas_in_sync > 1:
            gradients = context.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
        metrics = self.optimizer.apply(gradients, self.model.trainable_variables, step)
        self.model.update_moving_averages(tf.nest.map_structure(lambda *x: tf.add_n(x) / len(x), *statistics))
        if self.average is not None:
            self.average.update(step)
        return {"loss": tf.add_n(losses), "accuracy": tf.add_n(accuracies), **metrics}

    def _tower(self, indices: tf.Tensor):
        """Loss, accuracy (each a share of the global mean), gradients and BN statistics of a part."""
        episodes = self.sampler(indices)
        with tf.GradientTape() as tape:
            outputs = self.model(
                episodes.support_images,
                episodes.support_labels,
                episodes.support_mask,
                episodes.query_images,
                statistics=self.statistics,
            )
            losses = query_cross_entropy(outputs.logits, episodes.query_labels, self.label_smoothing)
            loss = tf.reduce_sum(losses) / self.episodes_per_step
        gradients = tape.gradient(loss, self.model.trainable_variables)
        accuracy = tf.reduce_sum(query_accuracy(outputs.logits, episodes.query_labels))
        return loss, accuracy / self.episodes_per_step, gradients, outputs.batch_statistics
