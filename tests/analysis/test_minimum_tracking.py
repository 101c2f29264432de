"""Appendix B: the integrated minimum is the one that optimising anew finds."""

import numpy as np
import pytest

from hypertransformer_tf.analysis.minimum_tracking import (
    logistic_regression,
    task_path,
    track_minimum,
    two_layer_net,
)
from hypertransformer_tf.analysis.tracking_picture import draw_tracking
from hypertransformer_tf.backend import tf


def tasks(way=3, shot=4, features=3, seed=0):
    random = np.random.default_rng(seed)
    labels = np.repeat(np.arange(way), shot).astype(np.int32)
    ends = [
        random.normal(size=[way, features])[labels] + 0.5 * random.normal(size=[len(labels), features])
        for _ in range(2)
    ]
    return task_path(*ends), labels, way


@pytest.fixture(scope="module")
def convex():
    loss, size = logistic_regression(*tasks())
    return track_minimum(loss, np.zeros(size), points=6)


def test_logistic_regression_is_followed_to_the_other_task(convex):
    assert convex.reach == 1.0
    assert convex.tracked.shape == convex.optimised.shape == (6, 12)
    assert convex.relative_moves()[-1] > 0.3  # the tasks do differ
    assert convex.relative_errors().max() < 1e-4
    np.testing.assert_allclose(convex.tracked_losses, convex.optimised_losses, atol=1e-8)
    assert (convex.kept_losses[1:] > convex.optimised_losses[1:] + 1e-4).all()
    assert convex.curvatures.min() > 0.009  # the weight decay holds the Hessian up


def test_two_layer_net_is_followed_to_a_near_task():
    path, labels, way = tasks()

    def near(gamma):
        return path(0.25 * gamma)

    loss, size = two_layer_net(near, labels, way, hidden=3, decay=0.05)
    start = np.random.default_rng(1).normal(size=size)
    found = track_minimum(loss, start, points=6)
    assert size == 24 and found.reach == 1.0 and found.curvatures.min() > 0
    assert found.relative_moves()[-1] > 0.05
    assert found.relative_errors().max() < 1e-3
    np.testing.assert_allclose(found.tracked_losses, found.optimised_losses, atol=1e-6)


def test_following_stops_where_the_minimum_vanishes():
    def loss(theta, gamma):  # a minimum at sqrt(1/2 - gamma) until gamma = 1/2, another one far below
        return theta[0] ** 3 / 3 - (0.5 - gamma) * theta[0] + tf.nn.relu(-5.0 - theta[0]) ** 4

    found = track_minimum(loss, np.ones(1), points=11)
    assert found.reach == pytest.approx(0.5, abs=0.01)
    assert found.tracked.shape == (5, 1) and found.optimised.shape == (11, 1)
    np.testing.assert_allclose(found.tracked[:, 0], np.sqrt(0.5 - found.gammas[:5]), atol=1e-4)
    assert found.relative_errors().max() < 1e-3


def test_a_minimum_in_closed_form():
    # L = |A theta - gamma b|^2 / 2 has its minimum at gamma A^-1 b.
    a, b = np.array([[2.0, 1.0], [0.0, 1.0]]), np.array([1.0, 3.0])

    def loss(theta, gamma):
        return 0.5 * tf.reduce_sum(tf.square(tf.linalg.matvec(a, theta) - gamma * b))

    found = track_minimum(loss, np.ones(2), points=5)
    np.testing.assert_allclose(found.tracked, found.gammas[:, None] * np.linalg.solve(a, b), atol=1e-6)


def test_a_singular_hessian_is_reported():
    def loss(theta, gamma):
        return tf.square(theta[0] - gamma) + 0.0 * theta[1] ** 2

    with pytest.raises(ValueError, match="Hessian is singular at gamma = 0"):
        track_minimum(loss, np.zeros(2), points=3)


def test_picture(convex, tmp_path):
    path = draw_tracking({"logistic regression": convex}, tmp_path / "tracking.svg")
    text = path.read_text()
    assert text.count('<g id="axes_') == 2
