"""How a kernel is cut into the weight slices that placeholder tokens produce (paper, section 3.2).

"output" allocation: one slice of k * k * n_in values for each output channel. "spatial" allocation:
one slice of n_in * n_out values for each of the k * k positions.
"""

from __future__ import annotations

from typing import NamedTuple

from hypertransformer_tf.backend import tf
from hypertransformer_tf.errors import UserError

ALLOCATIONS = ("output", "spatial")


class SliceShape(NamedTuple):
    """Number of weight slices of a layer and the values in each."""

    slices: int
    size: int


def slice_shape(
    allocation: str, kernel_size: int, in_channels: int, channels: int, extras: int = 0
) -> SliceShape:
    """The slices of a k x k x n_in x n_out kernel.

    Args:
        allocation: one of ALLOCATIONS.
        kernel_size, in_channels, channels: k, n_in, n_out.
        extras: values of each output channel besides its kernel: bias, BN scale, BN shift.

    Raises:
        UserError: for an unknown allocation, or extras with one whose slices belong to no channel.
    """
    if allocation == "output":
        return SliceShape(channels, kernel_size**2 * in_channels + extras)
    if allocation == "spatial":
        if extras:
            raise UserError(
                "generate_bias and generate_bn need allocation = 'output': a slice of 'spatial' allocation "
                "belongs to no output channel"
            )
        return SliceShape(kernel_size**2, in_channels * channels)
    raise UserError(f"unknown weight allocation {allocation!r}: use {' or '.join(ALLOCATIONS)}")


def assemble_kernel(
    slices: tf.Tensor, allocation: str, kernel_size: int, in_channels: int, channels: int
) -> tf.Tensor:
    """Puts weight slices together.

    Args:
        slices: float [episode, slice, value] of the shape that `slice_shape` gives.
        allocation: "output" or "spatial".

    Returns:
        float [episode, kernel_size, kernel_size, in_channels, channels].
    """
    expected = slice_shape(allocation, kernel_size, in_channels, channels)
    if tuple(slices.shape[1:]) != expected:
        raise ValueError(f"{allocation} allocation needs slices {tuple(expected)}, got {slices.shape[1:]}")
    if allocation == "output":
        kernel = tf.reshape(slices, [-1, channels, kernel_size, kernel_size, in_channels])
        return tf.transpose(kernel, [0, 2, 3, 4, 1])
    return tf.reshape(slices, [-1, kernel_size, kernel_size, in_channels, channels])
