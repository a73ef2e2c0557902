"""Volumes.

Invariants. A volume is closed when no call on it is under way, and after all that was opened on it:
files with their buffers, listings and sessions, because what is left would keep the image in use.
"""

from __future__ import annotations

import errno
import os
import threading
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from ctypes import byref, c_uint32, c_void_p
from types import TracebackType
from typing import Any, Optional, Union

from . import _native
from ._mount import Mount
from ._native import LIB, StrPath
from ._session import Session

Options = Union[str, Mapping[str, object], None]


def _words(options: Options) -> Optional[bytes]:
    """Options as the words of dure.h. A value of True or None is a word without `=`."""
    if options is None:
        return None
    if not isinstance(options, str):
        options = ",".join(
            word if value is None or value is True else f"{word}={value}"
            for word, value in options.items()
            if value is not False
        )
    return _native.path(options)


class Volume:
    """A volume that this process has mounted. `create`, `format` and `open` make one.

    All calls may be made by any number of threads.
    """

    def __init__(self, pointer: c_void_p, path: str) -> None:
        """Not to be called: `open`, `create` and `format` have the pointer."""
        self.path = path
        self._pointer: Optional[c_void_p] = pointer
        self._state = threading.Condition()
        self._calls = 0
        self._closing = False
        self._opened: weakref.WeakSet[Any] = weakref.WeakSet()
        self._device = _next_device()

    @classmethod
    def create(
        cls, path: StrPath, size: int, *, format_options: Options = None, options: Options = None
    ) -> Volume:
        """A new image file of `size` bytes, which must not be there, mounted."""
        if size <= 0:
            raise ValueError("a new image needs a size; format() is for what is there")
        if size >= 1 << 64:
            raise OverflowError(f"{size} does not fit into 64 bits")
        return cls._make(path, size, format_options, options)

    @classmethod
    def format(
        cls, path: StrPath, *, format_options: Options = None, options: Options = None
    ) -> Volume:
        """The existing file or block device as a new volume. ALL THAT IS ON IT IS LOST."""
        return cls._make(path, 0, format_options, options)

    @classmethod
    def _make(cls, path: StrPath, size: int, made: Options, mounted: Options) -> Volume:
        pointer = c_void_p()
        result = LIB.dure_volume_create(
            _native.path(path), size, _words(made), _words(mounted), byref(pointer)
        )
        if result < 0:
            raise _native.failed(result, path)
        return cls(pointer, os.fsdecode(path))

    @classmethod
    def open(cls, path: StrPath, options: Options = None) -> Volume:
        """Mounts a volume, and recovers it if it was not closed.

        `options`: words as in "ro,cache=1G", or a mapping such as {"ro": True, "cache": "1G"}.
        """
        pointer = c_void_p()
        result = LIB.dure_volume_open(_native.path(path), _words(options), byref(pointer))
        if result < 0:
            raise _native.failed(result, path)
        return cls(pointer, os.fsdecode(path))

    @property
    def closed(self) -> bool:
        return self._closing

    @contextmanager
    def _use(self) -> Iterator[c_void_p]:
        with self._state:
            if self._pointer is None:
                raise ValueError("operation on a closed volume")
            pointer = self._pointer
            self._calls += 1
        try:
            yield pointer
        finally:
            with self._state:
                self._calls -= 1
                self._state.notify_all()

    def _register(self, opened: Any) -> None:
        """Has it closed with the volume."""
        with self._state:
            if not self._closing:
                self._opened.add(opened)
                return
        opened.close()
        raise ValueError("operation on a closed volume")

    def session(
        self,
        uid: int = 0,
        gid: Optional[int] = None,
        groups: Sequence[int] = (),
        *,
        umask: int = 0o022,
    ) -> Session:
        """A caller with these ids, at the root directory; uid 0 may do everything.

        `gid` is that of `uid` if it is not said.
        """
        ids = (c_uint32 * len(groups))(*(_native.unsigned(group) for group in groups))
        with self._use() as pointer:
            handle = _native.made(
                LIB.dure_session_close,
                LIB.dure_session_open,
                pointer,
                _native.unsigned(uid),
                _native.unsigned(uid if gid is None else gid),
                ids,
                len(groups),
                _native.unsigned(umask),
                name=self.path,
            )
        return Session(self, handle)

    def session_of_process(self) -> Session:
        """A caller with the effective ids and groups of this process."""
        with self._use() as pointer:
            handle = _native.made(
                LIB.dure_session_close, LIB.dure_session_open_process, pointer, name=self.path
            )
        return Session(self, handle)

    def mount(self, directory: StrPath, options: Options = None) -> Mount:
        """Mounts the volume on a directory, while this process goes on to use it: other programs see
        the same files, and what either side does is seen by the other when the call has returned.

        `options`: allow_other, ro, source=TEXT.
        """
        pointer = c_void_p()
        with self._use() as volume:
            result = LIB.dure_mount(
                volume, _native.path(directory), _words(options), byref(pointer)
            )
        if result < 0:
            raise _native.failed(result, directory)
        return Mount(self, pointer, os.fsdecode(directory))

    def sync(self) -> None:
        """Makes everything durable that calls had done before."""
        with self._use() as pointer:
            result = LIB.dure_volume_sync(pointer)
        if result < 0:
            raise _native.failed(result, self.path)

    def statfs(self) -> os.statvfs_result:
        """Sizes and what is free, in blocks of `f_frsize` bytes."""
        found = _native.StatFs()
        with self._use() as pointer:
            result = LIB.dure_volume_statfs(pointer, byref(found))
        if result < 0:
            raise _native.failed(result, self.path)
        return os.statvfs_result(
            (
                found.block_bytes,
                found.block_bytes,
                found.blocks,
                found.blocks_free,
                found.blocks_available,
                found.inodes,
                found.inodes_free,
                found.inodes_free,
                0,
                found.name_max,
            )
        )

    def close(self) -> None:
        """Closes what was opened on it, makes everything durable, and gives the image back.

        An error says what is not durable: of a buffer that could not be written, or of the volume.
        While a program uses a mount of it, that is EBUSY, and the volume stays open.
        """
        with self._state:
            if self._closing:
                return
            self._closing = True
            opened = list(self._opened)
        first: Optional[BaseException] = None
        for one in sorted(opened, key=lambda one: isinstance(one, Session)):
            try:
                one.close()
            except (OSError, ValueError) as error:
                first = first or error
        with self._state:
            while self._calls:
                self._state.wait()
            pointer, self._pointer = self._pointer, None
        result = LIB.dure_volume_close(pointer)
        if result == -errno.EBUSY:
            with self._state:
                self._pointer, self._closing = pointer, False
        if result < 0:
            raise _native.failed(result, self.path)
        if first is not None:
            raise first

    def __enter__(self) -> Volume:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closing", True):
            warnings.warn(f"unclosed {self!r}", ResourceWarning, stacklevel=2, source=self)
            self.close()

    def __repr__(self) -> str:
        state = "closed " if self._closing else ""
        return f"<{state}durefs.Volume {self.path!r} at {id(self):#x}>"


_devices = 0
_devices_lock = threading.Lock()


def _next_device() -> int:
    """A number for st_dev: files of two volumes are not the same file."""
    global _devices
    with _devices_lock:
        _devices += 1
        return _devices
