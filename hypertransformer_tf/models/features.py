"""Feature extractors that turn images and activations into numbers for sample tokens (section 3.2).

All take `[episode, sample, height, width, channels]` and give `[episode, sample, feature]`, each
sample by itself (with batch normalisation: each episode by itself).
"""

from __future__ import annotations

from hypertransformer_tf.backend import keras, tf
from hypertransformer_tf.errors import UserError
from hypertransformer_tf.models.dropout import dropout
from hypertransformer_tf.models.normalization import moments, normalize
from hypertransformer_tf.models.shapes import axis_length


class ActivationFeatures(keras.layers.Layer):
    """Activation embeddings h(z): unpadded 3x3 convolutions, spatial means of all of them side by side.

    Stride 2 for all but the last convolution, ReLU between them. An input smaller than the kernel
    shrinks the kernel to the input; further convolutions that no longer fit are left out.

    Args:
        input_shape: (height, width, channels) of the activations.
        num_features: channels of each convolution.
        num_layers: 2 for conv layers, 1 for the logits layer (paper, section 4.1).
        nonlinear: take the means behind a ReLU instead of before it.
        dropout_rate: share of the features that is dropped in training.
    """

    KERNEL_SIZE = 3

    def __init__(
        self,
        input_shape,
        num_features: int,
        num_layers: int,
        nonlinear: bool = False,
        dropout_rate: float = 0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.nonlinear, self.dropout_rate = nonlinear, dropout_rate
        height, width, _ = input_shape
        self.convolutions = []
        for index in range(num_layers):
            if index > 0 and min(height, width) < self.KERNEL_SIZE:
                break
            size = (min(self.KERNEL_SIZE, height), min(self.KERNEL_SIZE, width))
            fits = size == (self.KERNEL_SIZE, self.KERNEL_SIZE)
            stride = 2 if index < num_layers - 1 and fits else 1
            self.convolutions.append(
                keras.layers.Conv2D(num_features, size, stride, padding="valid", name=f"conv_{index + 1}")
            )
            height, width = (height - size[0]) // stride + 1, (width - size[1]) // stride + 1
        self.size = num_features * len(self.convolutions)

    def call(self, activations: tf.Tensor) -> tf.Tensor:
        episodes, samples = axis_length(activations, 0), axis_length(activations, 1)
        flat = tf.reshape(activations, [-1, *activations.shape[2:]])
        means = []
        for convolution in self.convolutions:
            flat = convolution(tf.nn.relu(flat) if means else flat)
            means.append(tf.reduce_mean(tf.nn.relu(flat) if self.nonlinear else flat, [1, 2]))
        features = means[0] if len(means) == 1 else tf.concat(means, -1)
        return dropout(tf.reshape(features, [episodes, samples, self.size]), self.dropout_rate)


class Passthrough(keras.layers.Layer):
    """The activations themselves, flattened, and behind them what an extractor makes of them.

    Args:
        input_shape: (height, width, channels) of the activations.
        extractor: ActivationFeatures or None.
        dropout_rate: share of the activations that is dropped in training.
    """

    def __init__(
        self, input_shape, extractor: ActivationFeatures | None, dropout_rate: float = 0.0, **kwargs
    ):
        super().__init__(**kwargs)
        self.extractor, self.dropout_rate = extractor, dropout_rate
        self.copied = input_shape[0] * input_shape[1] * input_shape[2]
        self.size = self.copied + (extractor.size if extractor else 0)

    def call(self, activations: tf.Tensor) -> tf.Tensor:
        shape = [axis_length(activations, 0), axis_length(activations, 1), self.copied]
        features = dropout(tf.reshape(activations, shape), self.dropout_rate)
        return features if self.extractor is None else tf.concat([features, self.extractor(activations)], -1)


LOGITS_FEATURES = ("default", "passthrough", "mix")


def make_features(
    kind: str, input_shape, num_features: int, num_layers: int, nonlinear: bool, dropout_rate: float
) -> ActivationFeatures | Passthrough | None:
    """The activation feature extractor of a generator.

    Args:
        kind: "default": ActivationFeatures; "passthrough": the flattened activations; "mix": both.
        input_shape, num_features, num_layers, nonlinear, dropout_rate: see ActivationFeatures;
            `num_features` = 0: none of those.

    Raises:
        UserError: for an unknown kind.
    """
    if kind not in LOGITS_FEATURES:
        raise UserError(f"unknown logits_features = {kind!r}: use {', '.join(LOGITS_FEATURES)}")
    extractor = None
    if num_features and kind != "passthrough":
        extractor = ActivationFeatures(
            input_shape, num_features, num_layers, nonlinear, dropout_rate, name="activation_features"
        )
    if kind == "default":
        return extractor
    return Passthrough(input_shape, extractor, dropout_rate, name="passthrough")


class SharedFeatures(keras.layers.Layer):
    """Image embeddings s(x): 3x3 convolutions, stride 2 but the last, ReLU, spatial mean.

    They depend on the image alone and are shared by the generators of all layers.

    Args:
        num_features: channels of each convolution (32 in the paper).
        num_layers: number of convolutions (4 in the paper).
        batch_norm: normalise after each convolution with the support set's own statistics.
        padding: "same" or "valid".
        dropout_rate: share of the features that is dropped in training.
    """

    def __init__(
        self, num_features=32, num_layers=4, batch_norm=False, padding="same", dropout_rate=0.0, **kwargs
    ):
        super().__init__(**kwargs)
        self.dropout_rate = dropout_rate
        self.size = num_features
        self.convolutions = [
            keras.layers.Conv2D(
                num_features, 3, 2 if i < num_layers - 1 else 1, padding=padding, name=f"conv_{i + 1}"
            )
            for i in range(num_layers)
        ]
        self.scales = []
        if batch_norm:
            for i in range(num_layers):
                gamma = self.add_weight(name=f"gamma_{i + 1}", shape=[1, num_features], initializer="ones")
                beta = self.add_weight(name=f"beta_{i + 1}", shape=[1, num_features], initializer="zeros")
                self.scales.append((gamma, beta))

    def call(self, images: tf.Tensor, mask: tf.Tensor | None = None) -> tf.Tensor:
        episodes, samples = axis_length(images, 0), axis_length(images, 1)
        flat = tf.reshape(images, [-1, *images.shape[2:]])
        for index, convolution in enumerate(self.convolutions):
            flat = convolution(flat)
            if self.scales:
                batch = tf.reshape(flat, [episodes, samples, *flat.shape[1:]])
                batch = normalize(batch, moments(batch, mask), *self.scales[index])
                flat = tf.reshape(batch, [-1, *flat.shape[1:]])
            flat = tf.nn.relu(flat)
        features = tf.reshape(tf.reduce_mean(flat, [1, 2]), [episodes, samples, self.size])
        return dropout(features, self.dropout_rate)
