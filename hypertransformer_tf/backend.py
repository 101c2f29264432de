"""The one place that decides which Keras is used: Keras 2 on every TensorFlow.

TensorFlow 2.15 carries Keras 2 itself; from 2.16 on the same code is the package `tf-keras`.
Modules of this project write `from hypertransformer_tf.backend import keras, tf`.
"""

import tensorflow as tf

if tuple(int(part) for part in tf.__version__.split(".")[:2]) >= (2, 16):
    import tf_keras as keras
else:
    keras = tf.keras

__all__ = ["keras", "tf"]
