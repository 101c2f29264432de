"""The methods that train.py and evaluate.py know: HyperTransformer and the baselines, by name."""

from __future__ import annotations

import gin

from hypertransformer_tf.baselines.imprinted import ImprintedWeights
from hypertransformer_tf.baselines.learner import BaselineCNN, Learner
from hypertransformer_tf.baselines.maml import MAML
from hypertransformer_tf.baselines.nearest_mean import NearestMean
from hypertransformer_tf.baselines.protonet import ProtoNet
from hypertransformer_tf.baselines.rfs import RFS
from hypertransformer_tf.errors import UserError
from hypertransformer_tf.models.hypertransformer import HyperTransformer

BASELINES = {cls.method: cls for cls in (ProtoNet, ImprintedWeights, NearestMean, MAML, RFS)}
METHODS = (HyperTransformer.method, *BASELINES)


@gin.configurable(denylist=["way", "image_shape", "classes"])
def make_model(
    way: int, image_shape: tuple[int, int, int], classes: int, method: str = "hypertransformer"
) -> HyperTransformer | Learner:
    """Builds a model with the options of the configuration and creates its variables.

    Args:
        way: classes of an episode.
        image_shape: (height, width, channels) of the images.
        classes: classes of the training set.
        method: one of METHODS.

    Raises:
        UserError: for an unknown method or impossible options.
    """
    if method == HyperTransformer.method:
        model = HyperTransformer(way=way, image_shape=image_shape)
        model.build_variables()
        return model
    if method not in BASELINES:
        raise UserError(f"unknown make_model.method {method!r}: use {', '.join(METHODS)}")
    baseline = BASELINES[method]
    return baseline(way, image_shape, classes, *([BaselineCNN()] if baseline.has_cnn else []))


def rebuild_model(method: str, options: dict) -> HyperTransformer | Learner:
    """Builds the model whose `config()` gave the options.

    Raises:
        TypeError: for options that the method doesn't know.
        UserError: for an unknown method.
    """
    options = {**options, "image_shape": tuple(options["image_shape"])}
    if method == HyperTransformer.method:
        model = HyperTransformer(**options)
        model.build_variables()
        return model
    if method not in BASELINES:
        raise UserError(f"unknown method {method!r}: this version knows {', '.join(METHODS)}")
    baseline = BASELINES[method]
    if not baseline.has_cnn:
        return baseline(options["way"], options["image_shape"], options["classes"])
    cnn = BaselineCNN(**{name: options.pop(name) for name in BaselineCNN._fields})
    return baseline(cnn=cnn, **options)
