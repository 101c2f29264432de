"""What the generators see of each support sample: activation features of every layer, shared features."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hypertransformer_tf.analysis.activations import layer_inputs
from hypertransformer_tf.analysis.figures import COLOURS, DIVERGING, new_figure, save_figure
from hypertransformer_tf.analysis.weight_map import embed
from hypertransformer_tf.backend import tf
from hypertransformer_tf.models.hypertransformer import HyperTransformer

LIMIT = 2.5  # of the heat maps, in standard deviations


def sample_features(model: HyperTransformer, images: tf.Tensor, labels: tf.Tensor) -> dict[str, np.ndarray]:
    """The features in the sample tokens of one episode.

    Args:
        model: a built HyperTransformer.
        images: float32 [1, support, height, width, channels] in -1..1.
        labels: int [1, support] in 0..way.

    Returns:
        {"shared": ..., "layer_1": ..., "logits": ...}, each float32 [support, feature]; layers that are not
        generated, and shared features that the model has not, are left out.
    """
    inputs = layer_inputs(model, images, model.generate(images, labels))
    found = {} if model.shared is None else {"shared": model.shared(images)}
    for layer, generator, activations in zip(model.cnn.layers, model.generators, inputs):
        if generator is not None:
            found[layer.name] = generator.features(activations)
    return {name: value[0].numpy() for name, value in found.items()}


def class_separation(features: np.ndarray, labels: np.ndarray) -> float:
    """Share of the features' variance that lies between classes, 0..1; 1 with one sample per class.

    Args:
        features: float [sample, feature].
        labels: int [sample].
    """
    centred = features - features.mean(0)
    within = np.concatenate(
        [features[labels == each] - features[labels == each].mean(0) for each in set(labels)]
    )
    return float(1.0 - np.square(within).sum() / max(np.square(centred).sum(), 1e-12))


def draw_features(features: dict[str, np.ndarray], labels: np.ndarray, way: int, path: Path) -> Path:
    """Draws heat maps of the features (samples by class) and, below, their first two principal components.

    Args:
        features: what `sample_features` gave.
        labels: int [sample]; `way` = unlabeled.
        way: classes.
        path: .png, .pdf or .svg file.
    """
    order = np.argsort(labels, kind="stable")
    labels = labels[order]
    height = min(9.0, 1.4 + 0.09 * max(len(labels), 18))
    figure = new_figure(0.8 + 2.5 * len(features), height + 3.6)
    axes = figure.subplots(2, len(features), squeeze=False, height_ratios=[height, 2.6])
    shown = None
    for column, (name, values) in enumerate(features.items()):
        values = values[order]
        scaled = (values - values.mean(0)) / np.maximum(values.std(0), 1e-6)
        axis = axes[0, column]
        shown = axis.imshow(
            scaled, cmap=DIVERGING, vmin=-LIMIT, vmax=LIMIT, aspect="auto", interpolation="nearest"
        )
        text = f", {class_separation(values, labels):.0%} between classes" if len(labels) > way else ""
        axis.set_title(f"{_title(name)}\n{values.shape[1]} numbers{text}", fontsize=8)
        axis.set_xlabel("feature", fontsize=7)
        axis.tick_params(labelsize=6)
        _name_classes(axis, labels, way, column == 0)
        _scatter(axes[1, column], embed(values, "pca"), labels, way)
    axes[0, 0].set_ylabel("support sample, by class", fontsize=8)
    axes[1, 0].set_ylabel("second principal component", fontsize=8)
    bar = figure.colorbar(shown, ax=axes[0, :].tolist(), fraction=0.02, pad=0.01)
    bar.set_label("standard deviations from the mean over samples", fontsize=7)
    bar.ax.tick_params(labelsize=6)
    figure.suptitle(
        "Features of the support samples in the tokens of the weight generators\n"
        "below: the first two principal components; a number is a sample of that class, u is unlabeled",
        fontsize=9,
    )
    return save_figure(figure, path)


def _title(name: str) -> str:
    if name == "shared":
        return "Shared image features"
    return f"Activation features, {'logits' if name == 'logits' else 'conv ' + name[6:]}"


def _name_classes(axis, labels: np.ndarray, way: int, named: bool) -> None:
    starts = [int(np.flatnonzero(labels == each)[0]) for each in np.unique(labels)]
    for start in starts[1:] if len(starts) < len(labels) else ():
        axis.axhline(start - 0.5, color="white", linewidth=0.6)
    if not named:
        axis.set_yticks([])
        return
    kept = np.unique(labels)[:: -(-len(starts) // 34)]
    middles = [np.flatnonzero(labels == each).mean() for each in kept]
    axis.set_yticks(middles, ["Unlabeled" if each == way else f"Class {each + 1}" for each in kept])


def _scatter(axis, points: np.ndarray, labels: np.ndarray, way: int) -> None:
    """Writes each sample's class at its point; with many samples small."""
    size = 8 if len(labels) <= 40 else 6 if len(labels) <= 120 else 5
    for (x, y), label in zip(points, labels):
        text = "u" if label == way else str(label + 1)
        colour = "#808080" if label == way else COLOURS[label % len(COLOURS)]
        axis.text(x, y, text, fontsize=size, color=colour, ha="center", va="center")
    axis.set_xlim(*_padded(points[:, 0]))
    axis.set_ylim(*_padded(points[:, 1]))
    axis.set_xlabel("first principal component", fontsize=7)
    axis.tick_params(labelsize=6)


def _padded(values: np.ndarray) -> tuple[float, float]:
    room = 0.08 * float(np.ptp(values)) or 1.0
    return float(values.min() - room), float(values.max() + room)
