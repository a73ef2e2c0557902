//! What the block layer adds to the system calls, and when a ring pays.
//!
//! `cargo run --release -p dure-block --example cost -- FILE` where FILE is an image file or block
//! device **whose content is overwritten**.

#![expect(clippy::print_stdout, reason = "a program that prints a table")]

use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use dure_block::file::{Engine, OpenOptions, open_file};
use dure_block::null::NullDevice;
use dure_block::ram::RamDevice;
use dure_block::{Bio, BlockBuf, Device, Io, Lba, Merge, Queue, QueueConfig, WriteFlags, share};
use dure_sync::clock::monotonic_ns;
use dure_sync::{Arc, CoreId, thread};

const ROUNDS: u64 = 15;
/// Requests of a job in each of its rounds.
const SUBMITTED: u64 = 320_000;

/// Median and least nanoseconds per call of `body`, over rounds of `calls` calls each.
fn measure(calls: u64, mut body: impl FnMut(u64)) -> (u64, u64) {
    let mut rounds: Vec<u64> = (0..ROUNDS)
        .map(|_| {
            let start = monotonic_ns();
            (0..calls).for_each(&mut body);
            (monotonic_ns() - start) / calls
        })
        .collect();
    rounds.sort_unstable();
    (rounds[rounds.len() / 2], rounds[0])
}

fn print(what: &str, (median, least): (u64, u64)) {
    println!("{what:<58} {median:>8} {least:>8}");
}

fn batches(queue: &Queue, write: bool, depth: u64, bufs: &mut Vec<BlockBuf>, round: u64) {
    let bios: Vec<_> = (0..depth)
        .map(|n| {
            let lba = Lba::new((round * depth + n) % 1024);
            let buf = bufs
                .pop()
                .unwrap_or_else(|| BlockBuf::from_slice(&[3; 4096]));
            if write {
                Bio::write(lba, buf)
            } else {
                Bio::read(lba, buf)
            }
        })
        .collect();
    for ticket in queue.submit_all(bios).expect("the requests are in range") {
        bufs.extend(
            queue
                .wait(ticket)
                .into_segments()
                .expect("the device works"),
        );
    }
}

/// A second descriptor, to make the same calls without dure.
fn bare_file(path: &Path) -> std::fs::File {
    std::fs::OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(path)
        .expect("it was open before")
}

/// The bare system calls, the device and the queue.
fn file_costs(path: &Path) -> Result<(), dure_block::Error> {
    let buf = BlockBuf::from_slice(&[3; 4096]);
    let options = OpenOptions {
        engine: Engine::Auto,
        ..OpenOptions::default()
    };
    let device: Arc<dyn Device> = share(open_file(path, options)?);
    println!("{:?}", device.info());
    let queue = Queue::new(Arc::clone(&device), QueueConfig::default());
    for block in 0..1024 {
        queue.write(Lba::new(block), buf.as_slice(), WriteFlags::NONE)?;
    }
    let lba = |n: u64| Lba::new(n % 1024);
    let file = bare_file(path);
    for _ in 0..2 {
        let write = |n: u64| {
            file.write_all_at(buf.as_slice(), n % 1024 * 4096)
                .expect("it works");
        };
        print("write 4K, bare system call", measure(4000, write));
        let flush = |n: u64| {
            file.write_all_at(buf.as_slice(), n % 1024 * 4096)
                .expect("it works");
            file.sync_data().expect("it works");
        };
        print(
            "write 4K and flush, bare system calls",
            measure(1000, flush),
        );
        let parts = [buf.as_slice()];
        let write = |n| {
            let flags = WriteFlags::NONE;
            device
                .execute(Io::Write {
                    lba: lba(n),
                    parts: &parts,
                    flags,
                })
                .expect("it works");
        };
        print("write 4K, device", measure(4000, write));
        let write = |n| {
            queue
                .write(lba(n), buf.as_slice(), WriteFlags::NONE)
                .expect("it works")
        };
        print("write 4K, queue", measure(4000, write));
        let flush = |n| {
            let flags = WriteFlags::NONE;
            device
                .execute(Io::Write {
                    lba: lba(n),
                    parts: &parts,
                    flags,
                })
                .expect("it works");
            device.execute(Io::Flush).expect("it works");
        };
        print("write 4K and flush, device", measure(1000, flush));
        let flush = |n| {
            queue
                .write(lba(n), buf.as_slice(), WriteFlags::NONE)
                .expect("it works");
            queue.flush().expect("it works");
        };
        print("write 4K and flush, queue", measure(1000, flush));
    }
    ring_costs(&queue, &buf);
    Ok(())
}

/// One request by system call, against 1 to 32 in flight on a ring.
fn ring_costs(queue: &Queue, buf: &BlockBuf) {
    let lba = |n: u64| Lba::new(n % 1024);
    for write in [false, true] {
        let name = if write { "write" } else { "read" };
        let mut out = BlockBuf::zeroed(1);
        let psync = measure(2000, |n| {
            if write {
                queue
                    .write(lba(n), buf.as_slice(), WriteFlags::NONE)
                    .expect("it works");
            } else {
                queue.read(lba(n), out.as_mut_slice()).expect("it works");
            }
        });
        print(&format!("{name} 4K, psync"), psync);
        for depth in [1, 2, 4, 8, 32] {
            let mut bufs = Vec::new();
            let (median, least) =
                measure(2000 / depth, |n| batches(queue, write, depth, &mut bufs, n));
            let per_request = (median / depth, least / depth);
            print(
                &format!("{name} 4K, ring, {depth} in flight, per request"),
                per_request,
            );
        }
    }
}

/// Reads of a job that keeps 32 under way, on the null device and on a device in memory.
fn submitted_costs() {
    let null = || share(NullDevice::new("null", 1024));
    for jobs in [1_u16, 2] {
        let config = QueueConfig {
            hw_queues: jobs.into(),
            merge: Merge::Off,
            ..QueueConfig::default()
        };
        let queue = Queue::new(null(), config);
        // All of them, and the time between their common start and the end of the last.
        let mut rounds: Vec<u64> = (0..ROUNDS)
            .map(|_| {
                let start = monotonic_ns();
                thread::scope(|scope| {
                    for core in 0..jobs {
                        let queue = Arc::clone(&queue);
                        let _ = scope.spawn_on(CoreId::new(core), move || {
                            let mut bufs = Vec::new();
                            (0..SUBMITTED / 32)
                                .for_each(|round| batches(&queue, true, 32, &mut bufs, round));
                        });
                    }
                });
                (monotonic_ns() - start) / (SUBMITTED * u64::from(jobs))
            })
            .collect();
        rounds.sort_unstable();
        let what = format!("write 4K to null, 32 in flight, {jobs} cores, per request");
        print(&what, (rounds[rounds.len() / 2], rounds[0]));
    }
}

/// Writes to a device in memory, compared with plain copies of the same blocks.
fn ram_costs() {
    const BLOCKS: u64 = 16_384;
    let ram = Queue::new(share(RamDevice::new("ram", BLOCKS)), QueueConfig::default());
    let mut bare: Vec<BlockBuf> = (0..BLOCKS)
        .map(|_| BlockBuf::from_slice(&[1; 4096]))
        .collect();
    let (buf, mut out) = (BlockBuf::from_slice(&[3; 4096]), BlockBuf::zeroed(1));
    let place = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50;
    for n in 0..BLOCKS {
        let flags = WriteFlags::NONE;
        ram.write(Lba::new(n), buf.as_slice(), flags)
            .expect("it works");
    }
    for _ in 0..2 {
        let copy = |n: u64| {
            let to = &mut bare[usize::try_from(place(n)).expect("it is small")];
            to.as_mut_slice().copy_from_slice(buf.as_slice());
        };
        print("copy 4K to a random block", measure(20_000, copy));
        let write = |n: u64| {
            let flags = WriteFlags::NONE;
            ram.write(Lba::new(place(n)), buf.as_slice(), flags)
                .expect("it works");
        };
        print("write 4K to a random block of ram", measure(20_000, write));
        let copy = |n: u64| {
            let from = &bare[usize::try_from(place(n)).expect("it is small")];
            out.as_mut_slice().copy_from_slice(from.as_slice());
        };
        print("copy 4K from a random block", measure(20_000, copy));
        let read = |n: u64| {
            ram.read(Lba::new(place(n)), out.as_mut_slice())
                .expect("it works");
        };
        print("read 4K from a random block of ram", measure(20_000, read));
    }
}

/// Nothing but `rounds` times 32 submitted writes to the null device: for counting instructions, as the
/// difference of two runs under `valgrind --tool=callgrind`.
fn submit_only(rounds: u64) {
    let config = QueueConfig {
        merge: Merge::Off,
        ..QueueConfig::default()
    };
    let queue = Queue::new(share(NullDevice::new("null", 1024)), config);
    let mut bufs = Vec::new();
    (0..rounds).for_each(|round| batches(&queue, true, 32, &mut bufs, round));
}

fn main() -> Result<(), dure_block::Error> {
    if let Some(rounds) = std::env::args().nth(1).and_then(|word| word.parse().ok()) {
        submit_only(rounds);
        return Ok(());
    }
    println!("{:<58} {:>8} {:>8}", "ns per call", "median", "least");
    let null = Queue::new(share(NullDevice::new("null", 1024)), QueueConfig::default());
    let buf = BlockBuf::zeroed(1);
    let write = |n: u64| {
        null.write(Lba::new(n % 1024), buf.as_slice(), WriteFlags::NONE)
            .expect("it works");
    };
    print("write 4K to null, queue", measure(100_000, write));
    let tracing = QueueConfig {
        trace: dure_block::Trace::Ring {
            records_per_core: 1024,
        },
        ..QueueConfig::default()
    };
    let traced = Queue::new(share(NullDevice::new("null", 1024)), tracing);
    let write = |n: u64| {
        traced
            .write(Lba::new(n % 1024), buf.as_slice(), WriteFlags::NONE)
            .expect("it works");
    };
    print(
        "write 4K to null, queue with trace",
        measure(100_000, write),
    );
    submitted_costs();
    ram_costs();
    match std::env::args().nth(1) {
        Some(path) => file_costs(Path::new(&path)),
        None => Ok(()),
    }
}
