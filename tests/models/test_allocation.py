"""Weight slices and the kernels that they make up."""

import numpy as np
import pytest

from hypertransformer_tf.errors import UserError
from hypertransformer_tf.models.allocation import assemble_kernel, slice_shape


def known_kernel():
    """2x2 kernel from 2 to 3 channels whose value spells its position: row, column, in, out."""
    kernel = np.zeros([2, 2, 2, 3], np.float32)
    for index in np.ndindex(kernel.shape):
        kernel[index] = int("".join(str(i) for i in index))
    return kernel


def test_output_allocation_has_one_slice_per_output_channel():
    kernel = known_kernel()
    slices = np.stack([kernel[..., channel].ravel() for channel in range(3)])
    np.testing.assert_array_equal(assemble_kernel(slices[None], "output", 2, 2, 3)[0], kernel)
    assert slices[1].tolist() == [1, 11, 101, 111, 1001, 1011, 1101, 1111]


def test_spatial_allocation_has_one_slice_per_position():
    kernel = known_kernel()
    slices = np.stack([kernel[row, column].ravel() for row in range(2) for column in range(2)])
    np.testing.assert_array_equal(assemble_kernel(slices[None], "spatial", 2, 2, 3)[0], kernel)
    assert slices[2].tolist() == [1000, 1001, 1002, 1010, 1011, 1012]


@pytest.mark.parametrize(
    "allocation, channels, first, later",
    [
        ("output", 4, (4, 9), (4, 36)),
        ("output", 8, (8, 9), (8, 72)),
        ("output", 64, (64, 9), (64, 576)),
        ("spatial", 4, (9, 4), (9, 16)),
        ("spatial", 8, (9, 8), (9, 64)),
        ("spatial", 64, (9, 64), (9, 4096)),
    ],
)
def test_slice_sizes(allocation, channels, first, later):
    assert slice_shape(allocation, 3, 1, channels) == first
    assert slice_shape(allocation, 3, channels, channels) == later


def test_wrong_slices_and_unknown_allocation_are_refused():
    with pytest.raises(ValueError, match=r"\(3, 8\)"):
        assemble_kernel(np.zeros([1, 3, 7], np.float32), "output", 2, 2, 3)
    with pytest.raises(UserError, match="'input'"):
        slice_shape("input", 3, 8, 8)
