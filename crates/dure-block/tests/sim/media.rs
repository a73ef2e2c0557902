//! A disk beside persistent memory on a simulated machine: its writers share no line, and a flush
//! covers what it must on every schedule.

use dure_block::linear::LinearDevice;
use dure_block::nvm::NvmDevice;
use dure_block::ram::RamDevice;
use dure_block::record::{Effect, Outcome, RecordDevice, RecordLog};
use dure_block::{BLOCK_BYTES, Device, Lba, Media, QueueConfig, share};
use dure_pmem::Region;
use dure_sync::atomic::{AtomicU32, Ordering};
use dure_sync::sim::{Config, run, seeds};
use dure_sync::{Arc, CoreId, thread};

const CORES: u16 = 3;
/// Blocks of persistent memory, which come first.
const NVM_BLOCKS: u64 = 2;
const DISK_BLOCKS: u64 = 64;

fn media(disk: Arc<dyn Device>) -> Arc<Media> {
    let bytes = usize::try_from(NVM_BLOCKS).expect("few") * BLOCK_BYTES;
    let region = Region::anonymous(bytes).expect("memory");
    let nvm = share(NvmDevice::in_memory("nvm", region));
    let parts = vec![
        (nvm, Lba::new(0), NVM_BLOCKS),
        (disk, Lba::new(0), DISK_BLOCKS),
    ];
    Media::open(share(LinearDevice::new(parts)), QueueConfig::default())
}

/// A block of the disk that only this core writes.
fn own(core: u16) -> Lba {
    Lba::new(NVM_BLOCKS + 8 * u64::from(core))
}

/// Lines that move while each core writes its own block so often.
fn transfers(turns: u64) -> u64 {
    let body = move || {
        let media = media(share(RamDevice::new("disk", DISK_BLOCKS)));
        let ready = AtomicU32::new(0);
        thread::scope(|scope| {
            for core in 0..CORES {
                let (media, ready) = (&media, &ready);
                scope.spawn_on(CoreId::new(core), move || {
                    let block = [1; BLOCK_BYTES];
                    let write = |_| media.write(own(core), &block).expect("room");
                    (0..8).for_each(write);
                    ready.fetch_add(1, Ordering::AcqRel);
                    while ready.load(Ordering::Acquire) < u32::from(CORES) {
                        thread::yield_now();
                    }
                    (0..turns).for_each(write);
                });
            }
        });
    };
    run(Config::min_clock(usize::from(CORES)), body)
        .report
        .transfers
}

#[test]
fn sim_lines_writers_of_a_disk_beside_persistent_memory_share_none() {
    let more = transfers(100).saturating_sub(transfers(50));
    assert!(more <= 4, "{more} transfers in 50 writes of each core");
}

/// Whether a flush of the disk began after this write of it was complete, and has ended.
fn is_flushed(log: &RecordLog, lba: Lba, byte: u8) -> bool {
    let entries = log.entries();
    let is_write = |effect: &Effect| match effect {
        Effect::Write { lba: at, data, .. } => *at == lba && data[0].bytes()[0] == byte,
        _ => false,
    };
    let write = entries.iter().find(|entry| is_write(&entry.effect));
    let Some(Outcome::Completed(written)) = write.map(|entry| entry.outcome) else {
        return false;
    };
    entries.iter().any(|entry| {
        entry.effect == Effect::Flush
            && entry.submitted > written
            && matches!(entry.outcome, Outcome::Completed(_))
    })
}

#[test]
fn sim_a_flush_covers_every_write_that_was_complete_before_it() {
    for seed in seeds(200) {
        let body = || {
            let record = RecordDevice::new(share(RamDevice::new("disk", DISK_BLOCKS)));
            let log = record.log();
            let media = media(share(record));
            thread::scope(|scope| {
                for core in 0..CORES {
                    let (media, log) = (&media, &log);
                    scope.spawn_on(CoreId::new(core), move || {
                        for byte in 1..4 {
                            media.write(own(core), &[byte; BLOCK_BYTES]).expect("room");
                            media.flush().expect("it works");
                            let at = Lba::new(own(core).number() - NVM_BLOCKS);
                            assert!(is_flushed(log, at, byte), "core {core}, write {byte}");
                        }
                    });
                }
            });
        };
        run(Config::random(usize::from(CORES), seed), body);
    }
}
