"""Imprinted weights: the normalised mean feature of a new class is its weight vector (Qi et al., 2018).

Features and weights have length 1, logits are cosines times a learned scale, in the pre-training on all
training classes as in an episode.
"""

from __future__ import annotations

import gin

from hypertransformer_tf.backend import keras, tf
from hypertransformer_tf.baselines.class_means import class_means, counted
from hypertransformer_tf.baselines.learner import BaselineCNN
from hypertransformer_tf.baselines.pretrained import PretrainedLearner


@gin.configurable(denylist=["way", "image_shape", "classes", "cnn"])
class ImprintedWeights(PretrainedLearner):
    """Cosine classifier; arguments as for PretrainedLearner."""

    method = "imprinted"

    def __init__(self, way, image_shape, classes, cnn: BaselineCNN, support_statistics: str = "moving"):
        super().__init__(way, image_shape, classes, cnn, support_statistics)
        start = keras.initializers.GlorotUniform()([self.cnn.logits.features, classes])
        self._class_kernel = self.add_variable("class_head/kernel", start)
        self._scale = self.add_variable("class_head/scale", tf.constant(10.0))

    def class_logits(self, features):
        """Scaled cosines; see `PretrainedLearner.class_logits`."""
        kernel = tf.math.l2_normalize(self._class_kernel, 0)
        return self._scale * tf.linalg.matmul(tf.math.l2_normalize(features, -1), kernel)

    def head(self, features, labels, mask):
        """Normalised class means, scaled; see `PretrainedLearner.head`."""
        means = tf.math.l2_normalize(class_means(features, counted(labels, mask, self.way)), -1)
        return {"kernel": self._scale * tf.transpose(means, [0, 2, 1]), "bias": tf.zeros_like(means[:, :, 0])}
