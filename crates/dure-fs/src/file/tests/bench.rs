//! Prints what warm calls cost: `cargo test --release -p dure-fs -- --ignored --nocapture warm`.

use dure_sync::clock::monotonic_ns;

use super::{World, file};
use crate::{ReadMode, Stamp, SyncScope};

#[test]
#[ignore = "a measurement: cargo test --release -p dure-fs --lib -- --ignored --nocapture warm_calls"]
#[expect(clippy::print_stdout, reason = "the measurement is the output")]
fn warm_calls() {
    let world = World::new(65536, 64 << 20);
    let fs = world.mount();
    let inode = file(&fs);
    fs.write(&inode, 0, &vec![1; 8 << 20], Stamp::Set).unwrap();
    let page = [2; 4096];
    let mut buf = [0; 4096];
    let time = |what: &str, count: u64, call: &mut dyn FnMut(u64)| {
        let mut best = u64::MAX;
        for _ in 0..5 {
            let start = monotonic_ns();
            (0..count).for_each(&mut *call);
            best = best.min((monotonic_ns() - start) / count);
        }
        println!("{what}: {best} ns");
    };
    time("overwrite of a dirty 4 KiB page", 100_000, &mut |n| {
        fs.write(&inode, n * 7 % 2048 * 4096, &page, Stamp::Set)
            .unwrap();
    });
    time("read of a cached 4 KiB page", 100_000, &mut |n| {
        fs.read(&inode, n * 7 % 2048 * 4096, &mut buf, ReadMode::Cached)
            .unwrap();
    });
    fs.sync().unwrap();
    time(
        "overwrite of a clean 4 KiB page and fsync",
        2_000,
        &mut |n| {
            fs.write(&inode, n % 16 * 4096, &page, Stamp::Set).unwrap();
            fs.fsync(&inode, SyncScope::All).unwrap();
        },
    );
    time("the write alone, of a clean page", 2_000, &mut |n| {
        fs.write(&inode, n % 2000 * 4096, &page, Stamp::Set)
            .unwrap();
        if n % 2000 == 1999 {
            fs.sync().unwrap();
        }
    });
    time(
        "write-back alone of one page, with its overwrite",
        100_000,
        &mut |n| {
            fs.write(&inode, n % 16 * 4096, &page, Stamp::Set).unwrap();
            fs.0.write_back(inode.inode()).unwrap();
        },
    );
    fs.sync().unwrap();
    time("CRC of a page", 10_000, &mut |n| {
        std::hint::black_box(dure_block::crc32c::crc32c(std::hint::black_box(
            &page[usize::from(n % 2 == 1)..],
        )));
    });
    let queue = &fs.0.queue;
    let lba = dure_block::Lba::new(fs.0.layout.total_blocks - 3);
    time("device write of a page", 10_000, &mut |_| {
        queue
            .write(lba, &page, dure_block::WriteFlags::NONE)
            .unwrap();
    });
    time("device flush", 10_000, &mut |_| queue.flush().unwrap());
    time("append of 4 KiB", 2_000, &mut |_| {
        fs.append(&inode, &page).unwrap();
    });
}
