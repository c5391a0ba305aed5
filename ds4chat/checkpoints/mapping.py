"""A file mapped read-only into memory, with the address a C function can read from.

Promises zero-copy access: the pages of the mapping are the page cache's own. It must not know what the file
holds.
"""

from __future__ import annotations

import ctypes
import mmap
from contextlib import suppress


class _PyBuffer(ctypes.Structure):
    """`Py_buffer` of CPython's stable ABI (3.11 and later)."""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    ]


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int]
_get_buffer.restype = ctypes.c_int
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = [ctypes.POINTER(_PyBuffer)]
_release_buffer.restype = None


def address_of(mapped: mmap.mmap) -> int:
    """Where a mapping begins. ctypes' own `from_buffer` refuses read-only memory, hence the C call."""
    buffer = _PyBuffer()
    _get_buffer(mapped, ctypes.byref(buffer), 0)
    address = buffer.buf
    _release_buffer(ctypes.byref(buffer))
    return int(address or 0)


class Mapping:
    """`size` bytes of an open file from its beginning; the descriptor may be closed afterwards.

    Raises `OSError` or `ValueError` when the file cannot be mapped or is shorter.
    """

    def __init__(self, fd: int, size: int) -> None:
        # One pass over the page cache; faulting page by page costs several times that.
        flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
        self._map = mmap.mmap(fd, size, flags=flags, prot=mmap.PROT_READ)
        self._view = memoryview(self._map)
        self._address = address_of(self._map)
        self._closed = False

    @property
    def view(self) -> memoryview:
        """All of it, read-only. Raises `ValueError` once closed."""
        return self._view[:]

    @property
    def address(self) -> int:
        """Of its first byte. Raises `ValueError` once closed, when reading there would end the process."""
        if self._closed:
            raise ValueError("the file is closed")
        return self._address

    def close(self) -> None:
        """Unmap. Python refuses while slices of the view live; the mapping then goes with the last."""
        self._closed = True
        with suppress(BufferError):
            self._view.release()
            self._map.close()
