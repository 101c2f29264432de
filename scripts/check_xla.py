"""Compiles training steps with XLA, as a TPU would, and compares them with the ordinary ones.

    python scripts/check_xla.py --gin_file=gin/omniglot.gin [--gin_file=gin/grocery.gin ...]

Each file is a configuration of its own. The images are made up, so no data set is needed. A CPU takes minutes
to compile a step; XLA is told to leave its optimisations out, which change nothing of what is tested here,
and TensorFlow to sum as XLA does (no oneDNN). XLA_FLAGS and TF_ENABLE_ONEDNN_OPTS that you set are kept.
"""

import os
import sys
from pathlib import Path

from absl import flags

os.environ.setdefault(
    "XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
)
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from hypertransformer_tf import configuration  # noqa: E402
from hypertransformer_tf.errors import UserError, run_program  # noqa: E402
from hypertransformer_tf.evaluation.records import text_table  # noqa: E402
from hypertransformer_tf.training.assembly import (  # noqa: E402
    assemble_step,
    configured_image_shape,
    made_up_images,
)
from hypertransformer_tf.training.strategy import configure_threads  # noqa: E402
from hypertransformer_tf.training.xla import compare  # noqa: E402

FLAGS = flags.FLAGS
flags.DEFINE_multi_string("gin_file", None, "Configurations to check, each by itself.")
flags.DEFINE_multi_string("gin_bindings", [], "Bindings that are put on top of each.")
flags.DEFINE_float("tolerance", 1e-3, "Largest difference that is let pass, see training/xla.py.", 0.0)

HEADER = ["", "ops", "compiled, s", "loss", "loss differs", "gradients differ", "updates differ"]


def main(_):
    if not FLAGS.gin_file:
        raise UserError("no configuration: give one, such as --gin_file=gin/omniglot.gin")
    configure_threads()
    rows, failures = [], {}
    for file in FLAGS.gin_file:
        configuration.load([file], FLAGS.gin_bindings)
        found = compare(assemble_step(made_up_images(configured_image_shape())))
        if found.without_kernel:
            failures[file] = [f"XLA has no {', '.join(found.without_kernel)}"]
            rows.append([file, found.ops])
            continue
        of_loss = abs(found.loss - found.compiled_loss) / max(abs(found.loss), 1e-3)
        differences = {"loss": of_loss, "gradients": found.gradient, **found.updates}
        rows.append([file, found.ops, f"{found.compile_seconds:.0f}", f"{found.loss:.5f}"])
        rows[-1] += [f"{value:.1e}" for value in (of_loss, found.gradient, max(found.updates.values()))]
        too_large = {name: value for name, value in differences.items() if not value <= FLAGS.tolerance}
        if too_large:
            more = f"more than {FLAGS.tolerance:.0e}"
            failures[file] = [f"{name} differs by {value:.1e}, {more}" for name, value in too_large.items()]
    print(text_table(HEADER, [row + [""] * (len(HEADER) - len(row)) for row in rows]))
    for file, reasons in failures.items():
        for reason in reasons:
            print(f"{file}: {reason}")
    if failures:
        raise UserError(f"{len(failures)} of {len(FLAGS.gin_file)} steps are not the same under XLA")


if __name__ == "__main__":
    run_program(main)
