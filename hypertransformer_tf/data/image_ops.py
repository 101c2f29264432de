"""Changes of images that run inside the training step, on every device and under XLA.

XLA has no projective transform and no CropAndResize, so all geometry here is a gather of pixels whose
places are computed with plain arithmetic. Each image of a batch has parameters of its own, and there is no
loop over images. Grey values are 0..255, as they are stored.
"""

from __future__ import annotations

import numpy as np

from hypertransformer_tf.backend import tf


def rotate_by_90(images: tf.Tensor, turns: tf.Tensor) -> tf.Tensor:
    """Rotates each image counter-clockwise by a multiple of 90 degrees.

    One gather of pixels, which on a CPU is cheaper than choosing among four rotated copies.

    Args:
        images: [episode, image, side, side, channels], any dtype.
        turns: int32 [episode, image] in 0..3, quarter turns.

    Returns:
        The rotated images, same shape and dtype.
    """
    side, channels = images.shape[2], images.shape[4]
    pixels = np.arange(side * side, dtype=np.int32).reshape(side, side)
    source = np.stack([np.rot90(pixels, k).ravel() for k in range(4)])
    count = turns.shape[0] * turns.shape[1]
    first = tf.range(count, dtype=tf.int32)[:, None] * (side * side)
    index = first + tf.gather(tf.constant(source), tf.reshape(turns, [-1]))
    return tf.reshape(tf.gather(tf.reshape(images, [-1, channels]), index), images.shape)


def rotate_and_roll(images: tf.Tensor, angles: tf.Tensor, shifts: tf.Tensor, fill: float) -> tf.Tensor:
    """Rotates each image about its centre, then rolls it; nearest pixels, one gather.

    With no shift this is `projective.rotate`, but for pixels whose source lies half-way between two, which
    the last bit of a sine decides. With angle 0 it is exactly a roll.

    Args:
        images: [image, height, width, channels], any dtype.
        angles: float32 [image], radians, counter-clockwise.
        shifts: int32 [image, 2], pixels down and to the right; what leaves on one side comes in opposite.
        fill: grey value of what the rotation uncovers.

    Returns:
        The changed images, same shape and dtype.
    """
    count, height, width, channels = images.shape
    rows = tf.cast((tf.range(height) - shifts[:, :1]) % height, tf.float32)[:, :, None]
    columns = tf.cast((tf.range(width) - shifts[:, 1:]) % width, tf.float32)[:, None, :]
    sine, cosine = tf.sin(angles)[:, None, None], tf.cos(angles)[:, None, None]
    right = ((width - 1) - (cosine * (width - 1) - sine * (height - 1))) / 2.0
    down = ((height - 1) - (sine * (width - 1) + cosine * (height - 1))) / 2.0
    source_x = tf.floor(cosine * columns - sine * rows + right + 0.5)
    source_y = tf.floor(sine * columns + cosine * rows + down + 0.5)
    inside = (source_x >= 0) & (source_x < width) & (source_y >= 0) & (source_y < height)
    index = tf.where(inside, tf.cast(source_y * width + source_x, tf.int32), 0)
    index += tf.range(count, dtype=tf.int32)[:, None, None] * (height * width)
    pixels = tf.gather(tf.reshape(images, [-1, channels]), index)
    return tf.where(inside[..., None], pixels, tf.cast(fill, images.dtype))


def shrink(images: tf.Tensor, scales: tf.Tensor, fill: float) -> tf.Tensor:
    """Shrinks each image and pads it back to its size, centred.

    Bilinear without antialiasing, as `tf.image.resize` does it; sizes are rounded to whole pixels.

    Args:
        images: float32 [image, height, width, channels].
        scales: float32 [image] in 0..1; 1 changes nothing.
        fill: grey value of the margin.

    Returns:
        float32 [image, height, width, channels].
    """
    places, inside = zip(*(_shrunk_places(side, scales) for side in images.shape[1:3]))
    shrunk = _resample(images, *places)
    covered = inside[0][:, :, None, None] & inside[1][:, None, :, None]
    return tf.where(covered, shrunk, fill)


def _shrunk_places(side: int, scales: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Where pixels of a shrunk axis come from, and which of them the image covers: [image, side] each."""
    size = tf.maximum(tf.round(scales[:, None] * side), 1.0)
    place = tf.range(side, dtype=tf.float32) - tf.floor((side - size) / 2.0)
    return (place + 0.5) * (side / size) - 0.5, (place >= 0.0) & (place < size)


def flip_and_crop(images: tf.Tensor, flips: tf.Tensor, scales: tf.Tensor, corners: tf.Tensor) -> tf.Tensor:
    """Flips images left-right, then cuts a part of the same proportions out and resizes it back.

    Bilinear without antialiasing, as `tf.image.resize` does it; parts are whole pixels.

    Args:
        images: float32 [image, height, width, channels].
        flips: bool [image], which images are flipped.
        scales: float32 [image] in 0..1, the part's share of each side; 1 = all.
        corners: float32 [image, 2] in 0..1, where the part lies: 0, 0 = upper left, 1, 1 = lower right.

    Returns:
        float32 [image, height, width, channels].
    """
    height, width = images.shape[1:3]
    rows = _cropped_places(height, scales, corners[:, :1])
    columns = _cropped_places(width, scales, corners[:, 1:])
    columns = tf.where(flips[:, None], width - 1.0 - columns, columns)
    return _resample(images, rows, columns)


def _cropped_places(side: int, scales: tf.Tensor, corners: tf.Tensor) -> tf.Tensor:
    """Where the pixels of an enlarged part of an axis come from: float32 [image, side]."""
    size = tf.maximum(tf.round(scales[:, None] * side), 1.0)
    first = tf.minimum(tf.floor(corners * (side - size + 1.0)), side - size)
    place = (tf.range(side, dtype=tf.float32) + 0.5) * (size / side) - 0.5
    return first + tf.clip_by_value(place, 0.0, size - 1.0)


def _resample(images: tf.Tensor, rows: tf.Tensor, columns: tf.Tensor) -> tf.Tensor:
    """Bilinear values at rows [image, height] x columns [image, width], places outside moved to the edge."""
    return _interpolate(_interpolate(images, rows, 1), columns, 2)


def _interpolate(images: tf.Tensor, places: tf.Tensor, axis: int) -> tf.Tensor:
    last = images.shape[axis] - 1
    places = tf.clip_by_value(places, 0.0, float(last))
    lower = tf.floor(places)
    weight = places - lower
    weight = weight[:, :, None, None] if axis == 1 else weight[:, None, :, None]
    lower = tf.cast(lower, tf.int32)
    at_lower = tf.gather(images, lower, axis=axis, batch_dims=1)
    at_upper = tf.gather(images, tf.minimum(lower + 1, last), axis=axis, batch_dims=1)
    return at_lower + weight * (at_upper - at_lower)


def smooth(images: tf.Tensor) -> tf.Tensor:
    """Mean of 3x3 pixels (at the edge, of those that there are), then `stretch`; float32, shape kept."""
    return stretch(tf.nn.avg_pool2d(images, 3, 1, "SAME"))


def bend_contrast(images: tf.Tensor, strengths: tf.Tensor) -> tf.Tensor:
    """Hyperbolic tangent of strength x grey value, the value taken as -1..1, then `stretch`.

    Args:
        images: float32 [image, height, width, channels].
        strengths: float32 [image]; the larger, the nearer to black and white.

    Returns:
        float32 [image, height, width, channels].
    """
    return stretch(tf.tanh(strengths[:, None, None, None] * (images / 127.5 - 1.0)))


def stretch(images: tf.Tensor) -> tf.Tensor:
    """Min-max normalisation: maps each image's smallest value to 0 and its largest to 255.

    An image of a single value becomes all 0, not NaN. float32 [image, height, width, channels].
    """
    low = tf.reduce_min(images, [1, 2, 3], keepdims=True)
    high = tf.reduce_max(images, [1, 2, 3], keepdims=True)
    return tf.math.divide_no_nan(images - low, high - low) * 255.0


def turn_hue(images: tf.Tensor, turns: tf.Tensor) -> tf.Tensor:
    """Adds to the hue of RGB images, as `tf.image.adjust_hue` does, by an amount of each image's own.

    Args:
        images: float32 [image, height, width, 3] in 0..255.
        turns: float32 [image] in -1..1, 1 = once around the colour circle.

    Returns:
        float32 [image, height, width, 3].
    """
    hue, saturation, value = tf.unstack(tf.image.rgb_to_hsv(images / 255.0), axis=-1)
    hue += turns[:, None, None]
    hue -= tf.floor(hue)  # a fraction of the time of floormod
    return tf.image.hsv_to_rgb(tf.stack([hue, saturation, value], -1)) * 255.0


def scale_contrast(images: tf.Tensor, factors: tf.Tensor) -> tf.Tensor:
    """Scales the distance from each channel's mean, as `tf.image.adjust_contrast` does.

    Args:
        images: float32 [image, height, width, channels].
        factors: float32 [image]; 1 changes nothing.

    Returns:
        float32 [image, height, width, channels], not clipped.
    """
    means = tf.reduce_mean(images, [1, 2], keepdims=True)
    return means + factors[:, None, None, None] * (images - means)
