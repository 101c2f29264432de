"""The line through runs of several lengths, and which records are on it."""

import pytest
from conftest import ROOT

from hypertransformer_tf.analysis.budgets import (
    PAPER_EPISODES,
    Recipe,
    budgets,
    draw_budgets,
    extrapolate,
    table_of_budgets,
)
from hypertransformer_tf.evaluation.paper import reported
from hypertransformer_tf.evaluation.records import bound, read_records


def made(**changes):
    config = {
        "Optimizer.kind": "'adam'",
        "HyperTransformer.initialization": "'imprinting'",
        "LearningRate.rate": "0.001",
        "Task.rotate": "True",
        "HyperTransformer.block_order": "'conv-bn-act-pool'",
        "train.episodes": "1000",
        **changes.pop("config", {}),
    }
    record = dict(dataset="omniglot", split="test", statistics="support", way=20, shot=1, channels=8)
    record.update(generated="all", accuracy=80.0, ci95=0.3, **changes)
    return {**record, "config": "".join(f"{name} = {value}\n" for name, value in config.items())}


def test_a_power_law_is_continued():
    points = [(n, 100 - 50 * n**-0.1, 0.2) for n in (10_000, 50_000, 400_000)]
    assert extrapolate(points) == pytest.approx(100 - 50 * PAPER_EPISODES**-0.1)


def test_a_wide_interval_counts_less():
    points = [(10_000, 70.0, 0.2), (100_000, 80.0, 0.2), (100_000, 90.0, 20.0)]
    assert extrapolate(points, 100_000) == pytest.approx(80.0, abs=0.1)


def test_one_length_is_no_line():
    assert extrapolate([(1000, 80.0, 0.3), (1000, 81.0, 0.3)]) is None


def test_records_are_put_on_lines():
    records = {
        "long": made(
            config={"train.episodes": "9000"},
        ),
        "short": made(),
        "other": made(config={"LearningRate.rate": "0.01"}),
        "added": made(config={"HyperTransformer.add_learned_weights": "True"}),
        "upright": made(config={"Task.rotate": "False"}),
        "order": made(config={"HyperTransformer.block_order": "'conv-act-pool-bn'"}),
        "query": {**made(), "statistics": "query"},
        "random": made(config={"HyperTransformer.initialization": "'random'"}),
        "method": {**made(), "method": "protonet"},
        "continued": {**made(), "start": {"episodes_trained": 1000, "config": ""}},
    }
    lines = budgets(records)
    recipe = Recipe(20, 1, 8, "all", "0.001", "1.0", "False", "True", "'conv-bn-act-pool'")
    assert lines[recipe] == [(1000, 80.0, 0.3), (9000, 80.0, 0.3)]
    assert len(lines) == 5 and len(lines[recipe._replace(rate="0.01")]) == 1
    table = table_of_budgets(lines)
    assert "| 20-way 1-shot, 8 channels, all; rate 0.001 | 80.00 ± 0.30 (1,000), 80.00" in table
    assert "| 80.0 to 80.0 |" in table and table.count("| 87.2 |") == 5
    assert "all, added to learned kernels; rate 0.001 | 80.00 ± 0.30 (1,000)" in table
    assert "all; rate 0.001, upright characters | 80.00 ± 0.30 (1,000)" in table
    assert "all; rate 0.001, conv-act-pool-bn | 80.00 ± 0.30 (1,000)" in table


def test_bindings_are_read_whole():
    assert bound("a.rate_b = 1\na.rate = 2\n", "a.rate") == "2" and bound("", "a.rate", "-") == "-"


def test_the_papers_figures():
    assert reported("omniglot", 20, 5, 4, "logits") == 77.9 and reported("omniglot", 20, 5, 4, "all") == 82.0
    assert reported("omniglot", 20, 1, 4, "all") is None and reported("omniglot", 20, 5, 8, "all") == 94.7


def test_the_picture_is_drawn(tmp_path):
    lines = budgets(read_records(ROOT / "results"))
    assert len(lines) > 5
    assert draw_budgets(lines, tmp_path / "budgets.png").stat().st_size > 10_000
