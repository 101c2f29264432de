"""The generator itself as a SavedModel: support sets in, weights of CNNs out, for TensorFlow Serving."""

from __future__ import annotations

from pathlib import Path

from hypertransformer_tf.backend import tf
from hypertransformer_tf.models.hypertransformer import HyperTransformer

ABSENT = -1e9  # logit of a class without a support sample


class ServedGenerator(tf.Module):
    """What the SavedModel holds. Images are float32 in 0..255, with the polarity of the training.

    Signatures; every tensor has a leading axis of episodes, which may have any length, as the support
    and query axes may:

    * `generate`: `support_images` [episode, support, height, width, channels], `support_labels` int32
      [episode, support] in 0..way (`way` = unlabeled), `support_mask` float32 [episode, support]
      (1 = ignore the sample) -> all weights, as "layer_1_kernel", "layer_1_mean", ..., "logits_bias".
    * `classify`: the same and `query_images` [episode, query, height, width, channels] -> `logits`
      and `probabilities` [episode, query, way], `class_index` int64 [episode, query]. A class without
      a support sample has logit -1e9.

    Args:
        model: a built HyperTransformer.
        statistics: "support" or "moving", for the query images.
    """

    def __init__(self, model: HyperTransformer, statistics: str = "support"):
        super().__init__(name="generator")
        self._model, self._statistics = model, statistics
        shape = [None, None, *model.image_shape]
        support = [
            tf.TensorSpec(shape, tf.float32, "support_images"),
            tf.TensorSpec([None, None], tf.int32, "support_labels"),
            tf.TensorSpec([None, None], tf.float32, "support_mask"),
        ]

        @tf.function(input_signature=support)
        def generate(support_images, support_labels, support_mask):
            return self._by_episode(self._generate, (support_images, support_labels, support_mask))

        @tf.function(input_signature=[*support, tf.TensorSpec(shape, tf.float32, "query_images")])
        def classify(support_images, support_labels, support_mask, query_images):
            return self._by_episode(
                self._classify, (support_images, support_labels, support_mask, query_images)
            )

        self.signatures_by_name = {"generate": generate, "classify": classify, "serving_default": classify}

    def _by_episode(self, function, inputs):
        """Runs episodes one after the other, so that their number need not be known."""
        fresh = [tf.TensorSpec([1, *each.shape[1:]], each.dtype) for each in inputs]
        shapes = tf.function(function).get_concrete_function(*fresh).structured_outputs
        outputs = tf.nest.map_structure(lambda spec: tf.TensorSpec(spec.shape[1:], spec.dtype), shapes)

        def one(episode):
            results = function(*[tensor[None] for tensor in episode])
            return tf.nest.map_structure(lambda tensor: tensor[0], results)

        return tf.map_fn(one, inputs, fn_output_signature=outputs)

    def _weights(self, images, labels, mask):
        return self._model.generate(images / 128.0 - 1.0, labels, mask)

    def _generate(self, images, labels, mask):
        named = {}
        for layer, of_layer in self._weights(images, labels, mask).items():
            for name, value in of_layer.items():
                if name in (f"{self._statistics}_mean", f"{self._statistics}_variance"):
                    named[f"{layer}_{name.split('_')[-1]}"] = value
                elif not name.endswith(("_mean", "_variance")):
                    named[f"{layer}_{name}"] = value
        return named

    def _classify(self, images, labels, mask, query_images):
        weights = self._weights(images, labels, mask)
        logits = self._model.classify(query_images / 128.0 - 1.0, weights, self._statistics)
        counts = tf.reduce_sum(tf.one_hot(labels, self._model.way) * (1.0 - mask)[..., None], 1)
        logits = tf.where(counts[:, None, :] > 0.0, logits, ABSENT)
        return {
            "logits": logits,
            "probabilities": tf.nn.softmax(logits),
            "class_index": tf.argmax(logits, -1),
        }


def write_generator(model: HyperTransformer, folder: Path, statistics: str = "support") -> None:
    """Writes the SavedModel into an existing folder."""
    module = ServedGenerator(model, statistics)
    tf.saved_model.save(module, str(folder), signatures=module.signatures_by_name)
