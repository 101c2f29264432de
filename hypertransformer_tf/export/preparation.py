"""How an image of any kind becomes what a generated CNN reads: size, channels, polarity.

There are two ways to the same pixels: `Preparation.read` for files, with everything that Pillow knows, and
`Preparation.decode` for JPEG and PNG strings inside a SavedModel. Pixel values are 0..255 throughout.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from hypertransformer_tf.backend import tf
from hypertransformer_tf.data.image_folder import read_image
from hypertransformer_tf.errors import UserError

POLARITIES = ("auto", "keep", "invert")
DRAWINGS = ("omniglot", "omniglot_tfds", "glyphs")  # data sets of dark ink on bright paper


@dataclasses.dataclass(frozen=True)
class Preparation:
    """Size, channels and polarity of the images that a CNN reads.

    Attributes:
        height, width, channels: of the prepared image.
        polarity: "keep"; "invert": 255 - x; "auto": inverts an image whose border is dark, so that white
            chalk on a blackboard becomes ink on paper. Only of use for models of drawings.
    """

    height: int
    width: int
    channels: int
    polarity: str

    @classmethod
    def of_model(cls, image_shape, dataset: str, polarity: str | None = None) -> Preparation:
        """Preparation for a model.

        Args:
            image_shape: (height, width, channels) of the model's images.
            dataset: what it was trained on; "auto" is the default polarity for drawings in one channel.
            polarity: one of POLARITIES, or None for the default.

        Raises:
            UserError: for an unknown polarity, or one other than "keep" for a model of several channels.
        """
        height, width, channels = image_shape
        if polarity is None:
            drawings = channels == 1 and set(dataset.split("+")) <= set(DRAWINGS)
            polarity = "auto" if drawings else "keep"
        if polarity not in POLARITIES:
            raise UserError(f"--polarity={polarity}: unknown, use {', '.join(POLARITIES)}")
        if polarity != "keep" and channels != 1:
            raise UserError(f"--polarity={polarity} is for one-channel models, this one has {channels}")
        return cls(height, width, channels, polarity)

    def read(self, file: Path) -> np.ndarray:
        """Prepared image of a file: uint8 [height, width, channels]; raises as `read_image` does."""
        image = read_image(file, (self.height, self.width), self.channels)
        if self.polarity == "invert":
            return 255 - image
        if self.polarity == "auto" and image[self._border()].mean() < 127.5:
            return 255 - image
        return image

    def orient(self, images: tf.Tensor) -> tf.Tensor:
        """Applies the polarity: float32 [image, height, width, channels] in 0..255, the same out."""
        if self.polarity == "invert":
            return 255.0 - images
        if self.polarity == "keep":
            return images
        border = self._border().astype(np.float32)[..., None]
        mean = tf.reduce_sum(images * border, [1, 2, 3], keepdims=True) / border.sum()
        return tf.where(mean < 127.5, 255.0 - images, images)

    def decode(self, encoded: tf.Tensor) -> tf.Tensor:
        """Decodes and resizes JPEG and PNG strings of any size, without the polarity.

        EXIF orientation is not looked at: TensorFlow has no operation for it.

        Args:
            encoded: string [image].

        Returns:
            float32 [image, height, width, channels] in 0..255.
        """
        return tf.map_fn(
            self._decode_one,
            encoded,
            fn_output_signature=tf.TensorSpec([self.height, self.width, self.channels], tf.float32),
        )

    def _decode_one(self, encoded: tf.Tensor) -> tf.Tensor:
        def png():
            pixels = tf.cast(tf.io.decode_png(encoded, channels=4), tf.float32)
            opacity = pixels[..., 3:] / 255.0
            return pixels[..., :3] * opacity + 255.0 * (1.0 - opacity)

        def other():
            pixels = tf.io.decode_image(encoded, channels=3, expand_animations=False)
            return tf.cast(tf.ensure_shape(pixels, [None, None, 3]), tf.float32)

        # Grey PNGs go the other way: with fewer than 8 bits, decode_png gives them a wrong opacity.
        is_png = tf.strings.substr(encoded, 0, 4) == b"\x89PNG"
        length = tf.strings.length(encoded)
        colour_type = tf.strings.substr(encoded, tf.minimum(25, length), 1)
        image = tf.cond(is_png & (colour_type != b"\0"), png, other)
        if self.channels == 1:
            image = tf.reduce_sum(image * [0.299, 0.587, 0.114], -1, keepdims=True)
        image = tf.image.resize(image, [self.height, self.width], antialias=True)
        return tf.ensure_shape(tf.round(image), [self.height, self.width, self.channels])

    def _border(self) -> np.ndarray:
        border = np.ones([self.height, self.width], bool)
        border[1:-1, 1:-1] = False
        return border
