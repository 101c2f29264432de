"""A training step as StableHLO, run by JAX's client with TensorFlow's results."""

import importlib.util
import json

import pytest

from hypertransformer_tf.backend import tf
from hypertransformer_tf.export.training_step import ExportedStep

HAS_JAX = importlib.util.find_spec("jax") is not None
BINDINGS = [
    "Task.way = 3",
    "Task.query = 6",
    "HyperTransformer.channels = 4",
    "HyperTransformer.transformer_layers = 1",
    "HyperTransformer.embedding_dim = 8",
    "HyperTransformer.shared_features = 4",
    "HyperTransformer.shared_layers = 2",
    "TrainingStep.episodes_per_step = 2",
]


def test_inputs_and_outputs_are_told_apart():
    """Those that are only read, written, both, or in the results; a constant that is a value of its own."""
    read, written, both = (
        tf.Variable(x, name=n) for x, n in ((2.0, "read"), (3.0, "written"), (4.0, "both"))
    )
    images = tf.constant([[1, 2], [3, 4]], tf.uint8)

    def step(number):
        image = tf.cast(tf.gather(images, tf.cast(number, tf.int32)), tf.float32)
        written.assign(read + tf.reduce_sum(image))
        both.assign_add(1.0)
        return {"b": both + 0.0, "a": tf.reduce_sum(image)}

    exported = ExportedStep(tf.function(step, jit_compile=True), [both, written, read])
    signature = exported.signature()
    assert signature["inputs"][0] == {"name": "step", "shape": [], "dtype": "int64"}
    inputs = {each["name"]: each for each in signature["inputs"]}
    assert inputs["constant"] == {"name": "constant", "shape": [2, 2], "dtype": "uint8"}
    assert set(inputs) >= {"step", "constant", "read", "both"}
    outputs = [each["name"] for each in signature["outputs"]]
    assert outputs[:2] == ["a", "b"] and sorted(outputs[2:]) == ["both", "written"]


@pytest.mark.slow
@pytest.mark.skipif(not HAS_JAX, reason="needs requirements-jax.txt")
def test_the_exported_step_gives_the_same_by_jax(program, tmp_path):
    flags = ["--gin_file=gin/omniglot_fast.gin", *(f"--gin_bindings={each}" for each in BINDINGS)]
    flags += [f"--output_dir={tmp_path / 'step'}", f"--json={tmp_path / 'record.json'}", "--seconds=0.2"]
    done = program("scripts/export_step.py", *flags, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert "episodes/s on" in done.stdout
    assert "stablehlo." in (tmp_path / "step" / "step.mlir").read_text()
    assert (tmp_path / "step" / "step.hlo").stat().st_size > 10_000
    signature = json.loads((tmp_path / "step" / "step.json").read_text())
    outputs = [each["name"] for each in signature["outputs"]]
    assert "loss" in outputs and sum("generator_layer_1" in name for name in outputs) > 10
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["episodes_per_second"] > 0 and max(record["differences"].values()) <= 1e-4
    assert record["versions"]["jax"] and record["device"]


@pytest.mark.skipif(HAS_JAX, reason="JAX is installed")
def test_without_jax_one_line_says_what_to_install(program, tmp_path):
    done = program("scripts/export_step.py", "--gin_file=gin/omniglot.gin", f"--output_dir={tmp_path}")
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].endswith("python -m pip install -r requirements-jax.txt")
