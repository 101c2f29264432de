"""What all pictures share: figures without a display, colours, atomic saving."""

from __future__ import annotations

import os
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from hypertransformer_tf.errors import UserError

FORMATS = ("png", "pdf", "svg")
# Okabe and Ito's colours, told apart by colour-blind people as well.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000")
SEQUENTIAL, DIVERGING = "cividis", "PuOr"  # colour maps, chosen likewise


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of the given size in inches, with a layout that keeps texts apart."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Figure, path: Path, dpi: int = 120) -> Path:
    """Saves a figure as .png, .pdf or .svg by its suffix, whole or not at all; returns the path.

    Raises:
        UserError: when the folder can't be written.
    """
    temporary = path.with_name(f".{path.stem}.part{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(temporary, dpi=dpi)
        os.replace(temporary, path)
    except OSError as error:
        raise UserError(f"can't write {path} ({error.strerror or error}): choose another place") from error
    return path


def check_folder(folder: Path) -> Path:
    """Makes a folder for pictures and returns it.

    Raises:
        UserError: when nothing can be written there.
    """
    probe = folder / ".probe"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_text("")
        probe.unlink()
    except OSError as error:
        raise UserError(
            f"--output_dir={folder} can't be written ({error.strerror}): choose another"
        ) from error
    return folder
