//! `data=journal`: every page that is written back stands in the log before it stands in its place.

use dure_store::RecordPolicy;
use dure_sync::Arc;
use dure_sync::atomic::AtomicUsize;

use super::{World, content, file, fsck};
use crate::volume::{DataMode, FileSystem};
use crate::{Order, Stamp, SyncScope};

const PAGES: u64 = 120;

fn world(records: RecordPolicy) -> World {
    let mut world = World::new(8192, 8 << 20);
    world.options.data = DataMode::Journal;
    // Where the thread goes from core to core, two logs fill, and checkpoints come sooner.
    world.options.core = Some(Arc::new(AtomicUsize::new(0)));
    world.options.records = records;
    world.options.order = match records {
        RecordPolicy::Delta | RecordPolicy::None => Order::PerCore,
        RecordPolicy::Image => Order::Single,
    };
    world
}

fn fill(fs: &FileSystem, fill: u8) {
    let inode = file(fs);
    for page in 0..PAGES {
        let byte = fill.wrapping_add(u8::try_from(page % 100).unwrap());
        fs.write(&inode, page * 4096, &[byte; 4096], Stamp::Set)
            .unwrap();
    }
}

#[test]
fn all_of_a_long_write_back_goes_through_the_log() {
    for records in [RecordPolicy::Delta, RecordPolicy::Image] {
        let world = world(records);
        let fs = world.mount();
        fill(&fs, 1);
        let inode = file(&fs);
        fs.0.files.write_back(inode.inode()).unwrap();
        assert_eq!(
            fs.0.store.data_log.logged.sum(),
            i64::try_from(PAGES).unwrap()
        );
        fs.fsync(&inode, SyncScope::All).unwrap();
        let whole = content(&fs, &inode);
        fs.0.store.checkpoint().unwrap();
        // What is placed can be read without the log and the cache.
        fs.0.files.pages.evict(fs.0.store.partition(), PAGES);
        assert_eq!(content(&fs, &inode), whole);
        fs.close().unwrap();
        drop((inode, fs));
        fsck(world.device(), "after the unmount");
    }
}

#[test]
fn what_stood_only_in_the_log_survives_a_crash_whatever_the_next_mount_says() {
    for records in [RecordPolicy::Delta, RecordPolicy::Image] {
        let mut world = world(records);
        let fs = world.mount();
        for round in 0..4 {
            fill(&fs, round);
            fs.fsync(&file(&fs), SyncScope::Data).unwrap();
        }
        assert!(
            fs.0.store.data_log.spared.sum() > 0,
            "overwritten before it was placed"
        );
        let whole = content(&fs, &file(&fs));
        drop(fs);
        fsck(world.device(), "before the recovery");
        let logs = crate::JournalsInfo::read(world.device()).unwrap();
        let logged = logs.journals.iter().map(|journal| &journal.transactions);
        assert!(logged.clone().any(|counts| counts.data_pages > 0));
        let has_images = logged.clone().any(|counts| counts.images > 0);
        assert_eq!(has_images, records == RecordPolicy::Image);
        world.options.data = DataMode::Ordered;
        world.options.records = RecordPolicy::Delta;
        let fs = world.mount();
        assert_eq!(content(&fs, &file(&fs)), whole);
        fs.close().unwrap();
        drop(fs);
        fsck(world.device(), "after it");
    }
}
