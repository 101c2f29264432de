"""Trains and evaluates rows of the paper's tables and figures, and renders what came out.

    python scripts/reproduce.py --list
    python scripts/reproduce.py --row=table1/omniglot_1shot_8ch --data_dir=FOLDER
    python scripts/reproduce.py --table=table4 --gin_file=gin/fast.gin --budget_episodes=100000
    python scripts/reproduce.py --render

A row is a file gin/paper/<row>.gin. Its training goes on where it stopped; records go to results/. A budget,
further configuration files and bindings change what is trained: the table says all of that.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

from absl import flags

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from hypertransformer_tf.analysis.budgets import budgets, draw_budgets, table_of_budgets  # noqa: E402
from hypertransformer_tf.errors import UserError, run_program  # noqa: E402
from hypertransformer_tf.evaluation.records import OWN_AVERAGES, cell, read_records, write_record  # noqa: E402
from hypertransformer_tf.storage import write_text  # noqa: E402

FLAGS = flags.FLAGS
flags.DEFINE_bool("list", False, "Print the rows and the paper's figures.")
flags.DEFINE_multi_string("row", [], "A row, such as table1/omniglot_1shot_8ch; may be given several times.")
flags.DEFINE_multi_string("table", [], "All rows of a folder of gin/paper, such as table4.")
flags.DEFINE_multi_string("gin_file", [], "Further configuration on top of a row, such as gin/fast.gin.")
flags.DEFINE_multi_string("gin_bindings", [], "One binding on top of a row.")
flags.DEFINE_integer("budget_episodes", None, "Train so many episodes instead of the paper's 4,000,000.", 1)
flags.DEFINE_string("checkpoint", None, "Evaluate this checkpoint instead of training (one row only).")
flags.DEFINE_string("data_dir", None, "Where data sets are; default: $HYPERTRANSFORMER_DATA.")
flags.DEFINE_string("runs", str(ROOT / "runs" / "paper"), "Folder of the trainings.")
flags.DEFINE_string("results", str(ROOT / "results"), "Folder of the records.")
flags.DEFINE_string("variant", None, "Name of a changed row in records; default: made from the changes.")
flags.DEFINE_integer("tasks", 1024, "Tasks to evaluate on.", 1)
flags.DEFINE_integer("query_batches", 16, "Query batches of a task.", 1)
flags.DEFINE_integer("query_batch_size", 100, "Query images of a batch.", 1)
flags.DEFINE_bool("render", False, "Write the table of all records of rows to results/PAPER.md.")
flags.DEFINE_bool("check", False, "Evaluate shipped checkpoints again; fail where a record does not hold.")

PAPER = ROOT / "gin" / "paper"
CHECKPOINTS = ROOT / "results" / "checkpoints"


def all_rows() -> dict[str, dict]:
    """{row: what the head of its file says: "title", "paper", "hours"}."""
    rows = {}
    for file in sorted(PAPER.glob("*/*.gin")):
        head = [line[1:].strip() for line in file.read_text().splitlines() if line.startswith("#")]
        fields = dict(line.split(": ", 1) for line in head if re.match(r"(paper|hours): ", line))
        rows[f"{file.parent.name}/{file.stem}"] = {"title": head[0], **fields}
    return rows


def variant() -> str:
    """What makes the training differ from the row, as part of file names; empty when nothing does."""
    if FLAGS.variant:
        return f"_{FLAGS.variant}"
    parts = [Path(file).stem for file in FLAGS.gin_file]
    parts += [re.sub(r"[^\w.-]+", "-", binding).strip("-") for binding in FLAGS.gin_bindings]
    if FLAGS.budget_episodes:
        parts.append(f"{FLAGS.budget_episodes}")
    return "".join(f"_{part}" for part in parts)


def reproduce(row: str, about: dict) -> None:
    """Trains (or goes on with) and evaluates one row."""
    name = row.replace("/", "_") + variant()
    workdir = Path(FLAGS.runs) / name
    data = [f"--data_dir={FLAGS.data_dir}"] if FLAGS.data_dir else []
    print(f"{row}: {about['title']}", flush=True)
    if FLAGS.checkpoint:
        place = FLAGS.checkpoint
    elif row.startswith("oracle/"):
        record = f"--json={Path(FLAGS.results) / name}.json"
        _run("scripts/oracle.py", f"--gin_file={PAPER / row}.gin", record, *data)
        return
    else:
        bindings = list(FLAGS.gin_bindings)
        if FLAGS.budget_episodes:
            every = max(1, FLAGS.budget_episodes // 20)
            bindings += [
                f"train.episodes = {FLAGS.budget_episodes}",
                f"train.validate_episodes = {every}",
                f"train.checkpoint_episodes = {every}",
            ]
        files = [f"{PAPER / row}.gin", *FLAGS.gin_file]
        given = [f"--gin_file={file}" for file in files] + [f"--gin_bindings={b}" for b in bindings]
        _run("train.py", f"--workdir={workdir}", *given, *data)
        place = workdir
    _run(
        "evaluate.py",
        f"--checkpoint={place}",
        f"--output_dir={FLAGS.results}",
        f"--name={name}",
        f"--tasks={FLAGS.tasks}",
        f"--query_batches={FLAGS.query_batches}",
        f"--query_batch_size={FLAGS.query_batch_size}",
        *data,
    )
    (Path(FLAGS.results) / f"{name}_test.csv").unlink()
    changes = [f"{FLAGS.budget_episodes:,} episodes"] if FLAGS.budget_episodes else []
    changes += [Path(file).name for file in FLAGS.gin_file] + list(FLAGS.gin_bindings)
    for source in ("support", "query", "moving"):
        file = Path(FLAGS.results) / f"{name}_test_{source}.json"
        record = json.loads(file.read_text())
        record.update(row=row, paper=about["paper"], changes=changes, checkpoint=Path(place).name)
        write_record(file, record)


def render(records: dict[str, dict]) -> str:
    """The table of all rows that there are records of."""
    lines = [
        "# Rows of the paper's tables, as far as they were run",
        "",
        "Rendered from the records by `python scripts/reproduce.py --render`. Accuracies in percent with 95%",
        "confidence intervals over tasks. The paper's figures are of 4,000,000 episodes.",
        "",
        "| row | paper | ours | BN statistics | tasks x images | episodes | changed | seed | hardware |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for record in sorted(
        (r for r in records.values() if "row" in r),
        key=lambda r: (r["row"], r["episodes_trained"], r["seed"], r["statistics"]),
    ):
        lines.append(
            f"| {record['row']} | {record['paper']} | {cell(record)} "
            f"| {record['statistics']} | {record['tasks']} x {record['query_per_task']} "
            f"| {record['episodes_trained']:,} | {', '.join(record['changes']) or 'nothing'} "
            f"| {record['seed']} | {record['hardware']} |"
        )
    lines += [
        "",
        OWN_AVERAGES,
        "",
        "## What a budget buys",
        "",
        "Omniglot, test classes, statistics of the support set; runs of several lengths, each with its own",
        "schedule to the end. After 4,000,000 episodes the accuracy would be between what was reached, if",
        "nothing more is learned, and a power law through the points. The latter has no floor, and there are",
        "1,150 training characters, so it is the most that can be hoped for.",
        "",
        table_of_budgets(budgets(records)),
        "",
        "![Test error and length of training](budgets.png)",
    ]
    return "\n".join(lines) + "\n"


def check() -> None:
    """Evaluates shipped checkpoints as their records say; fails when an accuracy is another one."""
    for name, record in read_records(Path(FLAGS.results)).items():
        place = CHECKPOINTS / Path(record["checkpoint"]).name
        if not place.is_dir():
            continue
        folder = Path(FLAGS.runs) / "check"
        data = [f"--data_dir={FLAGS.data_dir}"] if FLAGS.data_dir else []
        _run(
            "evaluate.py",
            f"--checkpoint={place}",
            f"--output_dir={folder}",
            f"--name={name}",
            f"--split={record['split']}",
            f"--statistics={record['statistics']}",
            f"--tasks={record['tasks']}",
            f"--query_batches={record['query_per_task'] // record['query_batch_size']}",
            f"--query_batch_size={record['query_batch_size']}",
            f"--seed={record['evaluation_seed']}",
            *data,
        )
        again = json.loads((folder / f"{name}_{record['split']}_{record['statistics']}.json").read_text())
        if abs(again["accuracy"] - record["accuracy"]) > 0.02:
            raise UserError(
                f"results/{name}.json says {record['accuracy']}, evaluated again it is {again['accuracy']}"
            )
        print(f"{name}: {record['accuracy']} holds", flush=True)


def _run(program: str, *arguments: str) -> None:
    if subprocess.run([sys.executable, str(ROOT / program), *arguments]).returncode:
        raise UserError(f"{program} failed: its message is above")


def main(_):
    rows = all_rows()
    chosen = [row for table in FLAGS.table for row in rows if row.startswith(f"{table}/")] + FLAGS.row
    for row in chosen:
        if row not in rows:
            raise UserError(f"--row={row}: there is no gin/paper/{row}.gin; --list prints all rows")
    for table in FLAGS.table:
        if not any(row.startswith(f"{table}/") for row in rows):
            raise UserError(f"--table={table}: no such folder in gin/paper; --list prints all rows")
    if FLAGS.checkpoint and len(chosen) != 1:
        raise UserError("--checkpoint needs exactly one --row")
    if not (chosen or FLAGS.list or FLAGS.render or FLAGS.check):
        raise UserError("nothing to do: give --row, --table, --list, --render or --check")
    if FLAGS.list:
        for row, about in rows.items():
            print(f"{row:45} paper: {about['paper']:30} {about['hours']}")
    for row in chosen:
        reproduce(row, rows[row])
    if FLAGS.check:
        check()
    if FLAGS.render:
        records = read_records(Path(FLAGS.results))
        write_text(Path(FLAGS.results) / "PAPER.md", render(records))
        draw_budgets(budgets(records), Path(FLAGS.results) / "budgets.png")
        print(f"{Path(FLAGS.results) / 'PAPER.md'} written")


if __name__ == "__main__":
    run_program(main)
