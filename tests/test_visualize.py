"""visualize.py as a user runs it."""

import json

import numpy as np
import pytest
from export_helpers import make_checkpoint, make_model
from test_train import assert_error

pytestmark = pytest.mark.slow

CONFIG = """
load_splits.name = "npy"
load_splits.train = "0-11"
load_splits.val = "12-17"
load_splits.test = "18-23"
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("visualize")
    (folder / "tiny.gin").write_text(CONFIG)
    make_checkpoint(folder / "model", make_model(way=3))
    make_checkpoint(folder / "logits_only", make_model(way=3, num_learned_layers=4))
    return folder


@pytest.fixture
def visualize(place, tiny_data, tmp_path, program):
    def run(what, *flags, checkpoint="model"):
        result = program(
            "visualize.py",
            f"--what={what}",
            f"--checkpoint={place / checkpoint}",
            f"--gin_file={place / 'tiny.gin'}",
            f"--data_dir={tiny_data}",
            f"--output_dir={tmp_path / 'out'}",
            *flags,
        )
        return result

    return run


def made(result, folder):
    assert result.returncode == 0, result.stderr[-3000:]
    return {path.name: path.stat().st_size for path in (folder / "out").iterdir()}


def test_attention(visualize, tmp_path):
    files = made(visualize("attention", "--episodes=2", "--unlabeled=1", "--format=pdf"), tmp_path)
    pictures = {f"attention_layer_{i}.pdf" for i in range(1, 5)} | {
        "attention_logits.pdf",
        "attention_shares.pdf",
    }
    assert set(files) == pictures | {"attention.json"}
    record = json.loads((tmp_path / "out" / "attention.json").read_text())
    assert (record["episodes"], record["unlabeled"], len(record["shares"])) == (2, 1, 5 * 2)
    for each in record["shares"]:
        assert sum(share or 0.0 for share in each["mean"].values()) == pytest.approx(1.0, abs=1e-3)


def test_weights(visualize, tmp_path):
    result = visualize("weights", "--episodes=30", "--embedding=pca", "--highlighted=2")
    assert set(made(result, tmp_path)) == {"weights.npz", "weights.png"}
    with np.load(tmp_path / "out" / "weights.npz") as arrays:
        assert arrays["class_ids"].shape == (30, 3) and arrays["highlighted"].shape == (2,)
        assert arrays["weights_layer_2"].shape == (30, 3, 3, 4, 4)
        assert arrays["embedding_all"].shape == arrays["embedding_logits"].shape == (30, 2)
    assert "30/30" in result.stderr and "by chance" in result.stdout


def test_kernels(visualize, tmp_path):
    assert set(made(visualize("kernels", "--episodes=3"), tmp_path)) == {"kernels.png", "kernels.json"}
    record = json.loads((tmp_path / "out" / "kernels.json").read_text())
    assert set(record["relative_change"]) == {"layer_1", "layer_2", "layer_3", "layer_4", "logits"}


def test_episode_and_features(visualize, tmp_path):
    made(
        visualize(
            "episode",
            "--shot=2",
            "--statistics=query",
            "--gin_bindings=load_splits.test = '18-20'",
            "--split=val",
        ),
        tmp_path,
    )
    assert set(made(visualize("features", "--format=svg"), tmp_path)) == {"episode.png", "features.svg"}


def test_imprinting_and_tracking(visualize, tmp_path):
    made(visualize("imprinting", "--episodes=3"), tmp_path)
    files = made(visualize("tracking", "--shot=3"), tmp_path)
    assert set(files) == {"imprinting.json", "tracking.json", "tracking.png"}
    record = json.loads((tmp_path / "out" / "imprinting.json").read_text())
    assert record["percent_by_embeddings"]["centred"]["gradient step"]["ci95"] > 0
    record = json.loads((tmp_path / "out" / "tracking.json").read_text())
    assert record["Logistic regression"]["largest_relative_error"] < 1e-3
    assert 0 < record["Two-layer net"]["followed_to"] <= 1


def test_mistakes(visualize, place, tmp_path, tiny_data, program):
    assert_error(visualize("weihgts"), "--what=weihgts", "attention, weights, kernels")
    assert_error(visualize("attention", "--episodes=0"), "--episodes=0", "at least 1")
    assert_error(visualize("attention", "--format=gif"), "gif", "svg")
    assert_error(visualize("kernels", checkpoint="logits_only"), "logits layer only", "--what=weights")
    assert_error(visualize("attention", "--gin_bindings=load_splits.test = '18'"), "3 classes", "has 1")
    (tmp_path / "file").write_text("")
    assert_error(visualize("features", f"--output_dir={tmp_path}/file/out"), "file/out can't be written")
    assert_error(program("visualize.py", "--what=episode"), "--checkpoint is missing")
    assert_error(program("visualize.py", "--what=training", f"--run={tmp_path}"), "no training log")
