"""A picture of one episode: support images by class, query images with the generated CNN's answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hypertransformer_tf.analysis.figures import new_figure, save_figure
from hypertransformer_tf.backend import tf
from hypertransformer_tf.data.episodes import Episodes
from hypertransformer_tf.models.hypertransformer import HyperTransformer

RIGHT, WRONG = "#0072B2", "#D55E00"  # told apart by colour-blind people, too; errors are thicker as well


def draw_episode(
    model: HyperTransformer,
    episodes: Episodes,
    path: Path,
    statistics: str = "support",
    max_queries: int = 10,
) -> float:
    """Draws the first episode of a batch, one row per class, and saves the picture atomically.

    Args:
        model: a built HyperTransformer or a baseline's Learner.
        episodes: what an EpisodeSampler gave.
        path: .png, .pdf or .svg file.
        statistics: batch-normalisation statistics of the query images.
        max_queries: most query images in a row.

    Returns:
        Accuracy of the episode over all its query images, 0..1.
    """
    one = tf.nest.map_structure(lambda x: x[:1], episodes._replace(support_mask=()))
    weights = model.generate(one.support_images, one.support_labels)
    logits = model.classify(one.query_images, weights, statistics)
    probabilities = tf.nn.softmax(logits)[0].numpy()
    predicted, labels = probabilities.argmax(-1), one.query_labels[0].numpy()
    accuracy = float((predicted == labels).mean())

    way, support_labels = model.way, one.support_labels[0].numpy()
    shot = max(int((support_labels == slot).sum()) for slot in range(way))
    queries = min(max_queries, max(int((labels == slot).sum()) for slot in range(way)))
    columns = shot + queries
    figure = new_figure(1.0 + columns * 0.95, 1.0 + way * 1.15)
    axes = figure.subplots(way, columns, squeeze=False)
    for slot in range(way):
        for axis in axes[slot]:
            axis.set_axis_off()
        for column, image in enumerate(one.support_images[0].numpy()[support_labels == slot]):
            show_image(axes[slot, column], image, f"class {slot + 1}", "black", 1.0)
        for column, index in enumerate(np.flatnonzero(labels == slot)[:queries]):
            hit = predicted[index] == slot
            text = f"{predicted[index] + 1}: {100 * probabilities[index].max():.0f}%"
            style = (RIGHT, 2.0) if hit else (WRONG, 4.0)
            show_image(axes[slot, shot + column], one.query_images[0, index].numpy(), text, *style)
    figure.suptitle(
        f"Support ({shot} per class, black frame) and query images with predicted class and probability\n"
        f"{100 * accuracy:.0f}% of {len(labels)} query images right (blue), errors in orange, "
        f"BN statistics: {statistics}",
        fontsize=9,
    )
    save_figure(figure, path)
    return accuracy


def show_image(axis, image: np.ndarray, text: str, colour: str, width: float) -> None:
    """Shows an image (values -1..1) in a coloured frame with a text above it."""
    shown = np.clip((image + 1.0) / 2.0, 0.0, 1.0)
    axis.imshow(shown[..., 0] if shown.shape[-1] == 1 else shown, cmap="gray", vmin=0, vmax=1)
    axis.set_axis_on()
    axis.set_xticks([])
    axis.set_yticks([])
    for spine in axis.spines.values():
        spine.set(color=colour, linewidth=width)
    axis.set_title(text, fontsize=7, color=colour, pad=2)
