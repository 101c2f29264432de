"""A frozen CNN as TFLite, Keras, ONNX and npz files."""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from pathlib import Path

import numpy as np

from hypertransformer_tf.backend import keras, tf
from hypertransformer_tf.errors import UserError
from hypertransformer_tf.export.frozen import FrozenCNN

TFLITE_KINDS = ("float32", "float16", "int8")


def write_npz(frozen: FrozenCNN, file: Path) -> None:
    """Writes every weight as "<layer>/<weight>", such as "layer_1/kernel" (theta_1 of the paper)."""
    arrays = {f"{layer}/{name}": w for layer, of in frozen.weights.items() for name, w in of.items()}
    np.savez(file, **arrays)


def tflite(frozen: FrozenCNN, kind: str, samples: np.ndarray | None = None) -> bytes:
    """Converts to TFLite.

    Args:
        frozen: the CNN.
        kind: "float32", "float16" (weights are halved) or "int8" (weights and activations).
        samples: uint8 [image, height, width, channels], the images that int8 ranges are measured on.

    Returns:
        The file's content. Input "images" [image, height, width, channels] in 0..255 with the polarity
        of the training, float32, or uint8 for int8; outputs "logits" and "probabilities", float32.

    Raises:
        UserError: for an unknown kind.
    """
    if kind not in TFLITE_KINDS:
        raise UserError(f"--tflite={kind}: unknown, use {', '.join(TFLITE_KINDS)}")
    shape = [None, *frozen.cnn.input_shape]

    @tf.function(input_signature=[tf.TensorSpec(shape, tf.float32, "images")])
    def answer(images):
        logits = frozen.logits(images)
        return {"logits": logits, "probabilities": tf.nn.softmax(logits)}

    module = tf.Module()
    module.answer = answer
    converter = tf.lite.TFLiteConverter.from_concrete_functions([answer.get_concrete_function()], module)
    if kind == "float16":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.target_spec.supported_types = [tf.float16]
    if kind == "int8":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: (
            {"images": sample[None].astype(np.float32)} for sample in samples
        )
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = tf.uint8
    with _silence():
        return converter.convert()


def keras_model(frozen: FrozenCNN) -> keras.Model:
    """A plain Keras model of the CNN, to be fine-tuned: images in 0..255 -> logits.

    Batch normalisation carries the frozen statistics as its moving averages.
    """
    images = keras.Input(frozen.cnn.input_shape, name="images")
    x = keras.layers.Rescaling(1.0 / 128.0, -1.0, name="scale")(images)
    filled = []
    for layer in frozen.cnn.conv_layers:
        weights = frozen.weights[layer.name]
        conv = keras.layers.Conv2D(
            layer.channels, layer.kernel_size, layer.stride, layer.padding, name=layer.name
        )
        norm = keras.layers.BatchNormalization(epsilon=1e-3, name=f"{layer.name}_normalization")
        slope = 0.01 if layer.activation == "lrelu" else 0.0
        rest = [keras.layers.ReLU(negative_slope=slope, name=f"{layer.name}_{layer.activation}")]
        if layer.pool > 1:
            rest.append(keras.layers.MaxPooling2D(layer.pool, name=f"{layer.name}_pool"))
        steps = [conv, norm, *rest] if layer.order == "conv-bn-act-pool" else [conv, *rest, norm]
        for step in steps:
            x = step(x)
        filled.append((conv, [weights["kernel"], weights["bias"]]))
        filled.append((norm, [weights[name] for name in ("gamma", "beta", "mean", "variance")]))
    if frozen.cnn.logits.spatial_mean:
        x = keras.layers.GlobalAveragePooling2D(name="features")(x)
    else:
        x = keras.layers.Flatten(name="features")(x)
    logits = keras.layers.Dense(len(frozen.names), name="logits")
    model = keras.Model(images, logits(x), name="generated_cnn")
    filled.append((logits, [frozen.weights["logits"]["kernel"], frozen.weights["logits"]["bias"]]))
    for layer, values in filled:
        layer.set_weights(values)
    return model


def write_onnx(frozen: FrozenCNN, file: Path) -> None:
    """Writes ONNX: "images" float32 [image, height, width, channels] in 0..255 -> "logits".

    Raises:
        UserError: when tf2onnx is not installed.
    """
    try:
        import tf2onnx
    except ImportError as error:
        raise UserError(
            f"--onnx needs tf2onnx ({error}): python -m pip install -r requirements-onnx.txt"
        ) from error
    shape = [None, *frozen.cnn.input_shape]

    @tf.function(input_signature=[tf.TensorSpec(shape, tf.float32, "images")])
    def logits(images):
        return tf.identity(frozen.logits(images), name="logits")

    with _silence():
        tf2onnx.convert.from_function(
            logits, input_signature=[tf.TensorSpec(shape, tf.float32, "images")], output_path=str(file)
        )


@contextlib.contextmanager
def _silence():
    """Keeps converters quiet: their remarks on stderr, also from C++, are of no use to a user."""
    logging.disable(logging.WARNING)
    with tempfile.TemporaryFile() as sink:
        saved = os.dup(2)
        os.dup2(sink.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            logging.disable(logging.NOTSET)
