"""Files and encoded strings become the same pixels."""

import io

import numpy as np
import pytest
from PIL import Image

from hypertransformer_tf.backend import tf
from hypertransformer_tf.errors import UserError
from hypertransformer_tf.export.preparation import Preparation


def photograph(width, height, mode="RGB"):
    """A smooth picture with some structure."""
    y, x = np.mgrid[0:height, 0:width]
    channels = [128 + 100 * np.sin(x / 17.0 + k) * np.cos(y / 11.0 - k) for k in range(3)]
    return Image.fromarray(np.stack(channels, -1).astype(np.uint8)).convert(mode)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    "mode, kind", [("RGB", "PNG"), ("L", "PNG"), ("P", "PNG"), ("RGBA", "PNG"), ("1", "PNG"), ("RGB", "JPEG")]
)
def test_strings_equal_files(tmp_path, channels, mode, kind):
    image = photograph(211, 97, mode)
    if mode == "RGBA":
        image.putalpha(Image.linear_gradient("L").resize(image.size))
    file = tmp_path / f"image.{kind.lower()}"
    image.save(file, kind)
    preparation = Preparation(28, 24, channels, "keep")
    read = preparation.read(file).astype(int)
    decoded = preparation.decode(tf.constant([file.read_bytes()]))[0].numpy()
    assert read.shape == (28, 24, channels)
    # Two rounded passes against one; a JPEG is also decoded by another library.
    assert np.abs(read - decoded).max() <= (3 if kind == "JPEG" else 2)
    assert np.ptp(read) > 50


def test_sixteen_bits_are_scaled(tmp_path):
    values = np.linspace(0, 65535, 400).reshape(20, 20).astype(np.uint16)
    Image.fromarray(values).save(tmp_path / "deep.png")
    preparation = Preparation(20, 20, 1, "keep")
    read = preparation.read(tmp_path / "deep.png")[..., 0].astype(int)
    decoded = preparation.decode(tf.constant([(tmp_path / "deep.png").read_bytes()]))[0, ..., 0].numpy()
    assert np.abs(read - values // 257).max() <= 1
    assert np.abs(read - decoded).max() <= 1


def test_exif_orientation_is_honoured(tmp_path):
    image = Image.new("L", (40, 20), 255)
    image.paste(0, (0, 0, 20, 20))  # left half dark; turned by 90 degrees, the dark half is above
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(tmp_path / "turned.jpg", exif=exif)
    read = Preparation(20, 20, 1, "keep").read(tmp_path / "turned.jpg")[..., 0]
    assert read[:8].max() < 20 and read[12:].min() > 235


def drawing(ink, paper):
    pixels = np.full([28, 28], paper, np.uint8)
    pixels[8:20, 12:15] = ink
    return pixels


@pytest.mark.parametrize(
    "polarity, ink, paper, inverted",
    [
        ("auto", 0, 255, False),
        ("auto", 255, 0, True),
        ("auto", 200, 60, True),
        ("keep", 255, 0, False),
        ("invert", 0, 255, True),
    ],
)
def test_polarity_of_files_and_tensors(tmp_path, polarity, ink, paper, inverted):
    pixels = drawing(ink, paper)
    Image.fromarray(pixels).save(tmp_path / "drawing.png")
    preparation = Preparation(28, 28, 1, polarity)
    expected = 255 - pixels if inverted else pixels
    assert np.array_equal(preparation.read(tmp_path / "drawing.png")[..., 0], expected)
    oriented = preparation.orient(tf.constant(pixels[None, ..., None], tf.float32))
    assert np.array_equal(oriented[0, ..., 0], expected)


def test_default_polarity_follows_the_data_set():
    shape = (28, 28, 1)
    assert Preparation.of_model(shape, "omniglot").polarity == "auto"
    assert Preparation.of_model(shape, "omniglot+glyphs").polarity == "auto"
    assert Preparation.of_model(shape, "folder").polarity == "keep"
    assert Preparation.of_model((28, 28, 3), "folder").polarity == "keep"
    assert Preparation.of_model(shape, "folder", "invert").polarity == "invert"
    with pytest.raises(UserError, match="one-channel"):
        Preparation.of_model((28, 28, 3), "folder", "auto")
    with pytest.raises(UserError, match="--polarity=dark"):
        Preparation.of_model(shape, "omniglot", "dark")


def test_grey_of_a_palette_with_transparency(tmp_path):
    image = Image.new("P", (10, 10), 0)
    image.putpalette([0, 0, 0, 255, 255, 255])
    image.save(tmp_path / "clear.png", transparency=0)
    encoded = (tmp_path / "clear.png").read_bytes()
    assert Image.open(io.BytesIO(encoded)).mode == "P"
    preparation = Preparation(10, 10, 1, "keep")
    assert preparation.read(tmp_path / "clear.png").min() == 255
    assert preparation.decode(tf.constant([encoded])).numpy().min() == 255
