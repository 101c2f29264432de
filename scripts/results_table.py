"""Renders the tables of README.md from the JSON records under results/.

python scripts/results_table.py            # rewrites README.md between the markers
python scripts/results_table.py --check    # exit code 1 when README.md is not what the records say
"""

import sys
from pathlib import Path

from absl import flags

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from hypertransformer_tf.errors import UserError, run_program  # noqa: E402
from hypertransformer_tf.evaluation.paper import PAPER  # noqa: E402
from hypertransformer_tf.evaluation.records import FIELDS, read_records  # noqa: E402

FLAGS = flags.FLAGS
flags.DEFINE_bool("check", False, "Only compare.")
flags.DEFINE_string("readme", str(ROOT / "README.md"), "File to rewrite.")
flags.DEFINE_string("results", str(ROOT / "results"), "Folder of the records.")

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"


def render(records: dict[str, dict]) -> str:
    """Markdown table with one line for each evaluated model, from the records of its statistics sources."""
    models: dict[tuple, dict[str, dict]] = {}
    for record in records.values():
        if set(FIELDS) <= set(record):
            key = tuple(
                record[name]
                for name in (
                    "dataset",
                    "split",
                    "way",
                    "shot",
                    "channels",
                    "generated",
                    "episodes_trained",
                    "checkpoint",
                )
            )
            models.setdefault(key, {})[record["statistics"]] = record
    lines = [
        "| data, classes | task | channels, generated | paper | support | query | moving | tasks x images | "
        "episodes trained | minutes | hardware |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for key in sorted(models, key=str):
        dataset, split, way, shot, channels, generated, episodes, _ = key
        by_source = models[key]
        one = next(iter(by_source.values()))
        cells = [
            f"{by_source[s]['accuracy']:.2f} ± {by_source[s]['ci95']:.2f}" if s in by_source else "-"
            for s in ("support", "query", "moving")
        ]
        paper = PAPER.get((dataset, way, shot, channels), "-")
        lines.append(
            f"| {dataset}, {split} | {way}-way {shot}-shot | {channels}, {generated} | {paper} | "
            + " | ".join(cells)
            + f" | {one['tasks']} x {one['query_per_task']} | {episodes:,} "
            f"| {one['train_seconds'] / 60:.0f} | {one['hardware']} |"
        )
    return "\n".join(lines)


def main(_):
    readme = Path(FLAGS.readme)
    text = readme.read_text()
    if BEGIN not in text or END not in text:
        raise UserError(f"{readme} has no {BEGIN} ... {END}: put the markers where the table belongs")
    before, rest = text.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    rendered = f"{before}{BEGIN}\n{render(read_records(Path(FLAGS.results)))}\n{END}{after}"
    if FLAGS.check:
        if rendered != text:
            raise UserError(f"{readme} differs from the records: run python scripts/results_table.py")
        return
    temporary = readme.with_name(f".{readme.name}.part")
    temporary.write_text(rendered)
    temporary.replace(readme)


if __name__ == "__main__":
    run_program(main)
