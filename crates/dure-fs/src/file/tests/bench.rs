//! Prints what warm calls cost: `cargo test --release -p dure-fs -- --ignored --nocapture warm`.

use dure_sync::clock::monotonic_ns;

use super::{World, file};
use crate::{ReadMode, Stamp, SyncScope};

#[test]
#[ignore = "a measurement, not a test"]
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
    time("append of 4 KiB", 2_000, &mut |_| {
        fs.append(&inode, &page).unwrap();
    });
}
