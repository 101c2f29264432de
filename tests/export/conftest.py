"""Fixtures of the tests of exports."""

import numpy as np
import pytest


@pytest.fixture
def queries():
    """uint8 images to classify."""
    return np.random.default_rng(2).integers(0, 256, [7, 16, 16, 1]).astype(np.uint8)
