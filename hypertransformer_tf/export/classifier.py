"""Runs an exported model, SavedModel or TFLite, on image files."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Callable

import numpy as np

from hypertransformer_tf.backend import tf
from hypertransformer_tf.errors import UserError
from hypertransformer_tf.export.card import CARD, FORMAT
from hypertransformer_tf.export.preparation import Preparation

BATCH = 256


class Classifier:
    """An exported model with what its card says.

    Args:
        place: folder that generate.py wrote, or one of its .tflite files (the card lies beside it).

    Raises:
        UserError: when it is none, or damaged.
    """

    def __init__(self, place: Path):
        if not place.exists():
            raise UserError(f"--model={place} does not exist: make it with generate.py")
        folder = place if place.is_dir() else place.parent
        try:
            card = json.loads((folder / CARD).read_text(encoding="utf-8"))
            image = card["image"]
            image["polarity"], image["height"], image["width"], image["channels"]
            self.names = tuple(each["name"] for each in card["classes"])
            self.preparation = Preparation(
                image["height"], image["width"], image["channels"], image["polarity"]
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"--model={place}: {folder / CARD} is missing or damaged: name a folder of generate.py, "
                "or put its model.json beside the .tflite file"
            ) from error
        for value in image.values():
            if value != image["polarity"] and value != image.get("values") and not isinstance(value, int):
                raise UserError(f"--model={place}: {folder / CARD} is damaged: generate the model again")
        if place.is_file():
            _check_file(place, card)
        if card.get("format") != FORMAT:
            raise UserError(f"--model={place} has format {card.get('format')}, this version reads {FORMAT}")
        try:
            load = _saved_model if place.is_dir() else _tflite
            self._run, shape = load(place)
        except (OSError, ValueError, KeyError, tf.errors.OpError) as error:
            raise UserError(f"--model={place} is damaged ({error}): generate it again") from error
        wanted = (self.preparation.height, self.preparation.width, self.preparation.channels)
        if tuple(shape) != wanted or len(self._run(np.zeros((1, *wanted), np.uint8))[0]) != len(self.names):
            raise UserError(f"--model={place}: {folder / CARD} is of another model: generate it again")

    def probabilities(self, images: np.ndarray) -> np.ndarray:
        """uint8 [image, height, width, channels], prepared -> float32 [image, class]."""
        return self._run(images)

    def classify(
        self, files: list[Path], progress: Callable[[int], None] = lambda done: None
    ) -> tuple[np.ndarray, np.ndarray, dict[int, str]]:
        """Reads and classifies files.

        Args:
            files: images of any size and format.
            progress: called with the number of files just finished.

        Returns:
            Prepared images uint8 [file, height, width, channels], probabilities [file, class] (NaN where
            the file is no image), and {number of the file: what is wrong with it}.
        """
        shape = (self.preparation.height, self.preparation.width, self.preparation.channels)
        images = np.full([len(files), *shape], 255, np.uint8)
        answers = np.full([len(files), len(self.names)], np.nan, np.float32)
        problems: dict[int, str] = {}

        def read(number: int) -> None:
            try:
                images[number] = self.preparation.read(files[number])
            except UserError as error:
                problems[number] = str(error)

        with ThreadPoolExecutor() as pool:
            for first in range(0, len(files), BATCH):
                numbers = range(first, min(first + BATCH, len(files)))
                list(pool.map(read, numbers))
                sound = [number for number in numbers if number not in problems]
                if sound:
                    answers[sound] = self.probabilities(images[sound])
                progress(len(numbers))
        return images, answers, problems


def _check_file(file: Path, card: dict) -> None:
    """TFLite reads what is cut off without a check, and crashes: compare the size with the card's."""
    sizes = {size for name, size in card.get("bytes", {}).items() if name.endswith(".tflite")}
    if file.suffix != ".tflite":
        raise UserError(f"--model={file} is no .tflite file: name one, or the folder that generate.py made")
    if file.stat().st_size not in sizes:
        raise UserError(
            f"--model={file} is damaged or not of the model.json beside it: generate the model again"
        )


def _saved_model(folder: Path):
    """A function of images, and their (height, width, channels)."""
    model = tf.saved_model.load(str(folder))
    serve = model.signatures["serve_uint8"]

    def run(images: np.ndarray) -> np.ndarray:
        return serve(images=tf.constant(images))["probabilities"].numpy()

    run.keeps = model  # the signature alone does not keep the model's functions alive
    return run, serve.structured_input_signature[1]["images"].shape[1:]


def _tflite(file: Path):
    """A function of images, and their (height, width, channels)."""
    interpreter = tf.lite.Interpreter(str(file))
    runner = interpreter.get_signature_runner()
    details = interpreter.get_input_details()[0]
    return lambda images: runner(images=images.astype(details["dtype"]))["probabilities"], details["shape"][
        1:
    ]
