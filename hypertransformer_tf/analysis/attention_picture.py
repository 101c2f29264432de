"""Pictures of attention maps: one figure per CNN layer, and one of where the attention goes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hypertransformer_tf.analysis.attention import SHARES, AttentionMap
from hypertransformer_tf.analysis.figures import COLOURS, SEQUENTIAL, new_figure, save_figure

MOST_TICKS = 27  # names that fit along an axis over all tokens; of more groups, some are named
NAMES = {
    "own_class": "samples of its class",
    "other_classes": "samples of other classes",
    "unlabeled": "unlabeled samples",
    "itself": "itself",
    "other_placeholders": "other weight placeholders",
}


def draw_attention(maps: list[AttentionMap], path: Path, episodes: int) -> Path:
    """Draws the maps of one CNN layer: a row for each Transformer layer, a column for each head.

    Args:
        maps: those of one CNN layer.
        path: .png, .pdf or .svg file.
        episodes: how many episodes they are averaged over, for the title.
    """
    heads = len(maps[0].weights)
    heights = [1.3 + 3.4 * each.weights.shape[1] / each.weights.shape[2] for each in maps]
    figure = new_figure(1.0 + 4.4 * heads, 0.8 + sum(heights))
    axes = figure.subplots(len(maps), heads, squeeze=False, height_ratios=heights)
    for row, each in zip(axes, maps):
        for head, (axis, weights) in enumerate(zip(row, each.weights), 1):
            shown = axis.imshow(weights, cmap=SEQUENTIAL, vmin=0.0, aspect="auto", interpolation="nearest")
            figure.colorbar(shown, ax=axis, fraction=0.05, pad=0.02).ax.tick_params(labelsize=7)
            axis.set_title(f"Transformer layer {each.transformer_layer}, head {head}", fontsize=9)
            _name_tokens(axis, each)
            if head == 1:
                axis.set_ylabel("token that reads (query)", fontsize=8)
            if each is maps[-1]:
                axis.set_xlabel("token that is read (key)", fontsize=8)
    name = "logits layer" if maps[0].cnn_layer == "logits" else f"conv layer {maps[0].cnn_layer[6:]}"
    over = "one episode" if episodes == 1 else f"mean over {episodes} episodes"
    figure.suptitle(
        f"Attention while the weights of the {name} are generated ({over})\n"
        "each row sums to 1; W k: placeholder of weight slice k, Label c: support samples of class c",
        fontsize=9,
    )
    return save_figure(figure, path)


def draw_shares(maps: list[AttentionMap], path: Path, episodes: int) -> Path:
    """Draws, for every head of every layer, which share of the slices' attention goes where."""
    rows, labels = [], []
    for each in maps:
        layer = "logits" if each.cnn_layer == "logits" else f"conv {each.cnn_layer[6:]}"
        for head, shares in enumerate(each.shares().mean(1), 1):
            rows.append(shares)
            labels.append(f"{layer}, Transformer layer {each.transformer_layer}, head {head}")
        if each.cnn_layer != maps[-1].cnn_layer and each.transformer_layer == maps[-1].transformer_layer:
            rows.append(np.zeros(len(SHARES)))  # a gap between CNN layers
            labels.append("")
    shares = np.nan_to_num(np.array(rows))
    figure = new_figure(8.5, 1.6 + 0.19 * len(rows))
    axis = figure.subplots()
    left = np.zeros(len(rows))
    for column, name in enumerate(SHARES):
        if name == "unlabeled" and not shares[:, column].any():
            continue
        axis.barh(
            np.arange(len(rows)), shares[:, column], 0.85, left, color=COLOURS[column], label=NAMES[name]
        )
        left += shares[:, column]
    even = maps[-1].even_shares()[0]
    axis.axvline(even, color="black", linewidth=1.0, linestyle=":")
    named = [row for row, label in enumerate(labels) if label]
    axis.set_yticks(named, [labels[row] for row in named], fontsize=7)
    axis.set_ylim(len(rows) - 0.3, -0.7)
    axis.tick_params(axis="x", labelsize=8)
    axis.set_xlim(0, 1)
    axis.set_xlabel(
        f"share of a slice's attention; dotted: {100 * even:.1f}%, its class's if all tokens got the same",
        fontsize=8,
    )
    figure.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    figure.suptitle(
        f"Where weight slices attend to, mean over slices and {episodes} episode{'s' * (episodes > 1)}\n"
        "(conv layers: a slice has no class of its own, so orange is all labeled samples)",
        fontsize=9,
    )
    return save_figure(figure, path)


def _name_tokens(axis, each: AttentionMap) -> None:
    """Ticks and separating lines for groups of tokens: each placeholder, each label, unlabeled."""
    groups = [(k, 1, f"W {k + 1}") for k in range(each.placeholders)]
    for label in np.unique(each.labels):
        where = each.placeholders + np.flatnonzero(each.labels == label)
        name = "Unlabeled" if label == each.way else f"Label {label + 1}"
        groups.append((where[0], len(where), name))
    queries, tokens = each.weights.shape[1:]
    middles = [(start + (size - 1) / 2, name) for start, size, name in groups]
    across = _apart(middles, tokens / MOST_TICKS)
    axis.set_xticks([middle for middle, _ in across], [name for _, name in across], rotation=90, fontsize=6)
    down = _apart([each for each in middles if each[0] < queries], tokens / MOST_TICKS)
    axis.set_yticks([middle for middle, _ in down], [name for _, name in down], fontsize=6)
    starts = [start for start, size, _ in groups if size > 1] if len(groups) <= 40 else []
    starts += [start for start, _, name in groups if name == "Unlabeled"]
    for start in {each.placeholders, *starts}:
        width = 1.2 if start == each.placeholders else 0.4
        axis.axvline(start - 0.5, color="white", linewidth=width)
        if start < queries:
            axis.axhline(start - 0.5, color="white", linewidth=width)


def _apart(places: list[tuple[float, str]], distance: float) -> list[tuple[float, str]]:
    """Those of the places, in ascending order, that lie at least a distance behind the one kept before."""
    kept = places[:1]
    for place in places[1:]:
        if place[0] - kept[-1][0] >= distance:
            kept.append(place)
    return kept
