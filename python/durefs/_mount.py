"""Volumes that are mounted, too.

Invariants. A mount ends before its volume. While a program uses it, it stays, and so does the
volume.
"""

from __future__ import annotations

import threading
from ctypes import c_void_p
from types import TracebackType
from typing import TYPE_CHECKING, Any, Optional

from . import _native
from ._native import LIB

if TYPE_CHECKING:
    from ._volume import Volume

_DETACH = 1


class Mount:
    """A mount of a volume that this process has open: `Volume.mount`."""

    def __init__(self, volume: Volume, pointer: c_void_p, path: str) -> None:
        """Not to be called: `Volume.mount` has the pointer."""
        self.path = path
        self._volume = volume
        self._lock = threading.Lock()
        self._pointer: Optional[c_void_p] = pointer
        volume._register(self)

    def fd(self, file: Any) -> int:
        """A descriptor of the same file in the mount, which `os.close` closes: for `fcntl.flock`,
        `mmap`, `subprocess`. What stands in a buffer of `file` is not there before its flush."""
        with self._lock:
            handle = getattr(file, "raw", file)._use()
            result = int(LIB.dure_mount_fd(self._live(), handle))
        if result < 0:
            raise _native.failed(result, self.path)
        return result

    def unmount(self, *, detach: bool = False) -> None:
        """Unmounts. While a program uses it, that is an OSError with EBUSY, and it stays; with
        `detach` it is gone from its directory, and serves those that use it until they leave."""
        with self._lock:
            if self._pointer is None:
                return
            result = LIB.dure_unmount(self._pointer, _DETACH if detach else 0)
            if result < 0:
                raise _native.failed(result, self.path)
            self._pointer = None

    close = unmount

    def _live(self) -> c_void_p:
        if self._pointer is None:
            raise ValueError("operation on a mount that has ended")
        return self._pointer

    def __enter__(self) -> Mount:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.unmount()

    def __repr__(self) -> str:
        state = "ended " if self._pointer is None else ""
        return f"<{state}durefs.Mount {self.path!r} at {id(self):#x}>"
