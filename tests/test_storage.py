"""Folders in stores, tried on TensorFlow's file system in memory (ram://) and its file://."""

import json

import numpy as np
import pytest

from hypertransformer_tf import configuration, storage
from hypertransformer_tf.backend import tf
from hypertransformer_tf.data.sources import load_splits
from hypertransformer_tf.training import checkpoints, trained
from hypertransformer_tf.training.checkpoints import Checkpoints
from hypertransformer_tf.training.loop import train
from hypertransformer_tf.training.strategy import make_strategy


@pytest.fixture
def folder(request):
    """A folder of the test's own in memory."""
    return storage.place(f"ram://{request.node.name}")


def test_a_path_with_a_scheme_is_remote():
    assert storage.place("gs://bucket/run") == storage.Remote("gs://bucket/run")
    assert str(storage.place("runs//x")) == "runs/x" and storage.place("C:/runs").name == "runs"
    path = storage.place("gs://bucket/run") / "checkpoints"
    assert (str(path), path.name, path.parent.name) == ("gs://bucket/run/checkpoints", "checkpoints", "run")


def test_texts(folder):
    file = folder / "sub" / "a.txt"
    assert not file.exists() and not folder.is_dir() and folder.glob("*") == []
    storage.write_text(file, "one\n")
    storage.write_text(file, "two\n")
    storage.write_text(folder / "sub" / "b.json", "{}")
    assert file.exists() and file.read_text() == "two\n" and folder.is_dir()
    assert [path.name for path in (folder / "sub").glob("*.txt")] == ["a.txt"]
    assert [path.name for path in folder.glob("*")] == ["sub"]


def test_errors_are_those_of_files(folder):
    with pytest.raises(FileNotFoundError) as error:
        (folder / "missing").read_bytes()
    assert error.value.filename.endswith("/missing")
    with pytest.raises(OSError, match="nosuchscheme"):
        storage.write_text(storage.place("nosuchscheme://a/b"), "")


def test_the_manifest_goes_last_and_leaves_first(folder, tmp_path, monkeypatch):
    """A copy that breaks off is no checkpoint, and neither is one that is being removed."""
    done = []
    for name in ("copy", "remove"):
        original = getattr(tf.io.gfile, name)

        def noting(*args, name=name, original=original, **options):
            done.append((name, args[-1].rpartition("/")[2]))
            return original(*args, **options)

        monkeypatch.setattr(tf.io.gfile, name, noting)
    path = folder / "best-1"
    checkpoints.save_model(path, {"a": tf.Variable(1.0)}, {})
    checkpoints.save_model(path, {"a": tf.Variable(2.0)}, {})
    copies = [("copy", "model.npz"), ("copy", "manifest.json")]
    removal = [("remove", "manifest.json")]
    assert done == removal + copies + removal + copies
    assert checkpoints.newest_sound(folder, "best")[0] == path
    (tf.io.gfile.remove)(str(path / "manifest.json"))
    assert checkpoints.newest_sound(folder, "best") is None


def test_checkpoints(folder, capsys):
    variable = tf.Variable([0.0, 0.0])
    run = Checkpoints(folder, tf.train.Checkpoint(x=variable), {"channels": 8}, keep=2)
    assert run.restore() is None
    for step in (1, 2, 10):
        variable.assign([float(step), 1.0])
        run.save(step, {})
    names = [path.name for path in run.folder.glob("*")]
    assert names == ["step-0000000002", "step-0000000010"]
    assert run.restore()["step"] == 10
    newest = run.folder / "step-0000000010"
    storage.write_text(next(iter(newest.glob("state.data*"))), "damaged")
    assert run.restore()["step"] == 2
    np.testing.assert_array_equal(variable, [2.0, 1.0])
    assert "step-0000000010 is damaged" in capsys.readouterr().err


def test_training_resumes_and_models_are_found(folder, tiny_data, tiny_gin, tmp_path):
    """The second run goes on from the store; both together equal one run on this machine."""
    strategy = make_strategy("cpu")

    def run(workdir, *bindings):
        configuration.load([str(tiny_gin)], ["Optimizer.kind = 'sgd'", *bindings])
        return train(load_splits(str(tiny_data)), workdir, strategy)

    run(tmp_path, "train.episodes = 40")
    run(folder, "train.episodes = 20")
    assert (folder / "operative_config.gin").exists() and (folder / "tensorboard").is_dir()
    assert run(folder, "train.episodes = 40").step == 20
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "val_accuracy" in line] == [10, 20]
    local, remote = trained.find(tmp_path), trained.find(folder)
    assert local.manifest["step"] == remote.manifest["step"]
    ours, theirs = (found.load_model().named_variables() for found in (local, remote))
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)


@pytest.mark.slow
def test_programs_read_models_from_a_store(tmp_path, program):
    from hypertransformer_tf.training.trained import CHARACTERS

    model = f"file://{CHARACTERS}"
    result = program("export.py", f"--checkpoint={model}", f"--output_dir={tmp_path}/generator/1")
    assert result.returncode == 0, result.stderr[-2000:]
    result = program("export.py", "--checkpoint=nosuchscheme://x", f"--output_dir={tmp_path}/generator/2")
    assert result.returncode == 2 and "nosuchscheme" in result.stderr and "Traceback" not in result.stderr
