"""rocksdb.py LIBRARIES DURE HOST ROUNDS [NAME...]: db_bench in a volume and on a file system of the host.

LIBRARIES has libdure_rocksdb.so and libdure.so.0; DURE is a URI, such as dure:///srv/v.img, HOST a
folder. Rounds are in turn; what writes has a new database each time. The database of readrandom is
larger than the memory that both sides get: a control group of 512 MiB, of which the volume's cache
is half.
"""
import os
import re
import shutil
import statistics
import subprocess
import sys

LIBRARIES, DURE, HOST, ROUNDS, *NAMES = sys.argv[1:]
MEMORY = '/sys/fs/cgroup/memory/dure-rocksdb'
PLAIN = ['--compression_type=none', '--value_size=100', '--histogram=0']
LARGE = ['--num=1500000', '--value_size=1000', '--cache_size=8388608', '--open_files=-1']

# Name: words of what is measured, words of what comes before, whether memory is short.
WORK = {
    'fillsync, 1 thread': (['--benchmarks=fillsync', '--num=%(sync)d', '--threads=1'], None, False),
    'fillsync, 8 threads': (['--benchmarks=fillsync', '--num=%(sync8)d', '--threads=8'], None, False),
    'fillrandom': (['--benchmarks=fillrandom', '--num=1500000'], None, False),
    'readrandom': (['--benchmarks=readrandom', '--reads=%(reads)d', '--threads=4', *LARGE],
                   ['--benchmarks=fillseq', *LARGE], True),
    'multireadrandom': (['--benchmarks=multireadrandom', '--multiread_batched', '--batch_size=32',
                         '--reads=%(reads)d', '--threads=2', *LARGE],
                        ['--benchmarks=fillseq', *LARGE], True),
    'readwhilewriting': (['--benchmarks=readwhilewriting', '--num=500000', '--threads=2', '--duration=10',
                          '--benchmark_write_rate_limit=2000000'],
                         ['--benchmarks=fillseq', '--num=500000'], False),
}
AMOUNT = {'sync': 20000, 'sync8': 5000, 'reads': 40000}


def limited():
    """In the child: a control group with little memory, empty of cached pages."""
    os.makedirs(MEMORY, exist_ok=True)
    with open(f'{MEMORY}/memory.limit_in_bytes', 'w') as limit:
        limit.write('512M')
    with open(f'{MEMORY}/cgroup.procs', 'w') as processes:
        processes.write(str(os.getpid()))


def bench(side, words, short):
    environment, place = dict(os.environ), [f'--db={HOST}/bench']
    if side == 'dure':
        environment['LD_PRELOAD'] = f'{LIBRARIES}/libdure_rocksdb.so'
        environment['LD_LIBRARY_PATH'] = LIBRARIES
        place = [f'--fs_uri={DURE}?options=cache=256M', '--db=/bench']
    words = [word % AMOUNT for word in words]
    done = subprocess.run(['db_bench', *place, *PLAIN, *words], env=environment, text=True,
                          capture_output=True, preexec_fn=limited if short else None)
    assert done.returncode == 0, done.stdout + done.stderr
    return float(re.search(r'([\d.]+) ops/sec [\d.]+ seconds', done.stdout).group(1))


def rate(name, side, is_first):
    words, before, short = WORK[name]
    if before:
        if is_first:
            bench(side, before, short)
        words = [*words, '--use_existing_db']
    return bench(side, words, short)


def main():
    for name in NAMES or WORK:
        shutil.rmtree(f'{HOST}/bench', ignore_errors=True)
        rates = {'host': [], 'dure': []}
        for turn in range(int(ROUNDS)):
            for side in sorted(rates, reverse=turn % 2 == 1):
                rates[side].append(rate(name, side, turn == 0))
        for side, found in rates.items():
            print(f'{name}: {side} {statistics.median(found):.0f} ({min(found):.0f} to {max(found):.0f})')
        median = {side: statistics.median(found) for side, found in rates.items()}
        print(f'{name}: ratio {median["dure"] / median["host"]:.2f}', flush=True)


main()
