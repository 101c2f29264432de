"""Optimizers with one fused operation per variable, clipping and decoupled weight decay.

A HyperTransformer has some 280 small variables, so on a CPU the number of operations per variable
counts; Keras 2's fused update kernels are used for that reason.
"""

from __future__ import annotations

from typing import Callable

import gin

from hypertransformer_tf.backend import keras, tf
from hypertransformer_tf.errors import UserError

OPTIMIZERS = ("sgd", "adam", "adamw")


@gin.configurable(denylist=["learning_rate"])
class Optimizer(tf.Module):
    """Applies summed gradients to variables.

    Args:
        learning_rate: function of the int64 step that gives the float32 rate.
        kind: "sgd" (the paper's), "adam" or "adamw".
        momentum: of SGD.
        beta_1, beta_2, epsilon: of Adam.
        weight_decay: of AdamW, decoupled; matrices only (no biases, norms, embeddings).
        clip_norm: largest global norm of the gradient; None = no clipping.
        transformer_factor: of the rate, for the variables of Transformers. Below 1, convolutions learn fast
            while attention stays steady.

    Attributes:
        parts: {name: Keras optimizer of some of the variables}; their states belong into a checkpoint.

    Raises:
        UserError: for an unknown kind or impossible numbers.
    """

    def __init__(
        self,
        learning_rate: Callable[[tf.Tensor], tf.Tensor],
        kind: str = "sgd",
        momentum: float = 0.0,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        weight_decay: float = 0.0,
        clip_norm: float | None = None,
        transformer_factor: float = 1.0,
    ):
        super().__init__(name="optimizer")
        if kind not in OPTIMIZERS:
            raise UserError(f"unknown optimizer {kind!r}: use {', '.join(OPTIMIZERS)}")
        if weight_decay and kind != "adamw":
            raise UserError(
                f"Optimizer.weight_decay = {weight_decay} works with kind = 'adamw', not {kind!r}"
            )
        if clip_norm is not None and not clip_norm > 0:
            raise UserError(f"Optimizer.clip_norm = {clip_norm}: must be above 0, or None for no clipping")
        if not transformer_factor > 0:
            raise UserError(f"Optimizer.transformer_factor = {transformer_factor}: must be above 0")
        self._learning_rate, self._weight_decay, self._clip_norm = learning_rate, weight_decay, clip_norm
        self._factors = {"optimizer": 1.0}
        if transformer_factor != 1.0:
            self._factors["transformer_optimizer"] = transformer_factor
        self._rates, self.parts = {}, {}
        for part in self._factors:
            self._rates[part] = tf.Variable(
                0.0,
                trainable=False,
                name="learning_rate",
                aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
            )
            if kind == "sgd":
                made = keras.optimizers.legacy.SGD(self._rates[part], momentum=momentum)
            else:
                made = keras.optimizers.legacy.Adam(self._rates[part], beta_1, beta_2, epsilon)
            self.parts[part] = made

    def build(self, variables: list[tf.Variable]) -> None:
        """Creates the optimizer's own variables, so that a checkpoint can fill them before step 1.

        Raises:
            UserError: with a `transformer_factor` for a model without Transformers.
        """
        for part, optimizer in self.parts.items():
            own = [variable for variable in variables if self._part(variable) == part]
            if part == "transformer_optimizer" and not own:
                raise UserError("Optimizer.transformer_factor: this model has no Transformer; leave it out")
            optimizer.iterations  # noqa: B018  created on first use
            optimizer._create_all_weights(own)

    def _part(self, variable: tf.Variable) -> str:
        """Which of `parts` updates a variable."""
        of_transformer = "/encoder/" in variable.name or "/decoder/" in variable.name
        return "transformer_optimizer" if of_transformer and len(self.parts) > 1 else "optimizer"

    def apply(self, gradients, variables, step: tf.Tensor) -> dict[str, tf.Tensor]:
        """Updates the variables.

        Args:
            gradients: one for each variable, already summed over replicas.
            variables: the trainable variables.
            step: int64 scalar, number of steps done before.

        Returns:
            {"gradient_norm": global norm before clipping, "learning_rate"}, float32 scalars.
        """
        rate = self._learning_rate(step)
        norm = tf.linalg.global_norm(gradients)
        if self._clip_norm is not None:
            gradients, _ = tf.clip_by_global_norm(gradients, self._clip_norm, use_norm=norm)
        for part, optimizer in self.parts.items():
            own = [pair for pair in zip(gradients, variables) if self._part(pair[1]) == part]
            self._rates[part].assign(rate * self._factors[part])
            if self._weight_decay:
                _decay(
                    [v for _, v in own if v.shape.rank > 1 and "embeddings" not in v.name],
                    rate * self._factors[part] * self._weight_decay,
                )
            optimizer.apply_gradients(own, experimental_aggregate_gradients=False)
        return {"gradient_norm": norm, "learning_rate": rate}


def _decay(variables: list[tf.Variable], share: tf.Tensor) -> None:
    """Takes a share off each variable, once per device under every strategy."""

    def everywhere(strategy, share):
        for variable in variables:
            strategy.extended.update(variable, lambda v, s: v.assign_sub(s * v), args=(share,))

    tf.distribute.get_replica_context().merge_call(everywhere, args=(share,))
