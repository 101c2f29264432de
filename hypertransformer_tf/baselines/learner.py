"""What the baselines have in common: learners that train.py and evaluate.py treat like a HyperTransformer.

A learner reads a support set and gives the weights of a CNN (`generate`), answers with them (`classify`), and
says what its training minimises (`training_losses`). Data, episodes, CNNs, optimisers, checkpoints and
records are those of the HyperTransformer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Callable, NamedTuple

import gin

from hypertransformer_tf.backend import keras, tf
from hypertransformer_tf.data.episodes import Episodes
from hypertransformer_tf.errors import UserError
from hypertransformer_tf.models import cnn as cnns
from hypertransformer_tf.models.normalization import (
    Moments,
    check_statistics,
    fold_into_moving,
    moving_moments,
)

CrossEntropy = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


@gin.configurable
class BaselineCNN(NamedTuple):
    """The CNN of a baseline.

    Attributes:
        channels: output channels of every conv layer, 8 to 64 in the paper.
        architecture: name of the CNN, see `cnn.ARCHITECTURES`.
        block_order: "conv-act-pool-bn" or "conv-bn-act-pool".
        cnn_activation: "relu" or "lrelu".
    """

    channels: int = 8
    architecture: str = "maxpool-4-layer"
    block_order: str = "conv-bn-act-pool"
    cnn_activation: str = "relu"


class Losses(NamedTuple):
    """What a batch of training episodes gives.

    Attributes:
        losses: float32 [episode], in nats; what is minimised.
        logits: float32 [episode, image, class], for the accuracy that is shown.
        labels: int [episode, image], the right classes.
        batch_statistics: for each conv layer Moments (mean, mean of squares), each [channels], averaged over
            the episodes; to be folded into the moving averages.
    """

    losses: tf.Tensor
    logits: tf.Tensor
    labels: tf.Tensor
    batch_statistics: tuple[Moments, ...]


class Learner(tf.Module):
    """Base of all baselines: a CNN whose conv layers are learned.

    Args:
        way: classes of an episode.
        image_shape: (height, width, channels) of the images.
        classes: classes of the training set, for those that learn to tell all of them apart.
        cnn: see BaselineCNN.

    Attributes:
        method: its name for `make_model.method`.
        label: its name in result records; may tell variants apart.
        generated: what is written for each episode: "logits" or "all" layers, as in records.
        has_cnn: whether BaselineCNN is asked for its CNN.

    Raises:
        UserError: for impossible values.
    """

    method = ""
    generated = "logits"
    has_cnn = True
    shared, heads = None, ()  # a HyperTransformer's image embeddings and warm-up heads
    moving_momentum = 0.99

    def __init__(self, way: int, image_shape: tuple[int, int, int], classes: int, cnn: BaselineCNN):
        super().__init__(name=self.method)
        if way < 2:
            raise UserError(f"Task.way = {way}: an episode needs at least 2 classes")
        if cnn.channels < 1:
            raise UserError(f"BaselineCNN.channels = {cnn.channels}: must be at least 1")
        self.way, self.image_shape, self.classes = way, tuple(image_shape), classes
        self._options = {"way": way, "image_shape": list(image_shape), "classes": classes, **cnn._asdict()}
        self.cnn = cnns.make_cnn(
            cnn.architecture, image_shape, cnn.channels, way, cnn.block_order, cnn.cnn_activation
        )
        self._named: dict[str, tf.Variable] = {}
        self.layer_variables = [self._conv_variables(layer) for layer in self.cnn.conv_layers]

    @property
    def label(self) -> str:
        """Name in result records."""
        return self.method

    @property
    def trainable_variables(self) -> list[tf.Variable]:
        """What an optimiser changes, in a fixed order."""
        return [variable for variable in self._named.values() if variable.trainable]

    def named_variables(self) -> dict[str, tf.Variable]:
        """Every variable under a name that depends on the options alone, in a fixed order."""
        return dict(self._named)

    def config(self) -> dict:
        """The options as JSON values; two learners of a method with equal ones have equal variables."""
        return dict(self._options)

    def generate(
        self, support_images: tf.Tensor, support_labels: tf.Tensor, support_mask: tf.Tensor | None = None
    ) -> dict[str, dict[str, tf.Tensor]]:
        """Learns one CNN per episode from its support set.

        Args:
            support_images: float32 [episode, support, height, width, channels] in -1..1.
            support_labels: int [episode, support] in 0..way; `way` = unlabeled.
            support_mask: float32 [episode, support], 1 = ignore the sample; None = use all.

        Returns:
            Weights as `HyperTransformer.generate` gives them: {"layer_1": {...}, ..., "logits": {...}}, each
            with a leading axis of episodes, or of 1 where it is the same for all.
        """
        raise NotImplementedError

    def classify(self, images: tf.Tensor, weights: dict, statistics: str = "support") -> tf.Tensor:
        """Runs the CNNs of `generate`.

        Args:
            images: float32 [episode, image, height, width, channels] in -1..1.
            weights: what `generate` gave.
            statistics: source of batch statistics: "support", "moving" (each image alone) or "query".

        Returns:
            float32 [episode, image, way] logits.
        """
        return cnns.run(self.cnn, images, weights, check_statistics(statistics)).logits

    def check_training(self, statistics: str, hides_support: bool) -> None:
        """Raises UserError when a training makes no sense.

        Args:
            statistics: source of batch statistics in training.
            hides_support: whether there are support images without labels or such that are left out.
        """

    def training_losses(
        self,
        episodes: Episodes,
        mask: tf.Tensor | None,
        statistics: str,
        progress: tf.Tensor,
        cross_entropy: CrossEntropy,
    ) -> Losses:
        """The loss of training episodes; here that of the query images, as for a HyperTransformer.

        Args:
            episodes: a batch of training episodes.
            mask: float32 [episode, support], 1 = ignore the sample; None = use all.
            statistics: source of the query images' batch statistics.
            progress: float32 scalar 0..1, share of the training that is done.
            cross_entropy: function of logits [episode, image, class] and labels [episode, image] that gives
                nats [episode].

        Returns:
            Losses.
        """
        weights = self.generate(episodes.support_images, episodes.support_labels, mask)
        run = cnns.run(self.cnn, episodes.query_images, weights, statistics)
        losses = cross_entropy(run.logits, episodes.query_labels)
        observed = cnns.observed(self.cnn, weights, run, statistics)
        return Losses(losses, run.logits, episodes.query_labels, observed)

    def update_moving_averages(self, batch_statistics: Sequence[Moments], step: tf.Tensor) -> None:
        """Folds the statistics of a training step into the moving averages; see `fold_into_moving`."""
        fold_into_moving(self.layer_variables, batch_statistics, step, self.moving_momentum)

    def learned_weights(self) -> dict[str, dict[str, tf.Tensor]]:
        """The learned conv layers with a leading axis of 1; moving statistics included."""
        return {
            layer.name: {
                **{name: variables[name][None] for name in layer.weight_shapes},
                **moving_moments(variables),
            }
            for layer, variables in zip(self.cnn.conv_layers, self.layer_variables)
        }

    def add_variable(self, name: str, start, trainable: bool = True) -> tf.Variable:
        """Makes a variable that starts at a tensor."""
        aggregation = tf.VariableAggregation.NONE if trainable else tf.VariableAggregation.MEAN
        self._named[name] = tf.Variable(start, trainable=trainable, name=name, aggregation=aggregation)
        return self._named[name]

    def _conv_variables(self, layer: cnns.ConvLayer) -> dict[str, tf.Variable]:
        """The weights of a conv layer and its moving averages."""
        return {
            name: self.add_variable(f"{layer.name}/{name}", start, not name.startswith("moving"))
            for name, start in self._conv_starts(layer).items()
        }

    def _conv_starts(self, layer: cnns.ConvLayer) -> dict[str, tf.Tensor]:
        channels = [layer.channels]
        return {
            "kernel": keras.initializers.GlorotUniform()(layer.weight_shapes["kernel"]),
            "bias": tf.zeros(channels),
            "gamma": tf.ones(channels),
            "beta": tf.zeros(channels),
            "moving_mean": tf.zeros(channels),
            "moving_square": tf.ones(channels),
        }
