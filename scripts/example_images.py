"""Writes folders of PNG files to try generate.py and classify.py with.

    python scripts/example_images.py --output_dir=example                  # Armenian and Georgian letters
    python scripts/example_images.py --gin_file=gin/omniglot.gin --data_dir=FOLDER --output_dir=example

Takes one task of the test classes of a configuration, or of glyphs, whose test classes are letters of
alphabets that the checkpoint of this project has never seen: OUTPUT/classes/<class>/ holds the support
images, OUTPUT/images/<class>/ other images of the same classes.
"""

import sys
from pathlib import Path

from absl import flags

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from hypertransformer_tf import configuration  # noqa: E402
from hypertransformer_tf.data.sources import load_splits  # noqa: E402
from hypertransformer_tf.errors import UserError, run_program  # noqa: E402
from hypertransformer_tf.export.example_task import write_task  # noqa: E402

FLAGS = flags.FLAGS
flags.DEFINE_string("output_dir", "example", "Folder to make.")
flags.DEFINE_multi_string("gin_file", ["gin/glyphs.gin"], "Configuration that names the data set.")
flags.DEFINE_string("data_dir", None, "Where data sets are; default: $HYPERTRANSFORMER_DATA.")
flags.DEFINE_integer("way", 5, "Classes.", 2)
flags.DEFINE_integer("shot", 3, "Support images of each class.", 1)
flags.DEFINE_integer("query", 10, "Other images of each class.", 1)
flags.DEFINE_integer("task", 0, "Number of the task: another one has other classes and images.", 0)


def main(_):
    folder = Path(FLAGS.output_dir)
    if folder.exists():
        raise UserError(f"--output_dir={folder} exists: remove it or name another one")
    configuration.load(FLAGS.gin_file)
    images = load_splits(FLAGS.data_dir).test
    if FLAGS.way > images.num_classes:
        raise UserError(f"--way={FLAGS.way}: {images.source} has {images.num_classes} test classes")
    write_task(images, folder, FLAGS.way, FLAGS.shot, FLAGS.query, FLAGS.task)
    print(f"{FLAGS.way} classes: {FLAGS.shot} images each in {folder}/classes, others in {folder}/images")


if __name__ == "__main__":
    run_program(main)
