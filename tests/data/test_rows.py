"""Rows: whatever order images come in, the cache holds them class after class, without all in memory."""

import numpy as np
import pytest

from hypertransformer_tf.data import cache, rows
from hypertransformer_tf.data.cache import cached
from hypertransformer_tf.data.rows import in_chunks, number_classes, rows_by_label, rows_of_array
from hypertransformer_tf.errors import UserError


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HYPERTRANSFORMER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(rows, "CHUNK", 4)
    return tmp_path / "cache"


IMAGES = np.random.default_rng(0).integers(0, 256, [11, 5, 6, 3]).astype(np.uint8)
LABELS = [2, 0, 0, 1, -1, 0, 2, 2, 1, 0, -1]


def test_the_cache_holds_them_class_after_class(folder):
    images = cached("x", "key", "source", lambda: rows_of_array(IMAGES, LABELS, "abc", "file"))
    assert isinstance(images.images, np.memmap) and images.images.shape == (9, 5, 6, 3)
    assert images.names == ("a", "b", "c") and images.counts.tolist() == [4, 2, 3]
    for label in range(3):
        expected = IMAGES[np.array(LABELS) == label]
        np.testing.assert_array_equal(images.class_array(label), expected)
    assert sorted(file.name for file in folder.iterdir()) == ["x-key.json", "x-key.npy"]


def test_without_a_writable_cache_they_are_decoded_into_memory_if_they_fit(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HYPERTRANSFORMER_CACHE", str(tmp_path / "file" / "below"))
    images = cached("x", "key", "source", lambda: rows_of_array(IMAGES, LABELS, "abc", "file"))
    np.testing.assert_array_equal(images.class_array(1), IMAGES[[3, 8]])
    assert "HYPERTRANSFORMER_CACHE" in capsys.readouterr().err
    monkeypatch.setattr(cache, "_IN_MEMORY", 100)
    with pytest.raises(UserError, match="0.0 GB of decoded images can't be written.*HYPERTRANSFORMER_CACHE"):
        cached("x", "key", "source", lambda: rows_of_array(IMAGES, LABELS, "abc", "file"))


def test_images_can_be_resized(folder):
    flat = np.broadcast_to(np.arange(11, dtype=np.uint8)[:, None, None, None], IMAGES.shape)
    images = cached("x", "key", "s", lambda: rows_of_array(flat, LABELS, "abc", "file", image_size=8))
    assert images.images.shape == (9, 8, 8, 3)
    assert images.images[:, 3, 3, 0].tolist() == [1, 2, 5, 9, 3, 8, 0, 6, 7]


def write_with(stream, labels=LABELS):
    return cached("x", "key", "s", lambda: rows_by_label(labels, "abc", (5, 6, 3), lambda: stream, "file"))


@pytest.mark.parametrize(
    "stream, message",
    [
        ([IMAGES[:4]], "file holds 4 images and 11 labels"),
        ([IMAGES, IMAGES[:1]], "file holds 12 images and 11 labels"),
        ([IMAGES[:4], IMAGES[4:, :3]], "file holds images of different shapes"),
    ],
)
def test_a_stream_that_does_not_fit_leaves_no_cache(folder, stream, message):
    with pytest.raises(UserError, match=message):
        write_with(stream)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "labels, message",
    [
        ([0] * 10 + [3], "labels do not fit its 3 class names"),
        ([0] * 10 + [-2], "labels do not fit"),
        ([0, 1] * 5 + [0], "class 'c' has no images"),
    ],
)
def test_labels_that_do_not_fit_are_refused(labels, message):
    with pytest.raises(UserError, match=message):
        write_with([IMAGES], labels)


def test_arrays_of_other_kinds_are_refused():
    for images in ([1, 2], IMAGES.astype(np.float32), IMAGES[0], IMAGES[..., :2], IMAGES[:0]):
        with pytest.raises(UserError, match="file: its images are .* needed is uint8"):
            rows_of_array(images, LABELS, "abc", "file")
    with pytest.raises(UserError, match="file holds 11 images and 10 labels"):
        rows_of_array(IMAGES, LABELS[:10], "abc", "file")


def test_labels_are_numbered_without_gaps():
    for labels in ([70, 64, 70, 65], np.int32([[70], [64], [70], [65]])):
        numbers, values = number_classes(labels, "file")
        assert numbers.tolist() == [2, 0, 2, 1] and values.tolist() == [64, 65, 70]
    for labels in ([], ["a"], [0.5], [[1, 2]], [[1], [2, 3]], None):
        with pytest.raises(UserError, match="file: its labels are"):
            number_classes(labels, "file")


def test_single_images_are_joined_to_chunks():
    assert [len(chunk) for chunk in in_chunks(iter(IMAGES), "file")] == [4, 4, 3]
    with pytest.raises(UserError, match="file holds images of different shapes"):
        list(in_chunks([IMAGES[0], IMAGES[0, :3]], "file"))
