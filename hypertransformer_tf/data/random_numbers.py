"""Random numbers of an episode: a pure function of its seeds and of what they are for.

They come from Threefry-2x32 with 20 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
2011), written out in integer operations: TensorFlow's own stateless generators give other numbers when XLA
compiles them, and then a TPU would see other episodes than a CPU.
"""

from __future__ import annotations

import math

from hypertransformer_tf.backend import tf

# First purposes of those who draw; each may count up from its own.
TASK, DROPOUT, MASKING, AUGMENTATION = 0, 1000, 2000, 2**30

_ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
_PARITY = 0x1BD11BDA


def threefry(key: tuple, counter: tuple) -> tuple:
    """A block of Threefry-2x32-20.

    Args:
        key, counter: two uint32 tensors each; all four broadcast against each other.

    Returns:
        Two uint32 tensors of random bits.
    """
    keys = (*key, key[0] ^ key[1] ^ tf.constant(_PARITY, tf.uint32))
    left, right = counter[0] + keys[0], counter[1] + keys[1]
    for i in range(20):
        shift = _ROTATIONS[i % 8]
        left += right
        right = tf.bitwise.left_shift(right, tf.constant(shift, tf.uint32)) | tf.bitwise.right_shift(
            right, tf.constant(32 - shift, tf.uint32)
        )
        right ^= left
        if i % 4 == 3:
            turn = i // 4 + 1
            left += keys[turn % 3]
            right += keys[(turn + 1) % 3] + tf.constant(turn, tf.uint32)
    return left, right


def uniform(seeds: tf.Tensor, purpose: int, shape) -> tf.Tensor:
    """Uniform numbers, the same bit for bit on every device, compiled or not.

    Args:
        seeds: int64 [episode, 2], each in 0..2^32-1, see `EpisodeSampler.seeds`.
        purpose: 0..2^32-1; other purposes give independent numbers.
        shape: of the numbers of one episode, static.

    Returns:
        float32 [episode, *shape], multiples of 2^-24 in 0 <= x < 1.
    """
    count = math.prod(shape)
    key = tuple(tf.cast(seeds[:, i : i + 1], tf.uint32) for i in range(2))
    block = tf.cast(tf.range(-(-count // 2)), tf.uint32)[None]
    bits = tf.concat(threefry(key, (block, tf.constant(purpose, tf.uint32))), 1)[:, :count]
    numbers = tf.cast(tf.bitwise.right_shift(bits, tf.constant(8, tf.uint32)), tf.float32) * 2.0**-24
    return tf.reshape(numbers, [-1, *shape])
