"""The cache: read back what was written, never believe a damaged file."""

import threading

import numpy as np
import pytest

from hypertransformer_tf.data.cache import cached, fingerprint
from hypertransformer_tf.data.class_images import ClassImages


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HYPERTRANSFORMER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Builder:
    """Builds a small data set and counts how often."""

    def __init__(self):
        self.calls = 0

    def __call__(self):
        self.calls += 1
        array = np.random.default_rng(0).integers(0, 256, [4, 5, 5, 1]).astype(np.uint8)
        return ClassImages.from_class_arrays([array[:1], array[1:]], ["one", "two"], "built")


def same(one, other):
    assert one.names == other.names and one.counts.tolist() == other.counts.tolist()
    np.testing.assert_array_equal(one.images, other.images)


def test_the_second_time_nothing_is_built():
    build = Builder()
    first = cached("x", "key", "source", build)
    second = cached("x", "key", "source", build)
    assert build.calls == 1 and second.source == "source"
    same(first, second)
    cached("x", "another key", "source", build)
    assert build.calls == 2


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "index", "no array"])
def test_a_damaged_cache_is_built_again_with_a_warning(folder, capsys, damage):
    build = Builder()
    expected = build()
    cached("x", "key", "source", build)
    array, index = folder / "x-key.npy", folder / "x-key.json"
    if damage == "truncate":
        array.write_bytes(array.read_bytes()[:-7])
    elif damage == "flip":
        content = bytearray(array.read_bytes())
        content[-3] ^= 255
        array.write_bytes(content)
    elif damage == "empty":
        array.write_bytes(b"")
    elif damage == "index":
        index.write_text(index.read_text()[:20])
    else:
        array.unlink()
    same(cached("x", "key", "source", build), expected)
    assert build.calls == 3
    warnings = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == 1 and "damaged" in warnings[0]
    same(cached("x", "key", "source", build), expected)
    assert build.calls == 3


def test_a_failing_write_leaves_nothing_behind(folder, monkeypatch):
    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "save", fail)
    with pytest.raises(KeyboardInterrupt):
        cached("x", "key", "source", Builder())
    assert list(folder.iterdir()) == []


def test_without_a_writable_folder_it_still_works(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HYPERTRANSFORMER_CACHE", str(tmp_path / "file" / "below"))
    same(cached("x", "key", "source", Builder()), Builder()())
    assert "HYPERTRANSFORMER_CACHE" in capsys.readouterr().err


def test_the_key_follows_files_and_options(tmp_path):
    file = tmp_path / "data.zip"
    file.write_bytes(b"1234")
    before = fingerprint([file], size=28)
    assert fingerprint([file], size=28) == before != fingerprint([file], size=32)
    file.write_bytes(b"12345")
    assert fingerprint([file], size=28) != before
    assert fingerprint([tmp_path]) == fingerprint([tmp_path])
    before = fingerprint([tmp_path])
    (tmp_path / "below").mkdir()
    assert fingerprint([tmp_path]) == before, "a folder counts by its files"
    (tmp_path / "below" / "more").write_bytes(b"")
    assert fingerprint([tmp_path]) != before


def test_builders_at_the_same_time_don_t_disturb_each_other(folder, capsys):
    build, results = Builder(), []
    expected = build()
    barrier = threading.Barrier(4)

    def work():
        barrier.wait()
        for _ in range(5):
            results.append(cached("x", "key", "source", build))
            (folder / "x-key.json").unlink(missing_ok=True)  # so that all of them write again and again

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 20
    for result in results:
        same(result, expected)
    assert not list(folder.glob("*.part"))
