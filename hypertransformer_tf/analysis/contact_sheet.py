"""A contact sheet: classified images with class and probability."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hypertransformer_tf.analysis.episode_picture import RIGHT, WRONG, show_image
from hypertransformer_tf.analysis.figures import new_figure, save_figure


def draw_contact_sheet(
    path: Path,
    images: np.ndarray,
    probabilities: np.ndarray,
    names: Sequence[str],
    truths: Sequence[int | None],
    columns: int = 8,
    most: int = 96,
) -> None:
    """Draws prepared images with the classes that they were given, and saves the picture atomically.

    Args:
        path: .png, .pdf or .svg file.
        images: uint8 [image, height, width, channels].
        probabilities: float [image, class].
        names: class names.
        truths: true class of each image, None = unknown; right is framed blue, wrong orange.
        columns: images in a row.
        most: images shown; of more, as many at even distances.
    """
    chosen = np.arange(len(images))
    if len(images) > most:
        chosen = np.linspace(0, len(images) - 1, most).round().astype(int)
    columns = min(columns, len(chosen))
    rows = -(-len(chosen) // columns)
    figure = new_figure(0.3 + 1.35 * columns, 0.6 + 1.6 * rows)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis in axes:
        axis.set_axis_off()
    for axis, number in zip(axes, chosen):
        answer, truth = int(probabilities[number].argmax()), truths[number]
        colour, width = "black", 1.0
        if truth is not None:
            colour, width = (RIGHT, 2.0) if truth == answer else (WRONG, 4.0)
        text = f"{_short(names[answer])}\n{100 * probabilities[number].max():.0f}%"
        show_image(axis, images[number] / 127.5 - 1.0, text, colour, width)
    shown = f"{len(chosen)} of {len(images)}" if len(chosen) < len(images) else str(len(images))
    known = [(truth, int(p.argmax())) for truth, p in zip(truths, probabilities) if truth is not None]
    right = sum(truth == answer for truth, answer in known)
    verdict = f"; {right} of {len(known)} right (blue), errors in orange" if known else ""
    figure.suptitle(f"{shown} images{verdict}", fontsize=9)
    save_figure(figure, path, dpi=110)


def _short(name: str, width: int = 18) -> str:
    """At most two lines, without matplotlib's mathematics; characters without a glyph show as boxes."""
    lines = textwrap.wrap(" ".join(name.split()).replace("$", r"\$"), width) or [""]
    return "\n".join(lines) if len(lines) <= 2 else f"{lines[0]}\n{lines[1][: width - 1]}…"
