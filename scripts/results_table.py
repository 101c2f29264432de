"""Renders the tables of README.md from the JSON records under results/.

python scripts/results_table.py            # rewrites README.md between the markers
python scripts/results_table.py --check    # exit code 1 when README.md is not what the records say
"""

import json
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

EXPORTS = "benchmarks/export.json"


def render(records: dict[str, dict]) -> str:
    """Markdown table with one line for each evaluated model, from the records of its statistics sources."""
    models: dict[tuple, dict[str, dict]] = {}
    for record in records.values():
        if set(FIELDS) <= set(record):
            key = tuple(
                record.get(name, "hypertransformer")  # older records don't say their method
                for name in (
                    "dataset",
                    "split",
                    "way",
                    "shot",
                    "channels",
                    "generated",
                    "episodes_trained",
                    "checkpoint",
                    "method",
                )
            )
            models.setdefault(key, {})[record["statistics"]] = record
    lines = [
        "| data, classes | task | channels, generated | paper | support | query | moving | tasks x images | "
        "episodes trained | minutes | hardware |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for key in sorted(models, key=str):
        dataset, split, way, shot, channels, generated, episodes, _, method = key
        by_source = models[key]
        one = next(iter(by_source.values()))
        cells = [
            f"{by_source[s]['accuracy']:.2f} ± {by_source[s]['ci95']:.2f}" if s in by_source else "-"
            for s in ("support", "query", "moving")
        ]
        paper, what = PAPER.get((dataset, way, shot, channels), "-"), generated
        if method != "hypertransformer":  # the paper's figures are the HyperTransformer's
            paper, what = "-", method
        lines.append(
            f"| {dataset}, {split} | {way}-way {shot}-shot | {channels}, {what} | {paper} | "
            + " | ".join(cells)
            + f" | {one['tasks']} x {one['query_per_task']} | {episodes:,} "
            f"| {one['train_seconds'] / 60:.0f} | {one['hardware']} |"
        )
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
    rendered = fill(text, "results", render(read_records(results)))
    if (results / EXPORTS).exists():
        rendered = fill(rendered, "exports", render_exports(json.loads((results / EXPORTS).read_text())))
    if FLAGS.check:
        if rendered != text:
            raise UserError(f"{readme} differs from the records: run python scripts/results_table.py")
        return
    temporary = readme.with_name(f".{readme.name}.part")
    temporary.write_text(rendered)
    temporary.replace(readme)


if __name__ == "__main__":
    run_program(main)
