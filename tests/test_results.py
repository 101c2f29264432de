"""What the README says is what the records say, and the records are complete."""

import re

import pytest
from conftest import ROOT

from hypertransformer_tf.evaluation.records import FIELDS, read_records
from hypertransformer_tf.models.normalization import STATISTICS


@pytest.mark.parametrize("name, record", read_records(ROOT / "results").items())
def test_a_record_is_complete(name, record):
    assert [field for field in FIELDS if field not in record] == []
    assert record["statistics"] in STATISTICS and 0 < record["ci95"] < record["accuracy"] <= 100
    assert re.fullmatch("all|logits|first:[0-9]+|last:[0-9]+", record["generated"])


def test_the_readme_is_rendered_from_the_records(program):
    result = program("scripts/results_table.py", "--check")
    assert result.returncode == 0, result.stderr


def test_a_number_typed_by_hand_is_noticed(program, tmp_path):
    readme, marker = tmp_path / "README.md", "<!-- results: end -->"
    text = (ROOT / "README.md").read_text()
    readme.write_text(text.replace(marker, f"99.99\n{marker}"))
    assert program("scripts/results_table.py", "--check", f"--readme={readme}").returncode == 2
    assert program("scripts/results_table.py", f"--readme={readme}").returncode == 0
    assert readme.read_text() == text
