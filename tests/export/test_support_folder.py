"""Folders of class folders, sound and not."""

import os

import numpy as np
import pytest
from PIL import Image

from hypertransformer_tf.errors import UserError
from hypertransformer_tf.export.preparation import Preparation
from hypertransformer_tf.export.support_folder import read_support

PREPARATION = Preparation(16, 16, 1, "keep")


def fill(folder, name, count=2, grey=100):
    (folder / name).mkdir(parents=True)
    for number in range(count):
        Image.new("L", (20, 20), grey + number).save(folder / name / f"{number}.png")


def test_classes_may_differ_in_number(tmp_path):
    fill(tmp_path, "b", 3, 50)
    fill(tmp_path, "a", 1, 200)
    support = read_support(tmp_path, PREPARATION, way=5)
    assert support.names == ("a", "b") and support.counts == (1, 3)
    assert support.labels.tolist() == [0, 1, 1, 1]
    assert support.images[:, 0, 0, 0].tolist() == [200, 50, 51, 52]


@pytest.mark.parametrize(
    "name", ["two words", "ümläut 漢字 ქ", "x" * 200, "$a_b$", "100%", "back\\slash", "it's"]
)
def test_any_name_works(tmp_path, name):
    fill(tmp_path, name)
    fill(tmp_path, "zz")
    assert name in read_support(tmp_path, PREPARATION, way=5).names


def test_a_name_that_is_no_utf8_works(tmp_path):
    try:
        os.mkdir(os.fsencode(tmp_path) + b"/caf\xe9")
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    Image.new("L", (9, 9)).save(os.fsencode(tmp_path) + b"/caf\xe9/1.png")
    fill(tmp_path, "b")
    assert read_support(tmp_path, PREPARATION, way=5).names == ("b", "caf\ufffd")


def test_unlabeled_images_are_for_semi_supervised_models(tmp_path, capsys):
    for name in ("a", "b", "unlabeled"):
        fill(tmp_path, name)
    support = read_support(tmp_path, PREPARATION, way=5, semi_supervised=True)
    assert support.labels.tolist() == [0, 0, 1, 1, 5, 5]
    assert support.names == ("a", "b") and support.counts == (2, 2) and support.unlabeled == 2
    assert capsys.readouterr().err == ""
    support = read_support(tmp_path, PREPARATION, way=5)
    assert support.labels.tolist() == [0, 0, 1, 1] and support.unlabeled == 0
    assert "passed over" in capsys.readouterr().err


def test_damaged_files_are_left_out_in_a_line_each(tmp_path, capsys):
    fill(tmp_path, "a")
    fill(tmp_path, "b")
    (tmp_path / "a" / "notes.txt").write_text("no image")
    content = (tmp_path / "a" / "0.png").read_bytes()
    (tmp_path / "a" / "cut.png").write_bytes(content[: len(content) // 2])
    support = read_support(tmp_path, PREPARATION, way=5)
    assert support.counts == (2, 2) and len(support.skipped) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and "cut.png" in lines[0] and "notes.txt" in lines[1]
    with pytest.raises(UserError, match="cut.png"):
        read_support(tmp_path, PREPARATION, way=5, strict=True)


def test_an_image_bomb_is_left_out(tmp_path):
    fill(tmp_path, "a")
    fill(tmp_path, "b")
    Image.new("1", (50_000, 50_000)).save(tmp_path / "a" / "bomb.png")
    support = read_support(tmp_path, PREPARATION, way=5)
    assert support.counts == (2, 2) and "bomb.png" in support.skipped[0]


def test_too_many_images_are_thinned_out(tmp_path, capsys):
    fill(tmp_path, "a", 5)
    fill(tmp_path, "b", 2)
    support = read_support(tmp_path, PREPARATION, way=5, max_per_class=3)
    assert support.counts == (3, 2)
    assert support.images[:3, 0, 0, 0].tolist() == [100, 102, 104]
    assert "3 of 5" in capsys.readouterr().err


def refused(folder, match, **options):
    with pytest.raises(UserError, match=match) as caught:
        read_support(folder, PREPARATION, **{"way": 5, **options})
    assert "\n" not in str(caught.value)


def test_mistakes_are_one_line(tmp_path):
    refused(tmp_path / "none", "does not exist")
    refused(tmp_path, "no class folders")
    fill(tmp_path, "a")
    refused(tmp_path, "at least 2 classes")
    fill(tmp_path, "b")
    (tmp_path / "c").mkdir()
    refused(tmp_path, "c holds no images")
    (tmp_path / "c" / "1.png").write_text("no image")
    refused(tmp_path, "c holds no readable image")
    (tmp_path / "c" / "1.png").unlink()
    Image.new("L", (5, 5)).save(tmp_path / "c" / "1.png")
    refused(tmp_path, "3 classes, the checkpoint has label embeddings for 2", way=2)
    archive = tmp_path / "classes.zip"
    archive.write_bytes(b"PK\3\4")
    refused(archive, "is a file, not a folder")
    fill(tmp_path, "A")
    refused(tmp_path, "'A' and 'a' differ only in upper and lower case")


def test_links_that_loop(tmp_path):
    fill(tmp_path / "set", "a")
    fill(tmp_path / "set", "b")
    (tmp_path / "set" / "a" / "self").symlink_to(tmp_path / "set" / "a")
    (tmp_path / "set" / "dead").symlink_to(tmp_path / "set" / "dead")
    assert read_support(tmp_path / "set", PREPARATION, way=5).counts == (2, 2)
    (tmp_path / "set" / "up").symlink_to(tmp_path / "set")
    refused(tmp_path / "set", "up is a link to a folder that it lies in")


def test_labels_have_the_type_of_the_model(tmp_path):
    fill(tmp_path, "a")
    fill(tmp_path, "b")
    support = read_support(tmp_path, PREPARATION, way=5)
    assert support.labels.dtype == np.int32 and support.images.dtype == np.uint8
