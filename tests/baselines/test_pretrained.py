"""Imprinted weights and RFS against slow plain versions, one image and one class at a time."""

import numpy as np
import pytest

from hypertransformer_tf.backend import keras, tf
from hypertransformer_tf.baselines import logistic_regression
from hypertransformer_tf.baselines.conv_pass import run_conv
from hypertransformer_tf.baselines.imprinted import ImprintedWeights
from hypertransformer_tf.baselines.learner import BaselineCNN
from hypertransformer_tf.baselines.rfs import RFS, divergence
from hypertransformer_tf.data.episodes import Episodes
from hypertransformer_tf.errors import UserError
from hypertransformer_tf.training.losses import query_cross_entropy

WAY, SHAPE, CLASSES = 3, (16, 16, 1), 7


def make(cls, **options):
    keras.utils.set_random_seed(0)
    learner = cls(WAY, SHAPE, CLASSES, BaselineCNN(4), **options)
    random = np.random.default_rng(0)
    for name, variable in learner.named_variables().items():
        if name.endswith(("gamma", "beta", "moving_mean")):
            variable.assign_add(random.normal(0.0, 0.1, variable.shape))
    return learner


def make_episodes(shot=2):
    random = np.random.default_rng(1)
    labels = np.stack([random.permutation(np.repeat(np.arange(WAY), shot)) for _ in range(2)])
    return Episodes(
        tf.constant(random.normal(size=[2, WAY * shot, *SHAPE]), tf.float32),
        tf.constant(labels, tf.int32),
        None,
        tf.constant(random.normal(size=[2, 5, *SHAPE]), tf.float32),
        tf.constant(random.integers(0, WAY, [2, 5]), tf.int32),
        tf.constant([[4, 0, 6], [1, 2, 3]], tf.int32),
    )


def unit_features(learner, images, statistics):
    """Features of length 1, float64 [image, feature], of one episode's images."""
    features = run_conv(learner.cnn, images[None], learner.learned_weights(), statistics).features[0].numpy()
    return np.array([x / np.linalg.norm(x) for x in features.astype(np.float64)])


@pytest.mark.parametrize("source, own", [("moving", "moving"), ("support", "own")])
def test_imprinted_weights(source, own):
    learner, episodes = make(ImprintedWeights, support_statistics=source), make_episodes()
    weights = learner.generate(episodes.support_images, episodes.support_labels)
    logits = learner.classify(episodes.query_images, weights, "moving").numpy()
    for e in range(2):
        support = unit_features(learner, episodes.support_images[e], own)
        labels = episodes.support_labels[e].numpy()
        for q, x in enumerate(unit_features(learner, episodes.query_images[e], "moving")):
            for c in range(WAY):
                weight = sum(s for s, label in zip(support, labels) if label == c)
                cosine = weight @ x / np.linalg.norm(weight)
                assert logits[e, q, c] == pytest.approx(10.0 * cosine, abs=1e-3)


def test_pretraining_is_over_the_real_classes():
    learner, episodes = make(ImprintedWeights), make_episodes()
    found = learner.training_losses(episodes, None, "query", tf.constant(0.0), query_cross_entropy)
    kernel = learner.named_variables()["class_head/kernel"].numpy()
    for e in range(2):
        images = tf.concat([episodes.support_images[e], episodes.query_images[e]], 0)
        slots = [*episodes.support_labels[e].numpy(), *episodes.query_labels[e].numpy()]
        losses = []
        for x, slot in zip(unit_features(learner, images, "own"), slots):
            real = episodes.class_ids[e, slot].numpy()
            logits = np.array([10.0 * x @ k / np.linalg.norm(k) for k in kernel.T])
            losses.append(np.log(np.sum(np.exp(logits))) - logits[real])
        assert float(found.losses[e]) == pytest.approx(np.mean(losses), rel=1e-4)


def test_divergence():
    random = np.random.default_rng(0)
    taught, logits = random.normal(size=[2, 1, 2, 4])
    expected = 0.0
    for i in range(2):
        p, q = (np.exp(x[0, i] / 3.0) / np.exp(x[0, i] / 3.0).sum() for x in (taught, logits))
        expected += np.sum(p * np.log(p / q)) * 9.0 / 2
    assert float(divergence(taught, logits, 3.0)[0]) == pytest.approx(expected)


def test_without_scikit_learn(monkeypatch):
    monkeypatch.setattr(logistic_regression.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="requirements-baselines.txt"):
        make(RFS)


class TestWithScikitLearn:
    """What needs requirements-baselines.txt."""

    @pytest.fixture(autouse=True)
    def installed(self):
        pytest.importorskip("sklearn", reason="needs requirements-baselines.txt")

    @pytest.mark.parametrize("classes", [2, 3])
    def test_logistic_regression_is_at_the_minimum(self, classes):
        """The gradient of sum(cross entropy) + |kernel|^2 / (2 C), by hand, is 0."""
        random = np.random.default_rng(0)
        features = random.normal(size=[1, 12, 5]).astype(np.float32)
        labels = np.arange(12) % classes
        members = np.eye(3, dtype=np.float32)[labels][None]
        members[0, 11] = 0.0  # an unlabeled sample
        layer = logistic_regression.fit_episodes(tf.constant(features), tf.constant(members), 0.5)
        kernel, bias = layer["kernel"][0].numpy()[:, :classes], layer["bias"][0].numpy()[:classes]
        slope, shift = np.zeros_like(kernel), np.zeros(classes)
        for x, label in zip(features[0, :11], labels[:11]):
            p = np.exp(x @ kernel + bias)
            error = p / p.sum() - np.eye(classes)[label]
            slope += np.outer(x, error)
            shift += error
        penalty = kernel / 0.5 * (2.0 if classes == 2 else 1.0)  # two classes: of their difference
        np.testing.assert_allclose(slope + penalty, 0.0, atol=5e-3)
        np.testing.assert_allclose(shift, 0.0, atol=5e-3)

    def test_rfs_answers_like_scikit_learn(self):
        from sklearn.linear_model import LogisticRegression

        learner, episodes = make(RFS), make_episodes()
        weights = learner.generate(episodes.support_images, episodes.support_labels)
        probabilities = tf.nn.softmax(learner.classify(episodes.query_images, weights, "moving"))
        for e in range(2):
            support = unit_features(learner, episodes.support_images[e], "moving")
            model = LogisticRegression(max_iter=1000).fit(support, episodes.support_labels[e].numpy())
            expected = model.predict_proba(unit_features(learner, episodes.query_images[e], "moving"))
            np.testing.assert_allclose(probabilities[e], expected, atol=1e-3)

    def test_a_teacher_adds_its_answers(self):
        teacher, learner, episodes = (
            make(RFS),
            make(RFS, teacher="runs/rfs", distillation=0.25),
            make_episodes(),
        )
        teacher.named_variables()["class_head/bias"].assign(np.arange(CLASSES))
        arguments = (episodes, None, "query", tf.constant(0.0), query_cross_entropy)
        alone = learner.training_losses(*arguments)
        learner.learn_from(teacher)
        taught = learner.training_losses(*arguments).losses
        images = tf.concat([episodes.support_images, episodes.query_images], 1)
        features = run_conv(teacher.cnn, images, teacher.learned_weights(), "moving").features
        logits = features @ teacher.named_variables()["class_head/kernel"] + np.arange(
            CLASSES, dtype=np.float32
        )
        expected = 0.75 * alone.losses + 0.25 * divergence(logits, alone.logits, 4.0)
        np.testing.assert_allclose(taught, expected, rtol=1e-4)
        assert learner.label == "rfs, distilled"
        assert list(learner.named_variables()) == list(teacher.named_variables())

    def test_wrong_options(self):
        with pytest.raises(UserError, match="RFS.temperature = 0.0"):
            make(RFS, temperature=0.0)
        with pytest.raises(UserError, match="RFS.distillation = 2.0"):
            make(RFS, distillation=2.0)
        with pytest.raises(UserError, match="same training classes"):
            make(RFS, teacher="x").learn_from(make(ImprintedWeights))
