"""Where data is looked for, and what is said when it is nowhere."""

import numpy as np
import pytest

from hypertransformer_tf.data.sources import load_splits
from hypertransformer_tf.errors import UserError


def test_the_reference_split_of_omniglot(data_dir):
    for place in (data_dir, data_dir / "omniglot"):
        splits = load_splits(str(place))
        assert [part.num_classes for part in splits[1:]] == [1150, 50, 423]
        assert splits.test.names[0] == "Asomtavruli_(Georgian)/character04"


def test_the_environment_variable_and_tfds(data_dir, monkeypatch):
    pytest.importorskip("tensorflow_datasets")
    monkeypatch.setenv("HYPERTRANSFORMER_DATA", str(data_dir / "tfds"))
    by_name = load_splits(name="omniglot_tfds")
    assert by_name.train.names == load_splits().train.names  # "omniglot" takes what is there


def test_spec_strings_may_carry_the_name(tiny_data):
    options = {"name": "npy", "val": "12-17", "test": "18-23"}
    with_name = load_splits(str(tiny_data), train="npy:0-11", **options)
    assert with_name.train.names == load_splits(str(tiny_data), train="0-11", **options).train.names
    with pytest.raises(UserError, match="'omniglot'.*load_splits.name is 'npy'"):
        load_splits(str(tiny_data), train="omniglot:0-11", **options)


def test_data_that_is_nowhere_comes_with_the_ways_to_get_it(tmp_path, monkeypatch):
    monkeypatch.delenv("HYPERTRANSFORMER_DATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(UserError) as caught:
        load_splits()
    message = str(caught.value).splitlines()[0]  # gin adds where it was called from
    for part in (str(tmp_path), "images_background.zip", "--data_dir", "TFDS", "--gin_file=gin/glyphs.gin"):
        assert part in message


@pytest.mark.parametrize(
    "options, message",
    [
        ({"name": "imagenet"}, "'imagenet'.*omniglot, omniglot_tfds, npy, embeddings, folder, glyphs"),
        ({"split": "random"}, "'random'.*reference, names or vinyals"),
        ({"split": "names"}, "split_dir"),
        ({"split": "vinyals", "rotated_training": True}, "rotated classes already"),
        ({"name": "glyphs", "train": "0-9"}, "glyphs are split by script"),
        ({"split": "vinyals", "split_dir": "/nowhere"}, "/nowhere/train.txt does not exist"),
    ],
)
def test_unknown_names_are_refused(tiny_data, options, message):
    with pytest.raises(UserError, match=message):
        load_splits(str(tiny_data), **{"name": "npy", **options})


def test_rotated_training_classes():
    plain = load_splits(name="glyphs", images_per_class=2)
    rotated = load_splits(name="glyphs", images_per_class=2, rotated_training=True)
    assert rotated.train.num_classes == 4 * plain.train.num_classes
    for turns in range(4):
        expected = np.rot90(plain.train.class_array(5), turns, (1, 2))
        np.testing.assert_array_equal(rotated.train.class_array(20 + turns), expected)
    for part in ("val", "test"):
        assert getattr(rotated, part).names == getattr(plain, part).names


def test_glyphs_as_further_training_classes(data_dir):
    joined, omniglot, glyphs = (
        load_splits(str(data_dir), name) for name in ("omniglot+glyphs", "omniglot", "glyphs")
    )
    assert joined.name == "omniglot+glyphs"
    assert joined.train.names == omniglot.train.names + glyphs.train.names
    assert joined.val.names == omniglot.val.names and joined.test.names == omniglot.test.names
    for index in (0, 1149, 1150, 1150 + 1115):
        ours = joined.train.class_array(index)
        other = omniglot.train if index < 1150 else glyphs.train
        assert (ours == other.class_array(index if index < 1150 else index - 1150)).all()


def test_a_label_names_the_data_set_in_results(tiny_data):
    ranges = {"train": "0-9", "val": "10-12", "test": "13-15"}
    assert load_splits(str(tiny_data), "npy", **ranges).name == "npy"
    assert load_splits(str(tiny_data), "npy", **ranges, label="my/set 1").name == "my-set-1"
