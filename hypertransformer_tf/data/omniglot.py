"""Omniglot from its two official zips, or from their unpacked folders.

1,623 characters with 20 drawings each: `<set>/<alphabet>/characterNN/CCCC_DD.png`, 105x105, one bit,
ink 0. Classes are ordered by the global character id CCCC.
"""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from hypertransformer_tf.data.cache import cached, fingerprint
from hypertransformer_tf.data.class_images import ClassImages
from hypertransformer_tf.errors import UserError

PARTS = ("images_background", "images_evaluation")
NUM_CLASSES = 1623
_FILE = re.compile(r"([^/]+)/(character\d+)/(\d{4})_(\d{2})\.png$")
_RESAMPLING = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "box": Image.Resampling.BOX,
    "lanczos": Image.Resampling.LANCZOS,
}


def find_omniglot(data_dir: Path) -> Path | None:
    """The folder under `data_dir` that holds the zips or the unpacked folders, None if there is none."""
    for folder in (data_dir, data_dir / "omniglot"):
        if all((folder / f"{part}.zip").exists() or (folder / part).is_dir() for part in PARTS):
            return folder
    return None


def load_omniglot(folder: Path, image_size: int = 28, resampling: str = "bilinear") -> ClassImages:
    """Reads all of Omniglot, from the cache when it was decoded before.

    Args:
        folder: holds images_background and images_evaluation, each as .zip or unpacked.
        image_size: side of the images in pixels.
        resampling: "bilinear" (the default; antialiased), "box", "lanczos", or "nearest" as in the
            28x28 images of earlier few-shot codes.

    Returns:
        ClassImages with 1,623 classes of 20 images, uint8 [image, image_size, image_size, 1], ink 0,
        named "<alphabet>/characterNN".

    Raises:
        UserError: for a damaged file or a character without its 20 drawings.
    """
    if resampling not in _RESAMPLING:
        raise UserError(f"unknown resampling {resampling!r}: use {', '.join(_RESAMPLING)}")
    sources = [_source_of(folder, part) for part in PARTS]
    key = fingerprint(sources, image_size=image_size, resampling=resampling)

    def build():
        drawings = {}
        for source in sources:
            for name, file in _files(source):
                match = _FILE.search(name)
                if match:
                    alphabet, character, identity, drawer = match.groups()
                    image = decode(file, f"{source}/{name}", image_size, resampling)
                    drawings.setdefault(identity, {"name": f"{alphabet}/{character}"})[drawer] = image
        return group(drawings, str(folder))

    return cached("omniglot", key, f"Omniglot ({folder})", build)


def group(drawings: dict[str, dict], source: str) -> ClassImages:
    """ClassImages from {character id: {"name": name, drawer id: image [height, width]}}.

    Raises:
        UserError: when characters or drawings are missing.
    """
    for drawing in drawings.values():
        if len(drawing) != 21:
            raise UserError(f"{source}: {drawing['name']} has {len(drawing) - 1} drawings instead of 20")
    if len(drawings) != NUM_CLASSES:
        raise UserError(f"{source} has {len(drawings)} characters instead of {NUM_CLASSES}: fetch it again")
    names, arrays = [], []
    for identity in sorted(drawings):
        drawing = dict(drawings[identity])
        names.append(drawing.pop("name"))
        arrays.append(np.stack([drawing[drawer] for drawer in sorted(drawing)])[..., None])
    return ClassImages.from_class_arrays(arrays, names, source)


def decode(file: bytes, name: str, image_size: int, resampling: str) -> np.ndarray:
    """Decodes one drawing to uint8 [image_size, image_size], ink 0.

    Raises:
        UserError: naming the file when it is no image.
    """
    try:
        image = Image.open(io.BytesIO(file))
        # Pillow resizes one-bit images without a filter, whatever is asked: grey first.
        grey = image.convert("L") if resampling != "nearest" else image
        return np.asarray(grey.resize((image_size, image_size), _RESAMPLING[resampling]).convert("L"))
    except (OSError, SyntaxError, ValueError) as error:
        raise UserError(f"{name} is not a readable image ({error}): replace or remove it") from error


def _source_of(folder: Path, part: str) -> Path:
    zipped = folder / f"{part}.zip"
    return zipped if zipped.exists() else folder / part


def _files(source: Path) -> Iterator[tuple[str, bytes]]:
    """(name, content) of the PNG files in a zip or a folder."""
    if source.is_dir():
        for path in source.rglob("*"):
            if path.is_file() and not path.name.startswith("."):
                if path.suffix.lower() != ".png":
                    raise UserError(f"{path} is not a PNG file: remove it from the data")
                yield path.as_posix(), path.read_bytes()
        return
    try:
        with zipfile.ZipFile(source) as archive:
            for name in archive.namelist():
                if name.endswith(".png") and "__MACOSX" not in name:
                    yield name, archive.read(name)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError) as error:
        raise UserError(f"{source} is damaged ({error}): fetch it again") from error
