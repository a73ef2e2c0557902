"""What a call costs, compared with the same call of `os` on tmpfs: microseconds, least of 5 runs."""

from __future__ import annotations

import os
import sys
import tempfile
import timeit
from collections.abc import Callable

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import durefs  # noqa: E402

MIB = 1 << 20


def microseconds(call: Callable[[], object], calls: int) -> float:
    return min(timeit.repeat(call, number=calls, repeat=5)) / calls * 1e6


def main() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        with durefs.Volume.create(f"{folder}/v.img", 256 * MIB) as volume:
            session = volume.session()
            session.write_bytes("/f", bytes(MIB))
            file = session.open("/f", "r+b", buffering=0)
            other = f"{folder}/f"
            with open(other, "wb") as made:
                made.write(bytes(MIB))
            fd = os.open(other, os.O_RDWR)
            page, large = bytes(4096), bytearray(MIB)
            for name, calls, dure, tmpfs in (
                (
                    "pread of 4 KiB",
                    20000,
                    lambda: file.pread(4096, 0),
                    lambda: os.pread(fd, 4096, 0),
                ),
                (
                    "pwrite of 4 KiB",
                    20000,
                    lambda: file.pwrite(page, 0),
                    lambda: os.pwrite(fd, page, 0),
                ),
                (
                    "read of 1 MiB in place",
                    1000,
                    lambda: file.preadinto(large, 0),
                    lambda: os.preadv(fd, [large], 0),
                ),
                ("stat", 20000, lambda: session.stat("/f"), lambda: os.stat(other)),
                (
                    "open and close",
                    5000,
                    lambda: session.open("/f", "rb", buffering=0).close(),
                    lambda: open(other, "rb", buffering=0).close(),
                ),
            ):
                print(f"{name:24}{microseconds(dure, calls):8.1f}{microseconds(tmpfs, calls):8.1f}")
            os.close(fd)


if __name__ == "__main__":
    main()
