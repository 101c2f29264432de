"""The quick start, shortened: it trains, evaluates on unseen alphabets, draws, and says what next."""

import json

import pytest

pytestmark = pytest.mark.slow


def test_quickstart(program, tmp_path):
    result = program(
        "scripts/quickstart.py",
        f"--workdir={tmp_path}/run",
        "--gin_bindings=train.episodes = 160",
        "--gin_bindings=train.validation_tasks = 8",
        "--tasks=8",
        timeout=500,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert "glyphs, test classes (108), 5-way 1-shot, 8 tasks" in result.stdout
    assert "omniglot_fast.gin" in result.stdout and "own images" in result.stdout
    assert (tmp_path / "run" / "episode.png").stat().st_size > 10_000
    records = list((tmp_path / "run" / "evaluation").glob("*_support.json"))
    assert len(records) == 1 and json.loads(records[0].read_text())["ci95"] > 0
