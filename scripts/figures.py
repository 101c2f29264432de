"""Draws the figures of the paper that a checkpoint can show into docs/figures, numbers into results/analysis.

    python scripts/figures.py --data_dir=FOLDER_WITH_THE_ZIPS
    python scripts/figures.py --only=attention,kernels --checkpoint=runs/mine --output_dir=mine

About five minutes on two CPU cores with the checkpoint of this project. UMAP (figure 4) takes
requirements-visualize.txt. --run=WORKDIR adds the training curves of a run.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from absl import flags
from absl.testing import flagsaver
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import visualize  # noqa: E402  its flags are this program's, too
from hypertransformer_tf.errors import UserError, run_program  # noqa: E402

FLAGS = flags.FLAGS
flags.DEFINE_list("only", [], "Names of figures to draw; default: all.")
flags.DEFINE_string("numbers_dir", None, "Folder for numbers; default: results/analysis, or --output_dir.")

COLOURS = 128  # of a PNG's palette: keeps the pictures below 300 KB
# {name: flags of visualize.py}, with the paper's figure that each stands for.
FIGURES = {
    "episode": dict(what="episode"),
    "attention": dict(what="attention"),  # figures 6 and 7, appendix E
    "weights": dict(what="weights"),  # figure 4, appendix F
    "kernels": dict(what="kernels"),  # appendix G
    "features": dict(what="features", shot=4),
    "imprinting": dict(what="imprinting"),  # appendix A
    "imprinting_unlabeled": dict(what="imprinting", unlabeled=4),
    "tracking": dict(what="tracking"),  # appendix B
}


def main(argv):
    if len(argv) > 1:
        raise UserError(f"unexpected argument {argv[1]!r}: flags are written as --name=value")
    figures = {**FIGURES, **({"training": dict(what="training")} if FLAGS.run else {})}
    for name in FLAGS.only:
        if name not in figures:
            raise UserError(f"--only={name}: unknown, use {', '.join(figures)}")
    here = FLAGS["output_dir"].using_default_value
    pictures = ROOT / "docs" / "figures" if here else Path(FLAGS.output_dir)
    numbers = (
        Path(FLAGS.numbers_dir) if FLAGS.numbers_dir else ROOT / "results" / "analysis" if here else pictures
    )
    checkpoint = FLAGS.checkpoint or "results/checkpoints/omniglot_fast"
    for name, options in figures.items():
        if FLAGS.only and name not in FLAGS.only:
            continue
        with tempfile.TemporaryDirectory() as folder:
            with flagsaver.flagsaver(checkpoint=checkpoint, output_dir=folder, format="png", **options):
                visualize.main(argv[:1])
            _collect(Path(folder), pictures, numbers)


def _collect(drawn: Path, pictures: Path, numbers: Path) -> None:
    """Moves what was drawn to where it belongs; PNG files get a palette, arrays are left out."""
    for folder in (pictures, numbers):
        folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(drawn.iterdir()):
        if path.suffix == ".png":
            picture = Image.open(path).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
            picture.save(pictures / path.name, optimize=True)
            size = (pictures / path.name).stat().st_size
            print(f"{pictures / path.name}: {size / 1000:.0f} KB")
        elif path.suffix == ".json":
            shutil.copyfile(path, numbers / path.name)
            print(numbers / path.name)


if __name__ == "__main__":
    run_program(main)
