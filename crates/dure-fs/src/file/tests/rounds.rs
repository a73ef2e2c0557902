//! Write-back of many files at once.

use dure_block::fault::{Fault, FaultDevice, Rule, When};
use dure_block::{Lba, Op, OsError, share};
use dure_sync::Arc;

use super::{World, content, fsck, nth_file};
use crate::Stamp;
use crate::volume::FileSystem;

const FILES: u64 = 300;
const BYTES: usize = 6000;

fn bytes(n: u64) -> Vec<u8> {
    let seed = u8::try_from(n % 251).unwrap();
    (0..BYTES)
        .map(|at| seed.wrapping_add(u8::try_from(at % 241).unwrap()))
        .collect()
}

fn make(fs: &FileSystem) {
    for n in 0..FILES {
        let inode = nth_file(fs, n);
        fs.write(&inode, 0, &bytes(n), Stamp::Set).unwrap();
    }
}

fn check_all(world: &World) {
    let fs = world.mount();
    for n in 0..FILES {
        assert_eq!(content(&fs, &nth_file(&fs, n)), bytes(n), "file {n}");
    }
    fs.close().unwrap();
    fsck(world.device(), "after");
}

#[test]
fn small_files_are_written_together() {
    let mut world = World::new(16384, 16 << 20);
    world.options.log_data_pages = 0;
    let fs = world.mount();
    make(&fs);
    let before = fs.0.store.region.counters().writes;
    fs.sync().unwrap();
    let writes = fs.0.store.region.counters().writes - before;
    // 600 pages are 3 MiB at most with what the log takes; each journal has a prefix or two.
    assert!(writes <= 16, "{writes} writes for {FILES} files");
    fs.close().unwrap();
    check_all(&world);
}

#[test]
fn a_block_that_fails_in_a_round_costs_no_file_anything() {
    let mut world = World::new(16384, 16 << 20);
    world.options.log_data_pages = 0;
    let fault = Arc::new(FaultDevice::new(world.device()));
    let fs = FileSystem::open(share(fault.clone()), world.options.clone()).unwrap();
    make(&fs);
    let main = Lba::new(fs.layout().main);
    let eio = || Fault::Error(OsError::EIO);
    // The request of the round, and then single blocks of it.
    for nth in [1, 3, 40] {
        fault.add(
            Rule::new(When::Nth(nth), eio())
                .on(Op::Write)
                .within(main..Lba::new(16384)),
        );
    }
    fs.sync().unwrap();
    fs.close().unwrap();
    check_all(&world);
}

#[test]
fn files_that_leave_memory_for_others_are_written_together() {
    const MANY: u64 = 10_000;
    let mut world = World::new(1 << 15, 24 << 20);
    world.options.log_data_pages = 0;
    let fs = world.mount();
    let before = fs.0.store.region.counters().writes;
    for n in 0..MANY {
        let inode = nth_file(&fs, n);
        fs.write(&inode, 0, &bytes(n)[..100], Stamp::Set).unwrap();
    }
    let writes = fs.0.store.region.counters().writes - before;
    // The log and its checkpoints write for a small cache, too.
    assert!(writes <= MANY / 5, "{writes} writes for {MANY} files");
    for n in 0..MANY {
        let found = content(&fs, &nth_file(&fs, n));
        assert_eq!(found, bytes(n)[..100], "file {n}");
    }
    fs.close().unwrap();
    fsck(world.device(), "after");
}
