"""Images from a .npy file."""

import numpy as np
import pytest

from hypertransformer_tf.data.array_file import load_array
from hypertransformer_tf.errors import UserError


def test_classes_come_back_memory_mapped(tmp_path):
    array = np.random.default_rng(0).integers(0, 256, [3, 4, 5, 6, 2]).astype(np.uint8)
    np.save(tmp_path / "a.npy", array)
    images = load_array(tmp_path / "a.npy")
    assert (images.num_classes, images.image_shape, images.names) == (3, (5, 6, 2), ("0", "1", "2"))
    for index in range(3):
        np.testing.assert_array_equal(images.class_array(index), array[index])
    assert isinstance(images.images, np.memmap)


def test_an_array_without_channels_has_one(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros([3, 4, 5, 6], np.uint8))
    assert load_array(tmp_path / "a.npy").image_shape == (5, 6, 1)


@pytest.mark.parametrize(
    "array, message",
    [
        (np.zeros([3, 4, 5, 6, 1], np.float32), r"float32 \(3, 4, 5, 6, 1\)"),
        (np.zeros([3, 4, 5], np.uint8), r"uint8 \(3, 4, 5\)"),
        (np.zeros([0, 4, 5, 5, 1], np.uint8), r"\(0, 4, 5, 5, 1\)"),
    ],
)
def test_other_arrays_are_refused(tmp_path, array, message):
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(UserError, match=message):
        load_array(tmp_path / "a.npy")


def test_other_files_are_refused(tmp_path):
    with pytest.raises(UserError, match="b.npy does not exist"):
        load_array(tmp_path / "b.npy")
    (tmp_path / "c.npy").write_bytes(b"no array")
    with pytest.raises(UserError, match="c.npy is not a readable"):
        load_array(tmp_path / "c.npy")
    with pytest.raises(UserError, match="not a readable"):
        load_array(tmp_path)
    np.save(tmp_path / "d.npy", np.array([{"code": 1}], object), allow_pickle=True)
    with pytest.raises(UserError, match="d.npy is not a readable"):
        load_array(tmp_path / "d.npy")
