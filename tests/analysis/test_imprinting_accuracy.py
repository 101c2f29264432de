"""Hand-set generators on embeddings of a model: the same tasks, the same images, other logits layers."""

import numpy as np
from analysis_helpers import make_sampler
from export_helpers import make_model

from hypertransformer_tf.analysis.activations import embeddings
from hypertransformer_tf.analysis.imprinting_accuracy import PREPARATIONS, imprinting_accuracies
from hypertransformer_tf.backend import tf
from hypertransformer_tf.evaluation.accuracy import TaskEvaluator


def test_accuracies_are_those_of_the_rules():
    model, sampler = make_model(way=3), make_sampler(3, shot=2, unlabeled=0, classes=6)
    done = []
    found = imprinting_accuracies(model, sampler, 5, batch=2, progress=done.append)
    assert sum(done) == 5 and all(values.shape == (5,) for values in found.values())
    rules = ("class means", "gradient step", "nearest class mean")
    assert set(found) == {
        ("trained generator", "as they are"),
        *((r, p) for r in rules for p in PREPARATIONS),
    }
    trained = TaskEvaluator(model, sampler)(5)["support"]
    np.testing.assert_allclose(found["trained generator", "as they are"], trained)

    drawn = sampler(tf.range(5, dtype=tf.int64))
    weights = model.generate(drawn.support_images, drawn.support_labels)
    support = embeddings(model, drawn.support_images, weights).numpy()
    query = embeddings(model, drawn.query_images, weights).numpy()
    labels, truths = drawn.support_labels.numpy(), drawn.query_labels.numpy()
    for task in range(5):
        means = np.stack([support[task][labels[task] == c].mean(0) for c in range(3)])
        nearest = np.linalg.norm(query[task][:, None] - means, axis=-1).argmin(-1)
        assert found["nearest class mean", "as they are"][task] == (nearest == truths[task]).mean()
        assert (
            found["class means", "as they are"][task]
            == ((query[task] @ means.T).argmax(-1) == truths[task]).mean()
        )


def test_unlabeled_samples_add_the_semi_supervised_version():
    found = imprinting_accuracies(make_model(way=3), make_sampler(3, shot=2, unlabeled=2), 2)
    assert ("class means, neighbours marked", "centred, length 1") in found
