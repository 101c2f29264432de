"""Glyphs: deterministic, without blanks or doubles, splits by script."""

import numpy as np
import pytest
from PIL import ImageFont

from hypertransformer_tf.data import glyphs
from hypertransformer_tf.data.sources import load_splits
from hypertransformer_tf.errors import UserError


@pytest.fixture(scope="module")
def splits():
    return load_splits(name="glyphs")


def test_sizes(splits):
    assert [part.num_classes for part in splits[1:]] == [1116, 142, 108]
    assert splits.train.image_shape == (28, 28, 1) and set(splits.test.counts) == {20}


def test_no_image_is_blank_or_full(splits):
    for part in splits[1:]:
        for index in range(part.num_classes):
            ink = 255 - part.class_array(index).astype(int)
            assert (ink.max((1, 2, 3)) > 100).all(), part.names[index]
            assert (ink.mean((1, 2, 3)) < 200).all(), part.names[index]


def test_scripts_of_the_splits_do_not_meet(splits):
    scripts = [{name.split(" ")[1] for name in part.names} for part in splits[1:]]
    assert scripts[1] == {"GREEK"} and scripts[2] == {"ARMENIAN", "GEORGIAN"}
    assert not scripts[0] & (scripts[1] | scripts[2])
    assert {"LATIN", "CYRILLIC"} <= scripts[0]


def test_drawings_of_a_class_differ(splits):
    for index in range(splits.test.num_classes):
        assert len(np.unique(splits.test.class_array(index).reshape(20, -1), axis=0)) >= 18


def test_lookalikes_are_left_out(splits):
    codes = {name.split(" ")[0] for part in splits[1:] for name in part.names}
    assert "U+0041" in codes  # Latin A
    assert not codes & {"U+0391", "U+0410"}  # Alpha and Cyrillic A look the same


def test_a_class_is_a_pure_function_of_character_fonts_and_seed():
    fonts = [ImageFont.truetype(str(path), glyphs.FONT_SIZE) for path in glyphs.font_faces().values()]
    one, same = (glyphs.draw_class("Ж", fonts, 3, seed=1) for _ in range(2))
    np.testing.assert_array_equal(one, same)
    assert np.abs(one.astype(int) - glyphs.draw_class("Ж", fonts, 3, seed=2)).max() > 50


def test_too_few_images_are_refused():
    with pytest.raises(UserError, match="images_per_class = 1"):
        glyphs.load_glyphs(images_per_class=1)
