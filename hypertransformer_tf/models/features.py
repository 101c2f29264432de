"""Feature extractors that turn images and activations into numbers for sample tokens (section 3.2).

Both take `[episode, sample, height, width, channels]` and give `[episode, sample, feature]`, each
sample by itself (with batch normalisation: each episode by itself).
"""

from __future__ import annotations

from hypertransformer_tf.backend import keras, tf
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
    """

    KERNEL_SIZE = 3

    def __init__(self, input_shape, num_features: int, num_layers: int, **kwargs):
        super().__init__(**kwargs)
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
            means.append(tf.reduce_mean(flat, [1, 2]))
        features = means[0] if len(means) == 1 else tf.concat(means, -1)
        return tf.reshape(features, [episodes, samples, self.size])


class SharedFeatures(keras.layers.Layer):
    """Image embeddings s(x): 3x3 convolutions, stride 2 but the last, ReLU, spatial mean.

    They depend on the image alone and are shared by the generators of all layers.

    Args:
        num_features: channels of each convolution (32 in the paper).
        num_layers: number of convolutions (4 in the paper).
        batch_norm: normalise after each convolution with the support set's own statistics.
        padding: "same" or "valid".
    """

    def __init__(self, num_features=32, num_layers=4, batch_norm=False, padding="same", **kwargs):
        super().__init__(**kwargs)
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
        return tf.reshape(tf.reduce_mean(flat, [1, 2]), [episodes, samples, self.size])
