"""Pickles of every kind that data comes in are read; a pickle with code is not."""

import collections
import pickle
import pickletools
import subprocess

import numpy as np
import pytest
from pickle_helpers import write_python2

from hypertransformer_tf.data.unpickling import read_dict, read_pickle
from hypertransformer_tf.errors import UserError

CONTENT = {
    "image_data": np.arange(2 * 9 * 9 * 3, dtype=np.uint8).reshape(2, 9, 9, 3),
    "class_dict": {"n01": [0], "n02": [1]},
    "labels": np.arange(3, dtype=np.int32),
    "more": [1, -2, 2**40, 2.5, None, True, "text", b"bytes", (1, (2,)), {3}, frozenset([4])],
}


def same(read, content):
    assert type(read) is type(content) or isinstance(read, (np.ndarray, memoryview))
    if isinstance(content, dict):
        assert list(read) == list(content)
        for key in content:
            same(read[key], content[key])
    elif isinstance(content, np.ndarray):
        assert read.dtype == content.dtype
        np.testing.assert_array_equal(read, content)
    else:
        assert read == content


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_protocol_of_python_3(tmp_path, protocol):
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(CONTENT, protocol))
    same(read_pickle(tmp_path / "a.pkl"), CONTENT)


def test_python_2_bytes_become_the_same_keys(tmp_path):
    content = {key: value for key, value in CONTENT.items() if key != "more"}
    write_python2(tmp_path / "a.pkl", content)
    assert list(pickle.loads((tmp_path / "a.pkl").read_bytes(), encoding="bytes"))[0] == b"image_data"
    same(read_pickle(tmp_path / "a.pkl"), content)


def test_other_shapes_of_the_same_things(tmp_path):
    content = {
        "ordered": collections.OrderedDict(a=[1], b=[2]),
        "default": collections.defaultdict(list, c=[3]),
        "scalars": [np.int64(5), np.float32(0.5)],
        "fortran": np.asfortranarray(np.arange(12, dtype=np.int16).reshape(3, 4)),
        "big": np.arange(400, dtype=">i4"),
        "empty": np.zeros([0, 4], np.uint8),
        "names": np.array(["a", "bc"]),
    }
    for protocol in (2, 4, 5):
        (tmp_path / "a.pkl").write_bytes(pickle.dumps(content, protocol))
        read = read_pickle(tmp_path / "a.pkl")
        assert read["ordered"] == {"a": [1], "b": [2]} and read["default"] == {"c": [3]}
        assert read["scalars"] == [5, 0.5]
        for key in ("fortran", "big", "empty", "names"):
            np.testing.assert_array_equal(read[key], content[key])


@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_arrays_stay_in_the_file(tmp_path, protocol):
    content = [np.full([100, 1], value, np.uint8) for value in range(3)] + [np.zeros([10**6], np.uint8)]
    content += [np.full([1000, 1], 7, np.uint8)]
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(content, protocol))
    read = read_pickle(tmp_path / "a.pkl")
    for one, other in zip(read, content):
        np.testing.assert_array_equal(one, other)
    assert not read[3].flags.owndata and not read[3].flags.writeable


class Evil:
    """Makes a pickle that calls what it is given."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_code_is_refused_and_named(tmp_path, protocol):
    import os

    marker = tmp_path / "it_ran"
    for function, arguments, name in (
        (os.system, (f"touch {marker}",), r"(posix|nt)\.system"),
        (subprocess.Popen, (["touch", str(marker)],), r"(subprocess|commands)\.Popen"),
        (eval, (f"open({str(marker)!r}, 'w')",), r"\w+\.eval"),
        (getattr, ("x", "upper"), r"\w+\.getattr"),
        (np.load, (str(marker),), r"numpy\.\w*\.?load|numpy\.\S+"),
    ):
        (tmp_path / "evil.pkl").write_bytes(pickle.dumps({"data": Evil(function, *arguments)}, protocol))
        with pytest.raises(UserError, match=rf"evil.pkl asks for {name}, which is no plain data") as caught:
            read_pickle(tmp_path / "evil.pkl")
        assert "\n" not in str(caught.value) and not marker.exists()


@pytest.mark.parametrize(
    "program",
    [
        b"cnumpy\nndarray\n}(U\x05valueK\x01ub.",  # a state for a class
        b"c_codecs\nencode\nN}(U\x08__code__K\x01u\x86b.",  # attributes for a function
        b"}(K\x01K\x02ucos\nsystem\n\x85R.",
        b"U\x02id)R.",  # a call of a string
        b"Pname\n.",  # an object kept elsewhere
        b"\x82\x01.",  # an extension code
        b"(U\x04lsiios\nsystem\n.",
        b"c_codecs\nencode\nX\x01\x00\x00\x00xU\x03zip\x86R.",
        b"cnumpy\ndtype\n(U\x02O8K\x00K\x01tR.",
        b"]q\x00h\x00a.",  # a list in itself
    ],
)
def test_other_programs_come_to_nothing(tmp_path, program):
    (tmp_path / "evil.pkl").write_bytes(b"\x80\x02" + program)
    with pytest.raises(UserError, match="evil.pkl"):
        read_pickle(tmp_path / "evil.pkl")


def test_shared_parts_are_read_once(tmp_path):
    nested = []
    for _ in range(60):  # written out it would have 2 ** 60 parts
        nested = [nested, nested]
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(nested, 2))
    assert len(read_pickle(tmp_path / "a.pkl")) == 2


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_a_truncated_file_is_named_wherever_it_ends(tmp_path, protocol):
    whole = pickle.dumps(CONTENT, protocol)
    file = tmp_path / "half.pkl"
    for end in range(0, len(whole) - 1, 7):
        file.write_bytes(whole[:end])
        with pytest.raises(UserError, match="half.pkl"):
            read_pickle(file)


def test_flipped_bits_never_end_in_another_error(tmp_path):
    whole = pickle.dumps(CONTENT, 4)
    starts = [position for _, _, position in pickletools.genops(whole)]
    for position in starts:
        for bit in (1, 16, 128):
            damaged = bytearray(whole)
            damaged[position] ^= bit
            (tmp_path / "damaged.pkl").write_bytes(damaged)
            try:
                read_pickle(tmp_path / "damaged.pkl")
            except UserError as error:
                assert "\n" not in str(error)


def test_missing_files_and_keys_are_named(tmp_path):
    with pytest.raises(UserError, match="none.pkl does not exist"):
        read_pickle(tmp_path / "none.pkl")
    with pytest.raises(UserError, match="can't be read"):
        read_pickle(tmp_path)
    (tmp_path / "a.pkl").write_bytes(pickle.dumps({"data": 1, "label": 2}))
    with pytest.raises(UserError, match="a.pkl has no 'labels', only data, label"):
        read_dict(tmp_path / "a.pkl", "data", "labels")
    (tmp_path / "a.pkl").write_bytes(pickle.dumps([1]))
    with pytest.raises(UserError, match="a.pkl holds a list, needed is a dict with data"):
        read_dict(tmp_path / "a.pkl", "data")
