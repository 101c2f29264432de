"""ProtoNet and the nearest class mean are what their definitions say, distance by distance."""

import numpy as np
import pytest

from hypertransformer_tf.backend import keras, tf
from hypertransformer_tf.baselines.learner import BaselineCNN
from hypertransformer_tf.baselines.nearest_mean import NearestMean
from hypertransformer_tf.baselines.protonet import ProtoNet
from hypertransformer_tf.models import cnn as cnns

WAY, SHAPE = 3, (16, 16, 1)


def episode(episodes=2, shot=2, query=5, seed=0):
    """Random images with labels: support [episode, 6, ...] and query [episode, 5, ...]."""
    random = np.random.default_rng(seed)
    support = random.normal(size=[episodes, WAY * shot, *SHAPE]).astype(np.float32)
    labels = np.stack([random.permutation(np.repeat(np.arange(WAY), shot)) for _ in range(episodes)])
    return support, labels.astype(np.int32), random.normal(size=[episodes, query, *SHAPE]).astype(np.float32)


def distances_in_a_loop(support, labels, query):
    """Minus squared distances of features to class means, [query, way], for one episode."""
    means = [np.mean([x for x, label in zip(support, labels) if label == c], 0) for c in range(WAY)]
    return np.array([[-np.sum((x - mean) ** 2) for mean in means] for x in query])


def check_same_softmax(logits, expected):
    np.testing.assert_allclose(tf.nn.softmax(logits), tf.nn.softmax(expected), atol=2e-5)


def test_nearest_mean_on_pixels():
    support, labels, query = episode()
    query *= 0.1  # else every softmax is 0 or 1
    support *= 0.1
    learner = NearestMean(WAY, SHAPE, 9)
    weights = learner.generate(support, labels)
    for statistics in ("support", "query", "moving"):
        logits = learner.classify(query, weights, statistics)
        for e in range(2):
            flat = [images[e].reshape(len(images[e]), -1).astype(np.float64) for images in (support, query)]
            check_same_softmax(logits[e], distances_in_a_loop(flat[0], labels[e], flat[1]))


@pytest.mark.parametrize("block_order", cnns.BLOCK_ORDERS)
def test_protonet(block_order):
    keras.utils.set_random_seed(0)
    learner = ProtoNet(WAY, SHAPE, 9, BaselineCNN(4, block_order=block_order))
    support, labels, query = episode()
    logits = learner.classify(query, learner.generate(support, labels))

    cnn, weights = learner.cnn, learner.learned_weights()
    for e in range(2):
        both = []
        x, q = tf.constant(support[e][None]), tf.constant(query[e][None])
        for layer in cnn.conv_layers:  # query images with the statistics of the support images
            convolved = cnns.convolve(layer, x, weights[layer.name])
            axes = [0, 1, 2, 3]
            statistics = cnns.Moments(
                tf.reduce_mean(convolved, axes)[None], tf.math.reduce_variance(convolved, axes)[None]
            )
            x = cnns.finish(layer, convolved, statistics, weights[layer.name])
            q = cnns.convolve(layer, q, weights[layer.name])
            q = cnns.finish(layer, q, statistics, weights[layer.name])
        both = [each.numpy().reshape(each.shape[1], -1).astype(np.float64) for each in (x, q)]
        check_same_softmax(logits[e], distances_in_a_loop(both[0], labels[e], both[1]))


def test_unlabeled_and_masked_samples_count_for_no_mean():
    keras.utils.set_random_seed(0)
    learner = NearestMean(WAY, SHAPE, 9)
    support, labels, _ = episode(shot=3)
    expected = learner.generate(support[:, 2:], labels[:, 2:])["logits"]
    mask = np.zeros(labels.shape, np.float32)
    mask[:, 0] = 1.0
    labels[:, 1] = WAY
    found = learner.generate(support, labels, mask)["logits"]
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-5)
