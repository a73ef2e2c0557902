"""The programs of the page for Python run."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import unittest

from support import PACKAGE

PAGE = os.path.join(os.path.dirname(PACKAGE), "docs/user/python.md")


class Page(unittest.TestCase):
    def test_the_first_lines_run(self) -> None:
        with open(PAGE, encoding="utf-8") as page:
            code = page.read().split("```python\n")[1].split("```")[0]
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, "-c", code],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": PACKAGE},
                capture_output=True,
                text=True,
            )
        self.assertEqual((done.stdout, done.stderr), ("/notes/2026/today 14\n", ""))


if __name__ == "__main__":
    unittest.main()
