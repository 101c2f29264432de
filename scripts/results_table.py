"""Renders the tables of README.md from the JSON records under results/.

python scripts/results_table.py            # rewrites README.md between the markers
python scripts/results_table.py --check    # exit code 2 when README.md is not what the records say
"""

import json
import sys
from pathlib import Path

from absl import flags

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from hypertransformer_tf.errors import UserError, run_program  # noqa: E402
from hypertransformer_tf.evaluation.paper import PAPER  # noqa: E402
from hypertransformer_tf.evaluation.records import FIELDS, OWN_AVERAGES, bound, cell, read_records  # noqa: E402
from hypertransformer_tf.storage import write_text  # noqa: E402

FLAGS = flags.FLAGS
flags.DEFINE_bool("check", False, "Only compare.")
flags.DEFINE_string("readme", str(ROOT / "README.md"), "File to rewrite.")
flags.DEFINE_string("results", str(ROOT / "results"), "Folder of the records.")

# Method in records, what it generates -> name in the comparison, in the table's order.
METHODS = {
    ("hypertransformer", "all"): "HyperTransformer, all layers",
    ("hypertransformer", "logits"): "HyperTransformer, logits layer",
    ("protonet", "logits"): "ProtoNet",
    ("imprinted", "logits"): "imprinted weights",
    ("rfs", "logits"): "RFS",
    ("rfs, distilled", "logits"): "RFS, distilled",
    ("maml, first order", "all"): "MAML, first order",
    ("maml", "all"): "MAML",
    ("maml++", "all"): "MAML++",
}


def render(records: dict[str, dict]) -> str:
    """Markdown table with one line for each evaluated model, from the records of its statistics sources.

    Records of rows of the paper are left to `scripts/reproduce.py`.
    """
    models: dict[str, dict[str, dict]] = {}
    for name, record in records.items():
        if set(FIELDS) <= set(record) and "row" not in record:
            run = name.removesuffix(f"_{record['split']}_{record['statistics']}")
            models.setdefault(run, {})[record["statistics"]] = record
    lines = [
        "| run | data, classes | task | channels, generated | paper | support | query | moving "
        "| tasks x images | episodes | minutes | parameters: trained, CNN | checkpoint |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for run, by_source in sorted(models.items()):
        one = next(iter(by_source.values()))
        cells = [
            cell(by_source[source]) if source in by_source else "-"
            for source in ("support", "query", "moving")
        ]
        paper = PAPER.get((one["dataset"], one["way"], one["shot"], one["channels"]), "-")
        what, method = one["generated"], one.get("method", "hypertransformer")  # older records don't say it
        if method != "hypertransformer":  # the paper's figures are the HyperTransformer's
            paper, what = "-", method
        lines.append(
            f"| {run} | {one['dataset']}, {one['split']} | {one['way']}-way {one['shot']}-shot "
            f"| {one['channels']}, {what} | {paper} | "
            + " | ".join(cells)
            + f" | {one['tasks']} x {one['query_per_task']} | {one['episodes_trained']:,} "
            f"| {one['train_seconds'] / 60:.0f} | {_parameters(one)} | {_shipped(one)} |"
        )
    hardware = {record["hardware"] for record in records.values()}
    return "\n".join(
        [*lines, "", f"Trained and evaluated on: {', '.join(sorted(hardware))}.", "", OWN_AVERAGES]
    )


def _parameters(record: dict) -> str:
    """Trained parameters and those of one CNN; older records don't say them."""
    if "parameters" not in record:
        return "-"
    return f"{record['parameters']:,}, {record['cnn_parameters']:,}"


def _shipped(record: dict) -> str:
    """Whether the checkpoint is in the repository."""
    name = record["checkpoint"]
    return f"`{name}`" if (ROOT / "results" / "checkpoints" / Path(name).name).is_dir() else "-"


def render_comparison(records: dict[str, dict]) -> str:
    """Markdown: Omniglot 20-way 1-shot, a line for each method and budget, a column for each width.

    RFS and imprinted weights with moving averages, which their support features are read with, the others
    with statistics of the support set. The budget is the length of the training; random starts are left out.
    """
    found: dict[tuple, dict[int, str]] = {}
    for record in records.values():
        task = tuple(record.get(field) for field in ("dataset", "split", "way", "shot"))
        method, source = (record.get("method"), record.get("generated")), record.get("statistics")
        if task != ("omniglot", "test", 20, 1) or method not in METHODS:
            continue
        if bound(record["config"], "HyperTransformer.initialization") == "'random'":
            continue
        if source == ("moving" if method[0].startswith(("rfs", "imprinted")) else "support"):
            line = list(METHODS).index(method), source, int(bound(record["config"], "train.episodes"))
            found.setdefault(line, {})[record["channels"]] = cell(record)
    widths = sorted({width for cells in found.values() for width in cells})
    lines = [
        "| method | statistics | episodes | " + " | ".join(f"{width} channels" for width in widths) + " |",
        "|---|---|---|" + "---|" * len(widths),
    ]
    for (method, source, episodes), cells in sorted(found.items()):
        columns = " | ".join(cells.get(width, "-") for width in widths)
        lines.append(f"| {list(METHODS.values())[method]} | {source} | {episodes:,} | {columns} |")
    paper = [PAPER.get(("omniglot", 20, 1, width), "-") for width in widths]
    lines.append(f"| paper's HyperTransformer | query | 4,000,000 | {' | '.join(map(str, paper))} |")
    return "\n".join(lines)


def render_adaptation(record: dict) -> str:
    """Markdown: what a task and an image cost each method, from the benchmark's record."""
    channels = record["channels"]
    lines = [
        f"| {record['task']}, {record['hardware']} | "
        + " | ".join(f"{width} channels" for width in channels)
        + " |",
        "|---|" + "---|" * len(channels),
    ]

    def line(label: str, cells: list[dict]) -> None:
        texts = [f"{cell['multiply_adds'] / 1e6:.3g} M, {cell['ms']:.2g} ms" for cell in cells]
        lines.append(f"| {label} | {' | '.join(texts)} |")

    for method in next(iter(channels.values()))["adaptation"]:
        fit = " (multiply-adds without the fit's)" if method == "RFS" else ""
        line(f"a task: {method}{fit}", [of["adaptation"][method] for of in channels.values()])
    line("then an image, any method, 100 at a time", [of["image"] for of in channels.values()])
    return "\n".join(lines)


def render_exports(record: dict) -> str:
    """Markdown: accuracies, sizes and times of exported classifiers, from the benchmark's record."""
    speed = record["speed"]
    lines = [
        f"Measured through the programs by `scripts/benchmark_export.py` on {record['hardware']}, "
        f"checkpoint `{record['checkpoint']}`:",
        "",
        "| data | task | accuracy % | leave-one-out says % | `generate.py`, seconds |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {t['data']} | {t['way']}-way {t['shot']}-shot, {t['tasks']} tasks | {t['accuracy']:.1f} ± "
        f"{t['ci95']:.1f} | {t.get('leave_one_out', '-')} | {t['generate_seconds']:.1f} |"
        for t in record["tasks"]
    ]
    lines += [
        "",
        f"| {speed['way']}-way CNN | {speed['parameters']:,} parameters, {speed['multiply_adds']:,} "
        "multiply-adds per image |",
        "|---|---|",
        f"| writing its weights, once the generator is loaded | {speed['generation_ms']:.1f} ms |",
        "| TFLite float32, float16, int8 | "
        + ", ".join(f"{size / 1000:.1f}" for size in speed["tflite_bytes"].values())
        + " kB |",
        "| TFLite, one image on one core | "
        + ", ".join(f"{ms:.3f}" for ms in speed["tflite_ms_per_image"].values())
        + " ms |",
        f"| `classify.py` on {speed['classified_images']:,} image files | "
        f"{speed['classify_command_seconds']:.1f} s |",
    ]
    return "\n".join(lines)


def render_speed(record: dict) -> str:
    """Markdown: episodes per second of every configuration and side, ratios, and stages of a step."""
    configurations = record["configurations"]
    sides = list(
        dict.fromkeys(side for found in configurations.values() for side in found["episodes_per_second"])
    )
    lines = [
        f"| {record['hardware']} | " + " | ".join(configurations) + " |",
        "|---" * (len(configurations) + 1) + "|",
    ]
    for side in sides:
        cells = []
        for found in configurations.values():
            rates = found["episodes_per_second"]
            cell = f"{rates[side]:,.1f}" if side in rates else "-"
            plain = rates.get(side.split(",")[0] + ", plain")
            cells.append(f"{cell} ({rates[side] / plain:.1f}x)" if side in rates and plain else cell)
        lines.append(f"| {side} | " + " | ".join(cells) + " |")
    lines += ["", "| ms of an episode | " + " | ".join(configurations) + " |", lines[1]]
    for stage in next(iter(configurations.values()))["stages_ms"]:
        cells = [f"{found['stages_ms'][stage]:.2f}" for found in configurations.values()]
        lines.append(f"| {stage} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def fill(text: str, part: str, content: str) -> str:
    """Puts content between the markers of a part; raises UserError when there are none."""
    begin, end = f"<!-- {part}: begin -->", f"<!-- {part}: end -->"
    if begin not in text or end not in text:
        raise UserError(f"{FLAGS.readme} has no {begin} ... {end}: put the markers where it belongs")
    before, rest = text.split(begin, 1)
    return f"{before}{begin}\n{content}\n{end}{rest.split(end, 1)[1]}"


def main(_):
    readme, results = Path(FLAGS.readme), Path(FLAGS.results)
    text = readme.read_text()
    records = read_records(results)
    rendered = fill(text, "results", render(records))
    rendered = fill(rendered, "comparison", render_comparison(records))
    for part, file, renderer in (
        ("exports", "export", render_exports),
        ("speed", "training", render_speed),
        ("adaptation", "adaptation", render_adaptation),
    ):
        figures = json.loads((results / "benchmarks" / f"{file}.json").read_text())
        rendered = fill(rendered, part, renderer(figures))
    if FLAGS.check:
        if rendered != text:
            raise UserError(f"{readme} differs from the records: run python scripts/results_table.py")
        return
    write_text(readme, rendered)


if __name__ == "__main__":
    run_program(main)
