"""Episodes: disjoint, random in every respect that matters, and a pure function of (seed, index)."""

import dataclasses

import numpy as np
import pytest

from hypertransformer_tf.backend import tf
from hypertransformer_tf.data import episodes as episodes_module
from hypertransformer_tf.data.augmentation import rotate_by_90
from hypertransformer_tf.data.class_images import ClassImages
from hypertransformer_tf.data.episodes import EpisodeSampler
from hypertransformer_tf.errors import UserError


def numbered(counts, side=4):
    """Images that spell their class and their number: pixel (0, 0) and pixel (0, 1)."""
    arrays = []
    for index, count in enumerate(counts):
        array = np.zeros([count, side, side, 1], np.uint8)
        array[:, 0, 0, 0], array[:, 0, 1, 0] = index, np.arange(count)
        arrays.append(array)
    return ClassImages.from_class_arrays(arrays, [f"class {i}" for i in range(len(counts))], "numbers")


def draw(sampler, *indices):
    return tf.function(sampler)(tf.constant(indices, tf.int64))


def draw_many(sampler, count, batch=10):
    """Episodes 0..count-1, drawn in batches by one traced function."""
    function = tf.function(sampler)
    parts = [function(tf.range(first, first + batch, dtype=tf.int64)) for first in range(0, count, batch)]
    joined = [None if part[0] is None else tf.concat(part, 0) for part in zip(*parts)]
    return type(parts[0])(*joined)


def read(images):
    """(class, number) of numbered images: int [..., 2]."""
    return np.rint((images.numpy()[..., 0, :2, 0] + 1.0) * 128.0).astype(int)


@pytest.fixture(scope="module")
def sampler():
    return EpisodeSampler(numbered([8] * 30), way=5, shot=2, query=12, unlabeled=1, seed=7)


@pytest.fixture(scope="module")
def episodes(sampler):
    return draw_many(sampler, 200)


def test_shapes_are_static(sampler):
    result = tf.function(sampler).get_concrete_function(tf.TensorSpec([3], tf.int64)).structured_outputs
    assert result.support_images.shape == (3, 15, 4, 4, 1)
    assert result.query_images.shape == (3, 12, 4, 4, 1)
    assert result.support_labels.shape == (3, 15) and result.query_labels.shape == (3, 12)
    assert result.class_ids.shape == (3, 5)


def test_images_are_scaled_to_minus_one_to_one():
    white = ClassImages.from_class_arrays([np.full([4, 4, 4, 1], v, np.uint8) for v in (0, 255)], "ab", "x")
    result = draw(EpisodeSampler(white, 2, 1, 2), 0)
    assert sorted(set(result.query_images.numpy().ravel())) == [-1.0, 255 / 128 - 1]


def test_labels_are_the_slots_of_the_classes(episodes):
    for images, labels in (
        (episodes.support_images, episodes.support_labels),
        (episodes.query_images, episodes.query_labels),
    ):
        classes = read(images)[..., 0]
        labels, slots = labels.numpy(), episodes.class_ids.numpy()
        for episode in range(200):
            for image_class, label in zip(classes[episode], labels[episode]):
                assert label == 5 or slots[episode, label] == image_class


def test_support_and_query_are_disjoint_and_without_repeats(episodes):
    support, query = read(episodes.support_images), read(episodes.query_images)
    for episode in range(200):
        drawn = [tuple(x) for x in np.concatenate([support[episode], query[episode]])]
        assert len(set(drawn)) == len(drawn)


def test_each_class_has_its_shots_and_unlabeled_samples(episodes):
    labels = episodes.support_labels.numpy()
    assert (np.sort(labels, 1) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 5, 5, 5]).all()
    classes = read(episodes.support_images)[..., 0]
    for episode in range(200):
        assert (np.unique(classes[episode], return_counts=True)[1] == 3).all()


def test_surplus_queries_go_to_the_first_slots(episodes):
    counts = np.stack([np.bincount(row, minlength=5) for row in episodes.query_labels.numpy()])
    assert (counts == [3, 3, 2, 2, 2]).all()


def test_classes_land_in_every_slot_equally_often(episodes):
    for slot in range(5):
        counts = np.bincount(episodes.class_ids.numpy()[:, slot], minlength=30)
        assert counts.max() < 25 and (counts > 0).sum() >= 28


def test_order_within_support_and_query_tells_nothing(episodes):
    for labels in (episodes.support_labels.numpy(), episodes.query_labels.numpy()):
        at_first = np.bincount(labels[:, 0], minlength=5)[:5]
        assert at_first.min() >= 10


def test_every_image_is_drawn(sampler):
    drawn = {tuple(x) for x in read(draw_many(sampler, 400).query_images).reshape(-1, 2)}
    assert len(drawn) == 30 * 8


def test_an_episode_depends_on_seed_stream_and_index_alone(sampler):
    one, batch = draw(sampler, 5), draw(sampler, 3, 5, 9)
    for alone, among in zip(one, batch):
        if alone is not None:
            np.testing.assert_array_equal(alone[0], among[1])

    def classes(**options):
        again = EpisodeSampler(
            numbered([8] * 30), **{"way": 5, "shot": 2, "query": 12, "unlabeled": 1, **options}
        )
        return draw(again, 5).class_ids.numpy().tolist()

    assert classes(seed=7) == one.class_ids.numpy().tolist()
    assert classes(seed=8) != classes(seed=7) != classes(seed=7, stream="val")


def test_golden_episode(sampler):
    """Guards the promise that episode i of a seed is the same on every machine and version."""
    assert draw(sampler, 0, 10**6).class_ids.numpy().tolist() == [[3, 16, 22, 19, 7], [14, 1, 17, 22, 0]]


def test_uneven_classes_are_drawn_within_their_counts():
    result = draw_many(EpisodeSampler(numbered([6, 3, 9, 4]), way=4, shot=1, query=8), 100)
    for image_class, number in read(result.query_images).reshape(-1, 2):
        assert number < [6, 3, 9, 4][image_class]


def test_rotation_is_one_draw_per_class_for_support_and_query():
    rng = np.random.default_rng(0)
    arrays = [np.repeat(rng.integers(0, 256, [1, 5, 5, 1]), 6, 0).astype(np.uint8) for _ in range(8)]
    images = ClassImages.from_class_arrays(arrays, list("abcdefgh"), "random")
    result = draw_many(EpisodeSampler(images, 4, 2, 8, rotate=True), 50)
    seen = set()
    for episode in range(50):
        for slot in range(4):
            shown = [
                x.numpy()
                for part, labels in (
                    (result.support_images, result.support_labels),
                    (result.query_images, result.query_labels),
                )
                for x, label in zip(part[episode], labels[episode])
                if label == slot
            ]
            assert all(np.array_equal(x, shown[0]) for x in shown)
            original = arrays[int(result.class_ids[episode, slot])][0] / np.float32(128.0) - 1.0
            turns = [k for k in range(4) if np.array_equal(np.rot90(original, k), shown[0])]
            assert turns
            seen.update(turns)
    assert seen == {0, 1, 2, 3}


def test_rotate_by_90_equals_numpy():
    images = np.random.default_rng(0).integers(0, 256, [2, 4, 5, 5, 3]).astype(np.uint8)
    turns = np.int32([[0, 1, 2, 3], [3, 1, 0, 2]])
    result = rotate_by_90(tf.constant(images), tf.constant(turns)).numpy()
    for index in np.ndindex(2, 4):
        np.testing.assert_array_equal(result[index], np.rot90(images[index], turns[index]))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"way": 31}, "31-way episodes need 31 classes, numbers has 30"),
        ({"way": 1}, "way = 1"),
        ({"shot": 0}, "shot = 0"),
        ({"shot": 7}, "'class 0' of numbers has 8 images.*needs 10"),
        ({"unlabeled": -1}, "unlabeled = -1"),
    ],
)
def test_impossible_episodes_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        EpisodeSampler(numbered([8] * 30), **{"way": 5, "shot": 2, "query": 12, **options})


def test_rotation_of_oblong_images_is_refused():
    images = ClassImages.from_class_arrays([np.zeros([4, 4, 6, 1], np.uint8)] * 2, "ab", "oblongs")
    with pytest.raises(UserError, match="oblongs has 4x6"):
        EpisodeSampler(images, 2, 1, 2, rotate=True)


def test_query_batches_share_the_support_set_and_are_independent(sampler):
    one, three = draw(sampler, 4), tf.function(lambda i: sampler(i, 3))(tf.constant([4], tf.int64))
    np.testing.assert_array_equal(one.support_images, three.support_images)
    np.testing.assert_array_equal(one.query_images, three.query_images[:, :12])
    support = {tuple(x) for x in read(three.support_images)[0]}
    batches = [[tuple(x) for x in read(three.query_images)[0, start : start + 12]] for start in (0, 12, 24)]
    for batch in batches:
        assert len(set(batch)) == 12 and not support & set(batch)
    assert batches[0] != batches[1] != batches[2]


@pytest.mark.parametrize("rotate", [False, True])
def test_large_memory_mapped_images_give_the_same_episodes_from_the_disk(tmp_path, monkeypatch, rotate):
    whole = numbered([6, 9, 7, 8, 6])
    whole.images[:] += np.random.default_rng(0).integers(0, 99, whole.images.shape).astype(np.uint8)
    np.save(tmp_path / "images.npy", whole.images)
    mapped = dataclasses.replace(whole, images=np.load(tmp_path / "images.npy", mmap_mode="r"))
    options = {"way": 3, "shot": 1, "query": 9, "seed": 3, "rotate": rotate}
    samplers = [EpisodeSampler(mapped, **options)]
    monkeypatch.setattr(episodes_module, "MAPPED_BYTES", 100)
    samplers += [EpisodeSampler(mapped, **options), EpisodeSampler(whole, **options)]
    assert [sampler.mapped for sampler in samplers] == [False, True, False]
    function = tf.function(samplers[1])
    shapes = function.get_concrete_function(tf.TensorSpec([2], tf.int64)).structured_outputs
    assert shapes.support_images.shape == (2, 3, 4, 4, 1) and shapes.query_images.shape == (2, 9, 4, 4, 1)
    indices = tf.constant([5, 8], tf.int64)
    expected = tf.function(samplers[0])(indices)
    for part, other, third in zip(expected, function(indices), tf.function(samplers[2])(indices)):
        if part is not None:
            np.testing.assert_array_equal(part, other)
            np.testing.assert_array_equal(part, third)
