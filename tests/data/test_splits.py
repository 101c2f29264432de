"""Class splits: ranges, specs, the reference's permutation, name lists, rotations."""

import random

import numpy as np
import pytest

from hypertransformer_tf.data import splits
from hypertransformer_tf.data.class_images import ClassImages
from hypertransformer_tf.errors import UserError


def classes(count):
    arrays = [np.full([2, 3, 3, 1], index, np.uint8) for index in range(count)]
    return ClassImages.from_class_arrays(arrays, [f"name {i}" for i in range(count)], "some")


def test_ranges_and_specs():
    assert splits.parse_ranges("1-3,7, 9-9") == [1, 2, 3, 7, 9]
    assert splits.parse_spec("omniglot:0-2") == ("omniglot", [0, 1, 2])
    assert splits.parse_spec("name:1-2,5") == ("name", [1, 2, 5])
    assert splits.parse_spec("omniglot") == ("omniglot", None)


@pytest.mark.parametrize("text", ["", "3-1", "a-b", "1,,2", "1-2-3", "-4", "1,1", "0-5,3"])
def test_bad_ranges_are_refused(text):
    with pytest.raises(UserError, match="class ranges"):
        splits.parse_ranges(text)


def test_the_reference_permutation_is_pythons_shuffle_after_seed_2022():
    expected = list(range(1623))
    random.seed(2022)
    random.shuffle(expected)
    order = splits.reference_permutation(1623)
    assert order == expected
    assert order[:5] == [265, 521, 1334, 1080, 857]


def test_splitting_by_ranges_permutes_first():
    images = classes(10)
    result = splits.split_by_ranges("x", images, {"train": "0-4", "val": "5-6", "test": "7-9"})
    order = splits.reference_permutation(10)
    assert result.train.names == tuple(f"name {i}" for i in order[:5])
    assert result.test.names == tuple(f"name {i}" for i in order[7:])
    plain = splits.split_by_ranges("x", images, {"train": "0", "val": "1", "test": "2"}, None)
    assert (plain.train.names, plain.test.names) == (("name 0",), ("name 2",))


@pytest.mark.parametrize(
    "ranges, message",
    [
        ({"train": "0-4", "val": "4-6", "test": "7-9"}, "class 4 is in the splits train and val"),
        ({"train": "0-4", "val": "5-6", "test": "7-10"}, "test range '7-10' reaches class 10, some has 10"),
    ],
)
def test_impossible_ranges_are_refused(ranges, message):
    with pytest.raises(UserError, match=message):
        splits.split_by_ranges("x", classes(10), ranges)


def test_splitting_by_names_and_its_mistakes(tmp_path):
    images = classes(4)
    for split, text in (("train", "name 3\nname 0\n"), ("val", "name 1\n\n"), ("test", "name 2")):
        (tmp_path / f"{split}.txt").write_text(text)
    lists = splits.read_names(tmp_path)
    result = splits.split_by_names("x", images, lists, "lists")
    assert (result.train.names, result.val.names, result.test.names) == (
        ("name 3", "name 0"),
        ("name 1",),
        ("name 2",),
    )
    with pytest.raises(UserError, match="lists: the val class 'name 9' is not in some"):
        splits.split_by_names("x", images, {**lists, "val": ["name 9"]}, "lists")
    with pytest.raises(UserError, match="'name 0' is in train and in test"):
        splits.split_by_names("x", images, {**lists, "test": ["name 0"]}, "lists")
    (tmp_path / "val.txt").write_text("\n")
    with pytest.raises(UserError, match="val.txt names no class"):
        splits.read_names(tmp_path)
    (tmp_path / "val.txt").unlink()
    with pytest.raises(UserError, match="val.txt does not exist"):
        splits.read_names(tmp_path)


def test_rotations_are_classes_of_their_own():
    array = np.arange(18, dtype=np.uint8).reshape(2, 3, 3, 1)
    rotated = splits.add_rotations(ClassImages.from_class_arrays([array], ["A/character01"], "one"))
    assert rotated.names == tuple(f"A/character01/rot{angle:03d}" for angle in (0, 90, 180, 270))
    for turns in range(4):
        for index in range(2):
            np.testing.assert_array_equal(rotated.class_array(turns)[index], np.rot90(array[index], turns))


def test_vinyals_split_of_omniglot(data_dir):
    from hypertransformer_tf.data.sources import load_splits

    result = load_splits(str(data_dir), split="vinyals")
    assert [part.num_classes for part in result[1:]] == [4112, 688, 1692]
    unrotated = load_splits(str(data_dir), split="vinyals", rotated_classes=False)
    assert [part.num_classes for part in unrotated[1:]] == [1028, 172, 423]
    assert unrotated.val.names[0] == "Hebrew/character01/rot000"
