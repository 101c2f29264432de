"""The nearest class mean on pixels: nothing is learned. What any method has to be better than."""

from __future__ import annotations

from hypertransformer_tf.baselines.class_means import class_means, counted, nearest_mean_layer
from hypertransformer_tf.baselines.conv_pass import run_conv
from hypertransformer_tf.baselines.learner import BaselineCNN, Learner


class NearestMean(Learner):
    """A logits layer on flattened images; arguments as for Learner, which has no CNN to choose here.

    The same for every source of batch statistics: there are none.
    """

    method = "nearest_mean"
    has_cnn = False

    def __init__(self, way, image_shape, classes):
        super().__init__(way, image_shape, classes, BaselineCNN(1, "logits-only"))
        self._options = {"way": way, "image_shape": list(image_shape), "classes": classes, "channels": 0}

    def generate(self, support_images, support_labels, support_mask=None):
        """A logits layer of mean images; see `Learner.generate`."""
        pixels = run_conv(self.cnn, support_images, {}, "own").features
        means = class_means(pixels, counted(support_labels, support_mask, self.way))
        return {"logits": nearest_mean_layer(means)}
