"""Hiding support samples in training, for semi-supervised and uneven tasks (section 4.2)."""

from __future__ import annotations

import gin

from hypertransformer_tf.backend import tf
from hypertransformer_tf.data.random_numbers import MASKING, uniform
from hypertransformer_tf.errors import UserError


@gin.configurable
class SupportMasking:
    """Probabilities with which support samples are ignored in a training episode.

    Args:
        unlabeled_start, unlabeled_end, unlabeled_until: the probability of an unlabeled sample goes
            linearly from the first to the second over the first `unlabeled_until` (a share) of the training;
            the paper: 0.7, 0.0, 0.5. Without it, models with many unlabeled samples don't start to learn.
        max_remove_labeled, max_remove_unlabeled: in each episode a probability is drawn between 0 and
            this, and every labeled (unlabeled) sample is ignored with it; as in the reference code.

    Raises:
        UserError: for numbers that are no probabilities.
    """

    def __init__(
        self,
        unlabeled_start: float = 0.0,
        unlabeled_end: float = 0.0,
        unlabeled_until: float = 0.5,
        max_remove_labeled: float = 0.0,
        max_remove_unlabeled: float = 0.0,
    ):
        values = {
            "unlabeled_start": unlabeled_start,
            "unlabeled_end": unlabeled_end,
            "unlabeled_until": unlabeled_until,
            "max_remove_labeled": max_remove_labeled,
            "max_remove_unlabeled": max_remove_unlabeled,
        }
        for name, value in values.items():
            if not 0.0 <= value <= 1.0:
                raise UserError(f"SupportMasking.{name} = {value}: must be between 0 and 1")
        if unlabeled_until == 0.0:
            raise UserError("SupportMasking.unlabeled_until = 0.0: must be above 0")
        self.unlabeled = (unlabeled_start, unlabeled_end, unlabeled_until)
        self.max_remove = (max_remove_labeled, max_remove_unlabeled)

    def check(self, unlabeled: int) -> None:
        """Raises UserError when unlabeled samples are to be hidden and episodes have none."""
        if not unlabeled and (any(self.unlabeled[:2]) or self.max_remove[1]):
            raise UserError("SupportMasking hides unlabeled samples, but Task.unlabeled = 0: set it")

    @property
    def active(self) -> bool:
        """Whether anything is ever hidden."""
        return any(self.unlabeled[:2]) or any(self.max_remove)

    def __call__(
        self, seeds: tf.Tensor, labels: tf.Tensor, way: int, progress: tf.Tensor
    ) -> tf.Tensor | None:
        """The mask of a batch of episodes.

        Args:
            seeds: int64 [episode, 2], of which the mask is a pure function.
            labels: int [episode, support]; `way` = unlabeled.
            progress: float scalar 0..1, share of the training that is done.

        Returns:
            float32 [episode, support], 1 = ignore; None when nothing is ever hidden.
        """
        if not self.active:
            return None
        samples = labels.shape[1]
        draws = uniform(seeds, MASKING, [samples + 2])
        of_sample, of_episode = draws[:, :samples], draws[:, samples:]
        start, end, until = self.unlabeled
        scheduled = start + (end - start) * tf.minimum(progress / until, 1.0)
        labeled = of_episode[:, :1] * self.max_remove[0]
        unlabeled = 1.0 - (1.0 - of_episode[:, 1:] * self.max_remove[1]) * (1.0 - scheduled)
        return tf.cast(of_sample < tf.where(labels < way, labeled, unlabeled), tf.float32)
