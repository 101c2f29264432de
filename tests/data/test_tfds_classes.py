"""Any classification set of TFDS by name, with TFDS's mocks in the place of downloads."""

import numpy as np
import pytest

tfds = pytest.importorskip("tensorflow_datasets")

from hypertransformer_tf.data.sources import load_splits  # noqa: E402
from hypertransformer_tf.data.tfds_classes import load_tfds  # noqa: E402
from hypertransformer_tf.errors import UserError  # noqa: E402


def examples(name, folder):
    """(image, label) of what the mock gives for train and test."""
    builder = tfds.builder(name, data_dir=str(folder))
    for split in ("train", "test"):
        for example in tfds.as_numpy(builder.as_dataset(split=split)):
            yield example["image"], int(example["label"])


@pytest.mark.parametrize("name", ["kmnist", "fashion_mnist", "cifar100", "emnist", "emnist/letters"])
def test_train_and_test_are_joined_and_grouped_by_label(tmp_path, name):
    with tfds.testing.mock_data(num_examples=40):
        images = load_tfds(tmp_path, name)
        given = list(examples(name, tmp_path))
        names = tfds.builder(name, data_dir=str(tmp_path)).info.features["label"].names
    assert images.num_images == len(given) == 80 and isinstance(images.images, np.memmap)
    labels = sorted({label for _, label in given})
    assert images.names == tuple(names[label] for label in labels)
    for index, label in enumerate(labels):
        expected = np.stack([image for image, its in given if its == label])
        if name.startswith("emnist"):
            expected = expected.transpose(0, 2, 1, 3)
        np.testing.assert_array_equal(images.class_array(index), expected)


def test_a_set_can_be_split_and_resized(tmp_path):
    with tfds.testing.mock_data(num_examples=60):
        splits = load_splits(
            str(tmp_path),
            "tfds:fashion_mnist",
            train="0-4",
            val="tfds:fashion_mnist:5-6",
            test="7-8",
            image_size=20,
        )
    assert splits.name == "tfds-fashion_mnist"
    assert [part.num_classes for part in splits[1:]] == [5, 2, 2] and splits.val.image_shape == (20, 20, 1)


def test_images_of_different_sizes_need_a_size(tmp_path):
    with tfds.testing.mock_data(num_examples=10):
        with pytest.raises(UserError, match="different shapes.*set load_splits.image_size"):
            load_tfds(tmp_path, "oxford_flowers102")
        assert load_tfds(tmp_path, "oxford_flowers102", image_size=32).image_shape == (32, 32, 3)


def test_other_sets_are_refused(tmp_path):
    with pytest.raises(UserError, match="'tfds:no_such_set': TFDS can't make it"):
        load_tfds(tmp_path, "no_such_set")
    with pytest.raises(UserError, match="'tfds:ag_news_subset' has no images with one label each"):
        load_tfds(tmp_path, "ag_news_subset")
    with pytest.raises(UserError, match="kmnist of TFDS .* can't be read .*load_splits.download = True"):
        load_tfds(tmp_path, "kmnist")


def test_a_prepared_set_is_read(data_dir):
    images = load_splits(str(data_dir), "tfds:omniglot", image_size=28)
    assert images.train.num_classes == 1150 and set(images.train.counts) == {20}
