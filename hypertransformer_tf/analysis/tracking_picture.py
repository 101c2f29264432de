"""The picture of minima that are followed from task to task."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hypertransformer_tf.analysis.figures import COLOURS, new_figure, save_figure
from hypertransformer_tf.analysis.minimum_tracking import Tracking


def draw_tracking(trackings: dict[str, Tracking], path: Path) -> Path:
    """Draws losses (left) and distances from the optimum (right) along the path, a row for each model.

    Args:
        trackings: {name of a model: its Tracking}.
        path: .png, .pdf or .svg file.
    """
    figure = new_figure(10.0, 0.9 + 2.9 * len(trackings))
    axes = figure.subplots(len(trackings), 2, squeeze=False)
    for (losses, distances), (name, each) in zip(axes, trackings.items()):
        losses.plot(
            each.gammas, each.kept_losses, ":", color=COLOURS[3], label="weights of the first task kept"
        )
        losses.plot(
            each.gammas[: len(each.tracked)],
            each.tracked_losses,
            color=COLOURS[0],
            label="followed by the equation",
        )
        losses.plot(
            each.gammas, each.optimised_losses, "o", color=COLOURS[1], markersize=4, label="optimised anew"
        )
        losses.set(ylabel="loss, nats", title=f"{name}, {each.tracked.shape[1]} weights")
        moves, errors = each.relative_moves(), each.relative_errors()
        distances.plot(each.gammas[1:], moves[1:], ":", color=COLOURS[3], label="the optimum has moved by")
        distances.plot(
            each.gammas[1 : len(errors)],
            np.maximum(errors[1:], 1e-12),
            color=COLOURS[0],
            label="followed weights are off by",
        )
        distances.set(yscale="log", ylabel="distance / length of the optimum", title=f"{name}: weights")
        for axis in (losses, distances):
            if each.reach < 1:
                axis.axvline(each.reach, color="black", linewidth=0.8)
                place = (each.reach, 0.5)
                axis.annotate(" here it vanishes", place, xycoords=("data", "axes fraction"), fontsize=7)
            axis.set_xlim(-0.03, 1.03)
            axis.set_xlabel("place on the path: 0 = first task, 1 = second task", fontsize=8)
            axis.grid(alpha=0.3)
            axis.tick_params(labelsize=8)
            axis.title.set_fontsize(10)
            axis.yaxis.label.set_fontsize(8)
            axis.legend(fontsize=7)
    figure.suptitle(
        "The minimum of a task's loss, followed to another task by a differential equation (appendix B)",
        fontsize=10,
    )
    return save_figure(figure, path)
