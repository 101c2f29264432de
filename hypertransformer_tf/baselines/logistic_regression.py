"""Logistic regression of scikit-learn on the support set of each episode, inside a TensorFlow graph."""

from __future__ import annotations

import importlib.util

import numpy as np

from hypertransformer_tf.backend import tf
from hypertransformer_tf.errors import UserError


def check_installed() -> None:
    """Raises UserError when scikit-learn is not there."""
    if importlib.util.find_spec("sklearn") is None:
        raise UserError("RFS needs scikit-learn: python -m pip install -r requirements-baselines.txt")


def fit_episodes(
    features: tf.Tensor, members: tf.Tensor, inverse_regularization: float
) -> dict[str, tf.Tensor]:
    """Fits a multinomial logistic regression in each episode; no gradient flows through it.

    Args:
        features: float [episode, support, feature].
        members: float [episode, support, way], 1 where a sample counts for a class.
        inverse_regularization: scikit-learn's C.

    Returns:
        {"kernel": float [episode, feature, way], "bias": float [episode, way]}; a class without samples never
        wins.
    """
    way, size = members.shape[2], features.shape[2]

    def fit_all(all_features, all_members):
        fits = [fit(*each, inverse_regularization) for each in zip(all_features, all_members)]
        kernels, biases = zip(*fits)
        return np.stack(kernels), np.stack(biases)

    kernel, bias = tf.numpy_function(fit_all, [features, members], [tf.float32, tf.float32])
    episodes = features.shape[0]
    return {
        "kernel": tf.ensure_shape(kernel, [episodes, size, way]),
        "bias": tf.ensure_shape(bias, [episodes, way]),
    }


def fit(features: np.ndarray, members: np.ndarray, inverse_regularization: float) -> tuple:
    """Features [support, feature], members [support, way] -> kernel [feature, way], bias [way]."""
    from sklearn.linear_model import LogisticRegression  # optional: requirements-baselines.txt

    counts = members.sum(-1) > 0
    labels = members.argmax(-1)[counts]
    kernel = np.zeros([features.shape[1], members.shape[1]], np.float32)
    bias = np.full([members.shape[1]], -1e9, np.float32)
    present = np.unique(labels)
    if len(present) == 1:
        bias[present] = 0.0
        return kernel, bias
    model = LogisticRegression(C=inverse_regularization, max_iter=1000)
    model.fit(features[counts].astype(np.float64), labels)
    if len(present) == 2:  # scikit-learn gives the difference of the two
        kernel[:, present], bias[present] = (
            np.outer(model.coef_[0], [-0.5, 0.5]),
            model.intercept_ * [-0.5, 0.5],
        )
    else:
        kernel[:, present], bias[present] = model.coef_.T, model.intercept_
    return kernel, bias
