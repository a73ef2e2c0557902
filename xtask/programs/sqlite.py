"""sqlite.py EXTENSION FOLDER ROUNDS COMMITS MODES: commits a second, in a volume and beside it.

EXTENSION is the path of libdure_sqlite.so, FOLDER/v.img a volume in an allocated file, MODES journal
modes with commas. Rounds are in turn; each has a new table, which is whole at the end.
"""
import os
import sqlite3
import statistics
import sys
import time

EXTENSION, FOLDER, ROUNDS, COMMITS, MODES = sys.argv[1:]


def connect(uri):
    return sqlite3.connect(uri, uri=True, isolation_level=None)


def rate(uri, mode):
    database = connect(uri)
    database.execute(f'PRAGMA journal_mode={mode}')
    database.execute('PRAGMA synchronous=FULL')
    database.execute('DROP TABLE IF EXISTS t')
    database.execute('CREATE TABLE t(n INTEGER PRIMARY KEY, payload BLOB)')
    payload = os.urandom(100)

    def insert(numbers):
        for n in numbers:
            database.execute('INSERT INTO t VALUES(?, ?)', (n, payload))

    insert(range(100))
    begin = time.perf_counter()
    insert(range(100, 100 + int(COMMITS)))
    seconds = time.perf_counter() - begin
    assert database.execute('PRAGMA integrity_check').fetchone() == ('ok',)
    database.close()
    return int(COMMITS) / seconds


def main():
    loader = connect(':memory:')
    loader.enable_load_extension(True)
    loader.load_extension(EXTENSION)
    image = os.path.join(FOLDER, 'v.img')
    # Keeps the volume open between the rounds.
    kept = connect(f'file:{image}/kept?vfs=dure')
    kept.execute('CREATE TABLE IF NOT EXISTS t(a)')
    for mode in MODES.split(','):
        host, dure = [], []
        for _ in range(int(ROUNDS)):
            host.append(rate(f'file:{FOLDER}/{mode}.db', mode))
            dure.append(rate(f'file:{image}/{mode}.db?vfs=dure', mode))
        for name, rates in (('host', host), ('dure', dure)):
            print(f'{mode} {name} {statistics.median(rates):.0f} ({min(rates):.0f} to {max(rates):.0f})')
        print(f'{mode} ratio {statistics.median(dure) / statistics.median(host):.2f}', flush=True)


main()
