"""The file system of fsspec; pandas and pyarrow on it where they are installed."""

from __future__ import annotations

import importlib.util
import os
import unittest

from support import MIB, VolumeTest, durefs

try:
    import fsspec

    from durefs import fsspec_dure
    from durefs.fsspec_dure import DureFileSystem

    fsspec.register_implementation("dure", DureFileSystem, clobber=True)
except ImportError as error:
    if error.name != "fsspec":
        raise
    fsspec = None


def has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


@unittest.skipIf(fsspec is None, "fsspec is not installed")
class Fsspec(VolumeTest):
    def setUp(self) -> None:
        super().setUp()
        self.volume.close()
        self.options = {"volume": self.image, "auto_mkdir": True}
        self.fs = fsspec.filesystem("dure", **self.options)
        self.addCleanup(self.fs.close)

    def test_urls(self) -> None:
        for url in ("dure:///a/b", "dure://a/b", "/a/b", "a/b/", "dure:/a/b"):
            self.assertEqual(DureFileSystem._strip_protocol(url), "/a/b")
        for url in ("dure://", "dure:///", "/", ""):
            self.assertEqual(DureFileSystem._strip_protocol(url), "/")
        with fsspec.open("dure:///x/y", "w", **self.options) as file:
            file.write("sown")
        with fsspec.open("dure:///x/y", "r", **self.options) as file:
            self.assertEqual(file.read(), "sown")
        self.assertEqual(self.fs.unstrip_protocol("/x/y"), "dure:///x/y")
        with self.assertRaises(ValueError):
            fsspec.filesystem("dure")

    def test_ls_and_info(self) -> None:
        self.fs.pipe("/d/f", b"12345")
        self.fs.symlink("f", "/d/link")
        self.fs.symlink("nowhere", "/d/gone")
        found = {one["name"]: one for one in self.fs.ls("/d")}
        self.assertEqual(sorted(found), ["/d/f", "/d/gone", "/d/link"])
        self.assertEqual((found["/d/f"]["size"], found["/d/f"]["type"]), (5, "file"))
        self.assertEqual(found["/d/link"]["size"], 5)
        self.assertEqual(found["/d/link"]["destination"], "f")
        self.assertEqual(self.fs.ls("/d/f", detail=False), ["/d/f"])
        self.assertEqual(self.fs.info("/")["type"], "directory")
        self.assertEqual(self.fs.find("/"), ["/d/f", "/d/gone", "/d/link"])
        self.assertEqual(self.fs.glob("/d/*n*"), ["/d/gone", "/d/link"])
        self.assertEqual(self.fs.du("/d/f"), 5)
        with self.assertRaises(FileNotFoundError):
            self.fs.ls("/none")
        self.assertLessEqual(self.fs.created("/d/f"), self.fs.modified("/d/f"))

    def test_cat_with_bounds(self) -> None:
        content = bytes(range(100))
        self.fs.pipe("/f", content)
        for bounds in ((None, None), (3, None), (None, 7), (3, 7), (-5, None), (-5, -2), (90, 200)):
            part = self.fs.cat_file("/f", *bounds)
            self.assertEqual(part, content[slice(*bounds)], bounds)
        self.assertEqual(self.fs.cat_ranges(["/f"] * 2, [0, 5], [2, 6]), [b"\0\1", b"\5"])
        self.assertEqual(self.fs.tail("/f", 3), content[-3:])

    def test_changes(self) -> None:
        self.fs.pipe("/a/f", b"1")
        with self.assertRaises(FileExistsError):
            self.fs.pipe_file("/a/f", b"2", mode="create")
        self.fs.touch("/a/f", truncate=False)
        self.assertEqual(self.fs.cat("/a/f"), b"1")
        self.fs.touch("/a/f")
        self.assertEqual(self.fs.size("/a/f"), 0)
        self.fs.pipe("/a/f", b"1")
        self.fs.copy("/a", "/b", recursive=True)
        self.assertEqual(self.fs.cat("/b/f"), b"1")
        self.fs.mv("/b", "/c")
        self.fs.mv("/c", "/a")
        self.assertEqual(self.fs.cat("/a/c/f"), b"1")
        with self.assertRaises(ValueError):
            self.fs.rm("/a")
        self.fs.rm("/a/c/*")
        self.assertEqual(self.fs.ls("/a/c"), [])
        self.fs.rm("/", recursive=True)
        self.assertEqual(self.fs.ls("/"), [])
        self.fs.mkdir("/m/n")
        with self.assertRaises(FileExistsError):
            self.fs.mkdir("/m/n")
        self.fs.rmdir("/m/n")

    def test_transactions(self) -> None:
        self.fs.pipe("/f", b"old")
        with self.fs.transaction:
            with self.fs.open("/f", "wb") as file:
                file.write(b"new")
            self.assertEqual(self.fs.cat("/f"), b"old")
        self.assertEqual(self.fs.cat("/f"), b"new")
        with self.assertRaises(KeyError):
            with self.fs.transaction:
                with self.fs.open("/g", "wb") as file:
                    file.write(b"never")
                raise KeyError
        self.assertEqual(self.fs.ls("/", detail=False), ["/f"])

    def test_one_volume_for_all_callers(self) -> None:
        self.fs.pipe("/f", b"1")
        self.fs.session.chmod("/f", 0o600)
        other = fsspec.filesystem("dure", volume=self.image, uid=5)
        self.assertIs(other.volume, self.fs.volume)
        with self.assertRaises(PermissionError):
            other.cat("/f")
        self.fs.close()
        self.assertEqual(self.fs.cat("/f"), b"1")
        self.fs.sync()

    def test_volumes_that_are_given_or_made(self) -> None:
        made = fsspec.filesystem("dure", volume=self.image + "2", create_size=16 * MIB)
        made.pipe("/f", b"1")
        made.close()
        with durefs.Volume.open(self.image + "2") as volume:
            given = DureFileSystem(volume)
            self.assertEqual(given.cat("/f"), b"1")
            given.close()
            self.assertEqual(given.cat("/f"), b"1")
        with self.assertRaises(ValueError):
            given.cat("/f")
        self.assertNotIn(os.path.realpath(self.image + "3"), fsspec_dure._shared)

    @unittest.skipUnless(has("pandas"), "pandas is not installed")
    def test_pandas(self) -> None:
        import pandas

        frame = pandas.DataFrame({"n": range(1000), "text": [str(n) for n in range(1000)]})
        frame.to_csv("dure:///t/frame.csv", index=False, storage_options=self.options)
        back = pandas.read_csv(
            "dure:///t/frame.csv", storage_options=self.options, dtype={"text": str}
        )
        self.assertEqual(back.values.tolist(), frame.values.tolist())
        if has("pyarrow"):
            frame.to_parquet("dure:///t/frame.parquet", storage_options=self.options)
            back = pandas.read_parquet("dure:///t/frame.parquet", storage_options=self.options)
            self.assertEqual(back.values.tolist(), frame.values.tolist())

    @unittest.skipUnless(has("pyarrow"), "pyarrow is not installed")
    def test_pyarrow(self) -> None:
        import pyarrow
        import pyarrow.dataset
        import pyarrow.parquet

        table = pyarrow.table({"key": [n % 4 for n in range(5000)], "n": list(range(5000))})
        pyarrow.parquet.write_to_dataset(table, "/set", partition_cols=["key"], filesystem=self.fs)
        dataset = pyarrow.dataset.dataset("/set", filesystem=self.fs, partitioning="hive")
        self.assertEqual(sorted(dataset.to_table()["n"].to_pylist()), list(range(5000)))


if __name__ == "__main__":
    unittest.main()
