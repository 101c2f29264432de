"""Result records and their tables."""

import csv
import json

import pytest

from hypertransformer_tf.evaluation import records


@pytest.fixture
def record():
    return {field: index for index, field in enumerate(records.FIELDS)}


def test_a_record_comes_back_whole(tmp_path, record):
    records.write_record(tmp_path / "deep" / "b.json", record)
    records.write_record(tmp_path / "deep" / "a.json", {**record, "way": 5})
    found = records.read_records(tmp_path / "deep")
    assert list(found) == ["a", "b"] and found["b"] == record
    assert [path.name for path in (tmp_path / "deep").iterdir() if path.name.startswith(".")] == []


def test_an_incomplete_record_is_not_written(tmp_path, record):
    del record["ci95"]
    with pytest.raises(ValueError, match="lacks ci95"):
        records.write_record(tmp_path / "a.json", record)
    assert list(tmp_path.iterdir()) == []


def test_csv_has_a_line_for_each_record(tmp_path, record):
    records.write_csv(tmp_path / "a.csv", [record, {**record, "way": 5}])
    with open(tmp_path / "a.csv") as file:
        rows = list(csv.DictReader(file))
    assert [row["way"] for row in rows] == ["2", "5"] and "config" not in rows[0]


def test_text_table_is_aligned():
    assert records.text_table(["a", "long"], [["xyz", "1"], ["", "22"]]) == "a    long\nxyz  1\n     22"


def test_hardware_and_versions_say_something():
    assert "CPU cores (" in records.hardware() or records.hardware()
    assert json.dumps(records.versions()) and "tensorflow" in records.versions()
