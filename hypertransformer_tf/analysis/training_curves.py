"""Curves of training runs from their logs (log.jsonl in a run's workdir)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from matplotlib.ticker import LogLocator, NullFormatter

from hypertransformer_tf.analysis.figures import COLOURS, new_figure, save_figure
from hypertransformer_tf.errors import UserError

LOG = "log.jsonl"


def read_log(workdir: Path) -> dict[str, np.ndarray]:
    """Reads the log of a run.

    Args:
        workdir: folder of the run, or the log itself.

    Returns:
        {name: float [2, point]}, episodes and values, for each value logged ("loss" in nats, "accuracy" and
        "val_accuracy" 0..1, ...).

    Raises:
        UserError: when there is no log or nothing in it. A last line that is not complete is left out.
    """
    path = workdir if workdir.is_file() else workdir / LOG
    if not path.is_file():
        raise UserError(f"no training log {path}: give the workdir of a run of train.py")
    series: dict[str, list] = {}
    for line in path.read_text(errors="replace").splitlines():
        try:
            row = json.loads(line)
            episodes = float(row["episodes"])
        except (ValueError, KeyError, TypeError):
            continue  # the line that a running or interrupted training did not finish
        for name, value in row.items():
            if isinstance(value, (int, float)) and name not in ("step", "episodes"):
                series.setdefault(name, []).append((episodes, value))
    if "loss" not in series and "val_accuracy" not in series:
        raise UserError(f"training log {path} holds no losses or accuracies: give the workdir of train.py")
    return {name: np.array(points, float).T for name, points in series.items()}


def draw_training(runs: dict[str, dict[str, np.ndarray]], path: Path, paper: float | None = None) -> Path:
    """Draws loss and accuracies of several runs against the number of episodes.

    Args:
        runs: {name of a run: what `read_log` gave}.
        path: .png, .pdf or .svg file.
        paper: the paper's accuracy in percent, a horizontal line; None = no line.
    """
    figure = new_figure(10.5, 4.2 + 0.18 * (len(runs) // 3))
    losses, accuracies = figure.subplots(1, 2)
    for number, (name, log) in enumerate(runs.items()):
        colour, style = COLOURS[number % len(COLOURS)], ("-", "--", ":")[number // len(COLOURS) % 3]
        if "loss" in log:
            losses.plot(*_smooth(log["loss"]), style, color=colour, label=name)
        if "accuracy" in log:
            episodes, values = _smooth(log["accuracy"])
            accuracies.plot(episodes, 100 * values, style, color=colour, linewidth=0.8, alpha=0.45)
        if "val_accuracy" in log:
            episodes, values = log["val_accuracy"]
            label = None if "loss" in log else name
            accuracies.plot(
                episodes, 100 * values, style, marker="o", markersize=3, color=colour, label=label
            )
            if "val_ci95" in log and log["val_ci95"].shape == log["val_accuracy"].shape:
                half = 100 * log["val_ci95"][1]
                accuracies.fill_between(
                    episodes, 100 * values - half, 100 * values + half, color=colour, alpha=0.15, linewidth=0
                )
    if paper is not None:
        accuracies.axhline(
            paper, color="black", linewidth=1.0, linestyle="--", label=f"paper, test: {paper}%"
        )
    losses.set_yscale("log")
    losses.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    losses.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    losses.yaxis.set_minor_formatter(NullFormatter())
    losses.set(ylabel="query loss, nats", title="Loss of training episodes")
    accuracies.set(
        ylabel="query accuracy, %", title="Accuracy: thin training, dots validation (band: 95% CI)"
    )
    for axis in (losses, accuracies):
        axis.set_xlabel("training episodes")
        axis.grid(alpha=0.3)
        axis.title.set_fontsize(10)
        axis.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:g}k" if value else "0")
    figure.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    return save_figure(figure, path)


def _smooth(points: np.ndarray) -> np.ndarray:
    """Means of neighbouring points, so that at most 150 are drawn: [2, point]."""
    size = -(-points.shape[1] // 150)
    whole = points.shape[1] // size * size
    return points[:, :whole].reshape(2, -1, size).mean(-1)
