"""evaluate.py as a user runs it."""

import csv
import json

import numpy as np
import pytest
from test_train import arguments, assert_error

from hypertransformer_tf.evaluation.records import FIELDS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def workdir(tiny_gin, tiny_data, tmp_path_factory):
    import subprocess
    import sys

    from conftest import ROOT

    folder = tmp_path_factory.mktemp("runs") / "trained"
    flags = arguments(tiny_gin, tiny_data, folder, "train.episodes = 20")
    result = subprocess.run([sys.executable, str(ROOT / "train.py"), *flags], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-3000:]
    return folder


SMALL = ("--tasks=20", "--query_batches=3", "--query_batch_size=6")


def test_records_tables_and_determinism(workdir, tiny_data, tmp_path, program):
    first = program(
        "evaluate.py",
        f"--checkpoint={workdir}",
        f"--data_dir={tiny_data}",
        f"--output_dir={tmp_path}/a",
        f"--picture={tmp_path}/episode.png",
        *SMALL,
    )
    assert first.returncode == 0, first.stderr[-3000:]
    records = {
        path.stem.rsplit("_", 1)[1]: json.loads(path.read_text()) for path in (tmp_path / "a").glob("*.json")
    }
    assert sorted(records) == ["moving", "query", "support"]
    for statistics, record in records.items():
        assert [field for field in FIELDS if field not in record] == []
        assert record["statistics"] == statistics
        assert (record["tasks"], record["query_per_task"], record["episodes_trained"]) == (20, 18, 20)
        assert 0 <= record["accuracy"] <= 100 and record["ci95"] > 0 and record["generated"] == "all"
        assert f"{record['accuracy']:.2f}" in first.stdout and f"{record['ci95']:.2f}" in first.stdout
    with open(next((tmp_path / "a").glob("*.csv"))) as file:
        assert [row["statistics"] for row in csv.DictReader(file)] == ["support", "query", "moving"]
    assert (tmp_path / "episode.png").stat().st_size > 5000

    again = program(
        "evaluate.py",
        f"--checkpoint={next((workdir / 'checkpoints').glob('best-*'))}",
        f"--data_dir={tiny_data}",
        f"--output_dir={tmp_path}/b",
        "--statistics=support",
        *SMALL,
    )
    assert again.returncode == 0, again.stderr[-3000:]
    repeated = json.loads(next((tmp_path / "b").glob("*support.json")).read_text())
    assert repeated["accuracy"] == records["support"]["accuracy"]


def test_mistakes(workdir, tiny_data, tmp_path, program):
    assert_error(program("evaluate.py", "--checkpoint=nowhere"), "nowhere does not exist", "train.py")
    assert_error(program("evaluate.py"), "--checkpoint")
    flags = [f"--checkpoint={workdir}", f"--data_dir={tiny_data}"]
    assert_error(program("evaluate.py", *flags, "--statistics=batch"), "'batch'", "support")
    assert_error(program("evaluate.py", *flags, "--query_batch_size=60"), "8 images")
    step = next((workdir / "checkpoints").glob("step-*"))
    assert_error(program("evaluate.py", f"--checkpoint={step}"), "training state")


def test_a_damaged_model_is_refused(workdir, tiny_data, tmp_path, program):
    import shutil

    best = next((workdir / "checkpoints").glob("best-*"))
    copy = tmp_path / best.name
    shutil.copytree(best, copy)
    content = (copy / "model.npz").read_bytes()
    (copy / "model.npz").write_bytes(content[:-10])
    assert_error(
        program("evaluate.py", f"--checkpoint={copy}", f"--data_dir={tiny_data}"), "damaged", "model.npz"
    )


def test_values_are_finite(workdir):
    best = next((workdir / "checkpoints").glob("best-*"))
    with np.load(best / "model.npz") as arrays:
        assert all(np.isfinite(arrays[name]).all() for name in arrays.files)
