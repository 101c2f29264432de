"""MAML's inner loop and its outer gradients against ones that are written out by hand for a tiny net."""

import numpy as np
import pytest

from hypertransformer_tf.backend import keras, tf
from hypertransformer_tf.baselines.learner import BaselineCNN
from hypertransformer_tf.baselines.maml import MAML, step_weights
from hypertransformer_tf.data.episodes import Episodes
from hypertransformer_tf.errors import UserError
from hypertransformer_tf.training.losses import query_cross_entropy

WAY, SHAPE, CHANNELS = 3, (20, 20, 1), 2
CNN = BaselineCNN(CHANNELS, "3-layer", "conv-bn-act-pool")
PROGRESS = tf.constant(0.25)
LAYERS = ("layer_1", "layer_2", "layer_3")


def make_learner(**options):
    keras.utils.set_random_seed(0)
    learner = MAML(WAY, SHAPE, 9, CNN, **{"steps": 2, "rate": 0.3, **options})
    random = np.random.default_rng(0)
    for name, variable in learner.named_variables().items():
        if name.endswith(("gamma", "beta")) or name.startswith("rates"):
            variable.assign_add(random.normal(0.0, 0.1, variable.shape))
    return learner


def make_episodes(count=2):
    random = np.random.default_rng(1)
    support = random.normal(size=[count, WAY, *SHAPE]).astype(np.float32)
    query = random.normal(size=[count, 6, *SHAPE]).astype(np.float32)
    labels = np.stack([random.permutation(WAY) for _ in range(count)]).astype(np.int32)
    query_labels = random.integers(0, WAY, [count, 6]).astype(np.int32)
    arrays = [support, labels, None, query, query_labels, labels]
    return Episodes(*[None if a is None else tf.constant(a) for a in arrays])


def by_hand_net(images, own, variables, step, statistics=None):
    """Three strided convolutions with batch normalisation: logits, and the statistics that were used.

    own: the adapted [kernel_1, bias_1, kernel_2, bias_2, kernel_3, bias_3, kernel, bias] of one episode.
    """
    used = []
    for i, name in enumerate(LAYERS):
        images = tf.nn.conv2d(images, own[2 * i], 2, "VALID") + own[2 * i + 1]
        # Not tf.nn.moments: it hides the mean in the variance from second derivatives.
        axes = [0, 1, 2]
        own_statistics = (tf.reduce_mean(images, axes), tf.math.reduce_variance(images, axes))
        mean, variance = statistics[i] if statistics else own_statistics
        used.append((mean, variance))
        gamma, beta = variables[f"{name}/gamma"], variables[f"{name}/beta"]
        if gamma.shape.rank == 2:
            gamma, beta = gamma[step], beta[step]
        images = tf.nn.relu(gamma * (images - mean) / tf.sqrt(variance + 1e-3) + beta)
    return tf.reduce_mean(images, [1, 2]) @ own[6] + own[7], used


def mean_loss(logits, labels):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))


def by_hand(learner, episodes, steps, first_order, of_steps):
    """Sum over episodes of the query losses after 1, 2, ... steps, weighted, and the last adapted weights."""
    variables = learner.named_variables()
    names = [*LAYERS, "logits"]
    total, last = 0.0, []
    for e in range(len(episodes.support_images)):
        own = [variables[f"{name}/{part}"] + 0.0 for name in names for part in ("kernel", "bias")]
        for step in range(steps):
            with tf.GradientTape() as tape:
                tape.watch(own)
                logits, _ = by_hand_net(episodes.support_images[e], own, variables, step)
                loss = mean_loss(logits, episodes.support_labels[e])
            gradients = tape.gradient(loss, own)
            if first_order:
                gradients = [tf.stop_gradient(g) for g in gradients]
            rates = [variables[f"rates/{n}"][step] if f"rates/{n}" in variables else 0.3 for n in names]
            own = [w - rates[i // 2] * g for i, (w, g) in enumerate(zip(own, gradients))]
            _, statistics = by_hand_net(episodes.support_images[e], own, variables, step + 1)
            logits, _ = by_hand_net(episodes.query_images[e], own, variables, step + 1, statistics)
            total += of_steps[step] * mean_loss(logits, episodes.query_labels[e])
        last.append(own)
    return total, last


OPTIONS = [
    {},
    {"first_order": True},
    {"learned_rates": True, "step_bn": True, "step_losses_until": 0.5},
    {"learned_rates": True, "step_bn": True, "step_losses_until": 0.5, "second_order_from": 0.5},
    {"learned_rates": True, "step_bn": True, "step_losses_until": 0.5, "second_order_from": 0.2},
    {"step_bn": True, "step_losses_until": 0.1, "second_order_from": 0.2},
    {"step_bn": True, "step_losses_until": 0.1, "second_order_from": 0.5},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_losses_and_gradients(options):
    learner, episodes = make_learner(**options), make_episodes()
    variables = learner.trainable_variables
    first_order = options.get("first_order", False) or options.get("second_order_from", 0.0) > 0.25

    @tf.function
    def found():
        with tf.GradientTape() as tape:
            got = learner.training_losses(episodes, None, "support", PROGRESS, query_cross_entropy)
            loss = tf.reduce_sum(got.losses)
        return loss, tape.gradient(loss, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)

    loss, gradients = found()
    # A quarter of the training is half of the way to 0.5: the first step's loss has half of its 1/2.
    of_steps = [0.25, 0.75] if options.get("step_losses_until", 0.0) > 0.25 else [0.0, 1.0]
    with tf.GradientTape() as tape:
        expected, last = by_hand(learner, episodes, 2, first_order, of_steps)
    wanted = tape.gradient(expected, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    for variable, one, other in zip(variables, gradients, wanted):
        np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-5, err_msg=variable.name)
    assert sum(float(tf.norm(g)) > 1e-3 for g in wanted) > 8, "the comparison means something"

    weights = learner.generate(episodes.support_images, episodes.support_labels)
    for e, own in enumerate(last):
        for i, name in enumerate([*LAYERS, "logits"]):
            for j, part in enumerate(("kernel", "bias")):
                np.testing.assert_allclose(weights[name][part][e], own[2 * i + j], rtol=1e-3, atol=2e-5)


def test_first_and_second_order_differ():
    episodes = make_episodes()
    norms = []
    for first_order in (True, False):
        learner = make_learner(first_order=first_order)
        with tf.GradientTape() as tape:
            got = learner.training_losses(episodes, None, "support", PROGRESS, query_cross_entropy)
        norms.append(tape.gradient(got.losses, learner.layer_variables[0]["kernel"]).numpy())
    assert np.abs(norms[0] - norms[1]).max() > 1e-3


def test_weights_of_step_losses():
    np.testing.assert_allclose(step_weights(4, 0.1, tf.constant(0.0)), [0.25] * 4)
    np.testing.assert_allclose(step_weights(4, 0.1, tf.constant(0.05)), [0.125, 0.125, 0.125, 0.625])
    np.testing.assert_allclose(step_weights(4, 0.1, tf.constant(0.5)), [0, 0, 0, 1], atol=1e-7)


def test_unlabeled_and_masked_samples_give_no_gradient():
    learner, episodes = make_learner(), make_episodes()
    labels = np.full([2, WAY], WAY, np.int32)
    before = learner.adapt(episodes.support_images, labels, None)
    np.testing.assert_allclose(before[-1]["logits"]["kernel"], before[0]["logits"]["kernel"])
    mask = np.ones([2, WAY], np.float32)
    before = learner.adapt(episodes.support_images, episodes.support_labels, mask)
    np.testing.assert_allclose(before[-1]["logits"]["bias"], before[0]["logits"]["bias"])
    weights = learner.generate(episodes.support_images, episodes.support_labels, mask)
    np.testing.assert_allclose(weights["logits"]["bias"], before[0]["logits"]["bias"])


def test_labels_in_records():
    full = {"learned_rates": True, "step_bn": True, "step_losses_until": 0.1, "second_order_from": 0.5}
    assert make_learner().label == "maml"
    assert make_learner(first_order=True).label == "maml, first order"
    assert make_learner(**full).label == "maml++"
    assert make_learner(learned_rates=True).label == "maml, learned_rates"


@pytest.mark.parametrize(
    "options, message",
    [
        ({"steps": 0}, "MAML.steps = 0"),
        ({"rate": 0.0}, "MAML.rate = 0.0"),
        ({"step_losses_until": 1.5}, "MAML.step_losses_until = 1.5"),
        ({"first_order": True, "second_order_from": 0.5}, "second_order_from has no meaning"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(UserError, match=message):
        make_learner(**options)
