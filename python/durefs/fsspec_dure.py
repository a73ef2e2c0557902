"""A file system of fsspec on a volume: dure:///path/in/volume, with volume="v.img".

Structure. File systems on one image share one `Volume`, because a process opens a volume once. It
is opened with the first call and closed by `DureFileSystem.close` or at the exit of the process; a
call after `close` opens it again. A `Volume` that is given belongs to its giver.

Invariants. With autocommit=False, and so in a transaction of fsspec, a file is written under
another name in its directory; closing it makes it durable, and `commit` renames it, in one step.
"""

from __future__ import annotations

import atexit
import datetime
import os
import stat as _stat
import threading
import uuid
from collections.abc import Sequence
from typing import Any, Optional, Union

from fsspec.spec import AbstractFileSystem  # type: ignore[import-untyped]
from fsspec.utils import stringify_path  # type: ignore[import-untyped]

from ._file import BUFFER_BYTES, BufferedFile, BufferedReader, BufferedWriter
from ._session import Session
from ._volume import Options, Volume

_shared: dict[str, Volume] = {}
_shared_lock = threading.Lock()


def _shared_volume(path: str, options: Options, create_size: Optional[int]) -> Volume:
    """The volume of this process on an image."""
    image = os.path.realpath(path)
    with _shared_lock:
        volume = _shared.get(image)
        if volume is None or volume.closed:
            if create_size is not None and not os.path.exists(image):
                volume = Volume.create(image, create_size, options=options)
            else:
                volume = Volume.open(image, options)
            _shared[image] = volume
        return volume


@atexit.register
def _close_shared() -> None:
    with _shared_lock:
        volumes = list(_shared.values())
        _shared.clear()
    for volume in volumes:
        volume.close()


class _Committed:
    """What a file has that fsspec opened."""

    fs: DureFileSystem
    path: str
    raw: Any
    _temporary: Optional[str] = None

    @property
    def size(self) -> int:
        """Bytes, without what is in the buffer."""
        size: int = self.raw.stat().st_size
        return size

    def commit(self) -> None:
        """Gives a closed file its name."""
        if self._temporary is not None:
            self.fs.session.rename(self._temporary, self.path)
            self._temporary = None

    def discard(self) -> None:
        """Removes a file that was not committed."""
        if self._temporary is not None:
            self.fs.session.unlink(self._temporary)
            self._temporary = None

    def close(self) -> None:
        if self._temporary is not None and not self.closed:  # type: ignore[attr-defined]
            self.fsync()  # type: ignore[attr-defined]
        super().close()  # type: ignore[misc]


class _Reader(_Committed, BufferedReader):
    pass


class _Writer(_Committed, BufferedWriter):
    pass


class _Updater(_Committed, BufferedFile):
    pass


class DureFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """A volume of dure, as one caller.

    volume: path of the image or device, or a `Volume`.
    options: of the mount, as of `Volume.open`.
    create_size: bytes of a new image, made if none is there.
    uid, gid, groups, umask: of the caller; root if they are not said.
    auto_mkdir: make the directories above a file that is written.
    """

    protocol = "dure"
    root_marker = "/"

    def __init__(
        self,
        volume: Union[str, os.PathLike[str], Volume, None] = None,
        options: Options = None,
        create_size: Optional[int] = None,
        uid: int = 0,
        gid: Optional[int] = None,
        groups: Sequence[int] = (),
        umask: int = 0o022,
        auto_mkdir: bool = False,
        **storage_options: Any,
    ) -> None:
        super().__init__(**storage_options)
        if volume is None:
            raise ValueError("dure: needs the storage option volume=, the path of an image")
        self._given = volume
        self._options = options
        self._create_size = create_size
        self._caller = (uid, gid, groups)
        self._umask = umask
        self.auto_mkdir = auto_mkdir
        self._opened: Optional[Session] = None

    @property
    def fsid(self) -> str:
        return f"dure_{self.volume.path}"

    @property
    def volume(self) -> Volume:
        """The volume, opened if it is not."""
        if isinstance(self._given, Volume):
            return self._given
        return _shared_volume(os.fspath(self._given), self._options, self._create_size)

    @property
    def session(self) -> Session:
        """The caller on the volume."""
        session = self._opened
        if session is None or session.volume.closed:
            uid, gid, groups = self._caller
            session = self.volume.session(uid, gid, groups, umask=self._umask)
            self._opened = session
        return session

    def sync(self) -> None:
        """Makes everything durable that was done before."""
        self.session.volume.sync()

    def close(self) -> None:
        """Closes the volume, for all file systems on it, unless it was given."""
        session, self._opened = self._opened, None
        if session is not None:
            session.close()
            if not isinstance(self._given, Volume):
                session.volume.close()

    # Names.

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = stringify_path(path)
        for prefix in ("dure://", "dure:"):
            if path.startswith(prefix):
                path = path[len(prefix) :]
                break
        return "/" + path.strip("/")

    @classmethod
    def _parent(cls, path: Any) -> str:
        parent: str = os.path.dirname(cls._strip_protocol(path))
        return parent

    def _make_parent(self, path: str) -> None:
        if self.auto_mkdir:
            self.session.makedirs(self._parent(path), exist_ok=True)

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        path = self._strip_protocol(path)
        if create_parents:
            self.session.makedirs(path)
        else:
            self.session.mkdir(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self.session.makedirs(self._strip_protocol(path), exist_ok=exist_ok)

    def rmdir(self, path: str) -> None:
        self.session.rmdir(self._strip_protocol(path))

    def rm_file(self, path: str) -> None:
        self.session.unlink(self._strip_protocol(path))

    _rm = rm_file

    def rm(
        self,
        path: Union[str, list[str]],
        recursive: bool = False,
        maxdepth: Optional[int] = None,
    ) -> None:
        """Also of patterns. Directories go with recursive=True; the root stays, empty."""
        if maxdepth is not None:
            for found in reversed(self.expand_path(path, recursive=recursive, maxdepth=maxdepth)):
                if self.isdir(found) and not self.islink(found):
                    self.session.rmdir(found)
                else:
                    self.session.unlink(found)
            return
        for found in self.expand_path(path):
            if not self.session.isdir(found) or self.session.islink(found):
                self.session.unlink(found)
            elif not recursive:
                raise ValueError("Cannot delete directory, set recursive=True")
            elif found == "/":
                for name in self.session.listdir("/"):
                    self.rm("/" + name, recursive=True)
            else:
                self.session.rmtree(found)

    def mv(
        self,
        path1: str,
        path2: str,
        recursive: bool = True,
        maxdepth: Optional[int] = None,
        **kwargs: Any,
    ) -> None:
        """One step. Into path2 if that is a directory, else in place of it."""
        src, dst = self._strip_protocol(path1), self._strip_protocol(path2)
        if src == dst:
            return
        if self.session.isdir(dst) or str(path2).endswith("/"):
            dst = os.path.join(dst, os.path.basename(src))
        self._make_parent(dst)
        self.session.rename(src, dst)

    def mv_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        self.session.rename(self._strip_protocol(path1), self._strip_protocol(path2))

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        src, dst = self._strip_protocol(path1), self._strip_protocol(path2)
        self._make_parent(dst)
        if self.session.isdir(src):
            self.session.makedirs(dst, exist_ok=True)
        else:
            self.session.copy(src, dst)

    def link(self, src: str, dst: str, **kwargs: Any) -> None:
        self.session.link(self._strip_protocol(src), self._strip_protocol(dst))

    def symlink(self, src: str, dst: str, **kwargs: Any) -> None:
        """`src` stays as it is, so that it may be relative, unless it is a URL."""
        if src.startswith("dure:"):
            src = self._strip_protocol(src)
        self.session.symlink(src, self._strip_protocol(dst))

    # What is there.

    def _info(self, path: str) -> dict[str, Any]:
        session = self.session
        found = session.lstat(path)
        link = _stat.S_ISLNK(found.st_mode)
        result: dict[str, Any] = {"name": path, "islink": link}
        if link:
            result["destination"] = session.readlink(path)
            try:
                found = session.stat(path)
            except OSError:
                pass
        if _stat.S_ISDIR(found.st_mode):
            result["type"] = "directory"
        elif _stat.S_ISREG(found.st_mode):
            result["type"] = "file"
        else:
            result["type"] = "other"
        result["size"] = found.st_size
        for field in ("mode", "uid", "gid", "mtime", "ino", "nlink"):
            result[field] = getattr(found, f"st_{field}")
        result["created"] = session.birthtime_ns(path, follow_symlinks=False) / 1e9
        return result

    def info(self, path: Any, **kwargs: Any) -> dict[str, Any]:
        return self._info(self._strip_protocol(path))

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        path = self._strip_protocol(path)
        if not self.session.isdir(path):
            found = self._info(path)
            return [found] if detail else [path]
        names = sorted(os.path.join(path, name) for name in self.session.listdir(path))
        if not detail:
            return names
        infos = []
        for name in names:
            try:
                infos.append(self._info(name))
            except FileNotFoundError:  # Removed meanwhile.
                pass
        return infos

    def exists(self, path: str, **kwargs: Any) -> bool:
        return self.session.exists(self._strip_protocol(path))

    def lexists(self, path: str, **kwargs: Any) -> bool:
        return self.session.lexists(self._strip_protocol(path))

    def isfile(self, path: str) -> bool:
        return self.session.isfile(self._strip_protocol(path))

    def isdir(self, path: str) -> bool:
        return self.session.isdir(self._strip_protocol(path))

    def islink(self, path: str) -> bool:
        return self.session.islink(self._strip_protocol(path))

    def created(self, path: str) -> datetime.datetime:
        return _moment(self.session.birthtime_ns(self._strip_protocol(path)))

    def modified(self, path: str) -> datetime.datetime:
        return _moment(self.session.stat(self._strip_protocol(path)).st_mtime_ns)

    # Content.

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: Optional[int] = None,
        autocommit: bool = True,
        cache_options: Optional[dict[str, Any]] = None,
        **kwargs: Any,
    ) -> Any:
        path = self._strip_protocol(path)
        writes = not mode.startswith("r") or "+" in mode
        if writes:
            self._make_parent(path)
        temporary = None
        if writes and not autocommit:
            temporary = f"{path}.{uuid.uuid4().hex}.part"
            if "x" in mode and self.session.lexists(path):
                raise FileExistsError(17, os.strerror(17), path)
            if mode[0] in "ra" and self.session.exists(path):
                self.session.copy(path, temporary)
        raw = self.session.open(temporary or path, mode, buffering=0)
        kind = _Updater if "+" in mode else _Writer if writes else _Reader
        try:
            file: Any = kind(raw, block_size or BUFFER_BYTES)
            file.fs, file.path, file._temporary = self, path, temporary
            self.session.volume._register(file)
        except BaseException:
            raw.close()
            raise
        return file

    def cat_file(
        self, path: str, start: Optional[int] = None, end: Optional[int] = None, **kwargs: Any
    ) -> bytes:
        """Negative bounds count from the end, as of a slice."""
        with self.session.open(self._strip_protocol(path), "rb", buffering=0) as file:
            if start is None and end is None:
                whole: bytes = file.readall()
                return whole
            if (start or 0) < 0 or end is None or end < 0:
                first, last, _ = slice(start, end).indices(file.stat().st_size)
            else:
                first, last = start or 0, end
            part: bytes = file.pread(max(0, last - first), first)
            return part

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite", **kwargs: Any) -> None:
        with self.open(path, "xb" if mode == "create" else "wb", **kwargs) as file:
            file.write(value)

    def touch(self, path: str, truncate: bool = True, **kwargs: Any) -> None:
        path = self._strip_protocol(path)
        self._make_parent(path)
        self.session.open(path, "wb" if truncate else "ab", buffering=0).close()
        self.session.utime(path)


def _moment(ns: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(ns / 1e9, tz=datetime.timezone.utc)
