"""Learners whose features come from telling all training classes apart, not from episodes.

A batch of episodes is used as a plain batch of images: support and query images of an episode together, each
with its real class, normalised with the statistics of these images. Test episodes get a logits layer on top
of the features, which stay as they are.
"""

from __future__ import annotations

from hypertransformer_tf.backend import tf
from hypertransformer_tf.baselines.conv_pass import run_conv, with_support_statistics
from hypertransformer_tf.baselines.learner import BaselineCNN, CrossEntropy, Learner, Losses
from hypertransformer_tf.data.episodes import Episodes
from hypertransformer_tf.errors import UserError
from hypertransformer_tf.models.normalization import check_statistics, mean_and_square

SUPPORT_STATISTICS = ("support", "moving")


class PretrainedLearner(Learner):
    """Base of imprinted weights and RFS.

    Args:
        way, image_shape, classes, cnn: as for Learner.
        support_statistics: batch statistics of the support images, from whose features the logits layer is
            made: "moving" goes with `--statistics=moving` in the evaluation, "support" with the other two.

    Raises:
        UserError: for an unknown source.
    """

    def __init__(self, way, image_shape, classes, cnn: BaselineCNN, support_statistics: str):
        super().__init__(way, image_shape, classes, cnn)
        if support_statistics not in SUPPORT_STATISTICS:
            raise UserError(
                f"unknown support_statistics {support_statistics!r}: use {' or '.join(SUPPORT_STATISTICS)}"
            )
        self._options["support_statistics"] = support_statistics

    def class_logits(self, features: tf.Tensor) -> tf.Tensor:
        """Logits over all training classes: [episode, image, feature] -> [episode, image, training class]."""
        raise NotImplementedError

    def head(self, features: tf.Tensor, labels: tf.Tensor, mask: tf.Tensor | None) -> dict[str, tf.Tensor]:
        """The logits layer of an episode.

        Args:
            features: float [episode, support, feature] of length 1.
            labels: int [episode, support] in 0..way; `way` = unlabeled.
            mask: float [episode, support], 1 = ignore the sample; None = use all.

        Returns:
            {"kernel": float [episode, feature, way], "bias": float [episode, way]}, for features of length 1.
        """
        raise NotImplementedError

    def generate(self, support_images, support_labels, support_mask=None):
        """The learned conv layers and the `head`; see `Learner.generate`."""
        weights = self.learned_weights()
        support = run_conv(self.cnn, support_images, weights, "own", support_mask)
        weights = with_support_statistics(self.cnn, weights, support.statistics)
        if self._options["support_statistics"] == "moving":
            support = run_conv(self.cnn, support_images, weights, "moving")
        features = tf.math.l2_normalize(support.features, -1)
        return {**weights, "logits": self.head(features, support_labels, support_mask)}

    def classify(self, images, weights, statistics="support"):
        """Answers from features of length 1; see `Learner.classify`."""
        source = {"query": "own"}.get(check_statistics(statistics), statistics)
        features = tf.math.l2_normalize(run_conv(self.cnn, images, weights, source).features, -1)
        return tf.matmul(features, weights["logits"]["kernel"]) + weights["logits"]["bias"][:, None, :]

    def check_training(self, statistics: str, hides_support: bool) -> None:
        """Raises UserError for options of a training on episodes."""
        if statistics != "query":
            raise UserError(
                f"method {self.method!r} learns from plain batches, which have their own batch statistics: "
                "set TrainingStep.statistics = 'query'"
            )
        if hides_support:
            raise UserError(
                f"method {self.method!r} learns from labeled images: Task.unlabeled and SupportMasking "
                "have no meaning in its training"
            )

    def training_losses(
        self, episodes: Episodes, mask, statistics: str, progress, cross_entropy: CrossEntropy
    ) -> Losses:
        """The loss over all training classes; see `Learner.training_losses`."""
        images = tf.concat([episodes.support_images, episodes.query_images], 1)
        slots = tf.concat([episodes.support_labels, episodes.query_labels], 1)
        labels = tf.gather(episodes.class_ids, slots, batch_dims=1)
        run = run_conv(self.cnn, images, self.learned_weights(), "own")
        logits = self.class_logits(run.features)
        losses = self.class_losses(logits, labels, images, cross_entropy)
        return Losses(losses, logits, labels, tuple(mean_and_square(each) for each in run.statistics))

    def class_losses(self, logits, labels, images, cross_entropy: CrossEntropy) -> tf.Tensor:
        """Nats [episode] from logits [episode, image, training class] and labels and images of that batch."""
        return cross_entropy(logits, labels)
