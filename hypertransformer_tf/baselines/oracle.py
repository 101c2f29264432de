"""The oracle: an ordinary CNN of the same shape, trained on all images of a fixed set of classes (4.4).

A weight generator that had memorised the training images and the best weights for any choice of classes would
reach the oracle's accuracy on the images it was trained with.
"""

from __future__ import annotations

from typing import NamedTuple

import gin
import numpy as np

from hypertransformer_tf.backend import keras, tf
from hypertransformer_tf.data.class_images import ClassImages
from hypertransformer_tf.errors import UserError
from hypertransformer_tf.models import cnn as cnns


class OracleAccuracy(NamedTuple):
    """Accuracy on the images trained on and on those held out, 0..1; NaN when none were."""

    trained: float
    held_out: float


@gin.configurable(denylist=["images", "cnn"])
def train_oracle(
    images: ClassImages,
    cnn: cnns.CNN,
    number: int = 0,
    held_out: int = 5,
    steps: int = 2000,
    batch_size: int = 100,
    learning_rate: float = 0.003,
    seed: int = 0,
) -> OracleAccuracy:
    """Draws a set of classes, trains a CNN on it and measures it.

    Batch statistics in training, statistics over all images trained on afterwards, so that each image is
    answered alone.

    Args:
        images: classes to choose from.
        cnn: description of the CNN; its logits layer says how many classes.
        number: of the set of classes; with the seed, all that the result depends on.
        held_out: images of each class that are not trained on.
        steps, batch_size: of the training.
        learning_rate: of Adam at the start; it falls to zero by a cosine.
        seed: see `number`.

    Raises:
        UserError: for too few classes or images.
    """
    way = cnn.logits.way
    if way > images.num_classes:
        raise UserError(f"an oracle of {way} classes needs as many, {images.source} has {images.num_classes}")
    random = np.random.default_rng([seed, number])
    parts: tuple[list, list] = ([], [])
    for label, index in enumerate(random.permutation(images.num_classes)[:way]):
        of_class = images.class_array(index)
        if len(of_class) <= held_out:
            raise UserError(
                f"class {images.names[index]!r} has {len(of_class)} images, "
                f"train_oracle.held_out = {held_out}: lower it"
            )
        order = random.permutation(len(of_class))
        for part, rows in zip(parts, (order[held_out:], order[:held_out])):
            part += [(of_class[row], label) for row in rows]
    (pixels, labels), (test_pixels, test_labels) = (_arrays(part, images.image_shape) for part in parts)

    keras.utils.set_random_seed(seed * 1_000_003 + number)
    weights = _new_weights(cnn)
    variables = tf.nest.flatten(weights)
    rate = keras.optimizers.schedules.CosineDecay(learning_rate, steps)
    optimizer = keras.optimizers.legacy.Adam(rate)

    @tf.function
    def step(rows):
        with tf.GradientTape() as tape:
            run = cnns.run(cnn, tf.gather(pixels, rows)[None], _batched(weights), "query")
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.gather(labels, rows), run.logits[0])
            loss = tf.reduce_mean(losses)
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

    size = min(batch_size, len(labels))
    for _ in range(steps):
        step(tf.constant(random.permutation(len(labels))[:size]))

    final = _batched(weights)
    run = cnns.run(cnn, pixels[None], final, "query")
    for layer, statistics in zip(cnn.conv_layers, run.statistics):
        final[layer.name].update(support_mean=statistics.mean, support_variance=statistics.variance)

    def accuracy(of_pixels, of_labels) -> float:
        if not len(of_labels):
            return float("nan")
        logits = cnns.run(cnn, of_pixels[None], final, "support").logits[0]
        return float(np.mean(tf.argmax(logits, -1).numpy() == of_labels.numpy()))

    return OracleAccuracy(accuracy(pixels, labels), accuracy(test_pixels, test_labels))


def _arrays(part: list, shape) -> tuple[tf.Tensor, tf.Tensor]:
    pixels = np.stack([image for image, _ in part]) if part else np.zeros([0, *shape], np.uint8)
    images = tf.cast(pixels, tf.float32)
    if pixels.dtype == np.uint8:
        images = images / 128.0 - 1.0
    return images, tf.constant([label for _, label in part], tf.int32)


def _new_weights(cnn: cnns.CNN) -> dict[str, dict[str, tf.Variable]]:
    starts = {
        "kernel": lambda shape: keras.initializers.GlorotUniform()(shape),
        "bias": tf.zeros,
        "gamma": tf.ones,
        "beta": tf.zeros,
    }
    return {
        layer.name: {name: tf.Variable(starts[name](shape)) for name, shape in layer.weight_shapes.items()}
        for layer in cnn.layers
    }


def _batched(weights: dict) -> dict[str, dict[str, tf.Tensor]]:
    """The weights with the leading axis of one episode."""
    return {
        layer: {name: value[None] for name, value in of_layer.items()} for layer, of_layer in weights.items()
    }
