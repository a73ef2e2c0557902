"""What a volume promises about room, case by case, each on a fresh and mounted small volume.

    room.py CASE DIRECTORY      ends with 1 if the promise does not hold

Cases: `short-write-N` (N MiB are left), `fallocate`, `full`, `failed-fallocate`, `promise`,
`apparent-size`, `programs-N` (N rounds), in halves around a kill `replace-old`, `replace-new`,
`replace-verify`, and around an unmount `closed-write`, `closed-verify`.
"""

import errno
import os
import random
import shutil
import subprocess
import sys
import tempfile

from mounted import content, read_whole, require_mounted, write_whole

MIB = 1 << 20


class Broken(Exception):
    """A promise that does not hold."""


def expect(condition, what):
    if not condition:
        raise Broken(what)


def available(directory):
    counts = os.statvfs(directory)
    return counts.f_bavail * counts.f_frsize


def fill(directory, spare=0, piece=MIB):
    """Writes until ENOSPC, or until `spare` bytes are left; how much went in."""
    fd, done = os.open(f'{directory}/fill', os.O_WRONLY | os.O_CREAT, 0o644), 0
    try:
        while spare == 0 or available(directory) > spare:
            write_whole(fd, random.randbytes(piece))
            os.fsync(fd)
            done += piece
            expect(done < 1 << 30, 'a volume of 256 MiB took a gibibyte')
    except OSError as error:
        expect(error.errno == errno.ENOSPC, f'filling ends with {error}')
    finally:
        try:
            os.close(fd)
        except OSError as error:
            expect(error.errno == errno.ENOSPC, f'closing ends with {error}')
    return done


def short_write(directory, mib):
    """A write and a fsync that return without an error have kept every byte."""
    fill(directory, spare=mib * MIB)
    kept = 0
    for number in range(400):
        data = content(f'x{number}', (1 + number % 25) * 4096)
        path = f'{directory}/x{number}'
        fd = None
        try:
            fd = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
            written = os.write(fd, data)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            found = os.pread(fd, len(data), 0)
            expect(found == data[:written], f'{path}: write() = {written} of {len(data)}, '
                   f'fsync() = 0, {len(found)} bytes read back and are others')
            kept += 1
        except OSError as error:
            expect(error.errno == errno.ENOSPC, f'{path}: {error}')
        finally:
            try:
                if fd is not None:
                    os.close(fd)
            except OSError as error:
                expect(error.errno == errno.ENOSPC, f'{path}: close: {error}')
    expect(0 < kept < 400, f'{kept} of 400 files fit: the volume was not full, or was from the start')


def fallocate(directory):
    """What fallocate gave can be written when the rest is full."""
    length = 64 * MIB
    fd = os.open(f'{directory}/allocated', os.O_RDWR | os.O_CREAT, 0o644)
    os.posix_fallocate(fd, 0, length)
    os.fsync(fd)
    fill(directory)
    step = 65536
    try:
        for at in range(0, length, step):
            write_whole(fd, content(f'a{at}', step), at)
        os.fsync(fd)
    except OSError as error:
        raise Broken(f'the range was allocated, and writing at {at} says {error}') from error
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    wrong = [at for at in range(0, length, step) if os.pread(fd, step, at) != content(f'a{at}', step)]
    expect(not wrong, f'{len(wrong)} pieces differ, from byte {wrong[:1]}')


def full(directory):
    """Synced pages and allocated ranges can be rewritten page by page on a full volume."""
    old = os.open(f'{directory}/old', os.O_RDWR | os.O_CREAT, 0o644)
    write_whole(old, content('old', 8 * MIB))
    os.fsync(old)
    allocated = os.open(f'{directory}/allocated', os.O_RDWR | os.O_CREAT, 0o644)
    os.posix_fallocate(allocated, 0, 16 * MIB)
    os.fsync(allocated)
    fill(directory)
    fill(directory, piece=4096)
    for name, fd, length in [('a synced file', old, 8 * MIB), ('a range', allocated, 16 * MIB)]:
        for number, at in enumerate(range(0, length, 4096)):
            try:
                write_whole(fd, content(f'{name} {at}', 4096), at)
                if number % 16 == 15 or number < 300:
                    os.fsync(fd)
            except OSError as error:
                raise Broken(f'{name}: page {number} cannot be rewritten: {error}') from error
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        for at in range(0, length, 4096):
            expect(os.pread(fd, 4096, at) == content(f'{name} {at}', 4096),
                   f'{name}: byte {at} reads back otherwise')


def failed_fallocate(directory):
    """A fallocate that fails has changed nothing."""
    fd = os.open(f'{directory}/f', os.O_RDWR | os.O_CREAT, 0o644)
    os.fsync(fd)
    before = available(directory)
    # With the kernel's write-back cache an empty file shows a sector.
    sectors = os.fstat(fd).st_blocks
    expect(sectors <= 1, f'an empty file has {sectors} sectors')
    for length in [1 << 40, before + 64 * MIB]:
        try:
            os.posix_fallocate(fd, 0, length)
            raise Broken(f'{length} bytes were allocated of {before}')
        except OSError as error:
            expect(error.errno in (errno.ENOSPC, errno.EFBIG), str(error))
        stat = os.fstat(fd)
        expect(stat.st_blocks == sectors and stat.st_size == 0,
               f'after ENOSPC the file has {stat.st_blocks} sectors, {stat.st_size} bytes')
        os.fsync(fd)
        expect(available(directory) >= before - MIB,
               f'{before} bytes were free before the failed call, {available(directory)} after')


def promise(directory):
    """What statvfs says is available can be had, but for a little."""
    before = available(directory)
    fd = os.open(f'{directory}/f', os.O_RDWR | os.O_CREAT, 0o644)
    try:
        os.posix_fallocate(fd, 0, before - 512 * 1024)
    except OSError as error:
        raise Broken(f'{before} bytes are available, 512 KiB less: {error}') from error
    os.fsync(fd)
    os.unlink(f'{directory}/f')
    os.close(fd)
    after = available(directory)
    # Part of what its map took is there again after the next mount only.
    expect(after >= before - before // 120, f'{before} were available, {after} after all was deleted')


def apparent_size(directory):
    """write(2) says ENOSPC; nobody takes what there is no room for."""
    counts = os.statvfs(directory)
    size = counts.f_blocks * counts.f_frsize
    fd, done = os.open(f'{directory}/f', os.O_WRONLY | os.O_CREAT, 0o644), 0
    try:
        while done < 1 << 30:
            done += os.write(fd, bytes(MIB))
    except OSError as error:
        expect(error.errno == errno.ENOSPC, str(error))
        expect(done <= size, f'a volume of {size} bytes took {done} before it said so')
        return
    raise Broken(f'a volume of {size} bytes took a gibibyte without an error')


def programs(directory, rounds):
    """cp, tar and dd of what does not fit fail, and say why."""
    fill(directory, spare=24 * MIB)
    with tempfile.TemporaryDirectory() as scratch:
        tree, archive, target = f'{scratch}/tree', f'{scratch}/tree.tar', f'{directory}/target'
        os.mkdir(tree)
        for number in range(240):
            with open(f'{tree}/{number}', 'wb') as file:
                file.write(content(f'p{number}', 1 + number * 1100))
        subprocess.run(['tar', '-C', tree, '-cf', archive, '.'], check=True)
        for number in range(rounds):
            for command in (['cp', '-r', tree, f'{target}/copy'],
                            ['tar', '-C', target, '-xf', archive],
                            ['dd', f'if={archive}', f'of={target}/one', f'bs={4096 << number % 9}']):
                os.mkdir(target)
                done = subprocess.run(command, capture_output=True, text=True)
                expect(done.returncode != 0 and 'No space left' in done.stderr,
                       f'round {number}, {command[0]}: exit code {done.returncode}: {done.stderr}')
                shutil.rmtree(target)


CLOSED = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'closed')


def closed_write(directory):
    """Files that were written and closed without an error are noted; none is synced."""
    refused, number = 0, 0
    with open(CLOSED, 'w') as closed:
        while refused < 60:
            number += 1
            expect(number < 20_000, 'a volume of 256 MiB took 20,000 files')
            length = 1 + random.randrange(random.choice([5000, 90_000, 700_000]))
            fd = None
            try:
                fd = os.open(f'{directory}/c{number}', os.O_WRONLY | os.O_CREAT, 0o644)
                write_whole(fd, content(f'c{number}', length))
                whole = True
            except OSError as error:
                expect(error.errno == errno.ENOSPC, f'c{number}: {error}')
                whole = False
            try:
                if fd is not None:
                    os.close(fd)
            except OSError as error:
                expect(error.errno == errno.ENOSPC, f'c{number}: close: {error}')
                whole = False
            if whole:
                closed.write(f'{number} {length}\n')
            refused += not whole


def closed_verify(directory):
    with open(CLOSED) as closed:
        lines = [line.split() for line in closed]
    expect(lines, 'no file was closed without an error')
    for number, length in lines:
        data = read_whole(f'{directory}/c{number}')
        expect(data == content(f'c{number}', int(length)),
               f'c{number}: close(2) said nothing, and {len(data)} of {length} bytes are there')


NAMES = 20
LENGTH = 75_000


def replace_old(directory):
    for number in range(NAMES):
        fd = os.open(f'{directory}/b{number}', os.O_CREAT | os.O_WRONLY, 0o644)
        write_whole(fd, b'o' * LENGTH)
        os.fsync(fd)
        os.close(fd)


def replace_new(directory):
    """New files over the old ones, unsynced, then a sync of the directory they are in."""
    for number in range(NAMES):
        fd = os.open(f'{directory}/a{number}', os.O_CREAT | os.O_WRONLY, 0o644)
        write_whole(fd, b'n' * LENGTH)
        os.close(fd)
        os.rename(f'{directory}/a{number}', f'{directory}/b{number}')
    fd = os.open(directory, os.O_RDONLY)
    os.fsync(fd)


def replace_verify(directory):
    """The directory was synced, so the new file is there, with its data."""
    for number in range(NAMES):
        data = read_whole(f'{directory}/b{number}')
        expect(data == b'n' * LENGTH, f'b{number}: {len(data)} bytes, {data[:1]!r} first')


CASES = {'fallocate': fallocate, 'full': full, 'failed-fallocate': failed_fallocate,
         'promise': promise, 'apparent-size': apparent_size, 'replace-old': replace_old,
         'replace-new': replace_new, 'replace-verify': replace_verify,
         'closed-write': closed_write, 'closed-verify': closed_verify}


def main():
    case, directory = sys.argv[1:3]
    require_mounted(directory)
    try:
        if case.startswith('short-write-'):
            short_write(directory, int(case.rsplit('-', 1)[1]))
        elif case.startswith('programs-'):
            programs(directory, int(case.rsplit('-', 1)[1]))
        else:
            CASES[case](directory)
    except Broken as broken:
        print(broken)
        sys.exit(1)


if __name__ == '__main__':
    main()
