"""Kernels of generated CNNs, and how much they change from episode to episode (appendix G)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hypertransformer_tf.analysis.figures import DIVERGING, new_figure, save_figure


def relative_change(weights: np.ndarray) -> float:
    """How much weights differ between two episodes, relative to their size.

    Args:
        weights: float [episode, ...], at least two episodes.

    Returns:
        Mean over neighbouring episodes of ||A - B|| / ((||A|| + ||B||) / 2): 0 = the same in all episodes,
        sqrt(2) = unrelated.
    """
    flat = weights.reshape(len(weights), -1).astype(np.float64)
    norms = np.linalg.norm(flat, axis=1)
    distances = np.linalg.norm(flat[1:] - flat[:-1], axis=1)
    return float(np.mean(2.0 * distances / np.maximum(norms[1:] + norms[:-1], 1e-12)))


def kernel_grid(kernel: np.ndarray) -> np.ndarray:
    """Lays a kernel out as an image: input channels down, output channels across, gaps of NaN between.

    Args:
        kernel: float [height, width, in, out].

    Returns:
        float [in * (height + 1) - 1, out * (width + 1) - 1].
    """
    height, width, n_in, n_out = kernel.shape
    grid = np.full([n_in, height + 1, n_out, width + 1], np.nan)
    grid[:, :height, :, :width] = kernel.transpose(2, 0, 3, 1)
    return grid.reshape(n_in * (height + 1), n_out * (width + 1))[:-1, :-1]


def draw_kernels(
    kernels: dict[str, np.ndarray],
    changes: dict[str, float],
    path: Path,
    learned: frozenset[str] = frozenset(),
) -> Path:
    """Draws the kernels of two episodes side by side with their difference, a row for each conv layer.

    Args:
        kernels: {layer name: float [2, height, width, in, out]}.
        changes: {layer name: relative change over many episodes}.
        path: .png, .pdf or .svg file.
        learned: layers that are the same in all episodes.
    """
    grids = {name: [kernel_grid(each) for each in both] for name, both in kernels.items()}
    widest = max(each[0].shape[1] for each in grids.values())
    unit = 3.0 / widest
    heights = [max(0.95, unit * each[0].shape[0] + 0.5) for each in grids.values()]
    figure = new_figure(11.5, 0.8 + sum(heights))
    axes = figure.subplots(len(grids), 3, squeeze=False, height_ratios=heights)
    for row, (name, (first, second)) in zip(axes, grids.items()):
        limit = float(np.nanmax(np.abs([first, second]))) or 1.0
        difference = second - first
        for axis, grid, most in ((row[0], first, limit), (row[1], second, limit), (row[2], difference, None)):
            most = most or float(np.nanmax(np.abs(grid))) or limit
            shown = axis.imshow(grid, cmap=DIVERGING, vmin=-most, vmax=most, interpolation="nearest")
            figure.colorbar(shown, ax=axis, fraction=0.046, pad=0.02).ax.tick_params(labelsize=6)
            _name_channels(axis, kernels[name].shape[1:])
        kind = "learned, the same in all episodes" if name in learned else f"changes by {changes[name]:.1%}"
        for axis, what in zip(row, ("episode A", "episode B", f"B - A; {kind}")):
            axis.set_title(f"Conv layer {name[6:]}, {what}", fontsize=8, pad=3)
        row[0].set_ylabel("input channel", fontsize=7)
    for axis in axes[-1]:
        axis.set_xlabel("output channel", fontsize=7)
    figure.suptitle(
        "Kernels generated for two episodes, and their difference (its colours have a scale of their own)\n"
        "change: mean over pairs of episodes of |B - A| / mean of |A| and |B|",
        fontsize=9,
    )
    return save_figure(figure, path)


def _name_channels(axis, shape: tuple[int, int, int, int]) -> None:
    height, width, n_in, n_out = shape
    for channels, size, set_ticks in ((n_out, width, axis.set_xticks), (n_in, height, axis.set_yticks)):
        shown = np.arange(0, channels, -(-channels // 8))
        set_ticks(shown * (size + 1) + (size - 1) / 2, shown + 1, fontsize=6)
    axis.tick_params(length=0)
    for spine in axis.spines.values():
        spine.set_visible(False)
