"""Glyphs: the embedded data set, drawn from the fonts that matplotlib brings along. No download.

A class is a character, its images are drawings of it in different faces with small seeded changes of
slant, size, place, angle and stroke width: 28x28x1, ink 0 on 255, like Omniglot. Characters that fewer
than 12 faces have, and characters that look like one before them (A of three alphabets, o and O), are left
out. Splits are by script: test characters come from alphabets that training has never seen.
"""

from __future__ import annotations

import unicodedata
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from PIL import __version__ as pillow_version

from hypertransformer_tf.data.cache import cached, fingerprint
from hypertransformer_tf.data.class_images import ClassImages
from hypertransformer_tf.data.splits import Splits
from hypertransformer_tf.errors import UserError

DRAWING_VERSION = 1  # counts up when the drawings change, so that old caches are not read
IMAGE_SIZE = 28
MIN_FACES = 12
# Letters, digits and symbols; punctuation and modifier marks are mostly dots and strokes without a form.
CATEGORIES = ("Lu", "Ll", "Lt", "Lo", "Nd", "Sm", "So", "Sc")
SCRIPTS = {"val": ("GREEK",), "test": ("ARMENIAN", "GEORGIAN")}  # all others are for training
FONT_SIZE = 48
_CANVAS = 2 * IMAGE_SIZE
_SIMILAR = 0.95  # cosine of two drawings above which the later character is left out


def load_glyphs(images_per_class: int = 20, seed: int = 0) -> Splits:
    """Draws the glyphs, or reads them from the cache.

    Args:
        images_per_class: drawings of each character.
        seed: of the changes from drawing to drawing.

    Returns:
        Splits named "glyphs"; classes are named "U+0561 ARMENIAN SMALL LETTER AYB".
    """
    if images_per_class < 2:
        raise UserError(f"load_splits.images_per_class = {images_per_class}: support and query need one each")
    faces = font_faces()
    key = fingerprint(
        list(faces.values()),
        images=images_per_class,
        seed=seed,
        pillow=pillow_version,
        version=DRAWING_VERSION,
    )

    def build():
        fonts = {
            name: ImageFont.truetype(str(path), FONT_SIZE, layout_engine=ImageFont.Layout.BASIC)
            for name, path in faces.items()
        }
        characters = distinct_characters(faces, fonts)
        arrays = [
            draw_class(character, [fonts[name] for name in have], images_per_class, seed)
            for character, have in characters.items()
        ]
        names = [f"U+{ord(c):04X} {unicodedata.name(c)}" for c in characters]
        return ClassImages.from_class_arrays(arrays, names, "glyphs")

    images = cached("glyphs", key, "glyphs", build)
    numbers: dict[str, list[int]] = {"train": [], "val": [], "test": []}
    for number, name in enumerate(images.names):
        numbers[split_of(name.split(" ", 1)[1])].append(number)
    parts = {split: images.select(chosen, f"glyphs, {split} classes") for split, chosen in numbers.items()}
    return Splits("glyphs", **parts)


def split_of(name: str) -> str:
    """Split of the character with this Unicode name: "train", "val" or "test"."""
    script = name.split(" ")[0]
    return next((split for split, scripts in SCRIPTS.items() if script in scripts), "train")


def font_faces() -> dict[str, Path]:
    """Text fonts in matplotlib's data folder: {file name: path}.

    Computer Modern is left out, its files use code points of their own, and so is the font of boxes.
    """
    import matplotlib

    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    faces = {}
    for path in sorted(folder.glob("*.ttf")):
        if path.name.startswith(("DejaVuS", "STIXGeneral")) and "Display" not in path.name:
            faces[path.name] = path
    if len(faces) < MIN_FACES:
        raise UserError(
            f"{folder} has {len(faces)} text fonts, glyphs need {MIN_FACES}: reinstall matplotlib"
        )
    return faces


def distinct_characters(
    faces: dict[str, Path], fonts: dict[str, ImageFont.FreeTypeFont]
) -> dict[str, list[str]]:
    """Characters that look different from all before them: {character: names of the faces that have it}."""
    from matplotlib.ft2font import FT2Font

    covered: dict[int, list[str]] = {}
    for name, path in faces.items():
        for code in FT2Font(str(path)).get_charmap():
            covered.setdefault(code, []).append(name)
    characters, drawings = {}, np.zeros([len(covered), IMAGE_SIZE**2], np.float32)
    for code in sorted(covered):
        character, have = chr(code), covered[code]
        if len(have) < MIN_FACES or unicodedata.category(character) not in CATEGORIES:
            continue
        ink = _ink(fonts[have[0]], character)
        if ink is None:
            continue
        plain = _place(ink, np.eye(2) * max(ink.size) / (0.75 * _CANVAS), (0.0, 0.0))
        plain = plain.ravel() / np.float32(max(np.linalg.norm(plain.astype(np.float32)), 1e-6))
        if (drawings[: len(characters)] @ plain).max(initial=0.0) > _SIMILAR:
            continue
        drawings[len(characters)] = plain
        characters[character] = have
    return characters


def draw_class(character: str, fonts: list[ImageFont.FreeTypeFont], count: int, seed: int) -> np.ndarray:
    """Draws a character: uint8 [count, 28, 28, 1], ink 0 on 255, a pure function of the arguments."""
    rng = np.random.default_rng([seed, ord(character)])
    order = rng.permutation(len(fonts))
    images = []
    for index in range(count):
        font = fonts[order[index % len(fonts)]]
        thicker = rng.uniform() < 0.5 and "Bold" not in font.getname()[1]
        ink = _ink(font, character, stroke=int(thicker))
        angle, shear = np.deg2rad(rng.uniform(-6, 6)), rng.uniform(-0.12, 0.12)
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        size = rng.uniform(0.65, 0.8) * rng.uniform(0.95, 1.05, 2) * _CANVAS
        scale = np.diag(max(ink.size) / size)
        shift = rng.uniform(-0.05, 0.05, 2) * _CANVAS
        images.append(_place(ink, scale @ turn @ np.array([[1.0, shear], [0.0, 1.0]]), shift))
    return 255 - np.stack(images)[..., None]


def _ink(font: ImageFont.FreeTypeFont, character: str, stroke: int = 0) -> Image.Image | None:
    """The character white on black, cut to its bounding box; None when it leaves no ink."""
    left, top, right, bottom = font.getbbox(character, stroke_width=stroke)
    if right <= left or bottom <= top:
        return None
    image = Image.new("L", (int(right - left), int(bottom - top)))
    ImageDraw.Draw(image).text((-left, -top), character, fill=255, font=font, stroke_width=stroke)
    return image if image.getbbox() else None


def _place(ink: Image.Image, matrix: np.ndarray, shift) -> np.ndarray:
    """Ink put onto a canvas: uint8 [28, 28], white on black; `matrix` maps canvas to ink coordinates."""
    centre = np.array(ink.size) / 2.0 - matrix @ (np.full(2, _CANVAS / 2.0) + np.asarray(shift))
    coefficients = (*matrix[0], centre[0], *matrix[1], centre[1])
    placed = ink.transform(
        (_CANVAS, _CANVAS), Image.Transform.AFFINE, coefficients, Image.Resampling.BILINEAR
    )
    return np.asarray(placed.resize((IMAGE_SIZE, IMAGE_SIZE), Image.Resampling.BOX))
