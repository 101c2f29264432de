"""Maps of generated weights, and the choice of the classes whose episodes cluster."""

import sys

import numpy as np
import pytest
from analysis_helpers import make_sampler
from export_helpers import make_model

from hypertransformer_tf.analysis import weight_map
from hypertransformer_tf.analysis.generated_weights import generate_many
from hypertransformer_tf.analysis.weight_picture import draw_weights
from hypertransformer_tf.backend import tf
from hypertransformer_tf.data.class_images import ClassImages
from hypertransformer_tf.errors import UserError


def clustered(episodes=200, classes=12, way=4, seed=0):
    """Points where the episodes with class 7 lie together, and the classes of each episode."""
    random = np.random.default_rng(seed)
    class_ids = np.stack([random.permutation(classes)[:way] for _ in range(episodes)])
    points = random.normal(size=[episodes, 2])
    inside = (class_ids == 7).any(1)
    points[inside] = 3.0 + 0.1 * points[inside]
    return points, class_ids


@pytest.mark.parametrize("num_learned_layers", [0, 2, 4])
def test_weights_of_many_episodes_are_those_of_each(num_learned_layers):
    model = make_model(way=3, num_learned_layers=num_learned_layers)
    sampler = make_sampler(3, classes=6)
    done = []
    found = generate_many(model, sampler, 5, batch=2, progress=done.append)
    assert sum(done) == found.episodes == 5
    assert list(found.layers) == [f"layer_{i}" for i in range(num_learned_layers + 1, 5)] + ["logits"]
    drawn = sampler(tf.constant([4], tf.int64))
    weights = model.generate(drawn.support_images, drawn.support_labels)
    np.testing.assert_array_equal(found.class_ids[4], drawn.class_ids[0])
    np.testing.assert_allclose(found.layers["logits"][4, :-1], weights["logits"]["kernel"][0], atol=1e-4)
    np.testing.assert_allclose(found.layers["logits"][4, -1], weights["logits"]["bias"][0], atol=1e-4)
    if num_learned_layers < 4:
        np.testing.assert_allclose(found.layers["layer_4"][4], weights["layer_4"]["kernel"][0], atol=1e-4)
        assert found.flat("all").shape == (
            5,
            (4 - num_learned_layers) * 144 - (108 * (num_learned_layers == 0)),
        )


def test_the_class_whose_episodes_cluster_is_found():
    points, class_ids = clustered()
    spreads = weight_map.spreads(points, class_ids)
    assert set(spreads) == set(range(12)) and spreads[7] < 0.2
    assert weight_map.tightest_classes(points, class_ids, 3)[0] == 7
    assert spreads[7] < 0.3 * weight_map.chance_spread(points, class_ids, 0)
    assert weight_map.chance_spread(points, class_ids, 11) > weight_map.chance_spread(points, class_ids, 0)


def test_classes_in_few_episodes_are_left_out():
    points, class_ids = clustered(episodes=8)
    counts = {each: int((class_ids == each).any(1).sum()) for each in range(12)}
    assert set(weight_map.spreads(points, class_ids, 3)) == {c for c, n in counts.items() if n >= 3}
    few = class_ids[:2]
    assert set(weight_map.spreads(points[:2], few)) == set(few[0]) & set(few[1])


def test_pca_keeps_distances_of_a_plane():
    random = np.random.default_rng(0)
    plane = random.normal(size=[30, 2]) * [5.0, 1.0]
    rotation, _ = np.linalg.qr(random.normal(size=[6, 6]))
    points = weight_map.embed((plane @ rotation[:2] + 1.0).astype(np.float32), "pca")

    def distances(x):
        return np.linalg.norm(x[:, None] - x[None], axis=-1)

    np.testing.assert_allclose(distances(points), distances(plane), atol=1e-4)
    assert weight_map.embed(np.ones([5, 1], np.float32), "pca").shape == (5, 2)


def test_umap_keeps_clusters_and_repeats():
    pytest.importorskip("umap")
    random = np.random.default_rng(0)
    vectors = random.normal(size=[60, 10]).astype(np.float32)
    vectors[30:] += 20.0
    first = weight_map.embed(vectors, "umap", seed=3)
    assert first.shape == (60, 2)
    np.testing.assert_array_equal(first, weight_map.embed(vectors, "umap", seed=3))
    middles = first[:30].mean(0), first[30:].mean(0)
    within = max(
        np.linalg.norm(part - middle, axis=1).mean()
        for part, middle in zip((first[:30], first[30:]), middles)
    )
    assert np.linalg.norm(middles[0] - middles[1]) > 3 * within
    assert weight_map.embed(vectors[: weight_map.FEWEST], "umap").shape == (weight_map.FEWEST, 2)


def test_without_umap_learn_principal_components_take_its_place(monkeypatch):
    monkeypatch.setitem(sys.modules, "umap", None)
    assert weight_map.choose_method("auto") == "pca"
    with pytest.raises(UserError, match="requirements-visualize.txt"):
        weight_map.choose_method("umap")
    with pytest.raises(UserError, match="'?tsne.*umap, pca"):
        weight_map.choose_method("tsne")


def test_picture_has_a_row_for_each_class_and_a_column_for_each_layer(tmp_path):
    points, class_ids = clustered()
    the_map = weight_map.WeightMap("pca", {"layer_1": points, "logits": points, "all": points})
    random = np.random.default_rng(0)
    names = [f"Alphabet/letter{i} $x" for i in range(12)]
    images = ClassImages.from_class_arrays(
        random.integers(0, 256, [12, 4, 8, 8, 3], np.uint8), names, "noise"
    )
    text = draw_weights(the_map, class_ids, [7, 2], images, tmp_path / "weights.svg").read_text()
    assert text.count('<g id="axes_') == 2 * 4
