"""RFS: features from all training classes, logistic regression on the support set (Tian et al., 2020).

One round of self-distillation is a second training whose `teacher` is the first one's best model.
"""

from __future__ import annotations

from typing import Callable

import gin

from hypertransformer_tf.backend import keras, tf
from hypertransformer_tf.baselines.class_means import counted
from hypertransformer_tf.baselines.conv_pass import run_conv
from hypertransformer_tf.baselines.learner import BaselineCNN
from hypertransformer_tf.baselines.logistic_regression import check_installed, fit_episodes
from hypertransformer_tf.baselines.pretrained import PretrainedLearner
from hypertransformer_tf.errors import UserError


@gin.configurable(denylist=["way", "image_shape", "classes", "cnn"])
class RFS(PretrainedLearner):
    """Linear classifier over the training classes, then logistic regression on features of length 1.

    Args:
        way, image_shape, classes, cnn, support_statistics: as for PretrainedLearner.
        inverse_regularization: scikit-learn's C.
        teacher: workdir or checkpoint of an RFS whose answers are learned, too; None = no distillation.
        distillation: share of the teacher's term in the loss, beside the cross entropy.
        temperature: both logits are divided by it in the teacher's term.

    Raises:
        UserError: for impossible numbers, or without scikit-learn.
    """

    method = "rfs"

    def __init__(
        self,
        way,
        image_shape,
        classes,
        cnn: BaselineCNN,
        support_statistics: str = "moving",
        inverse_regularization: float = 1.0,
        teacher: str | None = None,
        distillation: float = 0.5,
        temperature: float = 4.0,
    ):
        check_installed()
        super().__init__(way, image_shape, classes, cnn, support_statistics)
        for name, value in (
            ("inverse_regularization", inverse_regularization),
            ("temperature", temperature),
        ):
            if not value > 0:
                raise UserError(f"RFS.{name} = {value}: must be above 0")
        if not 0 <= distillation <= 1:
            raise UserError(f"RFS.distillation = {distillation}: must be between 0 and 1")
        self._options.update(
            inverse_regularization=inverse_regularization,
            teacher=teacher,
            distillation=distillation,
            temperature=temperature,
        )
        self.teacher = teacher
        self._teacher_logits: Callable[[tf.Tensor], tf.Tensor] | None = None
        start = keras.initializers.GlorotUniform()([self.cnn.logits.features, classes])
        self._class_kernel = self.add_variable("class_head/kernel", start)
        self._class_bias = self.add_variable("class_head/bias", tf.zeros([classes]))

    @property
    def label(self) -> str:
        """Name in result records."""
        return "rfs, distilled" if self.teacher else "rfs"

    def class_logits(self, features):
        """A linear layer; see `PretrainedLearner.class_logits`."""
        return tf.linalg.matmul(features, self._class_kernel) + self._class_bias

    def head(self, features, labels, mask):
        """Logistic regression of every episode; see `PretrainedLearner.head`."""
        members = counted(labels, mask, self.way)
        return fit_episodes(features, members, self._options["inverse_regularization"])

    def learn_from(self, teacher: RFS) -> None:
        """Sets the trained model that `teacher` names.

        Raises:
            UserError: when it doesn't know the same training classes.
        """
        if teacher.method != self.method or teacher.classes != self.classes:
            raise UserError(f"RFS.teacher = {self.teacher!r}: must be an RFS of the same training classes")
        # A closure: the teacher's variables are no part of this model's state.
        self._teacher_logits = lambda images: teacher.class_logits(
            run_conv(teacher.cnn, images, teacher.learned_weights(), "moving").features
        )

    def class_losses(self, logits, labels, images, cross_entropy):
        """Cross entropy, and with a teacher the divergence from its answers; see `PretrainedLearner`."""
        losses = cross_entropy(logits, labels)
        if self._teacher_logits is None:
            return losses
        taught = tf.stop_gradient(self._teacher_logits(images))
        share = self._options["distillation"]
        return (1.0 - share) * losses + share * divergence(taught, logits, self._options["temperature"])


def divergence(taught: tf.Tensor, logits: tf.Tensor, temperature: float) -> tf.Tensor:
    """Kullback-Leibler divergence of softened answers, times the temperature squared (Hinton et al., 2015).

    Args:
        taught: float [episode, image, class], the teacher's logits.
        logits: float [episode, image, class].
        temperature: that divides both.

    Returns:
        float [episode], in nats, averaged over the images.
    """
    wanted, found = (tf.nn.log_softmax(each / temperature) for each in (taught, logits))
    per_image = tf.reduce_sum(tf.exp(wanted) * (wanted - found), -1)
    return tf.reduce_mean(per_image, -1) * temperature**2
