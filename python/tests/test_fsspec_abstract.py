"""The abstract tests of fsspec. They need pytest; unittest skips them."""

from __future__ import annotations

import unittest

import support

try:
    import pytest
    from fsspec.tests import abstract

    from durefs.fsspec_dure import DureFileSystem
except ImportError as error:
    if error.name not in ("fsspec", "pytest"):
        raise
    abstract = None


class Abstract(unittest.TestCase):
    @unittest.skipIf(abstract is None, "pytest and fsspec are not installed")
    def test_abstract(self) -> None:
        self.assertEqual(
            pytest.main(["-q", "-p", "no:cacheprovider", __file__, "-k", "TestDure"]), 0
        )


if abstract is not None:

    class Fixtures(abstract.AbstractFixtures):
        @pytest.fixture
        def fs(self, tmp_path):
            with support.durefs.Volume.create(tmp_path / "v.img", 64 * support.MIB) as volume:
                yield DureFileSystem(volume, auto_mkdir=True)

        @pytest.fixture
        def fs_path(self):
            return "/top"

    class TestDureCopy(abstract.AbstractCopyTests, Fixtures):
        pass

    class TestDureGet(abstract.AbstractGetTests, Fixtures):
        pass

    class TestDurePut(abstract.AbstractPutTests, Fixtures):
        pass

    class TestDureOpen(abstract.AbstractOpenTests, Fixtures):
        pass

    class TestDurePipe(abstract.AbstractPipeTests, Fixtures):
        pass


if __name__ == "__main__":
    unittest.main()
