"""Episodes drawn ahead by the host: the same ones, each replica its own, from any step on."""

import numpy as np
import pytest

from hypertransformer_tf.backend import tf
from hypertransformer_tf.data import episodes as episodes_module
from hypertransformer_tf.data.class_images import ClassImages
from hypertransformer_tf.data.episodes import EpisodeSampler
from hypertransformer_tf.data.host_pipeline import distributed_batches, episode_batches, host_draws
from hypertransformer_tf.errors import UserError


@pytest.fixture(scope="module")
def images():
    random = np.random.default_rng(0)
    arrays = random.integers(0, 256, [7, 6, 12, 12, 1], np.uint8)
    return ClassImages.from_class_arrays(arrays, [str(i) for i in range(7)], "noise")


@pytest.fixture(scope="module")
def sampler(images):
    return EpisodeSampler(images, 3, 1, 6, unlabeled=1, seed=2, rotate=True)


def assert_same(drawn, sampler, indices):
    assert drawn.indices.numpy().tolist() == indices
    expected = sampler(tf.constant(indices, tf.int64))
    for name, value in expected._asdict().items():
        if value is not None:
            np.testing.assert_array_equal(getattr(drawn.episodes, name), value, err_msg=name)


def test_batches_are_those_of_the_steps(sampler):
    for first in (0, 5):
        for step, drawn in zip(range(first, first + 3), episode_batches(sampler, 4, first)):
            assert_same(drawn, sampler, [4 * step + i for i in range(4)])


def test_two_hosts_share_a_step(sampler):
    """The third and fourth of four replicas, on a host of their own."""
    batches = episode_batches(sampler, 8, 3, replicas=4, first_replica=2, local_replicas=2)
    found = [drawn.indices.numpy().tolist() for drawn in batches.take(4)]
    assert found == [[28, 29], [30, 31], [36, 37], [38, 39]]


def test_shapes_are_static_and_there_is_no_end(sampler):
    batches = episode_batches(sampler, 4)
    specs = [spec for spec in tf.nest.flatten(batches.element_spec) if isinstance(spec, tf.TensorSpec)]
    assert all(spec.shape.is_fully_defined() for spec in specs)
    assert batches.cardinality() == tf.data.INFINITE_CARDINALITY


@pytest.fixture
def on_disk(images, tmp_path, monkeypatch):
    """A sampler of images that are too many for the memory."""
    np.save(tmp_path / "images.npy", images.images)
    mapped = np.load(tmp_path / "images.npy", mmap_mode="r")
    monkeypatch.setattr(episodes_module, "MAPPED_BYTES", 0)
    images = ClassImages(mapped, images.offsets, images.counts, images.names, "disk")
    return EpisodeSampler(images, 3, 1, 6, unlabeled=1, seed=2, rotate=True)


def test_images_from_the_disk(sampler, on_disk):
    assert on_disk.mapped and not sampler.mapped
    for step, drawn in zip(range(2), episode_batches(on_disk, 4)):
        assert_same(drawn, sampler, [4 * step + i for i in range(4)])


def test_on_a_tpu_the_host_draws_what_lies_on_the_disk(sampler, on_disk):
    class TPU(tf.distribute.TPUStrategy):
        def __init__(self):
            pass

    cpu = tf.distribute.OneDeviceStrategy("CPU:0")
    assert host_draws(on_disk, TPU(), None) and not host_draws(on_disk, cpu, None)
    assert not host_draws(sampler, TPU(), None) and host_draws(sampler, cpu, True)
    with pytest.raises(UserError, match="host_sampling = False.*set it to True"):
        host_draws(on_disk, TPU(), False)


def test_a_strategy_of_one_device(sampler):
    iterator = iter(distributed_batches(tf.distribute.OneDeviceStrategy("CPU:0"), sampler, 4, 2))
    assert_same(next(iterator), sampler, [8, 9, 10, 11])
