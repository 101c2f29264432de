"""Reads pickled data without running anything that the file names, arrays mapped from the file.

A pickle is a program that may call any function. This reader knows containers, numbers, text, bytes and
numpy arrays and stops at everything else. Arrays are views of the mapped file: a pickle of many GB
takes hardly any memory.
"""

from __future__ import annotations

import collections
import mmap
import pickle
import re
import struct
from pathlib import Path

import numpy as np

from hypertransformer_tf.errors import UserError

_MAPPED = 256  # bytes; longer strings stay in the file
# fmt: off
_OPCODES = (
    "PROTO", "FRAME", "STOP", "MARK", "POP", "POP_MARK", "DUP", "GET", "BINGET", "LONG_BINGET", "PUT",
    "BINPUT", "LONG_BINPUT", "MEMOIZE", "NONE", "NEWTRUE", "NEWFALSE", "INT", "BININT", "BININT1",
    "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING", "BINSTRING", "SHORT_BINSTRING",
    "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES",
    "BINBYTES8", "BYTEARRAY8", "TUPLE", "EMPTY_TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "LIST",
    "EMPTY_LIST", "APPEND", "APPENDS", "DICT", "EMPTY_DICT", "SETITEM", "SETITEMS", "EMPTY_SET",
    "ADDITEMS", "FROZENSET", "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD",
)
# fmt: on


def read_pickle(file: Path):
    """Reads a pickle of any protocol, of Python 2 or 3, that holds data only.

    Args:
        file: path of the pickle.

    Returns:
        Containers, numbers, str, bytes (long ones as memoryview) and numpy arrays, which are read-only
        views of the mapped file. Keys of dictionaries are str, whether the file has them as bytes or as
        str; other byte strings stay bytes, see `text`.

    Raises:
        UserError: naming the file when it is missing or damaged, and the class or function when it
            asks for one.
    """
    try:
        with file.open("rb") as opened:
            mapped = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError as error:
        raise UserError(f"{file} does not exist: give the folder that holds it as --data_dir") from error
    except (OSError, ValueError) as error:
        raise UserError(f"{file} can't be read ({error}): fetch it again") from error
    try:
        return _finish(_DataUnpickler(mapped, file).load())
    except UserError:
        raise
    except Exception as error:  # on damaged files anything may come up
        what = f"{type(error).__name__} {error}".strip()
        raise UserError(f"{file} is damaged or no pickle ({what}): fetch it again") from error


def read_dict(file: Path, *needed: str) -> dict:
    """Reads a pickled dictionary; raises as `read_pickle`, and UserError when a needed key is missing."""
    content = read_pickle(file)
    if not isinstance(content, dict):
        wanted = f" with {', '.join(needed)}" if needed else ""
        raise UserError(f"{file} holds a {type(content).__name__}, needed is a dict{wanted}")
    for key in needed:
        if key not in content:
            has = ", ".join(map(str, content)) or "nothing"
            raise UserError(f"{file} has no {key!r}, only {has}: fetch it again")
    return content


def text(value) -> str:
    """str of a str or of the bytes of a Python 2 file."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return bytes(value).decode("latin1")
    return str(value)


class _DType:
    """Stands for a numpy.dtype while a file is read."""

    def __init__(self, code, *_):
        code = text(code)
        if not re.fullmatch(r"[biufSU]\d{1,4}", code):
            raise ValueError(f"arrays of type {code!r} are not read")
        self.dtype = np.dtype(code)

    def set(self, state):
        if state[2] is not None or state[3] is not None:
            raise ValueError("arrays of records are not read")
        self.dtype = self.dtype.newbyteorder(text(state[1]))


class _Array:
    """Stands for a numpy array while a file is read."""

    def set(self, state):
        _, shape, dtype, fortran, data = state
        self.value = _array(data, dtype, shape, "F" if fortran else "C")


def _array(data, dtype: _DType, shape, order: str) -> np.ndarray:
    shape = tuple(shape)
    if isinstance(data, list):
        raise ValueError("arrays of objects are not read")
    if 0 in shape:
        return np.zeros(shape, dtype.dtype)
    return np.frombuffer(data, dtype.dtype).reshape(shape, order=text(order))


def _scalar(dtype: _DType, data):
    return np.frombuffer(data, dtype.dtype)[0].item()


def _encode(string: str, encoding) -> bytes:
    if text(encoding).replace("-", "").lower() not in ("latin1", "utf8", "ascii"):
        raise ValueError(f"encoding {encoding!r}")
    return string.encode(text(encoding))


def _empty_bytes() -> bytes:
    return b""


def _default_dict(*_) -> dict:
    return {}


_GLOBALS = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _DType,
    ("_codecs", "encode"): _encode,
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("collections", "defaultdict"): _default_dict,
}
for _module in ("numpy.core", "numpy._core"):
    _GLOBALS[f"{_module}.multiarray", "_reconstruct"] = lambda *_: _Array()
    _GLOBALS[f"{_module}.multiarray", "scalar"] = _scalar
    _GLOBALS[f"{_module}.numeric", "_frombuffer"] = _array
for _module in ("builtins", "__builtin__"):
    _GLOBALS[_module, "bytes"] = _empty_bytes
    for _type in (list, dict, tuple, set, frozenset):
        _GLOBALS[_module, _type.__name__] = _type


class _DataUnpickler(pickle._Unpickler):  # the Python one: its opcodes can be chosen
    dispatch = {
        getattr(pickle, name)[0]: pickle._Unpickler.dispatch[getattr(pickle, name)[0]] for name in _OPCODES
    }

    def __init__(self, mapped: mmap.mmap, path: Path):
        super().__init__(mapped, encoding="bytes")
        self._mapped, self._view, self._path = mapped, memoryview(mapped), path

    def find_class(self, module: str, name: str):
        if (module, name) not in _GLOBALS:
            raise UserError(
                f"{self._path} asks for {module}.{name}, which is no plain data: it is not read; get the "
                "file from a source that you trust"
            )
        return _GLOBALS[module, name]

    def load_reduce(self):
        arguments, function = self.stack.pop(), self.stack[-1]
        if not any(function is known for known in _GLOBALS.values()):
            raise ValueError(f"a call of a {type(function).__name__}")
        self.stack[-1] = function(*arguments)

    def load_build(self):
        state, target = self.stack.pop(), self.stack[-1]
        if not isinstance(target, (_Array, _DType)):
            raise ValueError(f"a state for a {type(target).__name__}")
        target.set(state)

    def load_frame(self):
        self.read(8)  # frames only tell how much to read at once

    def _load_string(self, layout: str):
        length = struct.unpack(layout, self.read(struct.calcsize(layout)))[0]
        start, end = self._mapped.tell(), self._mapped.tell() + length
        if length < 0 or end > len(self._mapped):
            raise EOFError("it ends too early")
        self._mapped.seek(end)
        view = self._view[start:end]
        self.append(view if length > _MAPPED else view.tobytes())

    dispatch[pickle.REDUCE[0]] = load_reduce
    dispatch[pickle.BUILD[0]] = load_build
    dispatch[pickle.FRAME[0]] = load_frame
    for _code, _layout in (
        (pickle.BINSTRING, "<i"),
        (pickle.SHORT_BINSTRING, "<B"),
        (pickle.BINBYTES, "<I"),
        (pickle.SHORT_BINBYTES, "<B"),
        (pickle.BINBYTES8, "<Q"),
        (pickle.BYTEARRAY8, "<Q"),
    ):
        dispatch[_code[0]] = lambda self, layout=_layout: self._load_string(layout)


def _finish(value, done: dict[int, object] | None = None):
    """Puts the arrays in the place of what stood for them, and str in the place of keys that are bytes."""
    if isinstance(value, _Array):
        return value.value
    if not isinstance(value, (dict, list, tuple)):
        return value
    done = {} if done is None else done
    if id(value) not in done:  # once, or a list of lists of lists that share parts would grow without end
        if isinstance(value, dict):
            done[id(value)] = {
                text(k) if isinstance(k, (bytes, memoryview)) else k: _finish(v, done)
                for k, v in value.items()
            }
        else:
            done[id(value)] = type(value)(_finish(each, done) for each in value)
    return done[id(value)]
