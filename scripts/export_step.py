"""Exports the training step of a configuration as StableHLO and HLO, and runs it without TensorFlow, by PJRT.

    python -m pip install -r requirements-jax.txt
    python scripts/export_step.py --gin_file=gin/omniglot.gin --output_dir=step

The step is a pure function there: its number, the training images and all variables go in, metrics and the
changed variables come out; `step.json` says which is which. JAX's client compiles it for its device (a GPU
where `jax[cuda12]` of the same version is installed), runs some steps and compares them with TensorFlow's.
Then it measures episodes per second, each step with the variables of the one before. The images are made up.
"""

import json
import os
import sys
import time
from pathlib import Path

from absl import flags

os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # sums as XLA's, so that the comparison can be strict
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from hypertransformer_tf import configuration  # noqa: E402
from hypertransformer_tf.backend import tf  # noqa: E402
from hypertransformer_tf.errors import UserError, run_program  # noqa: E402
from hypertransformer_tf.evaluation.records import hardware, versions  # noqa: E402
from hypertransformer_tf.export.training_step import (  # noqa: E402
    ExportedStep,
    Runner,
    import_jax,
    stablehlo,
)
from hypertransformer_tf.storage import write_text  # noqa: E402
from hypertransformer_tf.training.assembly import (  # noqa: E402
    Assembly,
    assemble_step,
    configured_image_shape,
    made_up_images,
)
from hypertransformer_tf.training.strategy import configure_threads  # noqa: E402
from hypertransformer_tf.training.xla import start_for_comparison, update_differences  # noqa: E402

FLAGS = flags.FLAGS
flags.DEFINE_multi_string("gin_file", None, "Configuration file; may be given several times, the last wins.")
flags.DEFINE_multi_string("gin_bindings", [], "One binding, as 'TrainingStep.episodes_per_step = 4'.")
flags.DEFINE_string("output_dir", None, "Where step.mlir, step.hlo and step.json go.")
flags.DEFINE_bool("run", True, "Also run it by JAX; without, JAX is needed for step.mlir only.")
flags.DEFINE_integer("steps", 3, "Steps that are compared.", 1)
flags.DEFINE_float(
    "tolerance", 1e-4, "Largest difference that is let pass, as a share of the largest change."
)
flags.DEFINE_float("seconds", 10.0, "How long to measure.", 0.0)
flags.DEFINE_string("json", None, "Also write figures and versions to this file.")


def main(_):
    if not FLAGS.gin_file or not FLAGS.output_dir:
        raise UserError("give a configuration and a folder: --gin_file=gin/omniglot.gin --output_dir=step")
    jax = import_jax()
    configuration.load(FLAGS.gin_file, FLAGS.gin_bindings)
    configure_threads()
    made = assemble_step(made_up_images(configured_image_shape()))
    step = tf.function(lambda number: made.step(number), jit_compile=True)
    exported = ExportedStep(step, made.variables)
    folder = Path(FLAGS.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "step.hlo").write_bytes(exported.hlo)
    write_text(folder / "step.mlir", stablehlo(exported.hlo))
    write_text(folder / "step.json", json.dumps(exported.signature(), indent=1) + "\n")
    print(
        f"{folder}: step.mlir (StableHLO), step.hlo (HloModuleProto), step.json; "
        f"{len(exported.inputs)} inputs, {len(exported.outputs)} outputs"
    )
    if not FLAGS.run:
        return
    device = jax.devices()[0]
    started = time.perf_counter()
    runner = Runner(device, exported)
    seconds = time.perf_counter() - started
    print(f"compiled for {device.device_kind} ({device.platform}) in {seconds:.0f} s")
    differences = compare(runner, made, exported, FLAGS.steps)
    for name, value in differences.items():
        print(f"{name}: differs by {value:.1e} after {FLAGS.steps} steps")
    if not max(differences.values()) <= FLAGS.tolerance:
        raise UserError(f"the exported step differs by more than --tolerance={FLAGS.tolerance}")
    rate = runner.steps_per_second(FLAGS.seconds) * made.step.episodes_per_step
    print(f"{rate:.1f} episodes/s on {device.device_kind} ({device.platform}), {jax.__version__} of JAX")
    if FLAGS.json:
        record = {
            "gin_file": FLAGS.gin_file,
            "gin_bindings": FLAGS.gin_bindings,
            "episodes_per_step": made.step.episodes_per_step,
            "episodes_per_second": round(rate, 2),
            "compile_seconds": round(seconds, 1),
            "differences": differences,
            "compared_steps": FLAGS.steps,
            "device": f"{device.device_kind} ({device.platform})",
            "hardware": hardware(),
            "versions": {**versions(), "jax": jax.__version__},
        }
        write_text(Path(FLAGS.json), json.dumps(record, indent=1) + "\n")


def compare(runner: Runner, made: Assembly, exported: ExportedStep, steps: int) -> dict[str, float]:
    """Runs some steps on both sides from the same values.

    Returns:
        {"loss": largest difference as a share of it, and what `update_differences` gives}.
    """
    kinds, start = start_for_comparison(made)
    for variable, value in zip(made.variables, start):
        variable.assign(value)
    runner.reset(exported.values_now())
    plain, loss = tf.function(made.step), 0.0
    for number in range(steps):
        there, here = runner.metrics(number), plain(tf.constant(number, tf.int64))
        loss = max(loss, abs(there["loss"] - float(here["loss"])) / abs(float(here["loss"])))
    now = {v.ref(): value for v, value in runner.variables()}
    changed = [i for i, v in enumerate(made.variables) if v.ref() in now]
    expected = [made.variables[i].numpy() for i in changed]
    found = [now[made.variables[i].ref()] for i in changed]
    kinds, start = [kinds[i] for i in changed], [start[i] for i in changed]
    return {"loss": loss, **update_differences(kinds, start, expected, found)}


if __name__ == "__main__":
    run_program(main)
