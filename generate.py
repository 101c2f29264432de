"""Writes a classifier: python generate.py --support_dir=my_classes --output_dir=my_model"""

import time
from pathlib import Path

from absl import flags

from hypertransformer_tf.errors import UserError, run_program
from hypertransformer_tf.export import card as cards
from hypertransformer_tf.export.files import TFLITE_KINDS, keras_model, tflite, write_npz, write_onnx
from hypertransformer_tf.export.folder import check_output, replace_folder
from hypertransformer_tf.export.frozen import STATISTICS, check_frozen
from hypertransformer_tf.export.generate import generate_cnn, leave_one_out
from hypertransformer_tf.export.preparation import POLARITIES, Preparation
from hypertransformer_tf.export.saved_model import write_saved_model
from hypertransformer_tf.export.support_folder import read_support
from hypertransformer_tf.training import trained

FLAGS = flags.FLAGS
flags.DEFINE_string("support_dir", None, "Folder with a folder of images for each class.")
flags.DEFINE_string("output_dir", None, "Folder to make: a SavedModel and what else is asked for.")
flags.DEFINE_string("checkpoint", None, "A run's workdir or checkpoint; default: the one for characters.")
flags.DEFINE_string("statistics", "support", f"Frozen batch statistics: {' or '.join(STATISTICS)}.")
flags.DEFINE_string(
    "polarity",
    None,
    f"{', '.join(POLARITIES)}: of light ink on dark paper; default: auto for models of drawings.",
)
flags.DEFINE_list("tflite", [], f"TFLite files to write: {', '.join(TFLITE_KINDS)}.")
flags.DEFINE_bool("keras", False, "Also write model.keras, to be fine-tuned.")
flags.DEFINE_bool("npz", False, "Also write every weight to weights.npz.")
flags.DEFINE_bool("onnx", False, "Also write model.onnx (needs requirements-onnx.txt).")
flags.DEFINE_bool("strict", False, "Stop at a file that is no image, instead of leaving it out.")
flags.DEFINE_bool("overwrite", False, "Replace an older output, once the new one is complete.")
flags.DEFINE_integer("max_per_class", 100, "Most images of a class that are used.", 1)


def main(argv):
    if len(argv) > 1:
        raise UserError(f"unexpected argument {argv[1]!r}: give folders as --support_dir and --output_dir")
    for name in ("support_dir", "output_dir"):
        if not getattr(FLAGS, name):
            raise UserError(
                f"--{name} is missing: generate.py --support_dir=my_classes --output_dir=my_model"
            )
    unknown = [kind for kind in FLAGS.tflite if kind not in TFLITE_KINDS]
    if unknown:
        raise UserError(f"--tflite={unknown[0]}: unknown, use {', '.join(TFLITE_KINDS)}")
    check_frozen(FLAGS.statistics)
    started = time.perf_counter()
    support_dir, output = Path(FLAGS.support_dir), Path(FLAGS.output_dir)
    check_output(output, FLAGS.overwrite, cards.CARD)
    if support_dir.resolve() in (output.resolve(), *output.resolve().parents):
        raise UserError(f"--output_dir={output} lies in the folder of the classes: name one outside of it")
    checkpoint = trained.find(FLAGS.checkpoint or trained.CHARACTERS)
    info = checkpoint.manifest
    preparation = Preparation.of_model(info["model"]["image_shape"], info["dataset"], FLAGS.polarity)
    support = read_support(
        support_dir,
        preparation,
        info["model"]["way"],
        info["task"]["unlabeled"] > 0,
        FLAGS.max_per_class,
        FLAGS.strict,
    )
    model = checkpoint.load_model()
    frozen = generate_cnn(model, support, preparation, FLAGS.statistics)
    expected = leave_one_out(model, support, FLAGS.statistics)
    about = {name: info[name] for name in ("dataset", "episodes_trained", "generated")}
    about = {"path": str(FLAGS.checkpoint or checkpoint.path.name), **about}

    def write(folder: Path) -> None:
        write_saved_model(frozen, folder)
        for kind in FLAGS.tflite:
            (folder / f"model_{kind}.tflite").write_bytes(tflite(frozen, kind, support.images))
        if FLAGS.keras:
            keras_model(frozen).save(folder / "model.keras")
        if FLAGS.npz:
            write_npz(frozen, folder / "weights.npz")
        if FLAGS.onnx:
            write_onnx(frozen, folder / "model.onnx")
        cards.write_card(cards.make_card(frozen, support, expected, about, folder), folder)

    replace_folder(output, write)
    shots = sorted(set(support.counts))
    images = f"{shots[0]} to {shots[-1]} images" if len(shots) > 1 else f"{shots[0]} images"
    images = "1 image" if shots == [1] else images
    print(f"{len(support.names)} classes with {images} each -> {output}")
    print(f"CNN: {frozen.num_parameters:,} parameters, {frozen.multiply_adds:,} multiply-adds per image")
    if expected.images:
        percent = 100 * expected.right / expected.images
        print(
            f"expected accuracy {percent:.1f}% (leave-one-out, {expected.right} of {expected.images} images)"
        )
    else:
        print("expected accuracy unknown: one image per class, none to leave out")
    print(f"done in {time.perf_counter() - started:.1f} s; try: python classify.py --model={output} IMAGES")


if __name__ == "__main__":
    run_program(main)
