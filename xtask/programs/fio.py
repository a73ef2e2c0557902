"""fio.py ENGINE VOLUME DIRECTORY N SECONDS DURE: fio on a volume, on a directory of the same device.

ENGINE is what fio/build made, VOLUME an image or device with an empty volume, DIRECTORY one of ext4.
Runs are in turn, and each has its SECONDS; the first of each, which lays the file out, does not count.
Calls a second, medians of N, with the least and the most; the rate on the volume by that in the
directory; `dure bench device` of the same calls, by the program DURE, and the volume by that. All
these threads stay on one core.
"""
import json
import os
import statistics
import subprocess
import sys

ENGINE, VOLUME, DIRECTORY, ROUNDS, SECONDS, DURE = sys.argv[1:]
MISSES = 'filename=large\nsize=512M\nrw=randread\nnorandommap=1\n'
# Its name; what both do; what the job on the volume says, and that in the directory; the workload of
# `dure bench device`, and the MiB of its file.
WORKLOADS = [
    ('randwrite + fsync', 'filename=over\nsize=256M\nrw=randwrite\noverwrite=1\nfsync=1\n',
     '', 'ioengine=psync\n', ('overwrite-fsync', 256)),
    ('randread, cached', 'filename=hot\nsize=64M\nrw=randread\nnorandommap=1\ngtod_reduce=1\ninvalidate=0\n',
     'mount_options=cache=256M\n', 'ioengine=psync\n', None),
    ('randread, depth 1', MISSES, '', 'ioengine=psync\ndirect=1\n', ('random-read', 512)),
    ('randread, depth 32', MISSES, 'iodepth=32\n', 'ioengine=io_uring\niodepth=32\ndirect=1\n',
     ('random-read-deep', 512)),
]


def said(command, text=None):
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f'{command}\n{text}\n{done.stderr}{done.stdout}')
    return json.loads(done.stdout[min(at for at in map(done.stdout.find, '{[') if at >= 0):])


def by_fio(lines, is_cached):
    # A job before reads the file, and leaves it in memory.
    warm = '[warm]\nrw=read\nbs=64k\n' if is_cached else ''
    timed = f'[timed]\nstonewall\ntime_based=1\nruntime={SECONDS}\n'
    last = said(['fio', '--output-format=json', '-'], f'[global]\nbs=4k\ncpus_allowed=0\n{lines}{warm}{timed}')['jobs'][-1]
    return last['read']['iops'] + last['write']['iops']


def by_bench(workload, mib):
    target = f'dure:{VOLUME},cache=64M'
    return said([
        DURE, 'bench', 'device', '--json', '--threads', '1', '--repeat', '1', '--seconds', SECONDS,
        '--workload', workload, '--file-mib', str(mib), '--target', target,
    ])[0]['ops_per_second']


def shown(rates):
    return f'{statistics.median(rates):.0f} ({min(rates):.0f} to {max(rates):.0f})'


def main():
    engine = f'ioengine=external:{os.path.abspath(ENGINE)}\nvolume={VOLUME}\nthread=1\nmount_options=cache=64M\n'
    for name, both, volume, directory, bench in WORKLOADS:
        found = {'volume': [], 'directory': [], 'bench': []}
        for turn in range(int(ROUNDS) + 1):
            now = {
                'volume': by_fio(both + engine + volume, bench is None),
                'directory': by_fio(f'{both}directory={DIRECTORY}\n{directory}', bench is None),
                'bench': by_bench(*bench) if bench else 0.0,
            }
            if turn > 0:
                for kind, rate in now.items():
                    found[kind].append(rate)
        of_volume = statistics.median(found['volume'])
        line = [name, shown(found['volume']), shown(found['directory']),
                f"{of_volume / statistics.median(found['directory']):.2f}"]
        if bench:
            line += [shown(found['bench']), f"{of_volume / statistics.median(found['bench']):.2f}"]
        print(' | '.join(line), flush=True)


main()
