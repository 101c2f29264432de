"""An output folder is the old one or the complete new one."""

import errno
import os

import pytest

from hypertransformer_tf.errors import UserError
from hypertransformer_tf.export.folder import check_output, replace_folder


def write(text):
    def into(folder):
        (folder / "mark.json").write_text(text)

    return into


def test_new_and_replaced(tmp_path):
    output = tmp_path / "deep" / "out"
    check_output(output, False, "mark.json")
    replace_folder(output, write("one"))
    with pytest.raises(UserError, match="--overwrite"):
        check_output(output, False, "mark.json")
    check_output(output, True, "mark.json")
    replace_folder(output, write("two"))
    assert (output / "mark.json").read_text() == "two"
    assert [p.name for p in output.parent.iterdir()] == ["out"]


def test_an_empty_folder_is_no_older_output(tmp_path):
    (tmp_path / "out").mkdir()
    check_output(tmp_path / "out", False, "mark.json")
    replace_folder(tmp_path / "out", write("one"))
    assert (tmp_path / "out" / "mark.json").exists()


def test_other_peoples_folders_are_never_replaced(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_text("")
    with pytest.raises(UserError, match="holds other things"):
        check_output(tmp_path / "photos", True, "mark.json")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="no folder"):
        check_output(tmp_path / "file", True, "mark.json")


def test_a_full_disk_leaves_the_old_one(tmp_path):
    output = tmp_path / "out"
    replace_folder(output, write("one"))

    def fill_disk(folder):
        (folder / "half").write_text("x")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(UserError, match="No space left on device.*nothing was changed"):
        replace_folder(output, fill_disk)
    assert (output / "mark.json").read_text() == "one"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_an_interruption_leaves_the_old_one(tmp_path):
    output = tmp_path / "out"
    replace_folder(output, write("one"))

    def interrupted(folder):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replace_folder(output, interrupted)
    assert (output / "mark.json").read_text() == "one"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_an_interruption_between_the_two_renames_leaves_the_old_one(tmp_path, monkeypatch):
    output = tmp_path / "out"
    replace_folder(output, write("one"))
    rename, calls = os.rename, []

    def interrupted(source, target):
        calls.append(source)
        if len(calls) == 2:
            raise KeyboardInterrupt
        rename(source, target)

    monkeypatch.setattr(os, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        replace_folder(output, write("two"))
    assert (output / "mark.json").read_text() == "one"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_what_a_killed_run_left_is_put_back_and_removed(tmp_path):
    left = tmp_path / ".out.new-abc"
    (left / "old").mkdir(parents=True)
    (left / "old" / "mark.json").write_text("one")
    os.utime(left, (1, 1))
    fresh = tmp_path / ".out.new-def"
    fresh.mkdir()

    def fails(folder):
        raise OSError(errno.EIO, "broken")

    with pytest.raises(UserError, match="broken"):
        replace_folder(tmp_path / "out", fails)
    assert (tmp_path / "out" / "mark.json").read_text() == "one"
    assert sorted(p.name for p in tmp_path.iterdir()) == [fresh.name, "out"]  # of another run, perhaps
