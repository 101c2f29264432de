"""Prototypical networks: learned features, and the nearest class mean in them (Snell et al., 2017).

Logits are minus the squared Euclidean distances to the class means of the support set. They are linear in the
features up to a constant, so the result of an episode is an ordinary CNN.
"""

from __future__ import annotations

from hypertransformer_tf.baselines.class_means import class_means, counted, nearest_mean_layer
from hypertransformer_tf.baselines.conv_pass import run_conv, with_support_statistics
from hypertransformer_tf.baselines.learner import Learner


class ProtoNet(Learner):
    """Trained on episodes, by the query loss; arguments as for Learner."""

    method = "protonet"

    def generate(self, support_images, support_labels, support_mask=None):
        """The learned conv layers and a logits layer of class means; see `Learner.generate`."""
        weights = self.learned_weights()
        support = run_conv(self.cnn, support_images, weights, "own", support_mask)
        means = class_means(support.features, counted(support_labels, support_mask, self.way))
        weights = with_support_statistics(self.cnn, weights, support.statistics)
        return {**weights, "logits": nearest_mean_layer(means)}
