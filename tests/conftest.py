"""Shared fixtures: real data by HYPERTRANSFORMER_DATA, a cache of its own, tiny data and configurations."""

import os
import subprocess
import sys
from pathlib import Path

import gin
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    """Decoded data goes to a temporary folder, never to the user's cache."""
    folder = tmp_path_factory.mktemp("cache")
    os.environ["HYPERTRANSFORMER_CACHE"] = str(folder)
    return folder


@pytest.fixture(autouse=True)
def no_bindings():
    """No test sees the configuration that another one has loaded."""
    gin.clear_config()
    yield
    gin.clear_config()


@pytest.fixture(scope="session")
def data_dir():
    """Folder of the real data sets."""
    folder = os.environ.get("HYPERTRANSFORMER_DATA")
    if not folder:
        pytest.skip("set HYPERTRANSFORMER_DATA to the folder that holds omniglot/, tfds/ and splits/")
    return Path(folder)


@pytest.fixture(scope="session")
def tiny_data(tmp_path_factory):
    """A .npy file with 24 classes of 8 noisy images of one random 16x16 pattern each."""
    rng = np.random.default_rng(0)
    patterns = rng.integers(0, 2, [24, 1, 4, 4, 1]).repeat(4, 2).repeat(4, 3) * 200
    images = patterns + rng.integers(0, 56, [24, 8, 16, 16, 1])
    path = tmp_path_factory.mktemp("data") / "tiny.npy"
    np.save(path, images.astype(np.uint8))
    return path


TINY_DATA = """
load_splits.name = "npy"
load_splits.train = "0-11"
load_splits.val = "12-17"
load_splits.test = "18-23"
Task.way = 3
Task.query = 6
"""
TINY_CONFIG = f"""{TINY_DATA}
HyperTransformer.channels = 4
HyperTransformer.transformer_layers = 1
HyperTransformer.embedding_dim = 8
HyperTransformer.shared_features = 4
HyperTransformer.shared_layers = 2
Optimizer.kind = "adam"
LearningRate.rate = 0.001
LearningRate.schedule = "constant"
TrainingStep.episodes_per_step = 2
WeightAverage.decay = 0.9
train.episodes = 60
train.steps_per_call = 5
train.validate_episodes = 20
train.validation_tasks = 8
train.checkpoint_episodes = 20
"""


@pytest.fixture(scope="session")
def tiny_gin(tmp_path_factory):
    """A gin file for `tiny_data`: 30 steps of a 4-channel model."""
    path = tmp_path_factory.mktemp("gin") / "tiny.gin"
    path.write_text(TINY_CONFIG)
    return path


@pytest.fixture
def program():
    """Runs a program of the project as a user would; returns its CompletedProcess."""

    def run(name, *arguments, timeout=300):
        command = [sys.executable, str(ROOT / name), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout)

    return run
