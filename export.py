"""Writes the generator itself as a SavedModel: python export.py --checkpoint=RUN --output_dir=generator/1"""

import json
from pathlib import Path

from absl import flags

from hypertransformer_tf.errors import UserError, run_program
from hypertransformer_tf.export.folder import check_output, replace_folder
from hypertransformer_tf.export.frozen import STATISTICS
from hypertransformer_tf.export.generator import write_generator
from hypertransformer_tf.training import trained

FLAGS = flags.FLAGS
flags.DEFINE_string("checkpoint", None, "A run's workdir or checkpoint; default: the one for characters.")
flags.DEFINE_string("output_dir", None, "Folder to make; TensorFlow Serving wants NAME/VERSION.")
flags.DEFINE_enum("statistics", "support", STATISTICS, "Batch statistics of query images.")
flags.DEFINE_bool("overwrite", False, "Replace an older output, once the new one is complete.")
MARK = "generator.json"


def main(argv):
    if len(argv) > 1:
        raise UserError(f"unexpected argument {argv[1]!r}: see --help")
    if not FLAGS.output_dir:
        raise UserError("--output_dir is missing: export.py --checkpoint=... --output_dir=generator/1")
    output = Path(FLAGS.output_dir)
    check_output(output, FLAGS.overwrite, MARK)
    checkpoint = trained.find(FLAGS.checkpoint or trained.CHARACTERS)
    model, info = checkpoint.load_model(), checkpoint.manifest

    def write(folder: Path) -> None:
        write_generator(model, folder, FLAGS.statistics)
        names = ("model", "task", "dataset", "generated", "episodes_trained", "versions")
        about = {"statistics": FLAGS.statistics, **{name: info[name] for name in names}}
        (folder / MARK).write_text(json.dumps(about, indent=1) + "\n")

    replace_folder(output, write)
    print(f"generator of {model.way}-way CNNs ({info['generated']} generated) -> {output}")
    print("signatures: generate (support -> weights), classify (support and query -> logits)")


if __name__ == "__main__":
    run_program(main)
