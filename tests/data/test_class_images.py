"""ClassImages: grouping, subsets that share memory, messages."""

import numpy as np
import pytest

from hypertransformer_tf.data.class_images import ClassImages
from hypertransformer_tf.errors import UserError


@pytest.fixture
def images():
    arrays = [np.full([count, 2, 3, 1], value, np.uint8) for value, count in ((10, 2), (20, 3), (30, 1))]
    return ClassImages.from_class_arrays(arrays, ["a", "b", "c"], "three classes")


def test_classes_of_different_sizes(images):
    assert (images.num_classes, images.num_images, images.image_shape) == (3, 6, (2, 3, 1))
    assert images.counts.tolist() == [2, 3, 1] and images.offsets.tolist() == [0, 2, 5]
    assert (images.class_array(1) == 20).all() and len(images.class_array(1)) == 3


def test_a_subset_keeps_order_and_shares_the_images(images):
    subset = images.select([2, 0], "subset")
    assert subset.names == ("c", "a") and subset.num_images == 3
    assert subset.images is images.images
    assert (subset.class_array(0) == 30).all() and (subset.class_array(1) == 10).all()


def test_what_can_not_be_is_refused(images):
    with pytest.raises(UserError, match="class 3 asked of three classes, which has 3"):
        images.select([0, 3])
    with pytest.raises(UserError, match="nothing holds no classes"):
        ClassImages.from_class_arrays([], [], "nothing")
    with pytest.raises(UserError, match="different shapes"):
        ClassImages.from_class_arrays([np.zeros([1, 2, 2, 1]), np.zeros([1, 3, 2, 1])], "ab", "mixed")
