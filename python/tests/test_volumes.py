"""Volumes: full, in use, closed, threads, kills, forks."""

from __future__ import annotations

import errno
import gc
import os
import signal
import subprocess
import sys
import threading
import unittest
import warnings

from support import MIB, PACKAGE, VolumeTest, durefs

WRITER = """
import os, signal, sys
import durefs
volume = durefs.Volume.open(sys.argv[1])
session = volume.session()
session.makedirs("/deep/down")
with session.open("/deep/down/file", "wb") as file:
    file.write(b"sown" * 100_000)
    file.fsync()
session.open("/unsynced", "wb").write(b"x")
os.kill(os.getpid(), signal.SIGKILL)
"""


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": PACKAGE},
        capture_output=True,
        text=True,
        timeout=120,
    )


class Volumes(VolumeTest):
    def test_what_was_synced_survives_a_kill(self) -> None:
        self.volume.close()
        self.assertEqual(python(WRITER, self.image).returncode, -signal.SIGKILL)
        self.volume = durefs.Volume.open(self.image)
        session = self.volume.session()
        self.assertEqual(session.read_bytes("/deep/down/file"), b"sown" * 100_000)

    def test_in_use(self) -> None:
        with self.assertRaises(OSError) as caught:
            durefs.Volume.open(self.image)
        self.assertEqual(caught.exception.errno, errno.EBUSY)
        other = python("import durefs, sys; durefs.Volume.open(sys.argv[1])", self.image)
        self.assertEqual(other.returncode, 1)
        self.assertIn("Errno 16", other.stderr)

    def test_making(self) -> None:
        with self.assertRaises(FileExistsError):
            durefs.Volume.create(self.image, size=8 * MIB)
        with self.assertRaises(ValueError):
            durefs.Volume.create(self.image + "2", size=0)
        with self.assertRaises(OSError):
            durefs.Volume.create(self.image + "2", size=8 * MIB, options="nonsense")
        with self.assertRaises(FileNotFoundError):
            durefs.Volume.open(self.image + "3")
        with open(self.image + "4", "wb") as file:
            file.truncate(16 * MIB)
        with durefs.Volume.format(self.image + "4", format_options={"label": "x"}) as volume:
            self.assertEqual(volume.session().listdir(), [])

    def test_full(self) -> None:
        with self.assertRaises(OSError) as caught:
            with self.session.open("/fill", "wb") as file:
                for _ in range(100):
                    file.write(bytes(MIB))
        self.assertEqual(caught.exception.errno, errno.ENOSPC)
        self.session.unlink("/fill")
        self.session.write_bytes("/fits", bytes(MIB))

    def test_read_only(self) -> None:
        self.session.write_bytes("/f", b"1")
        self.reopen({"ro": True, "cache": "8M"})
        self.assertEqual(self.session.read_bytes("/f"), b"1")
        with self.assertRaises(OSError) as caught:
            self.session.write_bytes("/f", b"2")
        self.assertEqual(caught.exception.errno, errno.EROFS)

    def test_close_closes_what_is_open(self) -> None:
        file = self.session.open("/f", "w")
        file.write("in the buffer")
        listing = self.session.scandir("/")
        raw = self.session.open("/g", "wb", buffering=0)
        self.volume.close()
        self.volume.close()
        self.assertTrue(file.closed and raw.closed)
        self.assertEqual(list(listing), [])
        for call in (self.volume.sync, self.volume.session, self.session.listdir):
            with self.assertRaises(ValueError):
                call()
        self.volume = durefs.Volume.open(self.image)
        self.assertEqual(self.volume.session().read_bytes("/f"), b"in the buffer")

    def test_a_dropped_volume_closes(self) -> None:
        self.session.write_bytes("/f", b"1")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del self.session
            self.volume = None  # type: ignore[assignment]
            gc.collect()
        self.assertEqual([one.category for one in caught], [ResourceWarning])
        self.volume = durefs.Volume.open(self.image)

    def test_many_threads(self) -> None:
        failures = []

        def work(number: int) -> None:
            try:
                session = self.volume.session()
                session.mkdir(f"/{number}")
                with session.open("/shared", "r+b", buffering=0) as shared:
                    for turn in range(100):
                        mine = bytes([number]) * 4096
                        shared.pwrite(mine, (turn * 8 + number) * 4096)
                        assert shared.pread(4096, (turn * 8 + number) * 4096) == mine
                        session.write_bytes(f"/{number}/{turn}", mine)
                        if turn % 20 == 0:
                            shared.fsync()
                assert len(session.listdir(f"/{number}")) == 100
            except BaseException as error:
                failures.append(error)

        self.session.write_bytes("/shared", b"")
        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        content = self.session.read_bytes("/shared")
        self.assertEqual(content, b"".join(bytes([n % 8]) * 4096 for n in range(800)))

    def test_a_file_is_closed_under_readers(self) -> None:
        self.session.write_bytes("/f", b"x" * MIB)
        for _ in range(20):
            file = self.session.open("/f", "rb", buffering=0)
            ends = []

            def read() -> None:
                try:
                    while True:
                        assert file.pread(MIB, 0) == b"x" * MIB
                except ValueError:
                    ends.append(True)

            threads = [threading.Thread(target=read) for _ in range(4)]
            for thread in threads:
                thread.start()
            file.close()
            for thread in threads:
                thread.join()
            self.assertEqual(ends, [True] * 4)

    def test_a_child_of_fork_has_no_volume(self) -> None:
        code = """
import errno, os, sys
import durefs
volume = durefs.Volume.open(sys.argv[1])
session = volume.session()
child = os.fork()
if child == 0:
    try:
        session.listdir()
    except OSError as error:
        os._exit(0 if error.errno == errno.ENXIO else 1)
    os._exit(2)
assert os.waitpid(child, 0)[1] == 0
session.write_bytes("/f", b"parent")
volume.close()
"""
        self.volume.close()
        done = python(code, self.image)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_library_is_named_when_it_is_missing(self) -> None:
        done = subprocess.run(
            [sys.executable, "-c", "import durefs"],
            env={**os.environ, "PYTHONPATH": PACKAGE, "DURE_LIBRARY": "/nowhere/libdure.so.0"},
            capture_output=True,
            text=True,
        )
        self.assertIn("ImportError", done.stderr)
        self.assertIn("DURE_LIBRARY", done.stderr)


if __name__ == "__main__":
    unittest.main()
