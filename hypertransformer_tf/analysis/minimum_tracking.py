"""Appendix B as code: following the minimum of a task's loss from one task to another.

Where theta minimises L(theta, t) and the Hessian is not singular, the minimum moves along a path t(gamma),
gamma in 0..1, by

    d theta / d gamma = - (d2L / d theta2)^-1  (d2L / d theta d t)  (d t / d gamma).

Here SciPy integrates the equation for small models, to be compared with optimising anew at every point. The
minimum of a convex loss can be followed anywhere; that of a net may vanish on the way, where the Hessian
becomes singular (a fold). There the integration stops.
"""

from __future__ import annotations

import dataclasses
from typing import Callable

import numpy as np
from scipy.integrate import solve_ivp

from hypertransformer_tf.analysis.activations import embeddings
from hypertransformer_tf.backend import tf
from hypertransformer_tf.data.episodes import EpisodeSampler
from hypertransformer_tf.models.hypertransformer import HyperTransformer

FOLD = 0.05  # the minimum has vanished when its smallest curvature is this part of the first task's
Loss = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]  # of weights [weight] and gamma [], all float64


@dataclasses.dataclass(frozen=True)
class Tracking:
    """A minimum along a path of tasks, integrated and optimised anew.

    Attributes:
        gammas: float [point], 0 = first task, 1 = last task.
        reach: how far the minimum could be followed; below 1 it vanished there.
        tracked: float [followed point, weight], by the differential equation; the points up to `reach`.
        optimised: float [point, weight], by optimising at each point, from the point before.
        tracked_losses: float [followed point], in nats with the weight decay.
        optimised_losses: float [point], likewise.
        kept_losses: float [point], of the weights that were best for the first task.
        curvatures: float [followed point], smallest eigenvalue of the Hessian at the tracked weights.
    """

    gammas: np.ndarray
    reach: float
    tracked: np.ndarray
    optimised: np.ndarray
    tracked_losses: np.ndarray
    optimised_losses: np.ndarray
    kept_losses: np.ndarray
    curvatures: np.ndarray

    def relative_errors(self) -> np.ndarray:
        """float [followed point]: |tracked - optimised| / |optimised|."""
        return _relative(self.tracked, self.optimised[: len(self.tracked)])

    def relative_moves(self) -> np.ndarray:
        """float [point]: how far the minimum has moved, |first optimum - optimised| / |optimised|."""
        return _relative(self.optimised[:1], self.optimised)


def task_path(first: np.ndarray, last: np.ndarray) -> Callable[[tf.Tensor], tf.Tensor]:
    """The straight path between two tasks that differ in their samples: features at gamma.

    Args:
        first, last: float [sample, feature]; sample i has the same label in both.
    """
    start, end = tf.constant(first, tf.float64), tf.constant(last, tf.float64)
    return lambda gamma: start + gamma * (end - start)


def two_tasks(model: HyperTransformer, sampler: EpisodeSampler, way: int) -> tuple[np.ndarray, ...]:
    """The first classes of two episodes, as the embeddings of their support samples.

    Args:
        model: its generated conv layers make the embeddings; these are scaled to mean 0 and variance 1.
        sampler: gives the episodes.
        way: classes to keep.

    Returns:
        Features of both tasks, each float32 [sample, feature], and their labels, int32 [sample].
    """
    drawn = sampler(tf.constant([0, 1], tf.int64))
    weights = model.generate(drawn.support_images, drawn.support_labels)
    features = embeddings(model, drawn.support_images, weights).numpy()
    labels = drawn.support_labels.numpy()
    order = np.argsort(labels, axis=1, kind="stable")[:, : way * sampler.shot]
    kept = np.take_along_axis(features, order[:, :, None], 1)
    kept = (kept - kept.mean((0, 1))) / (kept.std((0, 1)) + 1e-6)
    return kept[0], kept[1], np.sort(labels[0])[: way * sampler.shot]


def logistic_regression(
    path: Callable, labels: np.ndarray, way: int, decay: float = 0.01
) -> tuple[Loss, int]:
    """Multinomial logistic regression with L2 regularisation; its loss is convex.

    Args:
        path: gamma -> float64 [sample, feature].
        labels: int [sample] in 0..way-1.
        way: classes.
        decay: the loss gets decay / 2 * |theta|^2 added.

    Returns:
        The loss and the number of weights.
    """
    features = path(tf.zeros([], tf.float64)).shape[1]

    def loss(theta, gamma):
        weights = tf.reshape(theta, [features + 1, way])
        logits = tf.matmul(path(gamma), weights[:-1]) + weights[-1]
        return _cross_entropy(logits, labels) + 0.5 * decay * tf.reduce_sum(tf.square(theta))

    return loss, (features + 1) * way


def two_layer_net(
    path: Callable, labels: np.ndarray, way: int, hidden: int = 6, decay: float = 0.01
) -> tuple[Loss, int]:
    """A net with one hidden layer of tanh units; its loss has many minima.

    Args, returns: as for `logistic_regression`; `hidden` units.
    """
    features = path(tf.zeros([], tf.float64)).shape[1]
    first = (features + 1) * hidden

    def loss(theta, gamma):
        inner = tf.reshape(theta[:first], [features + 1, hidden])
        outer = tf.reshape(theta[first:], [hidden + 1, way])
        units = tf.tanh(tf.matmul(path(gamma), inner[:-1]) + inner[-1])
        logits = tf.matmul(units, outer[:-1]) + outer[-1]
        return _cross_entropy(logits, labels) + 0.5 * decay * tf.reduce_sum(tf.square(theta))

    return loss, first + (hidden + 1) * way


def track_minimum(loss: Loss, start: np.ndarray, points: int = 21, tolerance: float = 1e-6) -> Tracking:
    """Follows a minimum from gamma = 0 to 1 by the differential equation, and by optimising.

    Args:
        loss: smooth function of weights and gamma.
        start: float [weight], near the minimum to follow; optimised first.
        points: where to compare, evenly from 0 to 1.
        tolerance: relative tolerance of the integration.

    Raises:
        ValueError: when the Hessian is singular at once or a minimum is not reached.
    """
    derivatives = _Derivatives(loss)
    gammas = np.linspace(0.0, 1.0, points)
    optimised = [_minimise(derivatives, start, gammas[0])]
    for gamma in gammas[1:]:
        optimised.append(_minimise(derivatives, optimised[-1], gamma))
    floor = FOLD * derivatives.curvature(optimised[0], 0.0)
    if floor <= 0:
        raise ValueError("the Hessian is singular at gamma = 0: no minimum to follow")

    def fold(gamma, theta):
        return derivatives.curvature(theta, gamma) - floor

    fold.terminal = True
    solution = solve_ivp(
        lambda gamma, theta: derivatives.velocity(theta, gamma),
        (0.0, 1.0),
        optimised[0],
        t_eval=gammas,
        rtol=tolerance,
        atol=tolerance * 1e-2,
        events=fold,
    )
    if not solution.success:
        raise ValueError(f"the minimum was lost: {solution.message}")
    tracked = solution.y.T

    def losses(weights):
        return np.array([derivatives.value(theta, gamma) for theta, gamma in zip(weights, gammas)])

    kept = np.repeat(optimised[0][None], points, 0)
    curvatures = [derivatives.curvature(*at) for at in zip(tracked, gammas)]
    return Tracking(
        gammas,
        float(solution.t_events[0][0]) if len(solution.t_events[0]) else 1.0,
        tracked,
        np.array(optimised),
        losses(tracked),
        losses(optimised),
        losses(kept),
        np.array(curvatures),
    )


class _Derivatives:
    """Derivatives of a loss in float64, by automatic differentiation."""

    def __init__(self, loss: Loss):
        self._loss = tf.function(loss)

        @tf.function
        def gradient(theta, gamma):
            with tf.GradientTape() as tape:
                tape.watch(theta)
                value = loss(theta, gamma)
            return tape.gradient(value, theta)

        @tf.function
        def second(theta, gamma):
            with tf.GradientTape(persistent=True) as tape:
                tape.watch([theta, gamma])
                slope = gradient(theta, gamma)
            return tape.jacobian(slope, theta), tape.jacobian(slope, gamma)

        self._gradient, self._second = gradient, second

    def value(self, theta: np.ndarray, gamma: float) -> float:
        return float(self._loss(*_tensors(theta, gamma)))

    def gradient(self, theta: np.ndarray, gamma: float) -> np.ndarray:
        return self._gradient(*_tensors(theta, gamma)).numpy()

    def hessian(self, theta: np.ndarray, gamma: float) -> np.ndarray:
        return self._second(*_tensors(theta, gamma))[0].numpy()

    def curvature(self, theta: np.ndarray, gamma: float) -> float:
        """Smallest eigenvalue of the Hessian."""
        return float(np.linalg.eigvalsh(self.hessian(theta, gamma))[0])

    def velocity(self, theta: np.ndarray, gamma: float) -> np.ndarray:
        """d theta / d gamma of the minimum."""
        hessian, mixed = self._second(*_tensors(theta, gamma))
        return -np.linalg.solve(hessian.numpy(), mixed.numpy())


def _minimise(derivatives: _Derivatives, start: np.ndarray, gamma: float) -> np.ndarray:
    """Newton's method with halved steps and the sizes of the eigenvalues; it leaves saddle points."""
    theta, value = start, derivatives.value(start, gamma)
    for _ in range(500):
        slope = derivatives.gradient(theta, gamma)
        sizes, axes = np.linalg.eigh(derivatives.hessian(theta, gamma))
        step = -axes @ (axes.T @ slope / np.maximum(np.abs(sizes), 1e-6))
        if np.abs(slope).max() < 1e-9:
            if sizes[0] > -1e-6:
                return theta
            step = 0.1 * axes[:, 0]  # off the saddle, downhill on both sides
        for _ in range(40):
            moved = derivatives.value(theta + step, gamma)
            if moved < value:
                break
            step = step / 2
        else:  # no smaller loss within rounding errors
            break
        theta, value = theta + step, moved
    slope = np.abs(derivatives.gradient(theta, gamma)).max()
    if slope > 1e-5:
        raise ValueError(f"no minimum reached at gamma = {gamma:.3f}: the slope is still {slope:.1e}")
    return theta


def _tensors(theta: np.ndarray, gamma: float) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.constant(theta, tf.float64), tf.constant(gamma, tf.float64)


def _cross_entropy(logits: tf.Tensor, labels: np.ndarray) -> tf.Tensor:
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))


def _relative(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.linalg.norm(one - other, axis=1) / np.linalg.norm(other, axis=1)
