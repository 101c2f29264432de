"""Kernel pictures and the change of kernels between episodes."""

import numpy as np
import pytest

from hypertransformer_tf.analysis.kernels import draw_kernels, kernel_grid, relative_change


def test_relative_change():
    one = np.full([3, 3, 1, 2], 2.0)
    assert relative_change(np.stack([one, one, one])) == 0.0
    assert relative_change(np.stack([one, 1.1 * one])) == pytest.approx(0.1 / 1.05)
    assert relative_change(np.stack([one, -one])) == pytest.approx(2.0)
    random = np.random.default_rng(0).normal(size=[50, 3, 3, 8, 8])
    assert relative_change(random) == pytest.approx(np.sqrt(2.0), abs=0.02)


def test_grid_puts_input_channels_down_and_output_channels_across():
    kernel = np.random.default_rng(0).normal(size=[3, 2, 4, 5])
    grid = kernel_grid(kernel)
    assert grid.shape == (4 * 4 - 1, 5 * 3 - 1)
    np.testing.assert_array_equal(grid[2 * 4 : 2 * 4 + 3, 3 * 3 : 3 * 3 + 2], kernel[:, :, 2, 3])
    assert np.isnan(grid[3]).all() and np.isnan(grid[:, 2]).all()


@pytest.mark.parametrize("channels", [4, 64])
def test_picture(tmp_path, channels):
    random = np.random.default_rng(0)
    kernels = {
        "layer_1": random.normal(size=[2, 3, 3, 1, channels]),
        "layer_2": np.repeat(random.normal(size=[1, 3, 3, channels, channels]), 2, 0),
    }
    path = draw_kernels(kernels, {"layer_1": 0.123}, tmp_path / "kernels.svg", frozenset({"layer_2"}))
    assert path.read_text().count('<g id="axes_') == 2 * 3 * 2  # with a colour bar each
