"""Programs on a volume that is too small for them, for mounts whose server is killed under them.

    enospc.py fill|map|write|preallocate|delete DIRECTORY LOG SEED [lie]    until the server is gone
    enospc.py verify DIRECTORY LOGS      ends with 1 if a file whose fsync returned 0 is not whole

LOG is LOGS/ROLE-NUMBER.log. Room may be refused to those who fill, with write(2) or through a
mapping (`map`), never to those who write where a block is theirs already: `write` rewrites a synced file, `preallocate` one that fallocate gave its
blocks. `lie` acknowledges without a sync: `verify` must then find a loss.
"""

import ctypes
import errno
import mmap
import os
import random
import sys
import time

from mounted import Log, content, read_whole, require_mounted, said, write_whole

PAGE = 4096
PAGES = 1024


class Loss(Exception):
    """Something that must hold does not."""


def out_of_room(error):
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def gone(error):
    """The server was killed."""
    return error.errno in (errno.ENOTCONN, errno.ECONNABORTED, errno.EIO)


def fill(directory, log, name, randomly, honest):
    """File after file; what fsync returned 0 for is acknowledged, whatever write said."""
    own = f'{directory}/{name}'
    os.makedirs(own, exist_ok=True)
    number = 0
    while True:
        number += 1
        path, key = f'{own}/{number}', f'{name}/{number}'
        length = randomly.choice([3000, 20_000, 90_000, 400_000, 3_000_000])
        length = 1 + randomly.randrange(length)
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        except OSError as error:
            if not out_of_room(error):
                raise
            time.sleep(0.02)
            continue
        data = content(key, length)
        try:
            at = 0
            piece = randomly.choice([4096, 7000, 131_072, 1 << 20])
            while at < length:
                # A short count is no error: what it leaves out does not count as written.
                at += os.pwrite(fd, data[at:at + piece], at)
            if honest:
                os.fsync(fd)
            log.say('A', key, length)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            if honest and os.pread(fd, length, 0) != data:
                raise Loss(f'{key}: {length} bytes, fsync returned 0, reads back otherwise')
        except OSError as error:
            if not out_of_room(error):
                raise
            time.sleep(0.01)
        finally:
            close(fd)


def fill_mapped(directory, log, name, randomly, honest):
    """The same through shared mappings, whose pages are refused at fsync at the earliest."""
    own = f'{directory}/{name}'
    os.makedirs(own, exist_ok=True)
    number = 0
    while True:
        number += 1
        key = f'{name}/{number}'
        length = 1 + randomly.randrange(randomly.choice([3000, 90_000, 1_000_000]))
        fd = None
        try:
            fd = os.open(f'{own}/{number}', os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
            os.ftruncate(fd, length)
            with mmap.mmap(fd, length) as pages:
                pages[:] = content(key, length)
                if honest:
                    pages.flush()
                    os.fsync(fd)
            log.say('A', key, length)
        except OSError as error:
            if not out_of_room(error):
                raise
            time.sleep(0.02)
        finally:
            if fd is not None:
                close(fd)


def close(fd):
    try:
        os.close(fd)
    except OSError as error:
        if not (out_of_room(error) or gone(error)):
            raise


def page(name, number, version):
    return f'{name} {number} {version} '.encode().ljust(32, b'.') * (PAGE // 32)


def prepare(directory, log, name):
    """The file all of whose pages have a block that is durable."""
    path = f'{directory}/{name}'
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    if name.startswith('write'):
        for number in range(PAGES):
            write_whole(fd, page(name, number, 0), number * PAGE)
    else:
        os.posix_fallocate(fd, 0, PAGES * PAGE)
    os.fsync(fd)
    parent = os.open(directory, os.O_RDONLY)
    os.fsync(parent)
    os.close(parent)
    log.say('S', name)
    return fd


def rewrite(directory, log, name, randomly, honest):
    """New versions of pages. Nothing may fail: the pages have their blocks."""
    fd = prepare(directory, log, name)
    versions = [0] * PAGES
    while True:
        first = randomly.randrange(PAGES)
        numbers = range(first, min(PAGES, first + randomly.choice([1, 1, 4, 64, 300])))
        for number in numbers:
            versions[number] += 1
        log.say('T', name, first, len(numbers), *(versions[n] for n in numbers))
        data = b''.join(page(name, number, versions[number]) for number in numbers)
        try:
            write_whole(fd, data, first * PAGE)
            if honest:
                os.fsync(fd)
        except OSError as error:
            if out_of_room(error):
                raise Loss(f'{name}: pages {first} to {numbers[-1]} have blocks, and rewriting '
                           f'them says {errno.errorcode[error.errno]}') from error
            raise
        log.say('A', name, first, len(numbers), *(versions[n] for n in numbers))


def delete(directory, log, randomly):
    """Removes files of those who fill; each is named before."""
    while True:
        own = f'{directory}/fill-{randomly.randrange(12)}'
        names = os.listdir(own) if os.path.isdir(own) else []
        for name in randomly.sample(names, min(len(names), randomly.choice([1, 2, 8]))):
            path = f'{own}/{name}'
            log.say('D', f'{os.path.basename(own)}/{name}')
            try:
                os.unlink(path)
            except FileNotFoundError:
                pass  # another was faster
        time.sleep(randomly.random() * 0.02)


def verify(directory, logs):
    """Everything acknowledged and not deleted is whole; the number of files and pages."""
    lines = [(log, words) for log in sorted(os.listdir(logs)) for words in said(f'{logs}/{log}')]
    deleted = {words[1] for _, words in lines if words[0] == 'D'}
    files, pages, losses = 0, 0, []
    for _, words in lines:
        if words[0] == 'A' and words[1].startswith(('fill', 'map')) and words[1] not in deleted:
            files += 1
            key, length = words[1], int(words[2])
            wrong = difference(f'{directory}/{key}', content(key, length))
            if wrong:
                losses.append(f'{key}: {length} bytes were synced: {wrong}')
    for name in sorted({words[1] for _, words in lines if words[0] == 'S'}):
        pages += PAGES
        losses.extend(wrong_pages(directory, name, lines))
    if losses:
        shown = '\n'.join(losses[:8])
        raise Loss(f'{len(losses)} of {files} files and {pages} pages were lost:\n{shown}')
    return files, pages


def difference(path, wanted):
    """How the file is not what it must be, or None."""
    try:
        found = read_whole(path)
    except OSError as error:
        return str(error)
    if found == wanted:
        return None
    if len(found) != len(wanted):
        return f'{len(found)} bytes are there'
    at = next(at for at in range(len(wanted)) if found[at] != wanted[at])
    zero = ', zeroes from there' if not any(found[at:]) else ''
    return f'differs from byte {at}{zero}'


def wrong_pages(directory, name, lines):
    """Pages that are older than their last sync, newer than what was tried, or mixed."""
    least, most = [0] * PAGES, [0] * PAGES
    for _, words in lines:
        if words[0] in 'TA' and words[1] == name:
            bound = most if words[0] == 'T' else least
            for number, version in enumerate(words[4:], int(words[2])):
                bound[number] = int(version)
    data = read_whole(f'{directory}/{name}')
    for number in range(PAGES):
        found = data[number * PAGE:(number + 1) * PAGE]
        if not any(found) and name.startswith('prealloc') and least[number] == 0:
            continue
        words = found[:32].split()
        version = int(words[2]) if len(words) > 2 and words[2].isdigit() else None
        whole = version is not None and found == page(name, number, version)
        if not whole or not least[number] <= version <= most[number]:
            yield (f'{name}: page {number}: version {least[number]} was synced, '
                   f'{most[number]} tried, {found[:32]!r} is there, whole: {whole}')


def main():
    role, directory, log = sys.argv[1:4]
    require_mounted(directory)
    ctypes.CDLL(None).prctl(1, 9)
    try:
        if role == 'verify':
            files, pages = verify(directory, log)
            print(f'{files} files and {pages} pages hold')
            return
        name, honest = os.path.basename(log).removesuffix('.log'), sys.argv[5:] != ['lie']
        randomly = random.Random(f'{sys.argv[4]} {name}')
        if role == 'fill':
            fill(directory, Log(log), name, randomly, honest)
        elif role == 'map':
            fill_mapped(directory, Log(log), name, randomly, honest)
        elif role == 'delete':
            delete(directory, Log(log), randomly)
        else:
            rewrite(directory, Log(log), name, randomly, honest)
    except Loss as loss:
        print(loss)
        sys.exit(1)
    except OSError as error:
        if not gone(error):
            raise
        sys.exit(4)


if __name__ == '__main__':
    main()
