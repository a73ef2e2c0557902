"""Writers that acknowledge, for mounts whose server is killed under them.

    kill.py run KIND DIRECTORY LOG SEED [MANNER]  writes until the server is gone
    kill.py verify KIND DIRECTORY LOG SEED        ends with 1 if something acknowledged is missing

A line `A ...` in LOG says what a sync has returned for. MANNER `lie` leaves the syncs out and
acknowledges all the same: `verify` must then find a loss (the canary of the suite). `sync-all` is
for data=writeback, where a file that replaces another without a sync may lose its data. `returned`
is for durability=strict, where a call is durable when it returns: only mappings are synced, since
no call has written what is in them. `written` is for page_cache=nvram, where that holds for data
only: directories are synced, and files are not.
"""

import ctypes
import mmap
import os
import random
import sys
import time

from mounted import Log, content, read_whole, require_mounted, said, write_whole

PAGE = 4096
PAGES = 48
RECORD = 5000


class Loss(Exception):
    """Something acknowledged is not there, or is not what it was."""


def expect(condition, what):
    if not condition:
        raise Loss(what)


class Writer:
    def __init__(self, directory, log, seed, manner):
        self.directory, self.path, self.seed = directory, log, seed
        self.honest, self.sync_all = manner != 'lie', manner == 'sync-all'
        self.syncs_files = manner in ('honest', 'sync-all')
        self.syncs_directories = self.syncs_files or manner == 'written'
        self.log, self.random = Log(log), random.Random(f'{seed} {os.getpid()}')
        os.makedirs(directory, exist_ok=True)
        self.sync_directory(os.path.dirname(directory))

    def at(self, name):
        return f'{self.directory}/{name}'

    def sync(self, fd):
        if self.syncs_files:
            self.random.choice([os.fsync, os.fdatasync])(fd)

    def sync_directory(self, directory=None):
        if self.syncs_directories:
            fd = os.open(directory or self.directory, os.O_RDONLY | os.O_DIRECTORY)
            os.fsync(fd)
            os.close(fd)

    def acknowledged(self):
        return [words[1:] for words in said(self.path) if words[0] == 'A']

    def newest(self):
        """Key -> the greatest number acknowledged for it."""
        found = {}
        for key, number in self.acknowledged():
            found[key] = max(found.get(key, 0), int(number))
        return found


class Append(Writer):
    """Records behind each other in a few files; a sync every few records."""

    FILES = 5

    def record(self, file, number):
        return content(f'{self.seed} {file} {number}', 1 + (number * 7919 + file) % RECORD)

    def run(self):
        fds, counts = [], []
        for file in range(self.FILES):
            fd = os.open(self.at(f'a{file}'), os.O_RDWR | os.O_CREAT, 0o644)
            count, end = self.whole_records(file, os.pread(fd, os.fstat(fd).st_size, 0))
            os.ftruncate(fd, end)
            os.close(fd)
            fds.append(os.open(self.at(f'a{file}'), os.O_WRONLY | os.O_APPEND))
            counts.append(count)
        self.sync_directory()
        while True:
            file = self.random.randrange(self.FILES)
            for _ in range(self.random.choice([1, 1, 1, 2, 9])):
                write_whole(fds[file], self.record(file, counts[file]))
                counts[file] += 1
            self.sync(fds[file])
            self.log.say('A', file, counts[file])

    def whole_records(self, file, data):
        """How many records from the start are as written, and where they end."""
        count, end = 0, 0
        while True:
            record = self.record(file, count)
            if data[end:end + len(record)] != record:
                return count, end
            count, end = count + 1, end + len(record)

    def verify(self):
        for file, wanted in self.newest().items():
            data = read_whole(self.at(f'a{file}'))
            count, end = self.whole_records(int(file), data)
            expect(count >= wanted, f'a{file}: {wanted} records were synced, {count} are there '
                   f'({len(data)} bytes, as written up to {end})')


class Rename(Writer):
    """A new version beside, then renamed: over the old one, or to a new name."""

    FILES = 6

    def version(self, name, number):
        length = 1 + random.Random(f'{name} {number}').randrange(100_000)
        head = f'{name} {number} {length}\n'.encode()
        return head + content(f'{self.seed} {name} {number}', length)

    def run(self):
        numbers = {name: max(there, int(wanted))
                   for name, there, wanted in self.state()}
        serial = 1 + max([int(name[1:]) for name in numbers if name[0] == 'n'], default=0)
        while True:
            if self.random.randrange(3) > 0:
                name = f'r{self.random.randrange(self.FILES)}'
            else:
                name, serial = f'n{serial}', serial + 1
            number = numbers.get(name, 0) + 1
            numbers[name] = number
            fd = os.open(self.at(name + '.new'), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            write_whole(fd, self.version(name, number))
            # What replaces is whole without a sync of its own, too.
            synced = number == 1 or self.sync_all or self.random.randrange(2) > 0
            if synced:
                self.sync(fd)
            os.close(fd)
            os.rename(self.at(name + '.new'), self.at(name))
            if synced:
                self.sync_directory()
                self.log.say('A', name, number)

    def state(self):
        """Name, the number of the version there, the number acknowledged."""
        newest = self.newest()
        names = {name for name in os.listdir(self.directory) if not name.endswith('.new')}
        for name in sorted(names | set(newest)):
            wanted = newest.get(name, 0)
            if name not in names:
                expect(wanted == 0, f'{name}: version {wanted} was synced, and there is no file')
                continue
            data = read_whole(self.at(name))
            head = data.split(b'\n', 1)[0].split()
            if wanted == 0 and not (len(head) == 3 and head[0] == name.encode()):
                continue  # never synced
            expect(len(head) == 3, f'{name}: no version, but {data[:40]!r} ({len(data)} bytes)')
            number = int(head[1])
            expect(number >= wanted, f'{name}: {wanted} was synced, {number} is there')
            if wanted > 0:
                expect(data == self.version(name, number),
                       f'{name}: version {number} is not whole ({len(data)} bytes)')
            yield name, number, wanted

    def verify(self):
        for _ in self.state():
            pass


class Pages(Writer):
    """Versions of the pages of one file; a page says its version in each of its words."""

    NAME = None

    def page(self, number, version):
        return (number << 32 | version).to_bytes(8, 'little') * (PAGE // 8)

    def versions(self):
        """Page -> least and greatest version among its words."""
        data = read_whole(self.at(self.NAME))
        expect(len(data) == PAGES * PAGE, f'{self.NAME}: {len(data)} bytes')
        for number in range(PAGES):
            page = data[number * PAGE:(number + 1) * PAGE]
            words = {page[at:at + 8] for at in range(0, PAGE, 8)}
            words = {int.from_bytes(word, 'little') for word in words}
            expect(all(word >> 32 == number or word == 0 for word in words),
                   f'{self.NAME}: page {number} has words of other pages')
            versions = {word & 0xffff_ffff for word in words}
            yield number, min(versions), max(versions)

    def prepare(self):
        """The file in its full size, synced; the greatest version of each page."""
        path = self.at(self.NAME)
        if not os.path.exists(path) or os.path.getsize(path) < PAGES * PAGE:
            fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            os.ftruncate(fd, PAGES * PAGE)
            os.fsync(fd)
            os.close(fd)
            self.sync_directory()
            if not said(self.path):
                self.log.say('S')
        return [greatest for _, _, greatest in self.versions()]

    def verify(self):
        if not said(self.path):
            return
        newest, tried = self.newest(), {}
        for words in said(self.path):
            if words[0] == 'T':
                tried[words[1]] = max(tried.get(words[1], 0), int(words[2]))
        for number, least, greatest in self.versions():
            wanted = newest.get(str(number), 0)
            expect(least >= wanted, f'{self.NAME}: page {number} was synced with version '
                   f'{wanted}, and has {least} to {greatest}')
            expect(greatest <= tried.get(str(number), 0), f'{self.NAME}: page {number} has '
                   f'version {greatest}, which nobody wrote')


class Mmap(Pages):
    """Stores into a shared mapping, msync."""

    NAME = 'mapped'

    def run(self):
        versions = self.prepare()
        fd = os.open(self.at(self.NAME), os.O_RDWR)
        mapped = mmap.mmap(fd, PAGES * PAGE)
        while True:
            first = self.random.randrange(PAGES)
            numbers = range(first, min(PAGES, first + self.random.choice([1, 1, 3, 20])))
            for number in numbers:
                versions[number] += 1
                self.log.say('T', number, versions[number])
                mapped[number * PAGE:(number + 1) * PAGE] = self.page(number, versions[number])
            if self.honest:
                mapped.flush(first * PAGE, len(numbers) * PAGE)
            for number in numbers:
                self.log.say('A', number, versions[number])


class Direct(Pages):
    """Aligned writes with O_DIRECT, then fdatasync; or each with O_DSYNC."""

    NAME = 'direct'

    def run(self):
        versions = self.prepare()
        flags = os.O_RDWR | os.O_DIRECT
        plain = os.open(self.at(self.NAME), flags)
        synchronous = os.open(self.at(self.NAME), flags | os.O_DSYNC) if self.syncs_files else plain
        aligned = mmap.mmap(-1, PAGES * PAGE)
        while True:
            first = self.random.randrange(PAGES)
            numbers = range(first, min(PAGES, first + self.random.choice([1, 1, 2, 16])))
            for at, number in enumerate(numbers):
                versions[number] += 1
                self.log.say('T', number, versions[number])
                aligned[at * PAGE:(at + 1) * PAGE] = self.page(number, versions[number])
            data = memoryview(aligned)[:len(numbers) * PAGE]
            fd = self.random.choice([plain, synchronous])
            write_whole(fd, data, first * PAGE)
            if fd == plain:
                self.sync(fd)
            data.release()
            for number in numbers:
                self.log.say('A', number, versions[number])


class Sqlite(Writer):
    """Transactions of two tables, with the journal mode of the seed."""

    # Journal mode, and what makes a commit durable in it: only EXTRA syncs the directory.
    MODES = [('wal', 'FULL'), ('delete', 'EXTRA'), ('truncate', 'FULL'), ('persist', 'FULL')]

    def connect(self):
        import sqlite3
        mode, synchronous = self.MODES[int(self.seed) % len(self.MODES)]
        connection = sqlite3.connect(self.at('db'), isolation_level=None, timeout=60)
        # Durable data is not enough here: the name of the journal must be durable, too.
        if not self.syncs_directories:
            synchronous = 'OFF'
        connection.execute(f'PRAGMA journal_mode={mode}')
        connection.execute(f'PRAGMA synchronous={synchronous}')
        connection.execute('CREATE TABLE IF NOT EXISTS entries(n INTEGER PRIMARY KEY, b BLOB)')
        connection.execute('CREATE TABLE IF NOT EXISTS total(n INTEGER)')
        return connection, mode

    def blob(self, number):
        return content(f'{self.seed} {number}', number * 7919 % 3000)

    def run(self):
        connection, mode = self.connect()
        number = connection.execute('SELECT coalesce(max(n), 0) FROM entries').fetchone()[0]
        while True:
            number += 1
            connection.execute('BEGIN IMMEDIATE')
            connection.execute('INSERT INTO entries VALUES(?, ?)', (number, self.blob(number)))
            connection.execute('DELETE FROM total')
            connection.execute('INSERT INTO total VALUES(?)', (number,))
            connection.execute('COMMIT')
            # SQLite takes a directory that cannot be opened, because the server is gone, for one
            # that cannot be synced, and reports success: there only the next success proves it.
            if mode != 'delete' or os.path.isdir(self.directory):
                self.log.say('A', 'db', number)

    def verify(self):
        wanted = self.newest().get('db', 0)
        if wanted == 0:
            return
        expect(os.path.exists(self.at('db')), f'{wanted} transactions, and no database')
        connection, mode = self.connect()
        found = connection.execute('PRAGMA integrity_check').fetchall()
        expect(found == [('ok',)], f'integrity_check: {found}')
        rows = connection.execute('SELECT n, b FROM entries ORDER BY n').fetchall()
        total = connection.execute('SELECT coalesce(max(n), 0) FROM total').fetchone()[0]
        expect(len(rows) == total, f'{len(rows)} rows, the total says {total} ({mode})')
        expect(total >= wanted, f'{wanted} transactions were committed, {total} are there ({mode})')
        for at, (number, blob) in enumerate(rows, 1):
            expect(number == at and blob == self.blob(number), f'row {at} is another ({mode})')


# More would not fit into the map of LMDB, on a machine whose syncs take no time.
ENTRIES = 60_000


class KeyValue(Writer):
    """Numbered keys, each with a value that only it has; what LMDB and LevelDB share."""

    def key(self, number):
        return f'{number:08}'.encode()

    def value(self, number):
        return content(f'{self.seed} {number}', 1 + number * 7919 % 2000)

    def run(self):
        number = self.greatest() + 1
        while True:
            if number > ENTRIES:
                time.sleep(0.1)
                continue
            count = self.random.choice([1, 1, 1, 10, 40])
            self.commit(range(number, number + count))
            number += count
            self.log.say('A', 'db', number - 1)

    def verify(self):
        wanted = self.newest().get('db', 0)
        if wanted == 0:
            return
        there = 0
        for number, (key, value) in enumerate(self.items(), 1):
            expect(key == self.key(number) and value == self.value(number),
                   f'entry {number} is another: {key!r}, {len(value)} bytes')
            there = number
        expect(there >= wanted, f'{wanted} entries were committed, {there} are there')


class Lmdb(KeyValue):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        import lmdb
        self.env = lmdb.open(self.at('lmdb'), map_size=128 << 20, sync=self.honest,
                             metasync=self.honest, writemap=int(self.seed) % 2 == 1)

    def greatest(self):
        with self.env.begin() as transaction, transaction.cursor() as cursor:
            return int(cursor.key()) if cursor.last() else 0

    def commit(self, numbers):
        with self.env.begin(write=True) as transaction:
            for number in numbers:
                transaction.put(self.key(number), self.value(number))

    def items(self):
        with self.env.begin() as transaction:
            yield from transaction.cursor()


class Leveldb(KeyValue):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        import plyvel
        self.db = plyvel.DB(self.at('leveldb'), create_if_missing=True, paranoid_checks=True,
                            write_buffer_size=256 << 10)

    def greatest(self):
        with self.db.iterator(reverse=True, include_value=False) as iterator:
            return int(next(iterator, b'0'))

    def commit(self, numbers):
        with self.db.write_batch(sync=self.honest) as batch:
            for number in numbers:
                batch.put(self.key(number), self.value(number))

    def items(self):
        yield from self.db.iterator(verify_checksums=True)


KINDS = {'append': Append, 'rename': Rename, 'mmap': Mmap, 'direct': Direct,
         'sqlite': Sqlite, 'lmdb': Lmdb, 'leveldb': Leveldb}


def main():
    what, kind, directory, log, seed = sys.argv[1:6]
    require_mounted(directory)
    # Dies with who started it, also when that is killed.
    ctypes.CDLL(None).prctl(1, 9)
    if what == 'verify' and not os.path.isdir(f'{directory}/{kind}'):
        if any(words[0] == 'A' for words in said(log)):
            print(f'{kind}: all is gone, its directory too')
            sys.exit(1)
        return
    try:
        manner = sys.argv[6] if len(sys.argv) > 6 else 'honest'
        writer = KINDS[kind](f'{directory}/{kind}', log, seed, manner)
        if what == 'run':
            writer.run()
        else:
            writer.verify()
            print(f'{kind}: {len(writer.acknowledged())} acknowledgements hold')
    except Loss as loss:
        print(f'{kind}: {loss}')
        sys.exit(1)


if __name__ == '__main__':
    main()
