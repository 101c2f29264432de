"""The main job on the embedded data set: train, evaluate on unseen characters, draw an episode.

Called by scripts/quickstart.sh, which makes the environment first. Takes a few minutes on two cores.
"""

import subprocess
import sys
import time
from pathlib import Path

from absl import flags

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from hypertransformer_tf.errors import UserError, run_program  # noqa: E402

FLAGS = flags.FLAGS
flags.DEFINE_string("workdir", str(ROOT / "runs" / "quickstart"), "Folder of the run.")
flags.DEFINE_multi_string("gin_bindings", [], "Bindings on top of gin/glyphs.gin, for shorter runs.")
flags.DEFINE_integer("tasks", 400, "Tasks to evaluate on.", 2)


def main(_):
    started = time.perf_counter()
    workdir = Path(FLAGS.workdir)
    print("1/3 training on glyphs, characters drawn from the fonts of matplotlib", flush=True)
    bindings = [f"--gin_bindings={binding}" for binding in FLAGS.gin_bindings]
    _program("train.py", f"--gin_file={ROOT / 'gin' / 'glyphs.gin'}", f"--workdir={workdir}", *bindings)
    print("\n2/3 evaluating on characters of alphabets that the training has never seen", flush=True)
    picture = workdir / "episode.png"
    _program(
        "evaluate.py",
        f"--workdir={workdir}",
        "--statistics=support",
        f"--tasks={FLAGS.tasks}",
        "--query_batches=1",
        "--query_batch_size=75",
        f"--picture={picture}",
    )
    print(f"\n3/3 one episode with predictions: {picture}")
    print(f"done in {time.perf_counter() - started:.0f} s. What next:")
    print("  Omniglot:   python train.py --gin_file=gin/omniglot_fast.gin --data_dir=FOLDER_WITH_THE_ZIPS")
    print("  own images: python generate.py --support_dir=FOLDER_OF_CLASS_FOLDERS --output_dir=my_model")


def _program(name: str, *arguments: str) -> None:
    code = subprocess.run([sys.executable, str(ROOT / name), *arguments]).returncode
    if code:
        raise UserError(f"{name} ended with code {code}; its message is above")


if __name__ == "__main__":
    run_program(main)
