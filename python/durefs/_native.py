"""The functions of libdure, with their types, and its errors.

Structure. The library is loaded when this module is imported: the file that DURE_LIBRARY names, or
libdure.so.0 where the loader finds it. `LIB` has every function that the package calls.

Invariants. ctypes cuts integers to the width of an argument in silence, and a string at its first
zero byte: what a caller passes goes through `path`, `signed` and `unsigned` first. A handle is
freed with the last reference to its `Handle`: a call in another thread has one, so a file that is
closed meanwhile is freed when that call has ended.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import (
    POINTER,
    Structure,
    byref,
    c_char,
    c_char_p,
    c_int,
    c_int64,
    c_long,
    c_size_t,
    c_ssize_t,
    c_uint,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any, Callable, Optional, Union

StrPath = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]

LIBRARY_NAME = "libdure.so.0"


class Time(Structure):
    _fields_ = [("sec", c_int64), ("nsec", c_uint32), ("reserved", c_uint32)]

    def ns(self) -> int:
        """Nanoseconds since 1970."""
        return int(self.sec) * 1_000_000_000 + int(self.nsec)


class Stat(Structure):
    _fields_ = [
        ("ino", c_uint64),
        ("size", c_uint64),
        ("blocks", c_uint64),
        ("rdev", c_uint64),
        ("mode", c_uint32),
        ("nlink", c_uint32),
        ("uid", c_uint32),
        ("gid", c_uint32),
        ("blksize", c_uint32),
        ("reserved", c_uint32),
        ("atime", Time),
        ("mtime", Time),
        ("ctime", Time),
        ("btime", Time),
        ("spare", c_uint64 * 4),
    ]


class StatFs(Structure):
    _fields_ = [
        ("block_bytes", c_uint64),
        ("blocks", c_uint64),
        ("blocks_free", c_uint64),
        ("blocks_available", c_uint64),
        ("inodes", c_uint64),
        ("inodes_free", c_uint64),
        ("name_max", c_uint64),
        ("spare", c_uint64 * 4),
    ]


class Dirent(Structure):
    _fields_ = [
        ("ino", c_uint64),
        ("kind", c_uint32),
        ("name_len", c_uint32),
        ("name", c_char * 256),
    ]


class TimeSpec(Structure):
    _fields_ = [("tv_sec", c_long), ("tv_nsec", c_long)]


_HANDLE = c_void_p
_RESULT = POINTER(c_void_p)
_PATH = c_char_p

_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "dure_last_error": (c_char_p, []),
    "dure_version": (c_char_p, []),
    "dure_volume_create": (c_int, [_PATH, c_uint64, _PATH, _PATH, _RESULT]),
    "dure_volume_open": (c_int, [_PATH, _PATH, _RESULT]),
    "dure_volume_close": (c_int, [_HANDLE]),
    "dure_volume_sync": (c_int, [_HANDLE]),
    "dure_mount": (c_int, [_HANDLE, _PATH, _PATH, _RESULT]),
    "dure_mount_fd": (c_int, [_HANDLE, _HANDLE]),
    "dure_unmount": (c_int, [_HANDLE, c_int]),
    "dure_volume_statfs": (c_int, [_HANDLE, POINTER(StatFs)]),
    "dure_session_open": (
        c_int,
        [_HANDLE, c_uint32, c_uint32, POINTER(c_uint32), c_size_t, c_uint32, _RESULT],
    ),
    "dure_session_open_process": (c_int, [_HANDLE, _RESULT]),
    "dure_session_with_root": (c_int, [_HANDLE, _PATH, _RESULT]),
    "dure_session_close": (c_int, [_HANDLE]),
    "dure_open": (c_int, [_HANDLE, _PATH, c_int, c_uint32, _RESULT]),
    "dure_close": (c_int, [_HANDLE]),
    "dure_pread": (c_ssize_t, [_HANDLE, c_void_p, c_size_t, c_int64]),
    "dure_pwrite": (c_ssize_t, [_HANDLE, c_void_p, c_size_t, c_int64]),
    "dure_read": (c_ssize_t, [_HANDLE, c_void_p, c_size_t]),
    "dure_write": (c_ssize_t, [_HANDLE, c_void_p, c_size_t]),
    "dure_lseek": (c_int64, [_HANDLE, c_int64, c_int]),
    "dure_fsync": (c_int, [_HANDLE]),
    "dure_fdatasync": (c_int, [_HANDLE]),
    "dure_ftruncate": (c_int, [_HANDLE, c_int64]),
    "dure_fallocate": (c_int, [_HANDLE, c_int, c_int64, c_int64]),
    "dure_stat": (c_int, [_HANDLE, _PATH, POINTER(Stat)]),
    "dure_lstat": (c_int, [_HANDLE, _PATH, POINTER(Stat)]),
    "dure_fstat": (c_int, [_HANDLE, POINTER(Stat)]),
    "dure_access": (c_int, [_HANDLE, _PATH, c_int]),
    "dure_truncate": (c_int, [_HANDLE, _PATH, c_int64]),
    "dure_chmod": (c_int, [_HANDLE, _PATH, c_uint32]),
    "dure_fchmod": (c_int, [_HANDLE, c_uint32]),
    "dure_chown": (c_int, [_HANDLE, _PATH, c_uint32, c_uint32]),
    "dure_lchown": (c_int, [_HANDLE, _PATH, c_uint32, c_uint32]),
    "dure_fchown": (c_int, [_HANDLE, c_uint32, c_uint32]),
    "dure_utimens": (c_int, [_HANDLE, _PATH, POINTER(TimeSpec), c_int]),
    "dure_mkdir": (c_int, [_HANDLE, _PATH, c_uint32]),
    "dure_rmdir": (c_int, [_HANDLE, _PATH]),
    "dure_unlink": (c_int, [_HANDLE, _PATH]),
    "dure_rename": (c_int, [_HANDLE, _PATH, _PATH, c_uint]),
    "dure_link": (c_int, [_HANDLE, _PATH, _PATH]),
    "dure_symlink": (c_int, [_HANDLE, _PATH, _PATH]),
    "dure_readlink": (c_ssize_t, [_HANDLE, _PATH, c_void_p, c_size_t]),
    "dure_copy": (c_int64, [_HANDLE, _PATH, _PATH]),
    "dure_opendir": (c_int, [_HANDLE, _PATH, _RESULT]),
    "dure_readdir": (c_int, [_HANDLE, POINTER(Dirent)]),
    "dure_closedir": (c_int, [_HANDLE]),
    "dure_getxattr": (c_ssize_t, [_HANDLE, _PATH, _PATH, c_void_p, c_size_t]),
    "dure_setxattr": (c_int, [_HANDLE, _PATH, _PATH, c_void_p, c_size_t, c_int]),
    "dure_listxattr": (c_ssize_t, [_HANDLE, _PATH, c_void_p, c_size_t]),
    "dure_removexattr": (c_int, [_HANDLE, _PATH, _PATH]),
}


def _load() -> ctypes.CDLL:
    name = os.environ.get("DURE_LIBRARY") or LIBRARY_NAME
    try:
        library = ctypes.CDLL(name)
        for function, (result, arguments) in _FUNCTIONS.items():
            known = getattr(library, function)
            known.restype = result
            known.argtypes = arguments
    except (OSError, AttributeError) as error:
        raise ImportError(
            f"the library of dure cannot be used: {error}; install libdure, "
            f"or set DURE_LIBRARY to the path of {LIBRARY_NAME}"
        ) from error
    return library


LIB = _load()


class Handle:
    """A handle of the library. It is closed with the last reference to it."""

    __slots__ = ("_as_parameter_", "_close")

    def __init__(self, pointer: c_void_p, close: Callable[[Any], int]) -> None:
        self._as_parameter_ = pointer
        self._close = close

    def __del__(self) -> None:
        self._close(self._as_parameter_)


def failed(result: int, name: Any = None, to: Any = None) -> OSError:
    """The exception for a negative result of a call just made in this thread."""
    words = (LIB.dure_last_error() or b"").decode("utf-8", "replace")
    words = words or os.strerror(-result)
    if to is not None:
        return OSError(-result, words, name, None, to)
    if name is not None:
        return OSError(-result, words, name)
    return OSError(-result, words)


def made(
    close: Callable[[Any], int], call: Callable[..., int], *arguments: Any, name: Any
) -> Handle:
    """The handle that a call stores through its last argument."""
    pointer = c_void_p()
    result = call(*arguments, byref(pointer))
    if result < 0:
        raise failed(result, name)
    return Handle(pointer, close)


def path(given: StrPath) -> bytes:
    """A path as the library takes it."""
    encoded = os.fsencode(given)
    if b"\0" in encoded:
        raise ValueError("embedded null byte")
    return encoded


def signed(number: int) -> int:
    """An offset or size that fits into int64_t."""
    if not -(1 << 63) <= number < 1 << 63:
        raise OverflowError(f"{number} does not fit into 64 bits")
    return number


def unsigned(number: int) -> int:
    """A mode or an id that fits into uint32_t; -1 is its largest, as in C."""
    if not -1 <= number < 1 << 32:
        raise OverflowError(f"{number} does not fit into 32 bits")
    return number


class _PyBuffer(Structure):
    """Py_buffer of the C interface of Python."""

    _fields_ = [
        ("buf", c_void_p),
        ("obj", c_void_p),
        ("len", c_ssize_t),
        ("itemsize", c_ssize_t),
        ("readonly", c_int),
        ("ndim", c_int),
        ("format", c_void_p),
        ("shape", c_void_p),
        ("strides", c_void_p),
        ("suboffsets", c_void_p),
        ("internal", c_void_p),
    ]


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.restype = c_int
_get_buffer.argtypes = [ctypes.py_object, POINTER(_PyBuffer), c_int]
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.restype = None
_release_buffer.argtypes = [POINTER(_PyBuffer)]
_new_bytes = ctypes.pythonapi.PyBytes_FromStringAndSize
_new_bytes.restype = ctypes.py_object
_new_bytes.argtypes = [c_void_p, c_ssize_t]

_PYBUF_SIMPLE = 0
_PYBUF_WRITABLE = 1


class Buffer:
    """The bytes of an object, in place; memoryview gives no address of what is read-only."""

    __slots__ = ("_buffer",)

    def __init__(self, of: Any, writable: bool) -> None:
        self._buffer = _PyBuffer()
        _get_buffer(of, byref(self._buffer), _PYBUF_WRITABLE if writable else _PYBUF_SIMPLE)

    def __enter__(self) -> tuple[Optional[int], int]:
        return self._buffer.buf, self._buffer.len

    def __exit__(self, *_: object) -> None:
        _release_buffer(byref(self._buffer))


def fill_bytes(length: int, read: Callable[[Any, int], int]) -> Union[bytes, int]:
    """New bytes that `read(pointer, length)` filled, or its negative result; no copy if full."""
    if length == 0:
        return b""
    fresh: bytes = _new_bytes(None, length)
    done = read(fresh, length)
    if done < 0:
        return done
    return fresh if done == length else fresh[:done]
