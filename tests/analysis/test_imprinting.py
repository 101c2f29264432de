"""Appendix A: hand-set attention equals class means, class sums, a gradient step and label propagation."""

import numpy as np
import pytest

from hypertransformer_tf.analysis.imprinting import HandSetGenerator, class_means, gradient_step
from hypertransformer_tf.backend import tf
from hypertransformer_tf.errors import UserError
from hypertransformer_tf.models.transformer import Attention

FEATURES = 12


def support(counts, seed=0):
    """Embeddings [sample, FEATURES] of length 1 around one centre for each class, and labels, shuffled."""
    random = np.random.default_rng(seed)
    labels = random.permutation(np.repeat(np.arange(len(counts)), counts)).astype(np.int32)
    centres = random.normal(size=[len(counts), FEATURES])
    embeddings = centres[labels] + 0.15 * random.normal(size=[len(labels), FEATURES])
    return (embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)).astype(np.float32), labels


def generate(generator, embeddings, labels):
    """Weights [way, feature] and biases [way]."""
    slices = generator(tf.constant(embeddings[None]), tf.constant(labels[None])).numpy()[0]
    return slices[:, :-1], slices[:, -1]


@pytest.mark.parametrize("counts", [(1, 1), (3, 3, 3, 3), (1, 4, 2)])
def test_slices_equal_class_means(counts):
    embeddings, labels = support(counts)
    generator = HandSetGenerator(len(counts), FEATURES)
    weights, biases = generate(generator, embeddings, labels)
    np.testing.assert_allclose(weights, class_means(embeddings, labels, len(counts)), atol=1e-5)
    np.testing.assert_array_equal(biases, 0.0)
    assert isinstance(generator.reading, Attention) and generator.reading.heads == 1


@pytest.mark.parametrize("counts", [(2, 2), (1, 4, 2), (5,) * 20, (1,) * 100])
def test_slices_equal_class_sums(counts):
    embeddings, labels = support(counts)
    weights, _ = generate(HandSetGenerator(len(counts), FEATURES, "sums"), embeddings, labels)
    sums = class_means(embeddings, labels, len(counts)) * np.array(counts)[:, None]
    np.testing.assert_allclose(weights, sums, atol=1e-4)


@pytest.mark.parametrize("counts", [(1, 1), (3, 3, 3, 3), (1, 4, 2), (1,) * 100])
@pytest.mark.parametrize("rate", [0.5, 3.0])
def test_two_heads_make_a_gradient_step(counts, rate):
    embeddings, labels = support(counts)
    way = len(counts)
    generator = HandSetGenerator(way, FEATURES, "gradient", len(labels), rate)
    weights, biases = generate(generator, embeddings, labels)
    expected_weights, expected_biases = gradient_step(embeddings, labels, way, rate)
    np.testing.assert_allclose(weights, expected_weights, atol=1e-4)
    np.testing.assert_allclose(biases, expected_biases, atol=1e-4)
    assert generator.reading.heads == 2
    formula = rate / len(labels) * ((np.eye(way)[labels] - 1.0 / way).T @ embeddings)
    np.testing.assert_allclose(expected_weights, formula, atol=1e-7)


@pytest.mark.parametrize("rule", ["means", "sums"])
def test_unlabeled_samples_change_nothing_without_propagation(rule):
    embeddings, labels = support((2, 3, 1))
    more, _ = support((2, 2, 2), seed=1)
    generator = HandSetGenerator(3, FEATURES, rule)
    alone = generate(generator, embeddings, labels)
    together = generate(
        generator, np.concatenate([embeddings, more]), np.concatenate([labels, np.full(6, 3, np.int32)])
    )
    np.testing.assert_allclose(together[0], alone[0], atol=1e-5)


def test_propagation_marks_unlabeled_samples_with_the_class_of_their_neighbour():
    way = 4
    embeddings, labels = support((5,) * way)
    hidden = labels.copy()
    for each in range(way):
        hidden[np.flatnonzero(labels == each)[2:]] = way
    known = hidden < way
    nearest = (embeddings @ embeddings[known].T).argmax(1)
    marked = np.where(known, hidden, hidden[known][nearest])
    assert (marked == labels).all()  # the classes lie far enough apart
    weights, _ = generate(HandSetGenerator(way, FEATURES, propagate=True), embeddings, hidden)
    np.testing.assert_allclose(weights, class_means(embeddings, marked, way), atol=1e-4)
    assert np.abs(weights - class_means(embeddings[known], hidden[known], way)).max() > 1e-2


def test_a_wrong_neighbour_is_believed():
    # Orthogonal classes; the unlabeled sample is nearer to class 1, whatever it is.
    embeddings = np.eye(2, FEATURES, dtype=np.float32)
    other = (0.6 * embeddings[0] + 0.8 * embeddings[1])[None]
    weights, _ = generate(
        HandSetGenerator(2, FEATURES, propagate=True),
        np.concatenate([embeddings, other]),
        np.array([0, 1, 2], np.int32),
    )
    np.testing.assert_allclose(weights, [embeddings[0], (embeddings[1] + other[0]) / 2], atol=1e-4)


def test_labeled_samples_and_placeholders_are_not_marked():
    embeddings, labels = support((2, 2, 2))
    plain = generate(HandSetGenerator(3, FEATURES), embeddings, labels)[0]
    marked = generate(HandSetGenerator(3, FEATURES, propagate=True), embeddings, labels)[0]
    np.testing.assert_allclose(marked, plain, atol=1e-6)


def test_the_order_of_samples_does_not_matter():
    embeddings, labels = support((2, 3, 1))
    order = np.random.default_rng(3).permutation(len(labels))
    generator = HandSetGenerator(3, FEATURES, "gradient", len(labels))
    for one, other in zip(
        generate(generator, embeddings, labels), generate(generator, embeddings[order], labels[order])
    ):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_mistakes():
    with pytest.raises(UserError, match="median.*means"):
        HandSetGenerator(3, FEATURES, "median")
    with pytest.raises(UserError, match="samples"):
        HandSetGenerator(3, FEATURES, "gradient")
