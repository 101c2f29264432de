"""The benchmark prints ratios at its end; the page of limits is what its figures say."""

import re

import pytest
from conftest import ROOT


@pytest.mark.slow
def test_the_last_line_gives_the_ratios(program, tmp_path):
    file = tmp_path / "figures.json"
    arguments = ["--configurations=omniglot_8ch_logits", "--batches=1", "--windows=1", "--seconds=0.1"]
    done = program("scripts/benchmark.py", *arguments, "--nostages", f"--json={file}")
    assert done.returncode == 0, done.stderr
    last = done.stdout.splitlines()[-1]
    assert re.fullmatch(r"training ratio: [0-9]+\.[0-9]  evaluation ratio: [0-9]+\.[0-9]", last), last
    assert "omniglot_8ch_logits" in file.read_text()


def test_an_unknown_configuration_is_one_line(program):
    done = program("scripts/benchmark.py", "--configurations=mnist")
    assert done.returncode == 2
    assert "'mnist'" in done.stderr.splitlines()[-1] and "omniglot_8ch_all" in done.stderr


def test_the_page_of_limits_is_rendered_from_its_figures(program, tmp_path):
    page = tmp_path / "limits.md"
    figures = ROOT / "results" / "benchmarks" / "limits.json"
    done = program("scripts/limits.py", "--render", f"--json={figures}", f"--page={page}")
    assert done.returncode == 0, done.stderr
    assert page.read_text() == (ROOT / "docs" / "limits.md").read_text()
