"""Training logs and their curves."""

import json

import numpy as np
import pytest

from hypertransformer_tf.analysis.training_curves import draw_training, read_log
from hypertransformer_tf.errors import UserError


def write_log(folder, points=400, broken=False):
    folder.mkdir(parents=True)
    lines = []
    for step in range(1, points + 1):
        row = {"step": step, "episodes": 16 * step, "loss": 3.0 / step, "accuracy": 1 - 1 / step}
        lines.append(json.dumps(row))
        if step % 100 == 0:
            row = {"step": step, "episodes": 16 * step, "val_accuracy": 0.5 + step / 1000, "val_ci95": 0.01}
            lines.append(json.dumps(row))
    text = "\n".join(lines) + "\n"
    (folder / "log.jsonl").write_text(text[:-20] if broken else text)
    return folder


def test_log_is_read_by_value(tmp_path):
    log = read_log(write_log(tmp_path / "run"))
    assert set(log) == {"loss", "accuracy", "val_accuracy", "val_ci95"}
    np.testing.assert_array_equal(log["val_accuracy"], [[1600, 3200, 4800, 6400], [0.6, 0.7, 0.8, 0.9]])
    assert log["loss"].shape == (2, 400)


def test_a_last_line_that_is_cut_off_is_left_out(tmp_path):
    assert read_log(write_log(tmp_path / "run", broken=True))["val_accuracy"].shape == (2, 3)


def test_mistakes(tmp_path):
    with pytest.raises(UserError, match="no training log .*nowhere"):
        read_log(tmp_path / "nowhere")
    (tmp_path / "log.jsonl").write_text('{"step": 1}\nnonsense\n[1]\n')
    with pytest.raises(UserError, match="holds no losses"):
        read_log(tmp_path)


@pytest.mark.parametrize("runs", [1, 9])
def test_picture_names_every_run_and_the_paper(tmp_path, runs):
    logs = {f"run {i}": read_log(write_log(tmp_path / str(i))) for i in range(runs)}
    logs["validation only"] = {"val_accuracy": np.array([[0.0, 6400.0], [0.5, 0.8]])}
    import matplotlib

    with matplotlib.rc_context({"svg.fonttype": "none"}):
        text = draw_training(logs, tmp_path / "training.svg", 87.2).read_text()
    for name in (*logs, "paper, test: 87.2%"):
        assert text.count(f">{name}<") == 1
