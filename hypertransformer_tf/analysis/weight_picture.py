"""The picture of a weight map: a row for each highlighted class, a column for each layer."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hypertransformer_tf.analysis.figures import COLOURS, new_figure, save_figure
from hypertransformer_tf.analysis.weight_map import WeightMap, spreads
from hypertransformer_tf.data.class_images import ClassImages


def draw_weights(
    weight_map: WeightMap,
    class_ids: np.ndarray,
    highlighted: list[int],
    images: ClassImages,
    path: Path,
    samples: int = 9,
) -> Path:
    """Draws the episodes of each highlighted class in the maps of all layers, and images of the class.

    Args:
        weight_map: points of all layers.
        class_ids: int [episode, way].
        highlighted: numbers of classes, one row each.
        images: where the classes come from.
        path: .png, .pdf or .svg file.
        samples: images shown of a class.
    """
    names = list(weight_map.points)
    figure = new_figure(1.0 + 1.75 * (len(names) + 1), 1.2 + 1.6 * len(highlighted))
    axes = figure.subplots(len(highlighted), len(names) + 1, squeeze=False)
    for row, each in enumerate(highlighted):
        inside, colour = (class_ids == each).any(1), COLOURS[row % len(COLOURS)]
        for axis, name in zip(axes[row], names):
            points = weight_map.points[name]
            axis.scatter(*points[~inside].T, s=2, color="#c8c8c8", linewidths=0, rasterized=True)
            axis.scatter(*points[inside].T, s=7, color=colour, linewidths=0, rasterized=True)
            axis.set_xticks([])
            axis.set_yticks([])
            spread = spreads(points, class_ids, 1)[each]
            title = f"spread {spread:.2f}"
            axis.set_title(title if row else f"{_title(name)}\n{title}", fontsize=8, pad=3)
        axes[row, 0].set_ylabel(f"Class {each}\n{int(inside.sum())} episodes", fontsize=8, color=colour)
        _show_samples(axes[row, -1], images.class_array(each)[:samples])
        short = images.names[each].split("/")
        text = "\n".join(_cut(part) for part in (short[0], short[-1]) if part)
        axes[row, -1].set_title(text if len(short) > 1 else _cut(short[0]), fontsize=7, pad=3)
    kind = "UMAP" if weight_map.method == "umap" else "Principal components"
    figure.suptitle(
        f"{kind} of generated weights: a point is a layer in one of {len(class_ids)} episodes\n"
        "coloured: episodes with a class; spread: their distance from their centre, 1 = like all episodes",
        fontsize=9,
    )
    return save_figure(figure, path, dpi=90)


def _title(name: str) -> str:
    if name == "all":
        return "All conv layers"
    return "Logits layer" if name == "logits" else f"Conv layer {name[6:]}"


def _cut(text: str, most: int = 26) -> str:
    text = text.replace("$", r"\$")
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _show_samples(axis, images: np.ndarray) -> None:
    """A square of sample images, uint8 [image, height, width, channels]."""
    side = int(np.ceil(np.sqrt(len(images))))
    _, height, width, channels = images.shape
    sheet = np.full([side * (height + 1), side * (width + 1), channels], 160, np.uint8)
    for number, image in enumerate(images):
        top, left = divmod(number, side)
        top, left = top * (height + 1), left * (width + 1)
        sheet[top : top + height, left : left + width] = image
    axis.imshow(sheet[..., 0] if channels == 1 else sheet, cmap="gray", vmin=0, vmax=255)
    axis.set_axis_off()
