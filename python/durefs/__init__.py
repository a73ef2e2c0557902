"""dure volumes from Python, by ctypes over libdure: no mount, no kernel crossing.

    with durefs.Volume.create("v.img", size=1 << 30) as volume:
        session = volume.session()
        with session.open("/note", "w") as file:
            file.write("sown")
            file.fsync()

Structure. `Volume` is a mounted volume, `Session` a caller on it with the calls of `os`, and
`Session.open` returns the file objects of `io` over `File`. `Volume.mount` shows it to other programs. `durefs.fsspec_dure` is a file system
of fsspec.

Durable, that is there after a power cut, is what `fsync`, `fdatasync` or `Volume.sync` returned
for. All else becomes durable in the background, about every 5 seconds. docs/user/python.md has the
table of calls and the limits.
"""

from __future__ import annotations

from ._file import BufferedFile, BufferedReader, BufferedWriter, File, TextFile
from ._mount import Mount
from ._native import LIB as _LIB
from ._session import DirEntry, ScandirIterator, Session
from ._volume import Volume

__version__ = "0.1.0"

__all__ = [
    "BufferedFile",
    "BufferedReader",
    "BufferedWriter",
    "DirEntry",
    "File",
    "Mount",
    "ScandirIterator",
    "Session",
    "TextFile",
    "Volume",
    "library_version",
]


def library_version() -> str:
    """The version of libdure."""
    return bytes(_LIB.dure_version()).decode()
