"""Names, attributes, directories, callers, errors."""

from __future__ import annotations

import errno
import os
import stat
import unittest

from support import VolumeTest


class Names(VolumeTest):
    def test_directories(self) -> None:
        self.session.makedirs("/a/b/c")
        self.session.makedirs("/a/b/c/", exist_ok=True)
        with self.assertRaises(FileExistsError):
            self.session.makedirs("/a/b")
        self.session.write_bytes("/a/f", b"")
        self.session.symlink("b", "/a/l")
        self.assertEqual(sorted(self.session.listdir("/a")), ["b", "f", "l"])
        with self.session.scandir("/a") as entries:
            kinds = {e.name: (e.is_dir(), e.is_file(), e.is_symlink()) for e in entries}
        self.assertEqual(
            kinds,
            {
                "b": (True, False, False),
                "f": (False, True, False),
                "l": (True, False, True),
            },
        )
        entry = next(e for e in self.session.scandir("/a") if e.name == "f")
        self.assertEqual(os.fspath(entry), "/a/f")
        self.assertEqual(entry.inode(), entry.stat().st_ino)
        walked = [(d, sorted(ds), fs) for d, ds, fs in self.session.walk("/a")]
        self.assertEqual(
            walked, [("/a", ["b", "l"], ["f"]), ("/a/b", ["c"], []), ("/a/b/c", [], [])]
        )
        bottom_up = [d for d, _, _ in self.session.walk("/a", topdown=False)]
        self.assertEqual(bottom_up, ["/a/b/c", "/a/b", "/a"])
        self.session.rmtree("/a")
        self.assertEqual(self.session.listdir(), [])

    def test_many_names(self) -> None:
        for number in range(2000):
            self.session.open(f"/{number}-ü", "xb", buffering=0).close()
        self.assertEqual(len(set(self.session.listdir())), 2000)

    def test_names_that_are_not_text(self) -> None:
        self.session.write_bytes(b"/\xff", b"1")
        (name,) = self.session.listdir()
        self.assertEqual(os.fsencode(name), b"\xff")
        self.assertEqual(self.session.read_bytes(name), b"1")

    def test_links_and_renames(self) -> None:
        self.session.write_bytes("/a", b"a")
        self.session.write_bytes("/b", b"b")
        self.session.link("/a", "/c")
        self.assertEqual(self.session.stat("/c").st_nlink, 2)
        self.session.rename("/a", "/b", exchange=True)
        self.assertEqual(self.session.read_bytes("/a"), b"b")
        with self.assertRaises(FileExistsError) as caught:
            self.session.rename("/a", "/b", noreplace=True)
        self.assertEqual((caught.exception.filename, caught.exception.filename2), ("/a", "/b"))
        self.session.replace("/a", "/b")
        self.assertFalse(self.session.exists("/a"))
        self.session.symlink("nowhere", "/s")
        self.assertEqual(self.session.readlink("/s"), "nowhere")
        self.assertTrue(self.session.lexists("/s"))
        self.assertFalse(self.session.exists("/s"))
        self.assertTrue(stat.S_ISLNK(self.session.lstat("/s").st_mode))
        self.session.remove("/s")

    def test_attributes(self) -> None:
        self.session.write_bytes("/f", b"12345")
        self.session.chmod("/f", 0o4751)
        self.session.chown("/f", 7, -1)
        self.session.utime("/f", ns=(-5, 1_500_000_000_123_456_789))
        found = self.session.stat("/f")
        self.assertIsInstance(found, os.stat_result)
        self.assertEqual((found.st_uid, found.st_gid, found.st_size), (7, 0, 5))
        self.assertEqual((found.st_atime_ns, found.st_mtime_ns), (-5, 1_500_000_000_123_456_789))
        self.assertEqual(found.st_blksize, 4096)
        self.session.utime("/f", (1.5, 2.25))
        self.assertEqual(self.session.stat("/f").st_mtime_ns, 2_250_000_000)
        self.session.utime("/f")
        self.assertGreater(self.session.stat("/f").st_mtime, 1e9)
        self.assertGreater(self.session.birthtime_ns("/f"), 10**18)
        self.session.truncate("/f", 2)
        self.assertEqual(self.session.read_bytes("/f"), b"12")
        with self.assertRaises(OverflowError):
            self.session.chown("/f", 1 << 32, 0)
        self.assertEqual(self.volume.statfs().f_namemax, 255)

    def test_extended_attributes(self) -> None:
        self.session.write_bytes("/f", b"")
        self.session.setxattr("/f", "user.a", b"x\0y")
        self.session.setxattr("/f", "user.long", b"z" * 5000)
        self.assertEqual(self.session.getxattr("/f", "user.a"), b"x\0y")
        self.assertEqual(len(self.session.getxattr("/f", "user.long")), 5000)
        self.assertEqual(sorted(self.session.listxattr("/f")), ["user.a", "user.long"])
        with self.assertRaises(FileExistsError):
            self.session.setxattr("/f", "user.a", b"", os.XATTR_CREATE)
        self.session.removexattr("/f", "user.a")
        with self.assertRaises(OSError) as caught:
            self.session.getxattr("/f", "user.a")
        self.assertEqual(caught.exception.errno, errno.ENODATA)

    def test_callers(self) -> None:
        self.session.mkdir("/home")
        self.session.chown("/home", 1000, 100)
        self.session.chmod("/home", 0o770)
        owner = self.volume.session(1000, 100, umask=0o077)
        owner.write_bytes("/home/f", b"mine")
        self.assertEqual(stat.S_IMODE(owner.stat("/home/f").st_mode), 0o600)
        member = self.volume.session(uid=2, gid=2, groups=[100])
        self.assertEqual(member.listdir("/home"), ["f"])
        with self.assertRaises(PermissionError) as caught:
            member.read_bytes("/home/f")
        self.assertEqual(caught.exception.filename, "/home/f")
        stranger = self.volume.session(3)
        self.assertFalse(stranger.access("/home", os.R_OK))
        with self.assertRaises(PermissionError):
            stranger.exists("/home/f")
        inside = self.session.with_root("/home")
        self.assertEqual(inside.read_bytes("/../f"), b"mine")

    def test_errors(self) -> None:
        with self.assertRaises(FileNotFoundError) as caught:
            self.session.open("/missing")
        self.assertEqual(caught.exception.errno, errno.ENOENT)
        self.assertEqual(caught.exception.filename, "/missing")
        self.assertIn("/missing", caught.exception.strerror)
        self.session.mkdir("/d")
        self.session.write_bytes("/d/f", b"")
        for call, kind in (
            (lambda: self.session.mkdir("/d"), FileExistsError),
            (lambda: self.session.open("/d", "rb"), IsADirectoryError),
            (lambda: self.session.open("/d", "wb"), IsADirectoryError),
            (lambda: self.session.read_bytes("/d"), IsADirectoryError),
            (lambda: self.session.unlink("/d"), IsADirectoryError),
            (lambda: self.session.stat("/d/f/x"), NotADirectoryError),
            (lambda: self.session.listdir("/d/f"), NotADirectoryError),
            (lambda: self.session.rmdir("/d"), OSError),
            (lambda: self.session.stat("/a\0b"), ValueError),
            (lambda: self.session.stat(3), TypeError),
        ):
            with self.assertRaises(kind):
                call()
        directory = self.session.open_directory("/d")
        directory.fsync()
        self.session.close()
        with self.assertRaises(ValueError):
            self.session.listdir()


if __name__ == "__main__":
    unittest.main()
