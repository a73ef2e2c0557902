"""Content: modes, positions, buffers, holes, text."""

from __future__ import annotations

import array
import io
import os
import random
import unittest

from support import MIB, VolumeTest


class Files(VolumeTest):
    def test_a_big_file_comes_back_also_from_the_medium(self) -> None:
        content = random.Random(1).randbytes(9 * MIB + 17)
        with self.session.open("/big", "wb") as file:
            self.assertEqual(file.write(content), len(content))
        self.assertEqual(self.session.read_bytes("/big"), content)
        self.reopen()
        with self.session.open("/big", "rb") as file:
            self.assertEqual(file.read(), content)
            self.assertEqual(file.read(), b"")
            file.seek(5 * MIB + 3)
            self.assertEqual(file.read(100_000), content[5 * MIB + 3 :][:100_000])

    def test_small_pieces_through_a_buffer(self) -> None:
        pieces = [bytes([n % 251]) * (n % 97) for n in range(5000)]
        with self.session.open("/pieces", "wb", buffering=4096) as file:
            for piece in pieces:
                file.write(piece)
        with self.session.open("/pieces", "rb", buffering=1000) as file:
            for piece in pieces:
                self.assertEqual(file.read(len(piece)), piece)

    def test_holes(self) -> None:
        with self.session.open("/holes", "wb+", buffering=0) as file:
            file.write(b"a" * 4096)
            file.seek(8 * MIB)
            file.write(b"z" * 4096)
            self.assertEqual(file.pread(10, 4 * MIB), bytes(10))
            self.assertEqual(file.seek(0, os.SEEK_HOLE), 4096)
            self.assertEqual(file.seek(4096, os.SEEK_DATA), 8 * MIB)
            with self.assertRaises(OSError):
                file.seek(9 * MIB, os.SEEK_DATA)
            file.fsync()
            self.assertLess(file.stat().st_blocks * 512, MIB)
            file.punch_hole(8 * MIB, 4096)
            self.assertEqual(file.pread(3, 8 * MIB), bytes(3))
            self.assertEqual(file.stat().st_size, 8 * MIB + 4096)
        self.assertEqual(self.session.copy("/holes", "/copy"), 8 * MIB + 4096)

    def test_seek_and_tell(self) -> None:
        with self.session.open("/f", "wb+") as file:
            file.write(b"0123456789")
            self.assertEqual(file.tell(), 10)
            self.assertEqual(file.seek(-3, os.SEEK_END), 7)
            self.assertEqual(file.read(2), b"78")
            self.assertEqual(file.tell(), 9)
            self.assertEqual(file.seek(-4, os.SEEK_CUR), 5)
            file.write(b"X")
            self.assertEqual(file.truncate(7), 7)
            file.seek(0)
            self.assertEqual(file.read(), b"01234X6")
            with self.assertRaises(OSError):
                file.raw.seek(-1)

    def test_append(self) -> None:
        for start, word in ((0, "one"), (3, "two")):
            with self.session.open("/log", "ab") as file:
                self.assertEqual(file.tell(), start)
                file.write(word.encode())
                self.assertEqual(file.tell(), start + 3)
        with self.session.open("/log", "ab", buffering=0) as file:
            file.seek(0)
            file.write(b"!")
        self.assertEqual(self.session.read_bytes("/log"), b"onetwo!")

    def test_modes(self) -> None:
        self.session.write_bytes("/f", b"old")
        with self.assertRaises(FileExistsError):
            self.session.open("/f", "xb")
        with self.session.open("/f", "r+b") as file:
            self.assertEqual(file.read(1), b"o")
            file.write(b"X")
        self.assertEqual(self.session.read_bytes("/f"), b"oXd")
        with self.session.open("/f", "rb") as file:
            with self.assertRaises(io.UnsupportedOperation):
                file.write(b"")
        with self.session.open("/f", "wb") as file:
            with self.assertRaises(io.UnsupportedOperation):
                file.read()
        self.assertEqual(self.session.stat("/f").st_size, 0)
        for mode in ("", "rw", "b", "rr", "rbt", "U", "r++"):
            with self.assertRaises(ValueError, msg=mode):
                self.session.open("/f", mode)
        with self.assertRaises(ValueError):
            self.session.open("/f", "rb", encoding="utf-8")
        with self.assertRaises(ValueError):
            self.session.open("/f", "r", buffering=0)
        self.assertIsInstance(self.session.open("/f", "rb", buffering=0), io.RawIOBase)

    def test_text(self) -> None:
        with self.session.open("/t", "w") as file:
            print("säen", "und ernten", sep="\n", file=file)
            file.fsync()
        self.assertEqual(self.session.read_bytes("/t"), "säen\nund ernten\n".encode())
        with self.session.open("/t") as file:
            self.assertEqual(list(file), ["säen\n", "und ernten\n"])
        with self.session.open("/t", "a", encoding="latin-1", newline="\r\n") as file:
            file.write("ü\n")
        self.assertTrue(self.session.read_bytes("/t").endswith(b"\n\xfc\r\n"))
        with self.session.open("/t") as file, self.assertRaises(UnicodeDecodeError):
            file.read()

    def test_into_buffers_of_others(self) -> None:
        numbers = array.array("d", range(1000))
        with self.session.open("/n", "wb+", buffering=0) as file:
            file.write(numbers)
            back = array.array("d", bytes(8000))
            self.assertEqual(file.preadinto(back, 0), 8000)
            self.assertEqual(back, numbers)
            part = bytearray(100)
            file.seek(0)
            self.assertEqual(file.readinto(memoryview(part)[10:20]), 10)
            self.assertEqual(part[:10] + part[20:], bytes(90))
            self.assertEqual(file.preadinto(bytearray(), 0), 0)
            self.assertEqual(file.pwrite(memoryview(b"abcdef")[2:4], 8000), 2)
            self.assertEqual(file.pread(99, 7998 + 2), b"cd")
            self.assertEqual(file.pread(99, 1 << 40), b"")
            self.assertEqual(file.pread(1 << 50, 8000), b"cd")
            for wrong in (b"bytes", memoryview(part)[::2], "text"):
                with self.assertRaises((TypeError, BufferError, ValueError)):
                    file.preadinto(wrong, 0)
            with self.assertRaises(OverflowError):
                file.pread(1, 1 << 64)
            with self.assertRaises(OSError):
                file.pread(1, -1)

    def test_a_closed_file(self) -> None:
        for buffering in (0, -1):
            file = self.session.open("/f", "wb+", buffering=buffering)
            file.close()
            file.close()
            self.assertTrue(file.closed)
            for call in (file.read, file.tell, file.readable, lambda: file.write(b"x")):
                with self.assertRaises(ValueError):
                    call()
        raw = self.session.open("/f", "wb+", buffering=0)
        raw.close()
        for call in (raw.fsync, raw.stat, lambda: raw.pread(1, 0), lambda: raw.pwrite(b"", 0)):
            with self.assertRaises(ValueError):
                call()

    def test_a_dropped_file_is_written(self) -> None:
        file = self.session.open("/f", "wb")
        file.write(b"kept")
        del file
        self.assertEqual(self.session.read_bytes("/f"), b"kept")


if __name__ == "__main__":
    unittest.main()
