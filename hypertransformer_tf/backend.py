"""The one place that decides which Keras is used: Keras 2 on every TensorFlow.

TensorFlow 2.15 comes with the package `keras` 2.15; from 2.16 on the same code is the package `tf-keras`.
Neither depends on what `tf.keras` happens to be (TF_USE_LEGACY_KERAS has no say here).
Modules of this project write `from hypertransformer_tf.backend import keras, tf`.
"""

import tensorflow as tf

if tuple(int(part) for part in tf.__version__.split(".")[:2]) >= (2, 16):
    import tf_keras as keras
else:
    import keras

__all__ = ["keras", "tf"]
