"""Checkpoints are whole or not there."""

import json

import numpy as np
import pytest

from hypertransformer_tf.backend import tf
from hypertransformer_tf.errors import UserError
from hypertransformer_tf.training import checkpoints
from hypertransformer_tf.training.checkpoints import Checkpoints


@pytest.fixture
def variable():
    return tf.Variable([0.0, 0.0])


@pytest.fixture
def run(tmp_path, variable):
    return Checkpoints(tmp_path, tf.train.Checkpoint(x=variable), {"channels": 8}, keep=2)


def save(run, variable, step):
    variable.assign([float(step), 1.0])
    return run.save(step, {})


def test_the_newest_is_restored_and_only_the_newest_are_kept(run, variable):
    for step in (1, 2, 10):
        save(run, variable, step)
    variable.assign([0.0, 0.0])
    assert run.restore()["step"] == 10
    np.testing.assert_array_equal(variable, [10.0, 1.0])
    assert sorted(path.name for path in run.folder.iterdir()) == ["step-0000000002", "step-0000000010"]


def test_nothing_to_restore(run):
    assert run.restore() is None


@pytest.mark.parametrize("damage", ["truncate", "flip", "remove", "no manifest", "half a manifest"])
def test_a_damaged_newest_gives_way_to_an_older_sound_one(run, variable, capsys, damage):
    save(run, variable, 1)
    newest = save(run, variable, 2)
    file = next(newest.glob("state.data*"))
    manifest = newest / "manifest.json"
    if damage == "truncate":
        file.write_bytes(file.read_bytes()[:-3])
    elif damage == "flip":
        content = bytearray(file.read_bytes())
        content[5] ^= 255
        file.write_bytes(content)
    elif damage == "remove":
        file.unlink()
    elif damage == "no manifest":
        manifest.unlink()
    else:
        manifest.write_text(manifest.read_text()[:40])
    assert run.restore()["step"] == 1
    np.testing.assert_array_equal(variable, [1.0, 1.0])
    assert "step-0000000002 is damaged" in capsys.readouterr().err


def test_a_checkpoint_of_another_configuration_is_refused_by_name(run, variable, tmp_path):
    save(run, variable, 1)
    other = Checkpoints(tmp_path, tf.train.Checkpoint(x=variable), {"channels": 16})
    with pytest.raises(UserError, match="channels = 8, this run has 16"):
        other.restore()


def test_a_failing_write_leaves_no_trace(tmp_path):
    def fail(folder):
        (folder / "half").write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError):
        checkpoints.write_folder(tmp_path / "best-1", fail, {})
    assert list(tmp_path.iterdir()) == []


def test_model_variables_come_back_by_name(tmp_path):
    checkpoints.save_model(tmp_path / "best-1", {"a/b": tf.Variable([1.0, 2.0])}, {"step": 1})
    target = tf.Variable([0.0, 0.0])
    checkpoints.load_model(tmp_path / "best-1", {"a/b": target})
    np.testing.assert_array_equal(target, [1.0, 2.0])
    with pytest.raises(UserError, match=r"a/b of shape \(2,\), the model needs \(3,\)"):
        checkpoints.load_model(tmp_path / "best-1", {"a/b": tf.Variable([0.0] * 3)})
    with pytest.raises(UserError, match="c of shape None"):
        checkpoints.load_model(tmp_path / "best-1", {"c": target})


def test_the_manifest_vouches_for_every_file(tmp_path):
    checkpoints.save_model(tmp_path / "best-1", {"a": tf.Variable(1.0)}, {"step": 1})
    manifest = json.loads((tmp_path / "best-1" / "manifest.json").read_text())
    assert manifest["step"] == 1 and list(manifest["files"]) == ["model.npz"]
