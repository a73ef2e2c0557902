"""Sessions: callers on a volume, with the calls of `os` and `os.path`.

Paths are within the volume; a relative one begins at the session's root. Names are `str`, as
os.fsdecode makes them. An error is an OSError with errno, the library's words and the path.
"""

from __future__ import annotations

import os
import stat as _stat
from collections.abc import Callable, Iterator
from ctypes import byref, create_string_buffer
from types import TracebackType
from typing import TYPE_CHECKING, Any, Optional, Union

from . import _native
from ._file import File, open_file, stat_result
from ._native import LIB, Buffer, Handle, StrPath, signed, unsigned
from ._native import path as encoded

if TYPE_CHECKING:
    from ._volume import Volume

_NOREPLACE = 1
_EXCHANGE = 2
_SYMLINK_NOFOLLOW = 0x100
_UTIME_NOW = (1 << 30) - 1
_ABSENT = (FileNotFoundError, NotADirectoryError)


class Session:
    """A caller on a volume: `Volume.session` makes one. Any number of threads may use it."""

    def __init__(self, volume: Volume, handle: Handle) -> None:
        """Not to be called: `Volume.session` has the handle."""
        self.volume = volume
        self._handle: Optional[Handle] = handle
        volume._register(self)

    def _use(self) -> Handle:
        handle = self._handle
        if handle is None:
            raise ValueError("operation on a closed session")
        return handle

    def _on(self, call: Callable[..., int], path: StrPath, *arguments: Any) -> int:
        """A call with one path."""
        result: int = call(self._use(), encoded(path), *arguments)
        if result < 0:
            raise _native.failed(result, path)
        return result

    def _on_two(self, call: Callable[..., int], src: StrPath, dst: StrPath, *more: Any) -> int:
        """A call with two paths."""
        result = call(self._use(), encoded(src), encoded(dst), *more)
        if result < 0:
            raise _native.failed(result, src, dst)
        return result

    def close(self) -> None:
        """Files that it opened stay open."""
        self._handle = None

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def with_root(self, path: StrPath) -> Session:
        """The same caller with the directory at `path` as its root: nothing outside has a name."""
        handle = _native.made(
            LIB.dure_session_close,
            LIB.dure_session_with_root,
            self._use(),
            encoded(path),
            name=path,
        )
        return Session(self.volume, handle)

    # Files.

    def open(
        self,
        path: StrPath,
        mode: str = "r",
        buffering: int = -1,
        encoding: Optional[str] = None,
        errors: Optional[str] = None,
        newline: Optional[str] = None,
        *,
        permissions: int = 0o666,
        flags: int = 0,
    ) -> Any:
        """As the built-in `open`: modes, buffering, text.

        Text is UTF-8 if no encoding is said. buffering=0 returns a `File`, with pread and pwrite.
        `permissions` of a new file are before the umask; `flags` are added to those of the mode,
        for instance os.O_SYNC.
        """
        return open_file(self, path, mode, buffering, encoding, errors, newline, permissions, flags)

    def _open_raw(self, path: StrPath, flags: int, permissions: int, mode: str) -> File:
        handle = _native.made(
            LIB.dure_close,
            LIB.dure_open,
            self._use(),
            encoded(path),
            flags,
            unsigned(permissions),
            name=path,
        )
        file = File(self.volume, handle, path, flags, mode)
        if not flags & (os.O_WRONLY | os.O_RDWR | os.O_DIRECTORY):
            if _stat.S_ISDIR(file.stat().st_mode):
                file.close()
                raise IsADirectoryError(21, os.strerror(21), path)
        return file

    def open_directory(self, path: StrPath) -> File:
        """A directory, for its `fsync`, `stat`, `chmod` and `chown`."""
        file = self._open_raw(path, os.O_RDONLY | os.O_DIRECTORY, 0, "rb")
        self.volume._register(file)
        return file

    def read_bytes(self, path: StrPath) -> bytes:
        """The content of a file."""
        with self._open_raw(path, os.O_RDONLY, 0, "rb") as file:
            return file.readall()

    def write_bytes(self, path: StrPath, data: Any, *, fsync: bool = False) -> int:
        """Makes `data` the content of a file; not one step to other threads or a crash."""
        with self.open(path, "wb") as file:
            done: int = file.write(data)
            if fsync:
                file.fsync()
        return done

    def copy(self, src: StrPath, dst: StrPath) -> int:
        """Content and permissions of `src` to `dst`; holes stay holes. Returns the size."""
        return self._on_two(LIB.dure_copy, src, dst)

    def truncate(self, path: StrPath, length: int) -> None:
        self._on(LIB.dure_truncate, path, signed(length))

    # Attributes.

    def _stat(self, path: StrPath, follow_symlinks: bool) -> _native.Stat:
        found = _native.Stat()
        self._on(LIB.dure_stat if follow_symlinks else LIB.dure_lstat, path, byref(found))
        return found

    def stat(self, path: StrPath, *, follow_symlinks: bool = True) -> os.stat_result:
        """st_dev is a number of this process for the volume."""
        return stat_result(self._stat(path, follow_symlinks), self.volume._device)

    def lstat(self, path: StrPath) -> os.stat_result:
        return self.stat(path, follow_symlinks=False)

    def birthtime_ns(self, path: StrPath, *, follow_symlinks: bool = True) -> int:
        """When the file was made, in nanoseconds since 1970."""
        found: _native.Time = self._stat(path, follow_symlinks).btime
        return found.ns()

    def _mode(self, path: StrPath, follow_symlinks: bool = True) -> int:
        """The mode; 0 if nothing is there."""
        try:
            return int(self._stat(path, follow_symlinks).mode)
        except _ABSENT:
            return 0

    def exists(self, path: StrPath) -> bool:
        """Errors other than "not there" are raised."""
        return self._mode(path) != 0

    def lexists(self, path: StrPath) -> bool:
        return self._mode(path, False) != 0

    def isfile(self, path: StrPath) -> bool:
        return _stat.S_ISREG(self._mode(path))

    def isdir(self, path: StrPath) -> bool:
        return _stat.S_ISDIR(self._mode(path))

    def islink(self, path: StrPath) -> bool:
        return _stat.S_ISLNK(self._mode(path, False))

    def access(self, path: StrPath, mode: int) -> bool:
        """os.F_OK, or of os.R_OK, os.W_OK, os.X_OK."""
        try:
            self._on(LIB.dure_access, path, mode)
        except (*_ABSENT, PermissionError):
            return False
        return True

    def chmod(self, path: StrPath, mode: int) -> None:
        self._on(LIB.dure_chmod, path, unsigned(mode))

    def chown(self, path: StrPath, uid: int, gid: int, *, follow_symlinks: bool = True) -> None:
        """-1 leaves one of them."""
        call = LIB.dure_chown if follow_symlinks else LIB.dure_lchown
        self._on(call, path, unsigned(uid), unsigned(gid))

    def utime(
        self,
        path: StrPath,
        times: Optional[tuple[float, float]] = None,
        *,
        ns: Optional[tuple[int, int]] = None,
        follow_symlinks: bool = True,
    ) -> None:
        """Times of the last read and the last change: as `times` or `ns`, else both now."""
        if times is not None and ns is not None:
            raise ValueError("utime: you may specify either 'times' or 'ns' but not both")
        if times is not None:
            ns = (_nanoseconds(times[0]), _nanoseconds(times[1]))
        pair = (_native.TimeSpec * 2)()
        for at, one in enumerate(pair):
            one.tv_sec, one.tv_nsec = divmod(ns[at], 1_000_000_000) if ns else (0, _UTIME_NOW)
        self._on(LIB.dure_utimens, path, pair, 0 if follow_symlinks else _SYMLINK_NOFOLLOW)

    # Names.

    def mkdir(self, path: StrPath, mode: int = 0o777) -> None:
        self._on(LIB.dure_mkdir, path, unsigned(mode))

    def makedirs(self, path: StrPath, mode: int = 0o777, exist_ok: bool = False) -> None:
        """The directory and those above it that are not there."""
        parent = os.path.dirname(os.fsdecode(path).rstrip("/"))
        if parent and not self.exists(parent):
            self.makedirs(parent, exist_ok=True)
        try:
            self.mkdir(path, mode)
        except OSError:
            if not exist_ok or not self.isdir(path):
                raise

    def rmdir(self, path: StrPath) -> None:
        self._on(LIB.dure_rmdir, path)

    def unlink(self, path: StrPath) -> None:
        self._on(LIB.dure_unlink, path)

    remove = unlink

    def rmtree(self, path: StrPath) -> None:
        """A directory with all that is in it; symbolic links are not followed. Not one step."""
        with self.scandir(path) as entries:
            below = [(entry.path, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for inner, directory in below:
            try:
                if directory:
                    self.rmtree(inner)
                else:
                    self.unlink(inner)
            except FileNotFoundError:
                pass
        self.rmdir(path)

    def rename(
        self, src: StrPath, dst: StrPath, *, noreplace: bool = False, exchange: bool = False
    ) -> None:
        """Replaces `dst`. `noreplace`: FileExistsError; `exchange`: each gets the other's name.

        One step, also to a crash.
        """
        flags = (_NOREPLACE if noreplace else 0) | (_EXCHANGE if exchange else 0)
        self._on_two(LIB.dure_rename, src, dst, flags)

    def replace(self, src: StrPath, dst: StrPath) -> None:
        self.rename(src, dst)

    def link(self, src: StrPath, dst: StrPath) -> None:
        """A second name; a symbolic link is not followed."""
        self._on_two(LIB.dure_link, src, dst)

    def symlink(self, src: StrPath, dst: StrPath) -> None:
        """`dst` becomes a symbolic link to `src`."""
        self._on_two(LIB.dure_symlink, src, dst)

    def readlink(self, path: StrPath) -> str:
        target = create_string_buffer(4096)
        length = self._on(LIB.dure_readlink, path, target, len(target))
        return os.fsdecode(target.raw[:length])

    # Directories.

    def scandir(self, path: StrPath = "/") -> ScandirIterator:
        """The entries, without "." and "..", in no order. Also a context manager."""
        handle = _native.made(
            LIB.dure_closedir, LIB.dure_opendir, self._use(), encoded(path), name=path
        )
        return ScandirIterator(self, handle, os.fsdecode(path))

    def listdir(self, path: StrPath = "/") -> list[str]:
        with self.scandir(path) as entries:
            return [entry.name for entry in entries]

    def walk(
        self,
        top: StrPath,
        topdown: bool = True,
        onerror: Optional[Callable[[OSError], object]] = None,
        followlinks: bool = False,
    ) -> Iterator[tuple[str, list[str], list[str]]]:
        """As os.walk."""
        here = os.fsdecode(top)
        directories: list[str] = []
        others: list[str] = []
        links = set()
        try:
            with self.scandir(here) as entries:
                for entry in entries:
                    if entry.is_dir():
                        directories.append(entry.name)
                        if entry.is_symlink():
                            links.add(entry.name)
                    else:
                        others.append(entry.name)
        except OSError as error:
            if onerror is not None:
                onerror(error)
            return
        if topdown:
            yield here, directories, others
        for name in directories:
            if followlinks or name not in links:
                yield from self.walk(os.path.join(here, name), topdown, onerror, followlinks)
        if not topdown:
            yield here, directories, others

    # Extended attributes.

    def getxattr(self, path: StrPath, attribute: Union[str, bytes]) -> bytes:
        return self._grown(LIB.dure_getxattr, path, encoded(attribute))

    def listxattr(self, path: StrPath) -> list[str]:
        names = self._grown(LIB.dure_listxattr, path)
        return [os.fsdecode(name) for name in names.split(b"\0")[:-1]]

    def _grown(self, call: Callable[..., int], path: StrPath, *attribute: bytes) -> bytes:
        """A value whose size is not known; it may grow between two calls."""
        size = 256
        while True:
            found = create_string_buffer(size)
            result = call(self._use(), encoded(path), *attribute, found, size)
            if result >= 0:
                return found.raw[:result]
            if result != -34:  # ERANGE
                raise _native.failed(result, path)
            size = self._on(call, path, *attribute, None, 0) + 256

    def setxattr(
        self, path: StrPath, attribute: Union[str, bytes], value: Any, flags: int = 0
    ) -> None:
        """`flags`: os.XATTR_CREATE or os.XATTR_REPLACE."""
        with Buffer(value, writable=False) as (address, length):
            self._on(LIB.dure_setxattr, path, encoded(attribute), address, length, flags)

    def removexattr(self, path: StrPath, attribute: Union[str, bytes]) -> None:
        self._on(LIB.dure_removexattr, path, encoded(attribute))


def _nanoseconds(seconds: float) -> int:
    """Without the rounding of a product, if it is a whole number."""
    whole = int(seconds // 1)
    return whole * 1_000_000_000 + int((seconds - whole) * 1_000_000_000)


class DirEntry(os.PathLike):  # type: ignore[type-arg]
    """One entry, as that of os.scandir. Its kind costs no call, unless it is a symbolic link."""

    __slots__ = ("_session", "_kind", "_ino", "name", "path")

    name: str
    path: str

    def __init__(self, session: Session, directory: str, entry: _native.Dirent) -> None:
        self._session = session
        self._kind = int(entry.kind) << 12
        self._ino = int(entry.ino)
        self.name = os.fsdecode(entry.name)
        self.path = os.path.join(directory, self.name)

    def inode(self) -> int:
        return self._ino

    def _mode(self, follow_symlinks: bool) -> int:
        if follow_symlinks and _stat.S_ISLNK(self._kind):
            return self._session._mode(self.path)
        return self._kind

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return _stat.S_ISDIR(self._mode(follow_symlinks))

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return _stat.S_ISREG(self._mode(follow_symlinks))

    def is_symlink(self) -> bool:
        return _stat.S_ISLNK(self._kind)

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return self._session.stat(self.path, follow_symlinks=follow_symlinks)

    def __fspath__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        return f"<durefs.DirEntry {self.name!r}>"


class ScandirIterator(Iterator[DirEntry]):
    """What `Session.scandir` returns."""

    def __init__(self, session: Session, handle: Handle, directory: str) -> None:
        self._session = session
        self._handle: Optional[Handle] = handle
        self._directory = directory
        session.volume._register(self)

    def __next__(self) -> DirEntry:
        handle = self._handle
        if handle is None:
            raise StopIteration
        entry = _native.Dirent()
        result = LIB.dure_readdir(handle, byref(entry))
        if result < 0:
            raise _native.failed(result, self._directory)
        if result == 0:
            self.close()
            raise StopIteration
        return DirEntry(self._session, self._directory, entry)

    def close(self) -> None:
        self._handle = None

    def __enter__(self) -> ScandirIterator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
