"""A volume that is mounted, too."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import tempfile

from support import VolumeTest, durefs


class Mounts(VolumeTest):
    def setUp(self) -> None:
        super().setUp()
        folder = tempfile.TemporaryDirectory(prefix="durefs-")
        self.addCleanup(folder.cleanup)
        self.directory = folder.name
        self.session.chown("/", os.geteuid(), os.getegid())
        try:
            self.mount = self.volume.mount(self.directory)
        except OSError as error:
            self.skipTest(str(error))
        self.addCleanup(self.mount.unmount, detach=True)

    def test_both_sides_see_each_other(self) -> None:
        self.session.write_bytes("/note", b"sown")
        path = os.path.join(self.directory, "note")
        said = subprocess.run(["cat", path], capture_output=True, check=True).stdout
        self.assertEqual(said, b"sown")
        subprocess.run(["sh", "-c", f"echo more >> {path}"], check=True)
        self.assertEqual(self.session.read_bytes("/note"), b"sownmore\n")

    def test_locks_hold_for_other_programs(self) -> None:
        with self.session.open("/lock", "wb", buffering=0) as file:
            fd = self.mount.fd(file)
            fcntl.flock(fd, fcntl.LOCK_EX)
            path = os.path.join(self.directory, "lock")
            taken = subprocess.run(["flock", "-n", path, "true"], check=False).returncode
            self.assertEqual(taken, 1)
            os.close(fd)
            subprocess.run(["flock", "-n", path, "true"], check=True)

    def test_a_volume_in_use_stays(self) -> None:
        self.session.write_bytes("/note", b"sown")
        with open(os.path.join(self.directory, "note"), "rb") as note:
            for end in (self.mount.unmount, self.volume.close):
                with self.assertRaises(OSError) as caught:
                    end()
                self.assertEqual(caught.exception.errno, errno.EBUSY)
            self.assertFalse(self.volume.closed)
            with self.assertRaises(OSError) as caught:
                self.volume.mount(self.directory)
            self.assertEqual(caught.exception.errno, errno.EBUSY)
            self.assertEqual(note.read(), b"sown")
        self.volume.close()
        self.assertEqual(os.listdir(self.directory), [])
