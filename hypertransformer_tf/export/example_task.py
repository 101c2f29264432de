"""A few-shot task as folders of PNG files, to try generate.py and classify.py with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from hypertransformer_tf.data.class_images import ClassImages


def write_task(images: ClassImages, folder: Path, way: int, shot: int, query: int, task: int) -> None:
    """Writes a task; the same number gives the same files.

    Args:
        images: classes to choose from.
        folder: gets classes/<class>/ with the support images and images/<class>/ with others.
        way, shot, query: classes, support images and other images of each.
        task: number of the task.
    """
    random = np.random.default_rng(task)
    for index in random.permutation(images.num_classes)[:way]:
        of_class = images.class_array(index)
        order = random.permutation(len(of_class))[: shot + query]
        name = images.names[index].replace("/", "-")
        for part, chosen in (("classes", order[:shot]), ("images", order[shot:])):
            (folder / part / name).mkdir(parents=True)
            for number in chosen:
                pixels = of_class[number]
                image = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
                image.save(folder / part / name / f"{number:02d}.png")
