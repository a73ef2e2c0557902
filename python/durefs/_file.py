"""Open files, as the file objects of `io`.

Structure. `File` is the raw file: each call is one of the library. `open_file` puts the buffers of
`io` over it as the built-in `open` does; their subclasses here add `fsync`, `fdatasync` and
`stat`, which write the buffer first.

Invariants. The position is that of the library's handle, and each `File` has its own. pread and
pwrite of the raw file do not know what a buffer over it holds.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from ctypes import byref
from typing import TYPE_CHECKING, Any, Optional, Union

from . import _native
from ._native import LIB, Buffer, Handle, StrPath, signed, unsigned

if TYPE_CHECKING:
    from ._session import Session
    from ._volume import Volume

# One call of ctypes costs about as much as copying this.
BUFFER_BYTES = 64 * 1024
# A longer read asks for the size first: memory is taken for what is there.
_ASK_BYTES = 1 << 20

_KEEP_SIZE = 1
_PUNCH_HOLE = 2
_ZERO_RANGE = 16


def stat_result(found: _native.Stat, device: int) -> os.stat_result:
    """What os.stat would return."""
    atime, mtime, ctime = found.atime.ns(), found.mtime.ns(), found.ctime.ns()
    return os.stat_result(
        (
            found.mode,
            found.ino,
            device,
            found.nlink,
            found.uid,
            found.gid,
            found.size,
            atime // 1_000_000_000,
            mtime // 1_000_000_000,
            ctime // 1_000_000_000,
        ),
        {
            "st_atime": atime / 1e9,
            "st_mtime": mtime / 1e9,
            "st_ctime": ctime / 1e9,
            "st_atime_ns": atime,
            "st_mtime_ns": mtime,
            "st_ctime_ns": ctime,
            "st_blksize": found.blksize,
            "st_blocks": found.blocks,
            "st_rdev": found.rdev,
        },
    )


class File(io.RawIOBase):
    """An open file without a buffer. Any number of threads may call it at once."""

    name: StrPath
    mode: str

    def __init__(
        self, volume: Volume, handle: Handle, name: StrPath, flags: int, mode: str
    ) -> None:
        """Not to be called: `Session.open` with buffering=0 makes one."""
        super().__init__()
        self._volume = volume
        self._handle: Optional[Handle] = handle
        self.name = name
        self.mode = mode
        access = flags & os.O_ACCMODE
        self._readable = access in (os.O_RDONLY, os.O_RDWR)
        self._writable = access in (os.O_WRONLY, os.O_RDWR)

    def _use(self) -> Handle:
        handle = self._handle
        if handle is None:
            raise ValueError("I/O operation on closed file")
        return handle

    def _reads(self) -> Handle:
        handle = self._use()
        if not self._readable:
            raise io.UnsupportedOperation("File not open for reading")
        return handle

    def _writes(self) -> Handle:
        handle = self._use()
        if not self._writable:
            raise io.UnsupportedOperation("File not open for writing")
        return handle

    def _checked(self, result: int) -> int:
        if result < 0:
            raise _native.failed(result, self.name)
        return result

    def close(self) -> None:
        """Writes nothing: what is not durable stays so. Calls under way end as if it were open."""
        try:
            super().close()
        finally:
            self._handle = None

    def readable(self) -> bool:
        self._use()
        return self._readable

    def writable(self) -> bool:
        self._use()
        return self._writable

    def seekable(self) -> bool:
        self._use()
        return True

    def readinto(self, buffer: Any) -> int:
        """Reads at the position into `buffer`, in place."""
        handle = self._reads()
        with Buffer(buffer, writable=True) as (address, length):
            return self._checked(LIB.dure_read(handle, address, length))

    def read(self, size: Optional[int] = -1) -> bytes:
        if size is None or size < 0:
            return self.readall()
        handle = self._reads()
        return self._bytes(
            self._there(size, self.tell) if size > _ASK_BYTES else size,
            lambda address, length: int(LIB.dure_read(handle, address, length)),
        )

    def readall(self) -> bytes:
        handle = self._reads()
        parts = []
        while True:
            size = max(self._there(1 << 62, self.tell), 4096)
            part = self._bytes(
                size, lambda address, length: int(LIB.dure_read(handle, address, length))
            )
            if part:
                parts.append(part)
            if len(part) < size:
                return parts[0] if len(parts) == 1 else b"".join(parts)

    def _there(self, size: int, offset: Callable[[], int]) -> int:
        """At most `size`, and no more than there is behind the offset."""
        return min(size, max(0, self.stat().st_size - offset()))

    def _bytes(self, size: int, read: Callable[[Any, int], int]) -> bytes:
        done = _native.fill_bytes(size, read)
        if isinstance(done, int):
            raise _native.failed(done, self.name)
        return done

    def write(self, data: Any) -> int:
        """Writes at the position; fewer bytes than given only if there is no space for all."""
        handle = self._writes()
        if type(data) is bytes:
            return self._checked(LIB.dure_write(handle, data, len(data)))
        with Buffer(data, writable=False) as (address, length):
            return self._checked(LIB.dure_write(handle, address, length))

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Also with os.SEEK_DATA and os.SEEK_HOLE."""
        return self._checked(LIB.dure_lseek(self._use(), signed(offset), whence))

    def tell(self) -> int:
        return self._checked(LIB.dure_lseek(self._use(), 0, os.SEEK_CUR))

    def truncate(self, size: Optional[int] = None) -> int:
        handle = self._writes()
        if size is None:
            size = self.tell()
        self._checked(LIB.dure_ftruncate(handle, signed(size)))
        return size

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes from `offset` on. Leaves the position, and takes no lock of it."""
        if size < 0:
            raise ValueError("negative size")
        handle = self._reads()
        signed(offset)
        return self._bytes(
            self._there(size, lambda: offset) if size > _ASK_BYTES else size,
            lambda address, length: int(LIB.dure_pread(handle, address, length, offset)),
        )

    def preadinto(self, buffer: Any, offset: int) -> int:
        """The same into `buffer`, in place."""
        handle = self._reads()
        with Buffer(buffer, writable=True) as (address, length):
            return self._checked(LIB.dure_pread(handle, address, length, signed(offset)))

    def pwrite(self, data: Any, offset: int) -> int:
        """Writes at `offset`; in a file opened to append, at the end. Leaves the position."""
        handle = self._writes()
        with Buffer(data, writable=False) as (address, length):
            return self._checked(LIB.dure_pwrite(handle, address, length, signed(offset)))

    def fsync(self) -> None:
        """Makes content and attributes durable, the names of the file, and all they depend on."""
        self._checked(LIB.dure_fsync(self._use()))

    def fdatasync(self) -> None:
        """Makes content durable, and what is needed to read it."""
        self._checked(LIB.dure_fdatasync(self._use()))

    def stat(self) -> os.stat_result:
        found = _native.Stat()
        self._checked(LIB.dure_fstat(self._use(), byref(found)))
        return stat_result(found, self._volume._device)

    def chmod(self, mode: int) -> None:
        self._checked(LIB.dure_fchmod(self._use(), unsigned(mode)))

    def chown(self, uid: int, gid: int) -> None:
        self._checked(LIB.dure_fchown(self._use(), unsigned(uid), unsigned(gid)))

    def allocate(self, offset: int, length: int, *, keep_size: bool = False) -> None:
        """Blocks for a range, so that writes to it need no space."""
        self._fallocate(_KEEP_SIZE if keep_size else 0, offset, length)

    def punch_hole(self, offset: int, length: int) -> None:
        """Gives the blocks of a range back; it reads as zeroes."""
        self._fallocate(_PUNCH_HOLE | _KEEP_SIZE, offset, length)

    def zero_range(self, offset: int, length: int) -> None:
        """Zeroes with blocks."""
        self._fallocate(_ZERO_RANGE, offset, length)

    def _fallocate(self, mode: int, offset: int, length: int) -> None:
        self._checked(LIB.dure_fallocate(self._writes(), mode, signed(offset), signed(length)))

    def __repr__(self) -> str:
        state = "closed " if self._handle is None else ""
        return f"<{state}durefs.File {self.name!r} mode={self.mode!r}>"


class _Synced:
    """What the file objects with a buffer have more than those of `io`."""

    raw: Any
    flush: Callable[[], None]

    def fsync(self) -> None:
        """Writes the buffer, and makes content, attributes and names durable."""
        self.flush()
        self.raw.fsync()

    def fdatasync(self) -> None:
        """Writes the buffer, and makes content durable."""
        self.flush()
        self.raw.fdatasync()

    def stat(self) -> os.stat_result:
        """Of the file with what is in the buffer."""
        self.flush()
        found: os.stat_result = self.raw.stat()
        return found


class BufferedReader(_Synced, io.BufferedReader):
    """As that of `io`, with `fsync`, `fdatasync` and `stat`."""


class BufferedWriter(_Synced, io.BufferedWriter):
    """As that of `io`, with `fsync`, `fdatasync` and `stat`."""


class BufferedFile(_Synced, io.BufferedRandom):
    """As io.BufferedRandom, with `fsync`, `fdatasync` and `stat`."""


class TextFile(_Synced, io.TextIOWrapper):
    """As io.TextIOWrapper, with `fsync`, `fdatasync` and `stat`."""

    mode: str

    @property
    def raw(self) -> File:
        """The file without a buffer."""
        raw: File = self.buffer.raw  # type: ignore[attr-defined]
        return raw


AnyFile = Union[File, BufferedReader, BufferedWriter, BufferedFile, TextFile]


def _flags(mode: str) -> int:
    """The flags of open(2) for a mode of the built-in `open`."""
    letters = set(mode)
    kinds = letters & set("rwax")
    if letters - set("rwaxbt+") or len(letters) != len(mode):
        raise ValueError(f"invalid mode: {mode!r}")
    if len(kinds) != 1:
        raise ValueError("must have exactly one of create/read/write/append mode")
    if {"b", "t"} <= letters:
        raise ValueError("can't have text and binary mode at once")
    extra = {
        "r": 0,
        "w": os.O_CREAT | os.O_TRUNC,
        "a": os.O_CREAT | os.O_APPEND,
        "x": os.O_CREAT | os.O_EXCL,
    }[kinds.pop()]
    if "+" in letters:
        return os.O_RDWR | extra
    return (os.O_RDONLY if "r" in letters else os.O_WRONLY) | extra


def open_file(
    session: Session,
    name: StrPath,
    mode: str,
    buffering: int,
    encoding: Optional[str],
    errors: Optional[str],
    newline: Optional[str],
    permissions: int,
    more_flags: int,
) -> AnyFile:
    """What `Session.open` says."""
    flags = _flags(mode)
    text = "b" not in mode
    if not text and not (encoding is None and errors is None and newline is None):
        raise ValueError("binary mode takes no encoding, errors or newline argument")
    if text and buffering == 0:
        raise ValueError("can't have unbuffered text I/O")
    raw_mode = mode.replace("t", "").replace("b", "").replace("+", "") + "b"
    raw = session._open_raw(
        name, flags | more_flags, permissions, raw_mode + ("+" if "+" in mode else "")
    )
    opened: AnyFile = raw
    try:
        if flags & os.O_APPEND:
            raw.seek(0, os.SEEK_END)
        if buffering != 0:
            size = buffering if buffering > 1 else BUFFER_BYTES
            if "+" in mode:
                opened = BufferedFile(raw, size)
            elif "r" in mode:
                opened = BufferedReader(raw, size)
            else:
                opened = BufferedWriter(raw, size)
            if text:
                opened = TextFile(
                    opened, encoding or "utf-8", errors, newline, line_buffering=buffering == 1
                )
                opened.mode = mode
        session.volume._register(opened)
    except BaseException:
        opened.close()
        raise
    return opened
