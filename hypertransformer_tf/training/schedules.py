"""Learning rates as functions of the number of training episodes seen."""

from __future__ import annotations

import math

import gin

from hypertransformer_tf.backend import tf
from hypertransformer_tf.errors import UserError


@gin.configurable
class LearningRate:
    """A learning rate that depends on the step alone.

    Args:
        rate: the base learning rate (0.01 to 0.02 with SGD in appendix C).
        schedule: "constant"; "exponential": rate * decay ** (episodes / decay_episodes), smooth
            (appendix C); or "cosine": from the rate down to `final_fraction` of it at the end.
        decay, decay_episodes: of the exponential schedule (0.95 per 100,000 in appendix C).
        warmup_episodes: episodes over which the rate first grows linearly.
        final_fraction: of the cosine schedule.

    Raises:
        UserError: for an unknown schedule or impossible numbers.
    """

    def __init__(
        self,
        rate: float = 0.02,
        schedule: str = "exponential",
        decay: float = 0.95,
        decay_episodes: float = 100_000.0,
        warmup_episodes: int = 0,
        final_fraction: float = 0.01,
    ):
        if schedule not in ("constant", "exponential", "cosine"):
            raise UserError(f"unknown schedule {schedule!r}: use constant, exponential or cosine")
        for name, value in (("rate", rate), ("decay", decay), ("decay_episodes", decay_episodes)):
            if not value > 0:
                raise UserError(f"LearningRate.{name} = {value}: must be above 0")
        self.rate, self.schedule = rate, schedule
        self.decay, self.decay_episodes = decay, decay_episodes
        self.warmup_episodes, self.final_fraction = warmup_episodes, final_fraction

    def __call__(self, episodes: tf.Tensor, total_episodes: int) -> tf.Tensor:
        """The rate after a number of episodes.

        Args:
            episodes: int64 scalar, training episodes seen.
            total_episodes: length of the whole training.

        Returns:
            float32 scalar.
        """
        seen = tf.cast(episodes, tf.float32)
        rate = tf.constant(self.rate, tf.float32)
        if self.schedule == "exponential":
            rate *= tf.pow(self.decay, seen / self.decay_episodes)
        elif self.schedule == "cosine":
            share = 0.5 * (1.0 + tf.cos(math.pi * tf.minimum(seen / max(total_episodes, 1), 1.0)))
            rate *= self.final_fraction + (1.0 - self.final_fraction) * share
        if self.warmup_episodes:
            rate *= tf.minimum(1.0, (seen + 1.0) / self.warmup_episodes)
        return rate
