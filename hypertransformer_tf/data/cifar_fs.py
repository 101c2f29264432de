"""CIFAR-FS: the classes of CIFAR-100 as 64 / 16 / 20 for few-shot learning, 32x32 RGB, 600 images each.

cifar100.zip or cifar100/: data/<class>/*.png, and splits/bertinetto/{train,val,test}.txt
CIFAR_FS_{train,val,test}.pickle: `data` and `labels`
"""

from __future__ import annotations

from pathlib import Path

from hypertransformer_tf.data.cache import cached, fingerprint
from hypertransformer_tf.data.class_images import ClassImages
from hypertransformer_tf.data.file_tree import group_by_folder, read_text, walk
from hypertransformer_tf.data.found import PARTS, find_forms
from hypertransformer_tf.data.image_folder import rows_of_files
from hypertransformer_tf.data.labelled_pickle import load_labelled_pickle
from hypertransformer_tf.data.splits import Splits
from hypertransformer_tf.errors import UserError

IMAGE_SIZE = 32
SPLIT_FILES = "splits/bertinetto"
FORMS = {
    "labels": {part: [f"CIFAR_FS_{part}.pickle"] for part in PARTS},
    "files": {"train": ["cifar100.zip", "cifar100"]},
}


def load_cifar_fs(base: Path, image_size: int | None = None) -> Splits:
    """Reads CIFAR-FS, from the cache when it was decoded before.

    Args:
        base: folder with the files of one form, or with a folder `cifar_fs` or `cifar-fs` of them.
        image_size: side of the images; None = 32 for image files, as stored in pickles.

    Returns:
        Splits as the files have them, images uint8 [image, height, width, 3] in RGB.

    Raises:
        UserError: naming the file that is missing, damaged, or holds something else.
    """
    form, files = find_forms(base, ("cifar_fs", "cifar-fs", "CIFAR-FS"), FORMS, "CIFAR-FS")
    if form == "labels":
        return Splits("cifar_fs", *(load_labelled_pickle(files[part], image_size) for part in PARTS))
    return Splits("cifar_fs", *(_load_part(files["train"], part, image_size or IMAGE_SIZE) for part in PARTS))


def _load_part(place: Path, part: str, size: int) -> ClassImages:
    key = fingerprint([place], image_size=size, part=part)
    source = f"{place}, {part} classes"

    def build():
        files = {name.partition("cifar100/")[2] or name: file for name, file in walk(place).items()}
        listed = files.get(f"{SPLIT_FILES}/{part}.txt")
        if listed is None:
            raise UserError(f"{place} has no {SPLIT_FILES}/{part}.txt: fetch it again")
        names = [line.strip() for line in read_text(listed).splitlines() if line.strip()]
        data = {name[5:]: file for name, file in files.items() if name.startswith("data/")}
        of_class = group_by_folder(data)
        for name in names:
            if name not in of_class:
                raise UserError(f"{listed}: class {name!r} has no images in {place}/data")
        return rows_of_files(names, [of_class[name] for name in names], source, size, 3)

    return cached(f"cifar-fs-{part}", key, source, build)
