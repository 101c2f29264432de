"""Pickles as Python 2 wrote them."""

import numpy as np


def string(data: bytes) -> bytes:
    """What Python 2 writes for a str."""
    if len(data) < 256:
        return b"U" + bytes([len(data)]) + data
    return b"T" + len(data).to_bytes(4, "little") + data


def python2(value) -> bytes:
    """Opcodes that Python 2's protocol 2 writes for containers, integers, str and arrays."""
    if isinstance(value, dict):
        return b"}(" + b"".join(python2(k) + python2(v) for k, v in value.items()) + b"u"
    if isinstance(value, list):
        return b"](" + b"".join(map(python2, value)) + b"e"
    if isinstance(value, tuple):
        return b"(" + b"".join(map(python2, value)) + b"t"
    if isinstance(value, str):
        return string(value.encode())
    if isinstance(value, np.ndarray):
        dtype = b"cnumpy\ndtype\n(" + string(value.dtype.str[1:].encode()) + b"K\x00K\x01tR"
        dtype += (
            b"(K\x03" + string(value.dtype.str[:1].encode()) + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        )
        made = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85" + string(b"b") + b"tR"
        return made + b"(K\x01" + python2(value.shape) + dtype + b"\x89" + string(value.tobytes()) + b"tb"
    return b"J" + int(value).to_bytes(4, "little", signed=True)


def write_python2(file, value) -> None:
    """A file like the ones that few-shot data was published in, keys and names as bytes."""
    file.write_bytes(b"\x80\x02" + python2(value) + b".")
