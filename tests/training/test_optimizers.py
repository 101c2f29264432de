"""Updates against formulas."""

import numpy as np
import pytest

from hypertransformer_tf.backend import tf
from hypertransformer_tf.errors import UserError
from hypertransformer_tf.training.optimizers import Optimizer


def updated(gradient=(3.0, 4.0), steps=1, **options):
    matrix = tf.Variable([[1.0, -2.0]], name="kernel")
    optimizer = Optimizer(lambda step: tf.constant(0.1), **options)
    optimizer.build([matrix])
    for step in range(steps):
        metrics = optimizer.apply([tf.constant([gradient])], [matrix], tf.constant(step, tf.int64))
    return matrix.numpy()[0], {name: float(value) for name, value in metrics.items()}


def test_sgd():
    values, metrics = updated()
    np.testing.assert_allclose(values, [0.7, -2.4], rtol=1e-6)
    assert metrics == pytest.approx({"gradient_norm": 5.0, "learning_rate": 0.1})


def test_clipping_scales_the_whole_gradient_and_reports_the_norm_before():
    values, metrics = updated(clip_norm=1.0)
    np.testing.assert_allclose(values, [1.0 - 0.06, -2.0 - 0.08], rtol=1e-6)
    assert metrics["gradient_norm"] == pytest.approx(5.0)


def test_adam_moves_by_the_rate_whatever_the_gradients_size():
    np.testing.assert_allclose(updated(kind="adam")[0], [0.9, -2.1], rtol=1e-5)


def test_adamw_shrinks_matrices_first():
    np.testing.assert_allclose(
        updated(kind="adamw", weight_decay=0.5)[0], [0.95 - 0.1, -1.9 - 0.1], rtol=1e-5
    )


def test_adamw_leaves_vectors_and_embeddings_alone():
    optimizer = Optimizer(lambda step: tf.constant(0.1), "adamw", weight_decay=0.5)
    variables = [tf.Variable([2.0], name="bias"), tf.Variable([[2.0]], name="labels/embeddings")]
    optimizer.build(variables)
    optimizer.apply([tf.zeros([1]), tf.zeros([1, 1])], variables, tf.constant(0, tf.int64))
    assert [float(v.numpy().ravel()[0]) for v in variables] == [2.0, 2.0]


def test_transformers_get_their_share_of_the_rate():
    optimizer = Optimizer(lambda step: tf.constant(0.1), transformer_factor=0.5)
    variables = [tf.Variable([2.0], name="conv/kernel"), tf.Variable([2.0], name="model/encoder/kernel")]
    optimizer.build(variables)
    metrics = optimizer.apply([tf.constant([1.0])] * 2, variables, tf.constant(0, tf.int64))
    np.testing.assert_allclose([float(v[0]) for v in variables], [1.9, 1.95], rtol=1e-6)
    assert float(metrics["learning_rate"]) == pytest.approx(0.1)


def test_a_share_for_transformers_needs_transformers():
    with pytest.raises(UserError, match="no Transformer"):
        updated(transformer_factor=0.5)


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "lamb"},
        {"kind": "adam", "weight_decay": 0.1},
        {"clip_norm": 0.0},
        {"transformer_factor": 0.0},
    ],
)
def test_impossible_options_are_refused(options):
    with pytest.raises(UserError):
        updated(**options)
