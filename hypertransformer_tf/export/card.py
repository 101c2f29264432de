"""The card of an exported model: model.json for programs, README.md for people."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np

from hypertransformer_tf.backend import tf
from hypertransformer_tf.evaluation.records import hardware, versions
from hypertransformer_tf.export.frozen import FrozenCNN
from hypertransformer_tf.export.generate import Expected
from hypertransformer_tf.export.support_folder import Support

CARD = "model.json"
FORMAT = 1


def make_card(
    frozen: FrozenCNN, support: Support, expected: Expected, checkpoint: dict, folder: Path
) -> dict:
    """Everything that is to be known of an exported model, as JSON values.

    Args:
        frozen, support, expected: what was exported, from what, and leave-one-out.
        checkpoint: of the generator: "path", "dataset", "episodes_trained" and so on.
        folder: where the model's files already are; their sizes and speed are measured.
    """
    layer = frozen.preparation
    accuracy = round(100 * expected.right / expected.images, 1) if expected.images else None
    return {
        "format": FORMAT,
        "classes": [
            {"name": name, "support_images": count} for name, count in zip(frozen.names, support.counts)
        ],
        "unlabeled_images": support.unlabeled,
        "left_out": list(support.skipped),
        "image": {
            "height": layer.height,
            "width": layer.width,
            "channels": layer.channels,
            "values": "0..255",
            "polarity": layer.polarity,
        },
        "statistics": frozen.statistics,
        "expected_accuracy": {
            "percent": accuracy,
            "images": expected.images,
            "right": expected.right,
            "how": "leave-one-out on the support set" if expected.images else "one image per class: unknown",
        },
        "parameters": frozen.num_parameters,
        "multiply_adds": frozen.multiply_adds,
        "bytes": {
            str(file.relative_to(folder)): file.stat().st_size
            for file in sorted(folder.rglob("*"))
            if file.is_file()
        },
        "ms_per_image": measure(folder, layer),
        "checkpoint": checkpoint,
        "hardware": hardware(),
        "versions": versions(),
    }


def measure(folder: Path, preparation, batch: int = 256) -> dict[str, float]:
    """Milliseconds per image of the SavedModel in a folder: one image at a time, and in batches."""
    serve = tf.saved_model.load(str(folder)).signatures["serve_uint8"]
    shape = (preparation.height, preparation.width, preparation.channels)
    found = {}
    for name, count in (("one_by_one", 1), (f"batches_of_{batch}", batch)):
        images = tf.constant(np.zeros([count, *shape], np.uint8))
        serve(images=images)
        calls, started = 0, time.perf_counter()
        while calls < 3 or time.perf_counter() - started < 0.15:
            serve(images=images)
            calls += 1
        found[name] = round(1000 * (time.perf_counter() - started) / (calls * count), 4)
    return found


def write_card(card: dict, folder: Path) -> None:
    """Writes model.json, README.md and labels.txt into the folder of the model."""
    (folder / CARD).write_text(json.dumps(card, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(_readme(card), encoding="utf-8")
    names = [" ".join(each["name"].split()) for each in card["classes"]]
    (folder / "labels.txt").write_text("\n".join(names) + "\n", encoding="utf-8")


def _readme(card: dict) -> str:
    image, expected, checkpoint = card["image"], card["expected_accuracy"], card["checkpoint"]
    size = f"{image['height']}x{image['width']}, {'grey' if image['channels'] == 1 else 'RGB'}"
    polarity = {
        "auto": "dark ink on bright paper; the SavedModel inverts images whose border is dark",
        "keep": "as they are",
        "invert": "the SavedModel inverts them",
    }[image["polarity"]]
    accuracy = (
        f"{expected['percent']} % ({expected['right']} of {expected['images']} images, {expected['how']})"
        if expected["images"]
        else "unknown: there was one image per class, so none could be left out"
    )
    speed = ", ".join(f"{ms} ms ({name.replace('_', ' ')})" for name, ms in card["ms_per_image"].items())
    rows = "\n".join(
        f"| {index} | {_cell(each['name'])} | {each['support_images']} |"
        for index, each in enumerate(card["classes"])
    )
    files = "\n".join(f"| `{name}` | {size:,} |" for name, size in card["bytes"].items())
    return f"""# A classifier of {len(card["classes"])} classes

Written in one pass by a HyperTransformer from {sum(c["support_images"] for c in card["classes"])} labelled
images; nothing was trained.

| | |
|---|---|
| expected accuracy | {accuracy} |
| images | {size}, values 0..255, {polarity} |
| parameters, multiply-adds per image | {card["parameters"]:,}, {card["multiply_adds"]:,} |
| time per image (SavedModel) | {speed}; {card["hardware"]} |
| batch-normalisation statistics | {card["statistics"]}, frozen: each image is answered alone |
| checkpoint | {checkpoint["path"]}: {checkpoint["dataset"]}, {checkpoint["episodes_trained"]:,} episodes |

| index | class | support images |
|---|---|---|
{rows}

## Use

```python
import tensorflow as tf

model = tf.saved_model.load("PATH_OF_THIS_FOLDER")
answer = model.signatures["serve_bytes"](encoded=tf.constant([open("image.png", "rb").read()]))
print(answer["class_name"][0].numpy().decode(), answer["probabilities"].numpy().max())
```

`serving_default` takes float32 images, `serve_uint8` uint8 images, both of the size above and of any batch;
`serve_bytes` JPEG and PNG strings of any size (EXIF orientation is not looked at). All give `logits`,
`probabilities`, `class_index` and `class_name`. TFLite, Keras and ONNX files take prepared images: that size,
0..255{", dark ink on bright paper" if image["polarity"] != "keep" else ""}.

| file | bytes |
|---|---|
{files}
"""


def _cell(name: str) -> str:
    return " ".join(name.split()).replace("|", "\\|")
