"""Random changes of training images, drawn and applied inside the step, on whole episodes.

Everything runs in-graph and under XLA, so nothing is left for a host pipeline. The random numbers are the
sampler's: a pure function of (seed, stream, episode index), whatever the number of devices.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Callable

import gin

from hypertransformer_tf.backend import tf
from hypertransformer_tf.data import image_ops
from hypertransformer_tf.data.image_ops import rotate_by_90
from hypertransformer_tf.errors import UserError

__all__ = ["Augmentation", "rotate_by_90"]

SCOPES = ("class", "batch", "image")
# Two groups of augmentations, each with random numbers of its own; how many numbers an image needs. All are
# drawn whatever is on, so that one augmentation more leaves the others as they were.
_DRAWINGS, _PHOTOGRAPHS = 0, 1
_NUMBERS = {_DRAWINGS: 12, _PHOTOGRAPHS: 7}


@gin.configurable
@dataclasses.dataclass(frozen=True)
class Augmentation:
    """Which augmentations there are in training. By default none.

    Those for drawings come first, each with a probability of its own, in this order: quarter turns,
    mirroring, rotation, roll, resize, negation, smoothing, contrast. Then come, all together, those of
    photographs: left-right flip, hue, brightness, contrast, and a crop that is resized back.

    Attributes:
        scope: who shares a draw of the augmentations for drawings: "class": the images of a class in the
            episode, support and query alike; "batch": all images of the episode; "image": nobody.
        quarter_turns: rotate by a random multiple of 90 degrees (per class, `Task.rotate` does the same).
        mirror_probability: swap left and right. With the scope "class", mirrored characters are new classes,
            as rotated ones are with `Task.rotate`.
        rotate_probability, angle_range: rotate by an angle uniform in -angle_range..angle_range, in
            degrees; nearest pixels.
        roll_probability, roll_range: roll by whole pixels, up to this share of height and of width.
        resize_probability, smallest_size: shrink to a share uniform in smallest_size..1 of the sides and
            pad back to the old size.
        negate_probability: turn v into 255 - v.
        smooth_probability: take means of 3x3 pixels, then stretch each image to 0..255.
        contrast_probability, least_contrast, most_contrast: take tanh(a v), a uniform between the two and
            v in -1..1, then stretch each image to 0..255.
        fill: grey value 0..255 of what rotation and resizing uncover. None = 255 for images of one
            channel, the paper of drawings in ink (the reference's 0 would be ink), and 0 for others.
        image_augmentations: the augmentations of photographs; RGB only.
        augment_individually: they are drawn for each image, not once for all of the episode.
        hue, brightness: largest change, as a share of the colour circle and of the range of grey values.
        image_contrast: largest change of the factor by which contrast is scaled; 0.2 = 0.8..1.2.
        smallest_crop: a crop's side is uniform in smallest_crop..1 of the image's.

    Raises:
        UserError: for impossible values.
    """

    scope: str = "class"
    quarter_turns: bool = False
    mirror_probability: float = 0.0
    rotate_probability: float = 0.0
    angle_range: float = 30.0
    roll_probability: float = 0.0
    roll_range: float = 0.3
    resize_probability: float = 0.0
    smallest_size: float = 0.7
    negate_probability: float = 0.0
    smooth_probability: float = 0.0
    contrast_probability: float = 0.0
    least_contrast: float = 0.5
    most_contrast: float = 2.5
    fill: float | None = None
    image_augmentations: bool = False
    augment_individually: bool = False
    hue: float = 0.2
    brightness: float = 0.3
    image_contrast: float = 0.2
    smallest_crop: float = 0.6

    def __post_init__(self):
        if self.scope not in SCOPES:
            raise UserError(f"unknown Augmentation.scope = {self.scope!r}: use {', '.join(SCOPES)}")
        shares = [field.name for field in dataclasses.fields(self) if field.name.endswith("_probability")]
        for name in (*shares, "roll_range", "brightness", "image_contrast"):
            self._must_be_within(name, 0, 1)
        self._must_be_within("angle_range", 0, 180)
        self._must_be_within("hue", 0, 0.5)
        self._must_be_within("smallest_size", 0.01, 1)
        self._must_be_within("smallest_crop", 0.01, 1)
        self._must_be_within("least_contrast", 0.01, 100)
        self._must_be_within("most_contrast", self.least_contrast, 100)
        if self.fill is not None:
            self._must_be_within("fill", 0, 255)

    def _must_be_within(self, name: str, least: float, most: float) -> None:
        value = getattr(self, name)
        if not isinstance(value, (int, float)) or not least <= value <= most:
            raise UserError(f"Augmentation.{name} = {value!r}: must be within {least}..{most}")

    def check(self, image_shape: tuple[int, int, int], source: str) -> None:
        """Raises UserError when images of (height, width, channels) can't be augmented so."""
        height, width, channels = image_shape
        if self.quarter_turns and height != width:
            raise UserError(
                f"Augmentation.quarter_turns needs square images, {source} has {height}x{width}: turn it off"
            )
        if self.image_augmentations and channels != 3:
            raise UserError(
                f"Augmentation.image_augmentations change the hue of RGB images, {source} has images of "
                f"{channels} channel{'' if channels == 1 else 's'}: turn it off"
            )

    def changed(self) -> dict:
        """The options that are not the default, {name: value}."""
        fields = dataclasses.fields(self)
        return {f.name: getattr(self, f.name) for f in fields if getattr(self, f.name) != f.default}

    def __call__(
        self,
        images: tf.Tensor,
        slots: tf.Tensor,
        way: int,
        part: int,
        random: Callable[[int, int], tf.Tensor],
    ) -> tf.Tensor:
        """Augments the support images, or a batch of query images, of a batch of episodes.

        Args:
            images: uint8 [episode, image, height, width, channels].
            slots: int32 [episode, image], slot 0..way-1 of the class of each image.
            way: classes of an episode.
            part: 0 = the support images, 1 + b = query batch b.
            random: uniform numbers [episode, count] in 0..1 for a (purpose, count); the same for the same
                purpose.

        Returns:
            [episode, image, height, width, channels] in 0..255: uint8 when nothing is on, else float32.
        """
        shape = images.shape

        def draw(scope, group):
            return _draw(scope, random, group, part, slots, way)

        if self._changes_drawings():
            numbers = draw(self.scope, _DRAWINGS)
            if self.quarter_turns:
                images = rotate_by_90(images, tf.cast(numbers[:, :, 0] * 4.0, tf.int32))
            images = self._augment_drawings(tf.reshape(images, [-1, *shape[2:]]), _columns(numbers))
        if self.image_augmentations:
            numbers = draw("image" if self.augment_individually else "batch", _PHOTOGRAPHS)
            images = tf.cast(tf.reshape(images, [-1, *shape[2:]]), tf.float32)
            images = self._augment_photographs(images, _columns(numbers))
        return tf.reshape(images, shape)

    def _changes_drawings(self) -> bool:
        return self.quarter_turns or any(
            getattr(self, f.name) > 0 for f in dataclasses.fields(self) if f.name.endswith("_probability")
        )

    def _augment_drawings(self, images: tf.Tensor, draws: list[tf.Tensor]) -> tf.Tensor:
        """Images [image, height, width, channels]; each of `draws` is [image], uniform in 0..1."""
        _, height, width, channels = images.shape
        fill = self.fill if self.fill is not None else (255.0 if channels == 1 else 0.0)
        turn, if_rotate, angle, if_roll, down, right, if_resize, size, if_negate, if_smooth, *rest = draws
        if_contrast, strength = rest

        def perhaps(draw, probability, change):
            if not probability:
                return images
            return tf.where((draw < probability)[:, None, None, None], change(images), images)

        # What the quarter turns leave of their number is as random.
        images = perhaps(turn * 4.0 % 1.0, self.mirror_probability, lambda x: x[:, :, ::-1])
        if self.rotate_probability or self.roll_probability:
            angles = math.radians(self.angle_range) * (2.0 * angle - 1.0)
            angles = tf.where(if_rotate < self.rotate_probability, angles, 0.0)
            shifts = [
                _whole(amount, int(self.roll_range * side))
                for amount, side in ((down, height), (right, width))
            ]
            shifts = tf.where((if_roll < self.roll_probability)[:, None], tf.stack(shifts, 1), 0)
            images = image_ops.rotate_and_roll(images, angles, shifts, fill)
        images = tf.cast(images, tf.float32)
        if self.resize_probability:
            sizes = self.smallest_size + (1.0 - self.smallest_size) * size
            images = image_ops.shrink(images, tf.where(if_resize < self.resize_probability, sizes, 1.0), fill)
        images = perhaps(if_negate, self.negate_probability, lambda x: 255.0 - x)
        images = perhaps(if_smooth, self.smooth_probability, image_ops.smooth)
        strengths = self.least_contrast + (self.most_contrast - self.least_contrast) * strength
        return perhaps(
            if_contrast, self.contrast_probability, lambda x: image_ops.bend_contrast(x, strengths)
        )

    def _augment_photographs(self, images: tf.Tensor, draws: list[tf.Tensor]) -> tf.Tensor:
        """float32 images [image, height, width, 3]; each of `draws` is [image], uniform in 0..1."""
        flip, hue, brightness, contrast, size, down, right = draws
        images = image_ops.turn_hue(images, self.hue * (2.0 * hue - 1.0))
        images += 255.0 * self.brightness * (2.0 * brightness - 1.0)[:, None, None, None]
        images = image_ops.scale_contrast(images, 1.0 + self.image_contrast * (2.0 * contrast - 1.0))
        images = tf.clip_by_value(images, 0.0, 255.0)
        sizes = self.smallest_crop + (1.0 - self.smallest_crop) * size
        # The flip comes first, but it changes nothing of what colours do: one resampling for both.
        return image_ops.flip_and_crop(images, flip < 0.5, sizes, tf.stack([down, right], 1))


def _draw(scope: str, random, group: int, part: int, slots: tf.Tensor, way: int) -> tf.Tensor:
    """Random numbers of each image, [episode, image, number], shared as `scope` says."""
    (episodes, images), count = slots.shape, _NUMBERS[group]
    if scope == "image":
        return tf.reshape(random(2 * (1 + part) + group, images * count), [episodes, images, count])
    drawn = way if scope == "class" else 1
    numbers = tf.reshape(random(group, drawn * count), [episodes, drawn, count])
    return tf.gather(numbers, slots if scope == "class" else tf.zeros_like(slots), batch_dims=1)


def _columns(numbers: tf.Tensor) -> list[tf.Tensor]:
    """[episode, image, number] as a list of [episode * image]."""
    return tf.unstack(tf.reshape(numbers, [-1, numbers.shape[2]]), axis=1)


def _whole(uniform: tf.Tensor, most: int) -> tf.Tensor:
    """Uniform numbers in 0..1 as whole numbers, each of -most..most equally likely."""
    return tf.minimum(tf.cast(tf.floor(uniform * (2 * most + 1)), tf.int32), 2 * most) - most
