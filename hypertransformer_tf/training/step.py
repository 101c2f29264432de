"""One training step over a batch of episodes, as run by each replica of a strategy."""

from __future__ import annotations

from typing import NamedTuple

import gin

from hypertransformer_tf.backend import tf
from hypertransformer_tf.baselines.learner import Learner
from hypertransformer_tf.data.episodes import Episodes, EpisodeSampler
from hypertransformer_tf.data.host_pipeline import Drawn
from hypertransformer_tf.errors import UserError
from hypertransformer_tf.evaluation.accuracy import query_accuracy
from hypertransformer_tf.models.dropout import dropout_of
from hypertransformer_tf.models.hypertransformer import HyperTransformer
from hypertransformer_tf.models.normalization import Moments, check_statistics, mean_of_parts
from hypertransformer_tf.training.losses import query_cross_entropy, sum_of_squares
from hypertransformer_tf.training.masking import SupportMasking
from hypertransformer_tf.training.shared_head import SharedHead
from hypertransformer_tf.training.warmup import head_weights


class _Found(NamedTuple):
    """What some episodes give: values [episode], norms by the layer's name, and BN statistics."""

    losses: tf.Tensor
    accuracies: tf.Tensor
    statistics: tuple[Moments, ...]
    norms: dict[str, tf.Tensor]


@gin.configurable(
    denylist=["model", "optimizer", "sampler", "average", "masking", "shared_head", "total_episodes"]
)
class TrainingStep:
    """Draws episodes, computes the query loss through the generated CNNs and updates the parameters.

    Called in replica context and inside a tf.function. The global batch is split evenly over the
    replicas: step s works on the episodes s * episodes_per_step ... (s + 1) * episodes_per_step - 1 of
    the sampler's sequence, whatever the number of devices, and the loss is divided by the global
    number of episodes, so the parameters do not depend on that number either.

    Args:
        model: a built HyperTransformer or a baseline's Learner.
        optimizer: has `apply(gradients, variables, step)`, which takes gradients already summed over
            the replicas and returns scalar metrics.
        sampler: the training EpisodeSampler.
        average: has `update(step)`, the running average of the parameters; None = keep none.
        masking: hides support samples; None = none.
        shared_head: adds a loss on real classes; None = none.
        total_episodes: length of the training, for schedules.
        statistics: batch-normalisation statistics of the query images in training.
        episodes_per_step: global batch, in episodes.
        towers: parts that a replica's episodes are split into; the parts are independent in the graph,
            so that several CPU cores have work all the time. The result is the same.
        label_smoothing: see `query_cross_entropy`.
        warmup_episodes: see `warmup`; needs HyperTransformer.warmup_heads. 0 = no warm-up.
        l2_generated: weight of the sum of squares of all generated weights (1e-3 for LEO's task, appendix D).
        weight_variation: weight of the sum of squares of what is generated on top of learned kernels
            (`HyperTransformer.add_learned_weights`).
        weight_norms: report the norms of generated weights.

    Raises:
        UserError: when the batch can't be divided by replicas and towers, or options lack their other half.
    """

    def __init__(
        self,
        model: HyperTransformer | Learner,
        optimizer,
        sampler: EpisodeSampler,
        average=None,
        masking: SupportMasking | None = None,
        shared_head: SharedHead | None = None,
        total_episodes: int = 1,
        statistics: str = "support",
        episodes_per_step: int = 16,
        towers: int = 1,
        label_smoothing: float = 0.0,
        warmup_episodes: int = 0,
        l2_generated: float = 0.0,
        weight_variation: float = 0.0,
        weight_norms: bool = True,
    ):
        self.model, self.optimizer, self.sampler, self.average = model, optimizer, sampler, average
        self.statistics = check_statistics(statistics)
        self.episodes_per_step, self.towers = episodes_per_step, towers
        self.label_smoothing, self.warmup_episodes = label_smoothing, warmup_episodes
        self.l2_generated, self.weight_variation = l2_generated, weight_variation
        self.weight_norms = weight_norms
        self.masking, self.total_episodes = masking or SupportMasking(), total_episodes
        self.masking.check(sampler.unlabeled)
        self.shared_head = shared_head if shared_head is not None and shared_head.weight else None
        self.variables = list(model.trainable_variables)
        if self.shared_head:
            self.variables += self.shared_head.variables_to_train
        if bool(warmup_episodes) != bool(model.heads):
            raise UserError(
                f"TrainingStep.warmup_episodes = {warmup_episodes} with HyperTransformer.warmup_heads = "
                f"{bool(model.heads)}: set both or none"
            )
        if isinstance(model, Learner):
            self._check_baseline()
        if weight_variation and not model.config()["add_learned_weights"]:
            raise UserError("TrainingStep.weight_variation needs HyperTransformer.add_learned_weights = True")
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        if episodes_per_step < 1 or episodes_per_step % (replicas * towers):
            raise UserError(
                f"TrainingStep.episodes_per_step = {episodes_per_step} can't be divided by {replicas} "
                f"replicas x {towers} towers: use a multiple of {replicas * towers}"
            )

    def _check_baseline(self) -> None:
        """Raises UserError for options that are the HyperTransformer's alone."""
        for name in ("l2_generated", "weight_variation"):
            if getattr(self, name):
                raise UserError(
                    f"TrainingStep.{name} is for HyperTransformers, not for {self.model.method!r}"
                )
        self.model.check_training(self.statistics, bool(self.sampler.unlabeled) or self.masking.active)

    def __call__(self, step: tf.Tensor, drawn: Drawn | None = None) -> dict[str, tf.Tensor]:
        """Runs one step.

        Args:
            step: int64 scalar tensor, number of steps done before.
            drawn: this replica's episodes of the step, see `host_pipeline`; None = draws them itself.

        Returns:
            Scalars of this replica: "loss" (nats), "accuracy" (0..1) and "norm/<layer>" (Euclidean norm of
            the weights generated for a layer, mean over episodes), each the replica's share, to be summed
            over replicas, and the optimizer's metrics, the same on every replica.
        """
        context = tf.distribute.get_replica_context()
        part = self.episodes_per_step // (context.num_replicas_in_sync * self.towers)
        first = step * self.episodes_per_step
        first += tf.cast(context.replica_id_in_sync_group, tf.int64) * part * self.towers
        if drawn is None:
            parts = [(first + i * part + tf.range(part, dtype=tf.int64), None) for i in range(self.towers)]
        else:
            parts = [_slice(drawn, i * part, part) for i in range(self.towers)]
        towers = [self._tower(*each) for each in parts]
        losses, accuracies, gradients, statistics, norms = zip(*towers)
        gradients = [tf.add_n(each) for each in zip(*gradients)]
        if context.num_replicas_in_sync > 1:
            gradients = context.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
        metrics = self.optimizer.apply(gradients, self.variables, step)
        self.model.update_moving_averages(mean_of_parts(statistics), step)
        if self.average is not None:
            self.average.update(step)
        norms = {f"norm/{layer}": tf.add_n([each[layer] for each in norms]) for layer in norms[0]}
        return {"loss": tf.add_n(losses), "accuracy": tf.add_n(accuracies), **norms, **metrics}

    @property
    def summed_metrics(self) -> tuple[str, ...]:
        """Names of the metrics that are a replica's share of the whole; others are the same everywhere."""
        norms = [f"norm/{layer}" for layer in self._normed_layers()]
        return ("loss", "accuracy", *norms)

    def _normed_layers(self) -> list[str]:
        """Generated layers whose weights' norm is a metric."""
        generates = isinstance(self.model, HyperTransformer) and not (
            self.shared_head and self.shared_head.alone
        )
        if not self.weight_norms or not generates:
            return []
        conv = [layer.name for layer, done in zip(self.model.cnn.conv_layers, self.model.learned) if not done]
        return [*conv, "logits"]

    def observed(self, indices: tf.Tensor) -> tuple[Moments, ...]:
        """What the parameters, as they are now, make of training episodes: statistics without a step.

        Args:
            indices: int64 [episode] with a static size.

        Returns:
            For each conv layer Moments (mean, mean of squares), each [channels]; nothing is dropped out.
        """
        return self._forward(indices, self.sampler(indices)).statistics

    def _tower(self, indices: tf.Tensor, episodes: Episodes | None):
        """Loss, accuracy (shares of the global mean), gradients, BN statistics and norms of a part."""
        if episodes is None:
            episodes = self.sampler(indices)
        share = 1.0 / self.episodes_per_step
        with tf.GradientTape() as tape, dropout_of(self.sampler.seeds(indices)):
            found = self._forward(indices, episodes)
            loss = tf.reduce_sum(found.losses) * share
        gradients = tape.gradient(loss, self.variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        accuracy = tf.reduce_sum(found.accuracies) * share
        norms = {name: tf.reduce_sum(each) * share for name, each in found.norms.items()}
        return loss, accuracy, gradients, found.statistics, norms

    def _forward(self, indices: tf.Tensor, episodes: Episodes) -> _Found:
        """A part of the batch without its gradients."""
        seeds = self.sampler.seeds(indices)
        progress = tf.cast(indices[0], tf.float32) / self.total_episodes
        mask = self.masking(seeds, episodes.support_labels, self.model.way, progress)
        if isinstance(self.model, Learner):
            return self._baseline_forward(episodes, mask, progress)
        if self.shared_head and self.shared_head.alone:
            embeddings = self.model.shared(episodes.support_images, mask)
            losses = self._shared_head_loss(embeddings, episodes)
            statistics = tuple(
                Moments(v["moving_mean"] + 0.0, v["moving_square"] + 0.0) for v in self.model.layer_variables
            )
            return _Found(losses, tf.zeros_like(losses), statistics, {})
        outputs = self.model(
            episodes.support_images,
            episodes.support_labels,
            mask,
            episodes.query_images,
            statistics=self.statistics,
            with_heads=bool(self.warmup_episodes),
        )
        norms = {layer: tf.sqrt(sum_of_squares([outputs.slices[layer]])) for layer in self._normed_layers()}
        return _Found(
            self._losses(outputs, episodes, indices[0]),
            query_accuracy(outputs.logits, episodes.query_labels),
            outputs.batch_statistics,
            norms,
        )

    def _baseline_forward(self, episodes: Episodes, mask, progress: tf.Tensor) -> _Found:
        """What `_forward` gives, with the loss of a baseline."""

        def cross_entropy(logits, labels):
            return query_cross_entropy(logits, labels, self.label_smoothing)

        found = self.model.training_losses(episodes, mask, self.statistics, progress, cross_entropy)
        return _Found(found.losses, query_accuracy(found.logits, found.labels), found.batch_statistics, {})

    def _losses(self, outputs, episodes, first: tf.Tensor) -> tf.Tensor:
        """Loss of each episode, with everything that is added to the cross entropy."""
        of_heads = [
            query_cross_entropy(logits, episodes.query_labels, self.label_smoothing)
            for logits in (*outputs.head_logits, outputs.logits)
        ]
        losses = of_heads[-1]
        if self.warmup_episodes:
            weights = head_weights(len(self.model.heads), first, self.warmup_episodes)
            losses = tf.tensordot(weights, tf.stack(of_heads), 1)
        if self.l2_generated:
            losses += self.l2_generated * sum_of_squares(outputs.slices.values())
        if self.weight_variation:
            conv_slices = [slices for name, slices in outputs.slices.items() if name != "logits"]
            losses += self.weight_variation * sum_of_squares(conv_slices)
        if self.shared_head:
            losses += self._shared_head_loss(outputs.embeddings, episodes)
        return losses

    def _shared_head_loss(self, embeddings, episodes) -> tf.Tensor:
        losses = self.shared_head.loss(embeddings, episodes.support_labels, episodes.class_ids)
        return self.shared_head.weight * losses


def _slice(drawn: Drawn, first: int, count: int) -> Drawn:
    """Some of the episodes."""
    return tf.nest.map_structure(lambda x: None if x is None else x[first : first + count], drawn)
