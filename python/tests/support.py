"""What the tests share: a folder, and a volume in it."""

from __future__ import annotations

import os
import sys
import tempfile
import unittest

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, PACKAGE)
if "/" in os.environ.get("DURE_LIBRARY", ""):
    # Programs of the tests run in other folders.
    os.environ["DURE_LIBRARY"] = os.path.abspath(os.environ["DURE_LIBRARY"])

import durefs  # noqa: E402

MIB = 1 << 20


class VolumeTest(unittest.TestCase):
    """Each test has a new volume `self.volume` and a root session `self.session`."""

    size = 64 * MIB

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="durefs-")
        self.addCleanup(folder.cleanup)
        self.image = os.path.join(folder.name, "v.img")
        self.volume = durefs.Volume.create(self.image, size=self.size)
        self.addCleanup(self.close)
        self.session = self.volume.session()

    def close(self) -> None:
        self.volume.close()

    def reopen(self, options: durefs._volume.Options = None) -> None:
        self.volume.close()
        self.volume = durefs.Volume.open(self.image, options)
        self.session = self.volume.session()
