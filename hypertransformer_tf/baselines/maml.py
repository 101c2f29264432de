"""MAML and MAML++: an initialisation from which a few gradient steps on the support set give a good CNN.

Plain MAML (Finn et al., 2017): `first_order` True or False and fixed rates. MAML++ (Antoniou et al., 2019)
adds learned rates, a loss after every step, batch-normalisation scales and shifts of every step, and
first-order gradients at the beginning of the training; its cosine schedule is `LearningRate.schedule`.
"""

from __future__ import annotations

import functools
from typing import Callable

import gin

from hypertransformer_tf.backend import keras, tf
from hypertransformer_tf.baselines.class_means import counted
from hypertransformer_tf.baselines.conv_pass import run_conv, with_support_statistics
from hypertransformer_tf.baselines.learner import BaselineCNN, CrossEntropy, Learner, Losses
from hypertransformer_tf.data.episodes import Episodes
from hypertransformer_tf.errors import UserError
from hypertransformer_tf.models import cnn as cnns
from hypertransformer_tf.models.normalization import Moments

ADAPTED = ("kernel", "bias")


@gin.configurable(denylist=["way", "image_shape", "classes", "cnn"])
class MAML(Learner):
    """Adapts kernels and biases of all layers; batch-normalisation scales and shifts are learned only.

    In the inner loop the support images are normalised with their own statistics after every step, so
    statistics of different steps never mix. The moving averages are those after the last step.

    Args:
        way, image_shape, classes, cnn: as for Learner.
        steps: gradient steps on the support set, in training and evaluation alike.
        rate: of these steps, or where the learned rates start.
        first_order: gradients of the outer loss don't flow through those of the inner one.
        second_order_from: share of the training before which they don't flow either (MAML++: above 0).
        learned_rates: each layer has a learned rate for each step.
        step_losses_until: share of the training over which the losses after earlier steps, at first as heavy
            as the last one, fade to nothing (MAML++: 0.1); 0 = the last step's loss alone.
        step_bn: each step has scales and shifts of its own.

    Raises:
        UserError: for impossible numbers or combinations.
    """

    method = "maml"
    generated = "all"

    def __init__(
        self,
        way,
        image_shape,
        classes,
        cnn: BaselineCNN,
        steps: int = 5,
        rate: float = 0.1,
        first_order: bool = False,
        second_order_from: float = 0.0,
        learned_rates: bool = False,
        step_losses_until: float = 0.0,
        step_bn: bool = False,
    ):
        if steps < 1:
            raise UserError(f"MAML.steps = {steps}: must be at least 1")
        if not rate > 0:
            raise UserError(f"MAML.rate = {rate}: must be above 0")
        for name, share in (
            ("second_order_from", second_order_from),
            ("step_losses_until", step_losses_until),
        ):
            if not 0.0 <= share <= 1.0:
                raise UserError(f"MAML.{name} = {share}: must be between 0 and 1")
        if first_order and second_order_from:
            raise UserError("MAML.second_order_from has no meaning with first_order = True: leave it out")
        self.steps, self.rate, self.step_bn = steps, rate, step_bn
        super().__init__(way, image_shape, classes, cnn)
        self._options.update(
            steps=steps,
            rate=rate,
            first_order=first_order,
            second_order_from=second_order_from,
            learned_rates=learned_rates,
            step_losses_until=step_losses_until,
            step_bn=step_bn,
        )
        shapes = self.cnn.logits.weight_shapes
        starts = {
            "kernel": keras.initializers.GlorotUniform()(shapes["kernel"]),
            "bias": tf.zeros(shapes["bias"]),
        }
        self._logits = {name: self.add_variable(f"logits/{name}", start) for name, start in starts.items()}
        self._rates = {}
        if learned_rates:
            self._rates = {
                layer.name: self.add_variable(f"rates/{layer.name}", tf.fill([steps], float(rate)))
                for layer in self.cnn.layers
            }

    @property
    def label(self) -> str:
        """Name in result records: "maml", "maml, first order", "maml++", or "maml" with what was added."""
        options = self._options
        parts = [name for name in ("learned_rates", "step_losses_until", "step_bn") if options[name]]
        if options["first_order"]:
            return ", ".join(["maml", "first order", *parts])
        return "maml++" if len(parts) == 3 and options["second_order_from"] else ", ".join(["maml", *parts])

    def generate(self, support_images, support_labels, support_mask=None):
        """The CNNs after the last step; see `Learner.generate`."""

        def last_step(images, labels, mask=None):
            # Nothing is differentiated through these steps, so the cheap gradients are the same ones.
            return self.adapt(images, labels, mask, first_order=True)[-1]

        shapes = {layer.name: layer.weight_shapes for layer in self.cnn.layers}
        signature = {
            layer: {name: tf.TensorSpec([1, *of_layer[name]]) for name in ADAPTED}
            for layer, of_layer in shapes.items()
        }
        adapted = each_episode(last_step, [support_images, support_labels, support_mask], signature)
        return self._with_statistics(adapted, self.steps, support_images, support_mask)

    def adapt(
        self,
        images: tf.Tensor,
        labels: tf.Tensor,
        mask: tf.Tensor | None,
        first_order: bool = False,
    ) -> list[dict[str, dict[str, tf.Tensor]]]:
        """The inner loop: gradient descent on the cross entropy of the labeled support images.

        Args:
            images: float32 [episode, support, height, width, channels].
            labels: int [episode, support] in 0..way; `way` = unlabeled, which count in the statistics only.
            mask: float32 [episode, support], 1 = ignore the sample; None = use all.
            first_order: no gradient flows through the gradients.

        Returns:
            For 0, 1, ..., `steps` steps {layer name: {"kernel", "bias"}}, with a leading axis of episodes.
        """
        episodes = images.shape[0]
        members = counted(labels, mask, self.way)
        per_image = tf.math.divide_no_nan(1.0, tf.reduce_sum(members, [1, 2]))[:, None]
        initial = {layer.name: self._variables_of(layer) for layer in self.cnn.layers}
        found = [
            {
                layer: {name: _for_episodes(of_layer[name], episodes) for name in ADAPTED}
                for layer, of_layer in initial.items()
            }
        ]
        for step in range(self.steps):
            adapted = found[-1]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(adapted)
                logits = self._own_logits(images, self._with_bn(adapted, step), mask)
                # Sums over episodes: the gradient of each episode's weights is that of its own mean loss.
                losses = tf.nn.softmax_cross_entropy_with_logits(members, logits)
                loss = tf.reduce_sum(losses * per_image)
            gradients = tape.gradient(loss, adapted)
            if first_order:
                gradients = tf.nest.map_structure(tf.stop_gradient, gradients)
            found.append(
                {
                    layer: {
                        name: value - self._rate(layer, step) * gradients[layer][name]
                        for name, value in of_layer.items()
                    }
                    for layer, of_layer in adapted.items()
                }
            )
        return found

    def training_losses(
        self, episodes: Episodes, mask, statistics: str, progress, cross_entropy: CrossEntropy
    ) -> Losses:
        """The query loss after the last step, or weighted over all steps; see `Learner.training_losses`."""

        query, way = episodes.query_labels.shape[1], self.way
        channels = [tf.TensorSpec([1, layer.channels]) for layer in self.cnn.conv_layers]
        signature = Losses(
            tf.TensorSpec([1]),
            tf.TensorSpec([1, query, way]),
            tf.TensorSpec([1, query], episodes.query_labels.dtype),
            tuple(Moments(spec, spec) for spec in channels),
        )
        tensors = [*episodes[:2], *episodes[3:5], mask]

        options = self._options
        second_order_from, until = options["second_order_from"], options["step_losses_until"]

        def losses(first_order: bool, every_step: bool) -> Losses:
            shares = tf.unstack(step_weights(self.steps, until, progress)) if every_step else [1.0]

            def of_one(images, labels, query_images, query_labels, mask=None):
                one = Episodes(images, labels, None, query_images, query_labels, None)
                found = self._query_losses(one, mask, statistics, cross_entropy, first_order, shares)
                observed = tf.nest.map_structure(lambda x: x[None], found.batch_statistics)
                return found._replace(batch_statistics=observed)

            found = each_episode(of_one, tensors, signature)
            observed = tf.nest.map_structure(lambda x: tf.reduce_mean(x, 0), found.batch_statistics)
            return found._replace(batch_statistics=observed)

        # A graph for each phase of the training, so that none computes what has no weight in it.
        starts = sorted({0.0, second_order_from, until} - {1.0})
        phases = [
            functools.partial(losses, options["first_order"] or start < second_order_from, start < until)
            for start in starts
        ]
        if len(phases) == 1:
            return phases[0]()
        phase = tf.math.count_nonzero(tf.greater_equal(progress, starts[1:]), dtype=tf.int32)
        return tf.switch_case(phase, phases)

    def _query_losses(self, episodes, mask, statistics, cross_entropy, first_order, shares) -> Losses:
        """The query losses after the last `len(shares)` steps, each with its share, added up."""
        found = self.adapt(episodes.support_images, episodes.support_labels, mask, first_order)
        total = 0.0
        for number, share in enumerate(shares, self.steps + 1 - len(shares)):
            weights = self._with_statistics(found[number], number, episodes.support_images, mask)
            run = cnns.run(self.cnn, episodes.query_images, weights, statistics)
            total += share * cross_entropy(run.logits, episodes.query_labels)
        observed = cnns.observed(self.cnn, weights, run, statistics)
        return Losses(total, run.logits, episodes.query_labels, observed)

    def _own_logits(self, images, weights: dict, mask) -> tf.Tensor:
        """Logits [episode, image, way] with statistics over these images."""
        features = run_conv(self.cnn, images, weights, "own", mask).features
        return tf.matmul(features, weights["logits"]["kernel"]) + weights["logits"]["bias"][:, None, :]

    def _with_statistics(self, adapted: dict, step: int, images, mask) -> dict:
        """Complete weights after so many steps, with the support set's statistics."""
        weights = self._with_bn(adapted, step)
        return with_support_statistics(
            self.cnn, weights, run_conv(self.cnn, images, weights, "own", mask).statistics
        )

    def _with_bn(self, adapted: dict, step: int) -> dict:
        """Adapted weights with scales, shifts and moving statistics."""
        weights = dict(adapted)
        learned = self.learned_weights()
        for layer, variables in zip(self.cnn.conv_layers, self.layer_variables):
            of_layer = {**learned[layer.name], **adapted[layer.name]}
            if self.step_bn:
                of_layer.update({name: variables[name][step][None] for name in ("gamma", "beta")})
            weights[layer.name] = of_layer
        return weights

    def _variables_of(self, layer) -> dict:
        index = self.cnn.layers.index(layer)
        return self._logits if layer is self.cnn.logits else self.layer_variables[index]

    def _rate(self, layer: str, step: int):
        return self._rates[layer][step] if self._rates else self.rate

    def _conv_starts(self, layer: cnns.ConvLayer) -> dict[str, tf.Tensor]:
        """Scales and shifts for 0, 1, ..., `steps` steps where each has its own."""
        starts = super()._conv_starts(layer)
        if self.step_bn:
            for name in ("gamma", "beta"):
                starts[name] = tf.repeat(starts[name][None], self.steps + 1, 0)
        return starts


def _for_episodes(value: tf.Tensor, episodes: int) -> tf.Tensor:
    """Repeats a tensor along a new first axis, by no operation if once: XLA lacks its gradient here."""
    value = tf.convert_to_tensor(value)[None]
    return value if episodes == 1 else tf.repeat(value, episodes, 0)


def each_episode(function: Callable, tensors: list, signature):
    """Works on the episodes of a batch one by one, by one graph: that of a batch takes minutes to build.

    Args:
        function: of tensors with a leading axis of one episode.
        tensors: each [episode, ...]; those that are None at the end are not handed on.
        signature: TensorSpecs of what the function returns, with that axis, too.

    Returns:
        What the function returns, with all episodes in the leading axis.
    """
    given = tuple(each for each in tensors if each is not None)
    found = tf.map_fn(
        lambda one: function(*(each[None] for each in one)), given, fn_output_signature=signature
    )
    return tf.nest.map_structure(lambda x: x[:, 0], found)


def step_weights(steps: int, until: float, progress: tf.Tensor) -> tf.Tensor:
    """Weights of the losses after 1, 2, ..., `steps` steps; they add up to 1.

    Args:
        steps: number of steps.
        until: share of the training at which the last one has all the weight, above 0.
        progress: float scalar 0..1, share of the training that is done.

    Returns:
        float32 [steps]; at the start all are equal.
    """
    early = tf.maximum(1.0 - progress / until, 0.0) / steps
    last = tf.one_hot(steps - 1, steps)
    return early * (1.0 - last) + (1.0 - early * (steps - 1)) * last
