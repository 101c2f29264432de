"""generate.py, classify.py and export.py as a user runs them."""

import csv
import io
import json
import shutil
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from export_helpers import make_checkpoint, make_model
from PIL import Image

from hypertransformer_tf.evaluation.intervals import confidence_interval
from hypertransformer_tf.export.example_task import write_task
from hypertransformer_tf.training.trained import CHARACTERS


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """An untrained 5-way model for 16x16 grey images."""
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint") / "best-0000000001", make_model())


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    """Three classes with 2, 1 and 3 images, one file of them damaged."""
    folder = tmp_path_factory.mktemp("images") / "my classes"
    random = np.random.default_rng(0)
    for name, count in (("a cat", 2), ("ქ$", 1), ("dog", 3)):
        (folder / name).mkdir(parents=True)
        for number in range(count):
            pixels = random.integers(0, 256, [20 + number, 24]).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    (folder / "dog" / "notes.txt").write_text("no image")
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory, checkpoint, classes):
    """What generate.py makes of them."""
    output = tmp_path_factory.mktemp("models") / "my model"
    done = run(
        "generate.py",
        f"--checkpoint={checkpoint}",
        f"--support_dir={classes}",
        f"--output_dir={output}",
        "--tflite=float32,float16,int8",
        "--keras",
        "--npz",
    )
    assert done.returncode == 0, done.stderr
    assert "3 classes with 1 to 3 images each" in done.stdout and "leave-one-out" in done.stdout
    assert done.stderr.count("\n") == 1 and "notes.txt" in done.stderr
    return output


def run(name, *arguments, **options):
    """Runs a program of the project."""
    from conftest import ROOT

    command = [sys.executable, str(ROOT / name), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


def test_the_output_is_complete(model):
    card = json.loads((model / "model.json").read_text())
    assert [each["name"] for each in card["classes"]] == ["a cat", "dog", "ქ$"]
    assert [each["support_images"] for each in card["classes"]] == [2, 3, 1]
    assert card["expected_accuracy"]["images"] == 5  # the class with one image is not asked
    assert len(card["left_out"]) == 1
    for name, size in card["bytes"].items():
        assert (model / name).stat().st_size == size
    assert {f"model_{kind}.tflite" for kind in ("float32", "float16", "int8")} <= set(card["bytes"])
    assert (model / "model.keras").exists() and (model / "weights.npz").exists()
    assert (model / "labels.txt").read_text().splitlines() == ["a cat", "dog", "ქ$"]
    readme = (model / "README.md").read_text()
    assert "a cat" in readme and "serve_bytes" in readme


def test_table_csv_and_json_say_the_same(model, classes):
    table = run("classify.py", f"--model={model}", classes)
    assert table.returncode == 0 and "accuracy" in table.stdout and "truth \\ class" in table.stdout
    as_csv = run("classify.py", f"--model={model}", "--format=csv", classes)
    rows = list(csv.DictReader(io.StringIO(as_csv.stdout)))
    assert len(rows) == 6 and {row["truth"] for row in rows} == {"a cat", "dog", "ქ$"}
    report = json.loads(run("classify.py", f"--model={model}", "--format=json", classes).stdout)
    assert [a["class"] for a in report["answers"]] == [row["class"] for row in rows]
    matrix = np.array(report["confusion"]["rows_are_truths"])
    assert matrix.sum() == 6 and report["accuracy"] == pytest.approx(100 * np.trace(matrix) / 6, abs=1e-3)
    for row in rows:
        assert row["file"] in table.stdout and row["class"] in table.stdout
        assert float(row["probability"]) >= float(row["runner_up_probability"])
    assert "notes.txt" in table.stderr and table.stderr.count("\n") == 1


@pytest.mark.parametrize("kind, tolerance", [("float32", 1e-3), ("float16", 0.02), ("int8", 0.2)])
def test_tflite_answers_like_the_saved_model(model, classes, kind, tolerance):
    def probabilities(place):
        done = run("classify.py", f"--model={place}", "--format=json", classes / "dog")
        return [a["probability"] for a in json.loads(done.stdout)["answers"]]

    np.testing.assert_allclose(
        probabilities(model / f"model_{kind}.tflite"), probabilities(model), atol=tolerance
    )


def test_files_patterns_lists_and_a_picture(model, classes, tmp_path):
    picture = tmp_path / "sheet.png"
    listed = run(
        "classify.py",
        f"--model={model}",
        "--format=csv",
        f"--picture={picture}",
        "--notruth",
        classes / "dog" / "0.png",
        classes / "*" / "1.png",
        "-",
        input=f"{classes / 'dog' / '2.png'}\n",
    )
    assert listed.returncode == 0, listed.stderr
    files = [row["file"] for row in csv.DictReader(io.StringIO(listed.stdout))]
    assert [file.split("/")[-2:] for file in files] == [
        ["dog", "0.png"],
        ["a cat", "1.png"],
        ["dog", "1.png"],
        ["dog", "2.png"],
    ]
    assert "accuracy" not in listed.stdout + listed.stderr
    assert Image.open(picture).width > 300


def test_the_saved_model_needs_nothing_of_this_package(model, classes, tmp_path):
    script = """
import sys
import tensorflow as tf
model = tf.saved_model.load(sys.argv[1])
answer = model.signatures["serve_bytes"](encoded=tf.constant([open(f, "rb").read() for f in sys.argv[2:]]))
assert not any(name.startswith("hypertransformer") for name in sys.modules)
print([name.decode() for name in answer["class_name"].numpy()])
"""
    files = sorted(map(str, classes.glob("*/*.png")))
    alone = subprocess.run(
        [sys.executable, "-I", "-c", script, str(model), *files],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    answers = json.loads(run("classify.py", f"--model={model}", "--format=json", *files).stdout)["answers"]
    assert alone.stdout.strip() == str([answer["class"] for answer in answers])


def one_line(done, *words):
    assert done.returncode == 2, done.stdout + done.stderr
    lines = [line for line in done.stderr.splitlines() if not line.startswith("warning:")]
    assert len(lines) == 1 and "Traceback" not in done.stderr
    for word in words:
        assert word in lines[0], lines[0]


def test_mistakes_with_generate(model, classes, checkpoint, tmp_path):
    good = [f"--checkpoint={checkpoint}", f"--support_dir={classes}"]
    one_line(run("generate.py"), "--support_dir")
    one_line(run("generate.py", *good, f"--output_dir={model}"), "exists", "--overwrite")
    one_line(run("generate.py", *good, f"--output_dir={classes}", "--overwrite"), "holds other things")
    one_line(run("generate.py", *good, f"--output_dir={classes / 'dog' / 'model'}"), "outside")
    one_line(run("generate.py", *good, f"--output_dir={tmp_path / 'out'}", "--nosuch"), "nosuch")
    output = f"--output_dir={tmp_path / 'out'}"
    one_line(run("generate.py", f"--support_dir={classes}", "--checkpoint=nowhere", output), "nowhere")
    one_line(run("generate.py", *good, output, "--statistics=query"), "each image alone")
    one_line(run("generate.py", *good, output, "--tflite=float8"), "float8")
    one_line(run("generate.py", *good, output, "--strict"), "notes.txt")
    archive = tmp_path / "classes.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.write(classes / "dog" / "0.png", "dog/0.png")
    one_line(run("generate.py", *good[:1], f"--support_dir={archive}", output), "is a file")
    cut = shutil.copytree(checkpoint, tmp_path / "cut")
    (cut / "model.npz").write_bytes((cut / "model.npz").read_bytes()[:1000])
    one_line(run("generate.py", good[1], f"--checkpoint={cut}", output), "damaged")
    for name in ("a", "b", "c", "d", "e", "f"):
        shutil.copytree(classes / "a cat", tmp_path / "six" / name)
    one_line(run("generate.py", good[0], f"--support_dir={tmp_path / 'six'}", output), "6 classes", "for 5")
    assert not (tmp_path / "out").exists()


def test_mistakes_with_classify(model, classes, tmp_path):
    image = classes / "dog" / "0.png"
    one_line(run("classify.py", image), "--model")
    one_line(run("classify.py", f"--model={model}"), "no images")
    one_line(run("classify.py", f"--model={tmp_path}", image), "generate.py")
    one_line(run("classify.py", f"--model={model}", "missing.png"), "missing.png")
    one_line(run("classify.py", f"--model={model}", classes / "dog" / "notes.txt"), "none of the files")
    one_line(run("classify.py", f"--model={model}", "--strict", classes), "notes.txt")
    one_line(run("classify.py", f"--model={model}", "--picture=sheet.bmp", image), "sheet.bmp")
    one_line(run("classify.py", f"--model={model}", f"--picture={image}/sheet.png", image), "no folder")
    cut = shutil.copytree(model, tmp_path / "cut")
    content = (cut / "model_float32.tflite").read_bytes()
    (cut / "model_float32.tflite").write_bytes(content[:3000])
    one_line(run("classify.py", f"--model={cut / 'model_float32.tflite'}", image), "damaged")
    card = (cut / "model.json").read_text()
    (cut / "model.json").write_text(card.replace('"height": 16', '"height": 30'))
    one_line(run("classify.py", f"--model={cut}", image), "another model")
    broken = shutil.copytree(model, tmp_path / "broken")
    (broken / "saved_model.pb").write_bytes(b"nonsense")
    one_line(run("classify.py", f"--model={broken}", image), "damaged")


def test_overwriting_replaces_the_old_model(checkpoint, classes, tmp_path):
    output = tmp_path / "out"
    arguments = ["generate.py", f"--checkpoint={checkpoint}", f"--output_dir={output}"]
    assert run(*arguments, f"--support_dir={classes}").returncode == 0
    two = tmp_path / "two"
    shutil.copytree(classes / "dog", two / "x")
    shutil.copytree(classes / "a cat", two / "y")
    assert run(*arguments, f"--support_dir={two}", "--overwrite").returncode == 0
    assert (output / "labels.txt").read_text() == "x\ny\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "two"]


def test_export_writes_the_generator(checkpoint, tmp_path):
    done = run("export.py", f"--checkpoint={checkpoint}", f"--output_dir={tmp_path / 'generator' / '1'}")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "generator" / "1" / "saved_model.pb").exists()
    again = run("export.py", f"--checkpoint={checkpoint}", f"--output_dir={tmp_path / 'generator' / '1'}")
    one_line(again, "--overwrite")


@pytest.mark.slow
def test_characters_of_alphabets_never_seen(tmp_path):
    """The checkpoint that comes with the project, on letters drawn from fonts, through the programs."""
    from hypertransformer_tf.data.glyphs import load_glyphs

    test = load_glyphs().test
    accuracies = []
    for task in range(3):
        folder = tmp_path / str(task)
        write_task(test, folder, way=5, shot=3, query=10, task=task)
        made = run("generate.py", f"--support_dir={folder / 'classes'}", f"--output_dir={folder / 'model'}")
        assert made.returncode == 0, made.stderr
        done = run("classify.py", f"--model={folder / 'model'}", "--format=json", folder / "images")
        accuracies.append(json.loads(done.stdout)["accuracy"])
    assert CHARACTERS.exists() and confidence_interval(np.array(accuracies)).mean > 70.0


@pytest.mark.slow
def test_grocery_photographs_end_to_end(data_dir, tmp_path):
    """A small RGB model is trained for a moment on photographs; its CNN does better than chance."""
    with zipfile.ZipFile(data_dir / "grocery" / "grocery_84.zip") as archive:
        archive.extractall(tmp_path)
    (photographs,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    names = sorted(path.name for path in photographs.iterdir() if path.is_dir())
    bindings = [
        "load_splits.name = 'folder'",
        "load_splits.channels = 3",
        "load_splits.image_size = 32",
        "load_splits.train = '0-44'",
        "load_splits.val = '45-54'",
        f"load_splits.test = '55-{len(names) - 1}'",
        "Task.way = 5",
        "Task.query = 25",
        "HyperTransformer.channels = 16",
        "HyperTransformer.num_learned_layers = 4",
        "HyperTransformer.block_order = 'conv-bn-act-pool'",
        "Optimizer.kind = 'adam'",
        "LearningRate.rate = 0.001",
        "LearningRate.schedule = 'constant'",
        "train.episodes = 3000",
        "train.validate_episodes = 1000",
    ]
    (tmp_path / "grocery.gin").write_text("\n".join(bindings) + "\n")
    trained = run(
        "train.py",
        f"--gin_file={tmp_path / 'grocery.gin'}",
        f"--data_dir={photographs}",
        f"--workdir={tmp_path / 'run'}",
    )
    assert trained.returncode == 0, trained.stderr
    random = np.random.default_rng(0)
    for name in random.permutation(names)[:5]:
        files = sorted((photographs / name).rglob("*.*"))
        for part, chosen in (("support", files[:3]), ("query", files[3:13])):
            (tmp_path / part / name).mkdir(parents=True)
            for file in chosen:
                shutil.copy(file, tmp_path / part / name / file.name)
    made = run(
        "generate.py",
        f"--checkpoint={tmp_path / 'run'}",
        f"--support_dir={tmp_path / 'support'}",
        f"--output_dir={tmp_path / 'model'}",
        "--tflite=int8",
    )
    assert made.returncode == 0, made.stderr
    for place in (tmp_path / "model", tmp_path / "model" / "model_int8.tflite"):
        done = run("classify.py", f"--model={place}", "--format=json", tmp_path / "query")
        assert json.loads(done.stdout)["accuracy"] > 35.0
