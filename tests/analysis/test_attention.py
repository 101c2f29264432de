"""Attention maps: averaged over episodes, ordered by label, and summed up correctly."""

import numpy as np
import pytest
from analysis_helpers import make_sampler
from export_helpers import make_model

from hypertransformer_tf.analysis import attention_picture
from hypertransformer_tf.analysis.attention import SHARES, AttentionMap, attention_maps, shares_record
from hypertransformer_tf.analysis.attention_picture import draw_attention, draw_shares
from hypertransformer_tf.backend import tf
from hypertransformer_tf.models.transformer import recorded_attention


@pytest.fixture(scope="module")
def model():
    return make_model(way=3, transformer_layers=2, heads=2)


def test_maps_are_means_over_episodes_with_samples_by_label(model):
    sampler = make_sampler(3)
    maps = attention_maps(model, sampler, 3, first=4)
    names = [(each.cnn_layer, each.transformer_layer) for each in maps]
    assert names == [(f"layer_{i}" if i < 5 else "logits", t) for i in range(1, 6) for t in (1, 2)]
    for each in maps:
        slices = 3 if each.cnn_layer == "logits" else 4
        queries = slices if each.transformer_layer == 2 else slices + 9
        assert each.placeholders == slices and each.weights.shape == (2, queries, slices + 9)
        np.testing.assert_array_equal(each.labels, [0, 0, 1, 1, 2, 2, 3, 3, 3])
        np.testing.assert_allclose(each.weights.sum(-1), 1.0, atol=1e-5)
    # The same without sorting first: tokens of samples permuted afterwards.
    expected = 0.0
    for index in (4, 5, 6):
        drawn = sampler(tf.constant([index], tf.int64))
        with recorded_attention() as recorded:
            model.generate(drawn.support_images, drawn.support_labels)
        order = np.concatenate([np.arange(3), 3 + np.argsort(drawn.support_labels[0], kind="stable")])
        expected = expected + recorded[-1][1].numpy()[0][:, :, order] / 3
    np.testing.assert_allclose(maps[-1].weights, expected, atol=1e-5)


def made_map(cnn_layer="logits"):
    weights = np.zeros([1, 2, 6])  # two placeholders, labels 0 0 1, one unlabeled
    weights[0, 0] = [0.1, 0.2, 0.3, 0.1, 0.05, 0.25]
    weights[0, 1] = [0.4, 0.0, 0.1, 0.1, 0.4, 0.0]
    return AttentionMap(cnn_layer, 1, weights, 2, np.array([0, 0, 1, 2]), 2)


def test_shares_say_where_each_slice_attends_to():
    assert SHARES == ("own_class", "other_classes", "unlabeled", "itself", "other_placeholders")
    np.testing.assert_allclose(
        made_map().shares()[0], [[0.4, 0.05, 0.25, 0.1, 0.2], [0.4, 0.2, 0.0, 0.0, 0.4]], atol=1e-9
    )
    np.testing.assert_allclose(made_map().even_shares(), np.array([1.5, 1.5, 1, 1, 1]) / 6)
    conv = made_map("layer_1").shares()[0]
    assert np.isnan(conv[:, 0]).all()
    np.testing.assert_allclose(conv[:, 1:], [[0.45, 0.25, 0.1, 0.2], [0.6, 0.0, 0.0, 0.4]], atol=1e-9)


def test_record_is_plain_json():
    (record,) = shares_record([made_map("layer_1")])
    assert record["mean"] == {
        "own_class": None,
        "other_classes": 0.525,
        "unlabeled": 0.125,
        "itself": 0.05,
        "other_placeholders": 0.3,
    }
    assert len(record["slices"]) == 2 and record["head"] == 1


@pytest.mark.parametrize("way, shot, unlabeled", [(2, 1, 0), (3, 2, 1), (100, 1, 1)])
def test_texts_do_not_overlap(tmp_path, monkeypatch, way, shot, unlabeled):
    labels = np.sort(np.concatenate([np.repeat(np.arange(way), shot), np.full(way * unlabeled, way)]))
    tokens = way + len(labels)
    weights = np.random.default_rng(0).random([2, tokens, tokens])
    weights /= weights.sum(-1, keepdims=True)
    maps = [
        AttentionMap("logits", layer, weights[:, : way if layer == 2 else tokens], way, labels, way)
        for layer in (1, 2)
    ]
    assert draw_shares(maps, tmp_path / "shares.png", 1).stat().st_size > 5000
    kept = []
    monkeypatch.setattr(attention_picture, "save_figure", lambda figure, path: kept.append(figure))
    draw_attention(maps, tmp_path / "attention.png", 1)
    kept[0].canvas.draw()
    for axis in kept[0].axes:
        for ticks in (axis.get_xticklabels(), axis.get_yticklabels()):
            boxes = [tick.get_window_extent() for tick in ticks if tick.get_text()]
            assert not any(one.overlaps(other) for one, other in zip(boxes, boxes[1:]))
