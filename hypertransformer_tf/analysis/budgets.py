"""What a training budget buys: test accuracies of runs of several lengths, and the line through them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.ticker import NullFormatter, ScalarFormatter

from hypertransformer_tf.analysis.figures import COLOURS, new_figure, save_figure
from hypertransformer_tf.evaluation.paper import reported
from hypertransformer_tf.evaluation.records import bound

PAPER_EPISODES = 4_000_000


class Recipe(NamedTuple):
    """A model and how it is trained: all that runs of one line have in common."""

    way: int
    shot: int
    channels: int
    generated: str
    rate: str
    transformer_factor: str
    added: str
    rotated: str
    block_order: str

    def __str__(self):
        what = f"{self.generated}, added to learned kernels" if self.added == "True" else self.generated
        factor = "" if self.transformer_factor == "1.0" else f", Transformers {self.transformer_factor} of it"
        model = f"{self.way}-way {self.shot}-shot, {self.channels} channels, {what}"
        upright = "" if self.rotated == "True" else ", upright characters"
        blocks = "" if self.block_order == "'conv-bn-act-pool'" else f", {self.block_order[1:-1]}"
        return f"{model}; rate {self.rate}{factor}{upright}{blocks}"


def budgets(records: dict[str, dict]) -> dict[Recipe, list[tuple[int, float, float]]]:
    """Test accuracies on Omniglot with statistics of the support set, by recipe and length of the training.

    Args:
        records: as `read_records` gives them. Counted are HyperTransformers trained with Adam and the
            imprinting initialisation, in one training.

    Returns:
        {recipe: [(episodes of the whole training, accuracy, half width of its interval)]}, by length, in
        percent.
    """
    lines: dict[Recipe, list] = {}
    for record in records.values():
        config = record["config"]
        if (
            (record["dataset"], record["split"], record["statistics"]) == ("omniglot", "test", "support")
            and record.get("method", "hypertransformer") == "hypertransformer"
            and "start" not in record
            and bound(config, "Optimizer.kind") == "'adam'"
            and bound(config, "HyperTransformer.initialization") == "'imprinting'"
        ):
            recipe = Recipe(
                *(record[field] for field in ("way", "shot", "channels", "generated")),
                bound(config, "LearningRate.rate"),
                bound(config, "Optimizer.transformer_factor", "1.0"),
                bound(config, "HyperTransformer.add_learned_weights", "False"),
                bound(config, "Task.rotate", "False"),
                bound(config, "HyperTransformer.block_order", "'conv-act-pool-bn'"),
            )
            point = int(bound(config, "train.episodes")), record["accuracy"], record["ci95"]
            lines.setdefault(recipe, []).append(point)
    return {recipe: sorted(lines[recipe]) for recipe in sorted(lines)}


def extrapolate(points: list[tuple[int, float, float]], episodes: int = PAPER_EPISODES) -> float | None:
    """Accuracy after more episodes, if the error keeps falling as a power of their number.

    A power law has no floor, and training classes are finite, so this is the most that can be hoped for.

    Args:
        points: (episodes, accuracy, half width of its 95% interval), in percent.
        episodes: that the accuracy is wanted for.

    Returns:
        Accuracy in percent; None with fewer than two lengths of training.
    """
    lengths, accuracies, half = np.array(points, float).T
    if len(set(lengths)) < 2:
        return None
    errors = 100.0 - accuracies
    line = np.polyfit(np.log(lengths), np.log(errors), 1, w=errors / half)
    return 100.0 - float(np.exp(np.polyval(line, np.log(episodes))))


def table_of_budgets(lines: dict[Recipe, list]) -> str:
    """Markdown: what was reached, and between what limits it would be at the paper's length.

    Args:
        lines: what `budgets` gives.
    """
    rows = [
        "| model, recipe | accuracy after episodes of training | after 4,000,000: between | paper |",
        "|---|---|---|---|",
    ]
    for recipe, points in lines.items():
        reached = ", ".join(
            f"{accuracy:.2f} ± {half:.2f} ({episodes:,})" for episodes, accuracy, half in points
        )
        further = extrapolate(points)
        hopeful = f"{points[-1][1]:.1f} to {further:.1f}" if further else "-"
        rows.append(f"| {recipe} | {reached} | {hopeful} | {reported('omniglot', *recipe[:4]) or '-'} |")
    return "\n".join(rows)


def draw_budgets(lines: dict[Recipe, list], path: Path) -> Path:
    """Draws errors against lengths of training, both on logarithmic axes, and the extrapolations.

    Args:
        lines: what `budgets` gives.
        path: .png, .pdf or .svg file.
    """
    figure = new_figure(12.0, 6.0)
    axes = figure.subplots()
    models = list(dict.fromkeys(recipe[:4] for recipe in lines))
    looks = {}
    for number, model in enumerate(models):
        colour = COLOURS[number % len(COLOURS)]
        looks[model] = {
            "color": colour,
            "markerfacecolor": colour if number < len(COLOURS) else "white",
        }
    styles = {}
    for recipe, points in lines.items():
        look = looks[recipe[:4]]
        style = styles.setdefault(recipe[4:], ("o", "s", "^", "D", "v")[len(styles) % 5])
        lengths, accuracies, half = np.array(points, float).T
        axes.errorbar(lengths, 100 - accuracies, half, fmt=style, markersize=5, label=str(recipe), **look)
        further = extrapolate(points)
        if further:
            axes.plot(
                [lengths[0], PAPER_EPISODES],
                [100 - extrapolate(points, int(lengths[0])), 100 - further],
                "--",
                color=look["color"],
                linewidth=0.8,
            )
    for model in models:
        paper = reported("omniglot", *model)
        if paper:
            axes.plot(PAPER_EPISODES, 100 - paper, "*", markersize=12, **looks[model])
    axes.set(xscale="log", yscale="log", xlabel="training episodes", ylabel="test error, %")
    axes.set_title("Error and length of training; stars: the paper, dashed: power laws", fontsize=10)
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.yaxis.set_minor_formatter(ScalarFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(alpha=0.3, which="both")
    figure.legend(loc="outside lower center", ncols=2, fontsize=7, frameon=False)
    return save_figure(figure, path)
