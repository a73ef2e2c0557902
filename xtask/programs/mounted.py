"""What the programs of the suites share: see that a volume is mounted, and acknowledge.

A program that runs on the directory below a mount that is not there would pass whatever the file
system does, so each looks first. Acknowledgements go to a file outside of the volume, one line a
write(2), because a killed server must not take them along.
"""

import os
import random
import sys


def require_mounted(directory):
    """Ends with 3 unless a FUSE file system is mounted on `directory`."""
    directory = os.path.realpath(directory)
    with open('/proc/self/mountinfo') as table:
        for line in table:
            words = line.split(' ')
            if words[4] == directory and words[words.index('-') + 1].startswith('fuse'):
                return
    print(f'{directory}: nothing of ours is mounted there', file=sys.stderr)
    sys.exit(3)


class Log:
    """Lines that outlive the server: `A` what is durable, `T` what is about to be tried."""

    def __init__(self, path):
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def say(self, *words):
        os.write(self.fd, (' '.join(map(str, words)) + '\n').encode())


def said(path):
    """The lines of a log, as lists of words."""
    if not os.path.exists(path):
        return []
    with open(path) as log:
        return [line.split() for line in log.read().splitlines()]


def content(key, length):
    """`length` bytes that only `key` gives."""
    return random.Random(key).randbytes(length)


def write_whole(fd, data, offset=None):
    """Every byte of `data`, or an exception: a short write is followed by the rest."""
    done = 0
    while done < len(data):
        rest = memoryview(data)[done:]
        n = os.write(fd, rest) if offset is None else os.pwrite(fd, rest, offset + done)
        if n == 0:
            raise OSError('write returned 0')
        done += n


def read_whole(path):
    """All that is in the file."""
    with open(path, 'rb') as file:
        return file.read()
