"""Tells what is on images: python classify.py --model=my_model IMAGE_OR_FOLDER..."""

from __future__ import annotations

import csv
import glob
import io
import json
import os
import sys
from pathlib import Path

import numpy as np
from absl import flags
from tqdm import tqdm

from hypertransformer_tf.data.file_tree import is_visible
from hypertransformer_tf.errors import UserError, run_program
from hypertransformer_tf.evaluation.pictures import check_picture
from hypertransformer_tf.evaluation.records import text_table
from hypertransformer_tf.export.classifier import Classifier

FLAGS = flags.FLAGS
flags.DEFINE_string("model", None, "Folder that generate.py wrote, or a .tflite file in it.")
flags.DEFINE_enum("format", "table", ["table", "csv", "json"], "Form of the answers on standard output.")
flags.DEFINE_string("picture", None, "Also draw a contact sheet to this .png, .pdf or .svg file.")
flags.DEFINE_bool("strict", False, "Stop at a file that is no image, instead of leaving it out.")
flags.DEFINE_bool(
    "truth", True, "A file in a folder named like a class is taken to be of that class: print the accuracy."
)


def main(argv):
    if not FLAGS.model:
        raise UserError("--model is missing: classify.py --model=my_model IMAGE_OR_FOLDER...")
    if len(argv) < 2:
        raise UserError("no images: name files, folders or patterns, or - for a list on standard input")
    if FLAGS.picture is not None:
        check_picture(FLAGS.picture)
    files = list_files(argv[1:])
    classifier = Classifier(Path(FLAGS.model))
    bar = tqdm(total=len(files), unit="image", dynamic_ncols=True, mininterval=0.5, disable=len(files) < 1000)
    with bar:
        images, probabilities, problems = classifier.classify(files, bar.update)
    for problem in (problems[number] for number in sorted(problems)):
        if FLAGS.strict:
            raise UserError(problem)
        print(f"warning: left out: {' '.join(problem.split())}", file=sys.stderr)
    sound = [number for number in range(len(files)) if number not in problems]
    if not sound:
        raise UserError("none of the files is a readable image: see the lines above")
    files = [files[number] for number in sound]
    images, probabilities = images[sound], probabilities[sound]
    truths = [_truth(file, classifier.names) if FLAGS.truth else None for file in files]
    answers = [_answer(*each, classifier.names) for each in zip(files, probabilities, truths)]
    _print_answers(answers, truths, classifier.names)
    if FLAGS.picture:
        from hypertransformer_tf.analysis.contact_sheet import draw_contact_sheet

        draw_contact_sheet(Path(FLAGS.picture), images, probabilities, classifier.names, truths)
        print(f"picture: {FLAGS.picture}", file=sys.stderr)


def list_files(arguments) -> list[Path]:
    """Files named by arguments: files, folders (all files below them), patterns, - for a list on stdin."""
    files: list[Path] = []
    for argument in arguments:
        if argument == "-":
            lines = sys.stdin.buffer.read().splitlines()
            files += [Path(os.fsdecode(line)) for line in lines if line.strip()]
            continue
        if not argument:
            raise UserError("an empty file name was given: name files, folders or patterns")
        path = Path(argument)
        if path.is_dir():
            found = sorted(each for each in path.rglob("*") if each.is_file() and is_visible(each.name))
            if not found:
                raise UserError(f"the folder {path} holds no files: name another one")
            files += found
        elif path.exists():
            files.append(path)
        else:
            matches = sorted(glob.glob(argument, recursive=True))
            if not matches:
                raise UserError(f"{argument} does not exist: name files, folders or patterns that match some")
            files += list_files(matches)
    if not files:
        raise UserError("there are no files to classify: name images or folders of images")
    return files


def _truth(file: Path, names) -> int | None:
    """Class of the nearest folder above a file that is named like one."""
    for part in reversed(file.parts[:-1]):
        if part in names:
            return names.index(part)
    return None


def _answer(file: Path, probabilities: np.ndarray, truth: int | None, names) -> dict:
    order = np.argsort(-probabilities, kind="stable")
    answer = {
        "file": str(file),
        "class": names[order[0]],
        "probability": round(float(probabilities[order[0]]), 4),
        "runner_up": names[order[1]],
        "runner_up_probability": round(float(probabilities[order[1]]), 4),
    }
    if truth is not None:
        answer["truth"] = names[truth]
    return answer


def _print_answers(answers: list[dict], truths: list, names) -> None:
    known = [(truth, names.index(a["class"])) for truth, a in zip(truths, answers) if truth is not None]
    right = sum(truth == answer for truth, answer in known)
    matrix = np.zeros([len(names), len(names)], int)
    for truth, answer in known:
        matrix[truth, answer] += 1
    if FLAGS.format == "json":
        report = {"answers": answers}
        if known:
            report["accuracy"] = round(100 * right / len(known), 3)
            report["confusion"] = {"classes": list(names), "rows_are_truths": matrix.tolist()}
        print(json.dumps(report, indent=1, ensure_ascii=False))
    elif FLAGS.format == "csv":
        fields = ["file", "class", "probability", "runner_up", "runner_up_probability"]
        text = io.StringIO()
        writer = csv.DictWriter(text, [*fields, *(["truth"] if known else [])], restval="")
        writer.writeheader()
        writer.writerows(answers)
        sys.stdout.write(text.getvalue())
    else:
        rows = []
        for answer, truth in zip(answers, truths):
            wrong = truth is not None and names[truth] != answer["class"]
            row = [
                answer["file"],
                answer["class"],
                f"{answer['probability']:.3f}",
                answer["runner_up"],
                f"{answer['runner_up_probability']:.3f}",
                f"wrong: {names[truth]}" if wrong else "",
            ]
            rows.append([" ".join(cell.split()) for cell in row])
        print(text_table(["file", "class", "prob.", "runner-up", "prob.", ""], rows))
    if known and FLAGS.format != "json":
        out = sys.stdout if FLAGS.format == "table" else sys.stderr
        print(f"\naccuracy {100 * right / len(known):.1f}% ({right} of {len(known)} images)", file=out)
        header = ["truth \\ class", *map(str, range(len(names)))]
        rows = [
            [f"{index} {' '.join(name.split())}", *map(str, matrix[index])]
            for index, name in enumerate(names)
        ]
        print(text_table(header, rows), file=out)


if __name__ == "__main__":
    run_program(main)
