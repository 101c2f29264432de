"""A frozen CNN as a SavedModel that needs nothing but TensorFlow."""

from __future__ import annotations

from pathlib import Path

from hypertransformer_tf.backend import tf
from hypertransformer_tf.export.frozen import FrozenCNN


class ServedCNN(tf.Module):
    """What the SavedModel holds: the CNN, its class names and the preparation of images; no variables.

    Signatures, all with the outputs `logits` and `probabilities` float32 [image, class], `class_index`
    int64 [image] and `class_name` string [image]:

    * `serving_default`: `images` float32 [image, height, width, channels] in 0..255;
    * `serve_uint8`: the same as uint8;
    * `serve_bytes`: `encoded` string [image], JPEG or PNG of any size.

    The loaded object can also be called with float32 or uint8 images.
    """

    def __init__(self, frozen: FrozenCNN):
        super().__init__(name="generated_cnn")
        self._frozen = frozen
        shape = [None, *frozen.cnn.input_shape]

        @tf.function(input_signature=[tf.TensorSpec(shape, tf.float32, "images")])
        def serving_default(images):
            return self._answer(images)

        @tf.function(input_signature=[tf.TensorSpec(shape, tf.uint8, "images")])
        def serve_uint8(images):
            return self._answer(tf.cast(images, tf.float32))

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "encoded")])
        def serve_bytes(encoded):
            return self._answer(frozen.preparation.decode(encoded))

        self.signatures_by_name = {
            "serving_default": serving_default,
            "serve_uint8": serve_uint8,
            "serve_bytes": serve_bytes,
        }
        for dtype in (tf.float32, tf.uint8):
            self.__call__.get_concrete_function(tf.TensorSpec(shape, dtype, "images"))

    @tf.function
    def __call__(self, images):
        return self._answer(tf.cast(images, tf.float32))

    def _answer(self, images: tf.Tensor) -> dict[str, tf.Tensor]:
        logits = self._frozen.logits(self._frozen.preparation.orient(images))
        index = tf.argmax(logits, -1)
        return {
            "logits": logits,
            "probabilities": tf.nn.softmax(logits),
            "class_index": index,
            "class_name": tf.gather(tf.constant(self._frozen.names), index),
        }


def write_saved_model(frozen: FrozenCNN, folder: Path) -> None:
    """Writes the SavedModel into an existing folder."""
    module = ServedCNN(frozen)
    tf.saved_model.save(module, str(folder), signatures=module.signatures_by_name)
