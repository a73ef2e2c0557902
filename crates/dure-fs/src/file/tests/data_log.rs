//! Synchronous writes whose data is in the log.

use dure_block::crash::{CrashImages, Selection, Tear};
use dure_block::record::RecordDevice;
use dure_block::{Device, share};
use dure_store::data_log::DataLog;
use dure_sync::Arc;
use dure_sync::canary::Rule;

use super::{World, content, file, fsck, nth_file};
use crate::volume::FileSystem;
use crate::{ReadMode, Stamp, SyncScope};

fn write(fs: &FileSystem, page: u64, fill: u8) {
    let inode = file(fs);
    fs.write(&inode, page * 4096, &[fill; 4096], Stamp::Set)
        .unwrap();
    fs.fsync(&inode, SyncScope::All).unwrap();
}

fn read(fs: &FileSystem, page: u64) -> u8 {
    let mut bytes = [0; 4096];
    let inode = file(fs);
    let len = fs.read(&inode, page * 4096, &mut bytes, ReadMode::Bypass);
    assert_eq!(len.unwrap(), 4096);
    assert!(bytes.iter().all(|byte| *byte == bytes[0]));
    bytes[0]
}

#[test]
fn data_in_the_log_is_read_without_the_cache() {
    let world = World::new(8192, 8 << 20);
    let fs = world.mount();
    for page in 0..8 {
        write(&fs, page, u8::try_from(page).unwrap() + 1);
    }
    assert_eq!(fs.0.store.data_log.logged.sum(), 8);
    let inode = file(&fs);
    let evicted = fs.0.files.pages.evict(fs.0.store.partition(), 8);
    assert_eq!(evicted, 8, "what the log has is clean");
    for page in 0..8 {
        assert_eq!(u64::from(read(&fs, page)), page + 1);
    }
    let whole = content(&fs, &inode);
    fs.0.store.checkpoint().unwrap();
    assert!(!fs.0.store.data_log.holds(fs_block(&fs, 3)));
    assert_eq!(fs.0.files.pages.evict(fs.0.store.partition(), 8), 8);
    assert_eq!(content(&fs, &inode), whole);
}

fn fs_block(fs: &FileSystem, page: u64) -> dure_store::units::BlockNo {
    let inode = file(fs);
    let _held = inode.inode().state().read();
    let mut map = super::super::map::MapReader::new(&fs.0.files, inode.inode());
    map.slot(page).unwrap().block()
}

#[test]
fn what_is_overwritten_in_the_log_is_never_placed() {
    let world = World::new(8192, 8 << 20);
    let fs = world.mount();
    for n in 0..20 {
        write(&fs, 0, n + 1);
    }
    let before = fs.0.store.data_log.spared.sum();
    assert!(before >= 15, "{before} of 19; checkpoints placed the rest");
    assert_eq!(read(&fs, 0), 20);
}

#[test]
fn a_full_table_takes_more_after_a_checkpoint() {
    let world = World::new(8192, 1 << 20);
    let fs = world.mount();
    let room = DataLog::share_of((1 << 20) / 8 * 5);
    for page in 0..20 {
        write(&fs, page, u8::try_from(page).unwrap() + 1);
    }
    let logged = fs.0.store.data_log.logged.sum();
    assert_eq!(u64::try_from(logged).unwrap(), room, "no checkpoint yet");
    fs.0.store.checkpoint().unwrap();
    write(&fs, 19, 20);
    assert_eq!(fs.0.store.data_log.logged.sum(), logged + 1);
    drop(fs);
    let fs = world.mount();
    for page in 0..20 {
        assert_eq!(u64::from(read(&fs, page)), page + 1);
    }
}

/// A crash before the checkpoint: the data is in the log and nowhere else, for every way to look at
/// it.
#[test]
fn a_volume_whose_data_is_in_the_log_is_sound_and_readable() {
    let world = World::new(8192, 8 << 20);
    let fs = world.mount();
    for page in 0..6 {
        write(&fs, page, 0x40 + u8::try_from(page).unwrap());
    }
    drop(fs);
    fsck(world.device(), "before the recovery");
    let mut options = world.options.clone();
    options.read_only = true;
    let fs = FileSystem::open(world.device(), options).unwrap();
    for page in 0..6 {
        assert_eq!(u64::from(read(&fs, page)), 0x40 + page);
    }
    drop(fs);
    let fs = world.mount();
    for page in 0..6 {
        assert_eq!(u64::from(read(&fs, page)), 0x40 + page);
    }
    fs.close().unwrap();
    drop(fs);
    fsck(world.device(), "after the recovery");
}

/// Crashes of synced overwrites, checkpoints between them. Gives the number of wrong states.
fn crashes(mut world: World, spoil: impl FnOnce(&mut World)) -> usize {
    {
        let fs = world.mount();
        for page in 0..4 {
            write(&fs, page, 1);
        }
        nth_file(&fs, 1);
        fs.close().unwrap();
    }
    let sound = world.options.clone();
    spoil(&mut world);
    let base = world.ram.snapshot();
    let record = Arc::new(RecordDevice::new(world.device()));
    let log = record.log();
    let mut promised = vec![(0, 1)];
    {
        let fs = FileSystem::open(share(record.clone()), world.options.clone()).unwrap();
        let other = nth_file(&fs, 1);
        for n in 2..14 {
            write(&fs, 2, n);
            promised.push((log.step(), n));
            // Takes the blocks that the overwrites have freed.
            fs.write(&other, 0, &[0xcc; 3 * 4096], Stamp::Set).unwrap();
            fs.0.files.write_back(other.inode()).unwrap();
            if n % 4 == 1 {
                fs.0.store.checkpoint().unwrap();
            }
        }
    }
    let images = CrashImages::new(base, &log);
    let mut wrong = 0;
    for step in images.frontiers() {
        let last = promised.iter().rposition(|(at, _)| *at <= step).unwrap();
        let least = promised[last].1;
        let point = images.at(step);
        for choice in point.choices(Selection {
            exhaustive_max: 4,
            random: 2,
            seed: 1,
            tear: Tear::None,
        }) {
            let device: Arc<dyn Device> = share(Arc::new(point.image(&choice)));
            let Ok(fs) = FileSystem::open(device, sound.clone()) else {
                wrong += 1;
                continue;
            };
            let bytes = content(&fs, &file(&fs));
            let page = bytes.get(2 * 4096..3 * 4096).unwrap_or(&[0]);
            let good = (page[0] == least || page[0] == least + 1)
                && page.iter().all(|byte| *byte == page[0]);
            wrong += usize::from(!good);
        }
    }
    wrong
}

#[test]
fn no_crash_loses_data_that_was_in_the_log() {
    assert_eq!(crashes(World::new(2048, 1 << 20), |_| {}), 0);
}

/// The rule of the checkpoint: data is in its place before the tail passes it.
#[test]
fn canary_a_tail_that_passes_logged_data_loses_it() {
    let spoil =
        |world: &mut World| world.options.volume_rules.store.data_before_tail = Rule::LEFT_OUT;
    assert!(crashes(World::new(2048, 1 << 20), spoil) > 0);
}
