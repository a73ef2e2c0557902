//! Room and crashes: what is taken from a log, and what a recovery on a full volume has.

use dure_block::crash::{CrashImages, Selection, Tear};
use dure_block::record::RecordDevice;
use dure_block::share;
use dure_store::error::Result;
use dure_sync::Arc;
use dure_sync::canary::Rule;

use super::{World, content, file, fsck, nth_file};
use crate::volume::FileSystem;
use crate::{AllocateMode, Stamp, SyncScope};

const PAGE: u64 = 4096;

/// Runs `work` on a recording device; gives what `look` says of every medium that a crash leaves.
fn after_each_crash<T>(
    world: &World,
    work: impl FnOnce(&FileSystem),
    look: impl Fn(Result<FileSystem>) -> T,
) -> Vec<T> {
    let base = world.ram.snapshot();
    let record = RecordDevice::new(world.device());
    let log = record.log();
    let fs = FileSystem::open(share(record), world.options.clone()).expect("a good volume mounts");
    work(&fs);
    drop(fs);
    let images = CrashImages::new(base, &log);
    let selection = Selection {
        exhaustive_max: 6,
        random: 12,
        seed: 1,
        tear: Tear::None,
    };
    let mut found = Vec::new();
    for step in images.frontiers() {
        let point = images.at(step);
        for choice in point.choices(selection) {
            let image = share(Arc::new(point.image(&choice)));
            found.push(look(FileSystem::open(image, world.options.clone())));
        }
    }
    found
}

/// Log segments go back to the volume, file data is written into one, and the power is cut
/// everywhere: the first volume that does not mount.
fn cut_while_logs_give_back(flush_shrunk: Rule) -> Option<crate::Error> {
    let mut world = World::new(4096, 4 << 20);
    world.options.rules.flush_shrunk = flush_shrunk;
    world.options.log_data_pages = 0;
    {
        let fs = world.mount();
        fs.grow_logs(300).unwrap();
        drop(file(&fs));
        let other = nth_file(&fs, 1);
        // Nothing is left but what the logs have.
        let rest = fs.0.store.space.statistics().available - 12;
        fs.allocate(&other, AllocateMode::Extend, 0, rest * PAGE)
            .unwrap();
        fs.sync().unwrap();
    }
    let work = |fs: &FileSystem| {
        fs.0.store.give_logs_back().unwrap();
        let inode = file(fs);
        fs.write(&inode, 0, &[7; 20 * 4096], Stamp::Set).unwrap();
        fs.fsync(&inode, SyncScope::All).unwrap();
    };
    let look = |mounted: Result<FileSystem>| {
        let fs = match mounted {
            Ok(fs) => fs,
            Err(error) => return Some(error),
        };
        assert!(content(&fs, &file(&fs)).iter().all(|&byte| byte == 7));
        None
    };
    let mut found = after_each_crash(&world, work, look);
    assert!(found.len() > 20, "{} media", found.len());
    found.drain(..).flatten().next()
}

#[test]
fn no_crash_takes_file_data_for_log_space() {
    let refused = cut_while_logs_give_back(Rule::Holds);
    assert!(refused.is_none(), "{refused:?}");
}

#[test]
fn canary_a_log_segment_that_is_used_too_early_is_noticed() {
    let refused = cut_while_logs_give_back(Rule::LEFT_OUT).expect("a volume must not mount");
    assert!(refused.to_string().contains("log segment"), "{refused}");
}

/// A full volume whose free blocks are all named by records: what was freed since the last
/// checkpoint.
fn full_of_what_was_freed() -> World {
    let world = World::new(2048, 4 << 20);
    let fs = world.mount();
    let (inode, other) = (file(&fs), nth_file(&fs, 1));
    fs.write(&inode, 0, &[1; 700 * 4096], Stamp::Set).unwrap();
    fs.fsync(&inode, SyncScope::All).unwrap();
    let rest = fs.statistics().blocks_available;
    fs.allocate(&other, AllocateMode::Extend, 0, rest * PAGE)
        .unwrap();
    fs.sync().unwrap();
    fs.checkpoint_now().unwrap();
    for page in 0..350 {
        fs.write(&inode, page * 2 * PAGE, &[2; 4096], Stamp::Set)
            .unwrap();
        fs.fsync(&inode, SyncScope::All).unwrap();
    }
    drop((inode, other, fs));
    world
}

#[test]
fn a_full_volume_recovers_in_blocks_that_records_name() {
    let world = full_of_what_was_freed();
    let right = |fs: &FileSystem| {
        let bytes = content(fs, &file(fs));
        let life = |n: usize| if n.is_multiple_of(2) { 2 } else { 1 };
        let page = |(n, page): (usize, &[u8])| page.iter().all(|&byte| byte == life(n));
        assert!(bytes.len() == 700 * 4096 && bytes.chunks(4096).enumerate().all(page));
    };
    // The power fails in the recovery, too.
    let look = |mounted: Result<FileSystem>| {
        let fs = mounted.expect("it mounts");
        right(&fs);
        fs.close().unwrap();
    };
    let media = after_each_crash(&world, right, look).len();
    assert!(media > 5, "{media} media");
    right(&world.mount());
    world.mount().close().unwrap();
    fsck(world.device(), "recovered");
}
