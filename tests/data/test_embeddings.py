"""Embeddings of a large network as a data set."""

import numpy as np
import pytest

from hypertransformer_tf.backend import tf
from hypertransformer_tf.data.embeddings import load_embeddings
from hypertransformer_tf.data.episodes import EpisodeSampler
from hypertransformer_tf.errors import UserError


@pytest.fixture
def file(tmp_path):
    random = np.random.default_rng(0)
    arrays = {f"n{c:02d}": random.normal(c, 0.1, [4 + c, 6]) for c in range(5)}
    np.savez(tmp_path / "embeddings.npz", **arrays)
    return tmp_path / "embeddings.npz", arrays


def test_classes_and_values(file):
    path, arrays = file
    images = load_embeddings(path)
    assert images.names == tuple(arrays) and images.counts.tolist() == [4, 5, 6, 7, 8]
    assert images.image_shape == (1, 1, 6) and images.images.dtype == np.float32
    np.testing.assert_allclose(images.class_array(3)[:, 0, 0], arrays["n03"], atol=1e-6)


def test_episodes_hold_the_values_as_they_are(file):
    path, arrays = file
    episodes = EpisodeSampler(load_embeddings(path), 3, 1, 6)(tf.constant([0, 1], tf.int64))
    for e in range(2):
        for row, label in zip(episodes.query_images[e].numpy(), episodes.query_labels[e].numpy()):
            of_class = arrays[f"n{int(episodes.class_ids[e, label]):02d}"]
            assert np.abs(of_class - row[0, 0]).max(1).min() < 1e-6


def test_other_files_are_refused(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        load_embeddings(tmp_path / "none.npz")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(UserError, match="not a readable"):
        load_embeddings(tmp_path / "text.npz")
    np.savez(tmp_path / "ints.npz", a=np.ones([2, 3], int))
    with pytest.raises(UserError, match="'a' is int64"):
        load_embeddings(tmp_path / "ints.npz")
