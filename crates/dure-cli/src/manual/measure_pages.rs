//! Pages of commands that measure. Their examples take minutes, or a disk of the reader: a test only
//! parses them.

use super::{Page, STATUS, page};

/// The pages, in the order of the commands.
pub(super) const PAGES: &[Page] = &[
    page(
        "bench",
        &[
            ("All that there is to measure", "dure bench --help"),
            (
                "Quickly, compared with the file system of this directory",
                "dure bench micro --target dure:. --target dir:. --milliseconds 200",
            ),
        ],
        STATUS,
    ),
    page(
        "bench micro",
        &[
            (
                "Single calls on a volume and on the file system of this directory",
                "dure bench micro --target dure:v.img --target dir:.",
            ),
            (
                "One of them, with one and two threads",
                "dure bench micro --workload read --cores 1,2",
            ),
        ],
        STATUS,
    ),
    page(
        "bench fxmark",
        &[(
            "Two workloads on a volume and on the file system of this directory, drawn",
            "dure bench fxmark --workload DWOL --workload MWCL --target dure:v.img --target dir:. --svg fxmark.svg",
        )],
        STATUS,
    ),
    page(
        "bench filebench",
        &[(
            "A mail server",
            "dure bench filebench --personality varmail --target dure:v.img --target dir:.",
        )],
        STATUS,
    ),
    page(
        "bench aim7",
        &[(
            "Sixteen users on a volume",
            "dure bench aim7 --users 16 --target dure:v.img",
        )],
        STATUS,
    ),
    page(
        "bench compare",
        &[
            (
                "The figures of Z-Journal on this machine, as a page to look at",
                "dure bench compare --paper zjournal --html zjournal.html",
            ),
            (
                "One of them, briefly",
                "dure bench compare --paper blk-mq --figure 001-3 --threads 2 --seconds 0.1 --repeat 3",
            ),
        ],
        STATUS,
    ),
    page(
        "bench journal",
        &[(
            "Two policies of the journal on a device with a slow flush",
            "dure bench journal --policy journal=per-core --policy journal=jbd2 --delay 20,1000",
        )],
        STATUS,
    ),
    page(
        "bench directory",
        &[(
            "A directory of a hundred thousand names",
            "dure bench directory --entries 100000 --target dure:v.img --target dir:.",
        )],
        STATUS,
    ),
    page(
        "bench aged",
        &[(
            "Volumes that are 80 % full, half of that rewritten",
            "dure bench aged --full 80 --churn 50",
        )],
        STATUS,
    ),
    page(
        "bench buffered",
        &[(
            "Appends with and without a limit of dirty pages",
            "dure bench buffered --dirty-limit half --dirty-limit none",
        )],
        STATUS,
    ),
    page(
        "bench checkpoint",
        &[(
            "Checkpoints by one task and by four",
            "dure bench checkpoint --tasks 1,4",
        )],
        STATUS,
    ),
    page(
        "bench tpcc",
        &[(
            "Dirty pages in persistent memory and on a disk, drawn",
            "dure bench tpcc --transactions 2000 --svg tpcc.svg",
        )],
        STATUS,
    ),
    page(
        "bench recovery",
        &[(
            "Recovery of logs full of fsyncs, by one thread and by two",
            "dure bench recovery --logs fsyncs --threads 1,2",
        )],
        STATUS,
    ),
    page(
        "bench blk",
        &[(
            "Random reads of a disk, 32 at a time",
            "dure bench blk --device /dev/nvme0n1 --rw randread --iodepth 32",
        )],
        STATUS,
    ),
    page(
        "bench mount",
        &[(
            "With and without the kernel's write-back cache",
            "dure bench mount --options writethrough --options writeback",
        )],
        STATUS,
    ),
    page(
        "bench device",
        &[(
            "Random reads that miss, by up to 32 threads, past the kernel's cache too",
            "dure bench device --workload random-read --threads 1,8,32 --directio --target dure:v.img,cache=128M --target dir:.",
        )],
        STATUS,
    ),
    page(
        "bench locks",
        &[(
            "Two range locks, by one thread and by two",
            "dure bench locks --range-lock segment --range-lock tree --cores 1,2",
        )],
        STATUS,
    ),
    page(
        "blk",
        &[(
            "What limits a disk",
            "dure blk analyze --device /dev/nvme0n1",
        )],
        STATUS,
    ),
    page(
        "blk analyze",
        &[(
            "What limits a disk, as a page to look at; it only reads",
            "dure blk analyze --device /dev/nvme0n1 --html disk.html",
        )],
        STATUS,
    ),
    page(
        "blk trace",
        &[(
            "A load that dure makes",
            "dure blk trace run --device ram --iodepth 32",
        )],
        STATUS,
    ),
    page(
        "blk trace run",
        &[(
            "A load that dure makes",
            "dure blk trace run --device ram --iodepth 32 --jobs 2",
        )],
        STATUS,
    ),
    page(
        "blk trace blkparse",
        &[(
            "What blktrace(8) has recorded",
            "blktrace -d /dev/nvme0n1 -w 5 -o - | blkparse -i - | dure blk trace blkparse -",
        )],
        STATUS,
    ),
    page(
        "blk trace kernel",
        &[(
            "What all programs do on a disk in five seconds",
            "dure blk trace kernel /dev/nvme0n1 --seconds 5",
        )],
        STATUS,
    ),
    page(
        "blk export",
        &[(
            "A file as a block device of the kernel",
            "dure blk export --ublk --device disk.img --size 10G",
        )],
        STATUS,
    ),
];
