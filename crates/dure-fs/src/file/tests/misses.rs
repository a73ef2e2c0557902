//! What happens to a page while a reader that holds no lock reads it from the device.

use dure_block::ram::RamDevice;
use dure_block::{Device, Error, Io, Lba, Op, OsError, Result, share};
use dure_sync::canary::Rule;
use dure_sync::thread::{self, JoinHandle};
use dure_sync::{Arc, Mutex};

use super::slow::Slow;
use super::{World, content, file, fsck};
use crate::file::map::MapReader;
use crate::inode::InodeRef;
use crate::volume::FileSystem;
use crate::{ReadMode, SetAttributes, Stamp};

const OLD: u8 = 0x0a;
const NEW: u8 = 0x0b;
/// What another file puts in the block when it is free.
const FOREIGN: u8 = 0xcc;

/// A file of one page with [`OLD`], on the device and not in memory.
struct Scene {
    device: Arc<Slow>,
    ram: Arc<RamDevice>,
    fs: FileSystem,
    inode: InodeRef,
}

impl Scene {
    fn new(rule: Rule) -> Scene {
        let mut world = World::new(8192, 8 << 20);
        world.options.log_data_pages = 0;
        world.options.volume_rules.slots_looked_at_again = rule;
        let device = Arc::new(Slow::new(world.ram.clone()));
        let fs = FileSystem::open(share(device.clone()), world.options.clone()).unwrap();
        let inode = file(&fs);
        fs.write(&inode, 0, &[OLD; 4096], Stamp::Set).unwrap();
        fs.sync().unwrap();
        fs.0.files.settle_file(inode.inode());
        Scene {
            ram: world.ram,
            device,
            fs,
            inode,
        }
    }

    /// The block of the page.
    fn lba(&self) -> Lba {
        let _state = self.inode.inode().state().read();
        let slot = MapReader::new(&self.fs.0.files, self.inode.inode()).slot(0);
        Lba::new(slot.unwrap().block().0)
    }

    /// The next read of the page from the device comes after `event`.
    fn before_read(
        &self,
        event: impl FnOnce(&FileSystem, &InodeRef) -> Result<()> + Send + 'static,
    ) {
        let (fs, inode) = (self.fs.clone(), self.inode.clone());
        let event = move || event(&fs, &inode);
        self.device.before(Op::Read, self.lba().range(1), event);
    }

    /// Bytes of the file, each of which is the same.
    fn read(&self, mode: ReadMode) -> crate::Result<(usize, u8)> {
        let mut bytes = [0xee; 4096];
        let len = self.fs.read(&self.inode, 0, &mut bytes, mode)?;
        assert!(bytes[..len].iter().all(|&byte| byte == bytes[0]));
        Ok((len, bytes[0]))
    }

    fn end(self) {
        let Scene { ram, fs, inode, .. } = self;
        assert!(!self.device.waits(), "nothing was read");
        let seen = content(&fs, &inode);
        fs.0.files.settle_file(inode.inode());
        assert_eq!(content(&fs, &inode), seen, "memory and device differ");
        drop(inode);
        fs.close().unwrap();
        fsck(share(ram), "after");
    }
}

/// Overwrites the page, which gets another block, and drops it from memory.
fn overwrite(fs: &FileSystem, inode: &InodeRef) {
    fs.write(inode, 0, &[NEW; 4096], Stamp::Set).unwrap();
    fs.sync().unwrap();
    fs.0.files.settle_file(inode.inode());
}

/// The page is overwritten while it is read, and its old block is used by another file.
fn foreign(rule: Rule) -> Scene {
    let scene = Scene::new(rule);
    let (ram, lba) = (scene.ram.clone(), scene.lba());
    scene.before_read(move |fs, inode| {
        overwrite(fs, inode);
        ram.execute(Io::Write {
            lba,
            parts: &[&[FOREIGN; 4096]],
            flags: dure_block::WriteFlags::NONE,
        })
    });
    scene
}

#[test]
fn a_block_that_another_file_got_while_it_was_read_is_not_returned() {
    for mode in [ReadMode::Cached, ReadMode::Bypass] {
        let scene = foreign(Rule::default());
        assert_eq!(scene.read(mode).unwrap(), (4096, NEW));
        scene.end();
    }
}

#[test]
fn canary_a_reader_that_does_not_look_again_takes_a_freed_block_for_a_rotten_one() {
    let scene = foreign(Rule::LEFT_OUT);
    scene.read(ReadMode::Cached).unwrap_err();
}

#[test]
fn a_reader_of_a_file_that_has_ended_meanwhile_gets_nothing_of_another_one() {
    for mode in [ReadMode::Cached, ReadMode::Bypass] {
        let scene = Scene::new(Rule::default());
        let (ram, lba) = (scene.ram.clone(), scene.lba());
        scene.before_read(move |fs, inode| {
            let empty = SetAttributes {
                size: Some(0),
                ..SetAttributes::default()
            };
            fs.set_attributes(inode, &empty).unwrap();
            fs.sync().unwrap();
            ram.execute(Io::Write {
                lba,
                parts: &[&[FOREIGN; 4096]],
                flags: dure_block::WriteFlags::NONE,
            })
        });
        let mut bytes = [0xee; 4096];
        let len = scene.fs.read(&scene.inode, 0, &mut bytes, mode).unwrap();
        assert_eq!(len, 0);
        assert!(!bytes.contains(&FOREIGN));
        scene.end();
    }
}

/// The page is overwritten while it is read, and its old block still has the old content.
fn overwritten(rule: Rule) -> (usize, u8) {
    let scene = Scene::new(rule);
    scene.before_read(|fs, inode| {
        overwrite(fs, inode);
        Ok(())
    });
    let _of_either_moment = scene.read(ReadMode::Cached).unwrap();
    scene.read(ReadMode::Cached).unwrap()
}

#[test]
fn a_page_that_was_overwritten_while_it_was_read_does_not_stay_in_memory() {
    assert_eq!(overwritten(Rule::default()), (4096, NEW));
}

#[test]
fn canary_a_reader_that_does_not_look_again_keeps_an_old_page() {
    assert_eq!(overwritten(Rule::LEFT_OUT), (4096, OLD));
}

#[test]
fn a_page_that_is_dirty_by_the_time_it_was_read_stays_as_it_is() {
    let scene = Scene::new(Rule::default());
    scene.before_read(|fs, inode| {
        fs.write(inode, 0, &[NEW; 4096], Stamp::Set).unwrap();
        Ok(())
    });
    assert_eq!(scene.read(ReadMode::Cached).unwrap(), (4096, NEW));
    scene.end();
}

#[test]
fn an_error_of_a_block_that_the_file_has_left_is_nobodys() {
    for mode in [ReadMode::Cached, ReadMode::Bypass] {
        let scene = Scene::new(Rule::default());
        let lba = scene.lba();
        scene.before_read(move |fs, inode| {
            overwrite(fs, inode);
            Err(failed(lba))
        });
        assert_eq!(scene.read(mode).unwrap(), (4096, NEW));
        scene.end();
    }
}

fn failed(lba: Lba) -> Error {
    Error::Io {
        device: "slow".to_owned(),
        op: Op::Read,
        lba,
        blocks: 1,
        os: OsError::EIO,
    }
}

#[test]
fn a_file_that_is_truncated_while_it_is_read_ends_where_it_ends_now() {
    for mode in [ReadMode::Cached, ReadMode::Bypass] {
        for size in [0, 100] {
            let scene = Scene::new(Rule::default());
            scene.before_read(move |fs, inode| {
                let shorter = SetAttributes {
                    size: Some(size),
                    ..SetAttributes::default()
                };
                fs.set_attributes(inode, &shorter).unwrap();
                fs.sync().unwrap();
                Ok(())
            });
            let (len, byte) = scene.read(mode).unwrap();
            assert_eq!(u64::try_from(len).unwrap(), size);
            assert!(len == 0 || byte == OLD);
            scene.end();
        }
    }
}

#[test]
fn a_write_to_a_part_of_a_page_holds_no_lock_while_the_rest_is_read() {
    let scene = Scene::new(Rule::default());
    scene.before_read(|fs, inode| {
        overwrite(fs, inode);
        Ok(())
    });
    let (fs, inode) = (&scene.fs, &scene.inode);
    fs.write(inode, 10, &[OLD; 10], Stamp::Set).unwrap();
    let mut want = vec![NEW; 4096];
    want[10..20].fill(OLD);
    assert_eq!(content(fs, inode), want);
    scene.end();
}

#[test]
fn a_file_that_is_read_in_order_is_read_in_long_requests() {
    const PAGES: u64 = 2048;
    let world = World::new(16384, 64 << 20);
    let fs = world.mount();
    let inode = file(&fs);
    for page in 0..PAGES {
        let byte = u8::try_from(page % 251).unwrap();
        fs.write(&inode, page * 4096, &[byte; 4096], Stamp::Set)
            .unwrap();
    }
    fs.sync().unwrap();
    fs.0.files.settle_file(inode.inode());
    let before = fs.0.store.region.counters().reads;
    for page in 0..PAGES {
        let mut bytes = [0; 4096];
        fs.read(&inode, page * 4096, &mut bytes, ReadMode::Cached)
            .unwrap();
        assert_eq!(u64::from(bytes[0]), page % 251);
    }
    let reads = fs.0.store.region.counters().reads - before;
    // Eight of 1 MiB, the shorter ones before, and where blocks do not lie in a row.
    assert!(reads <= 24, "{reads} requests for {PAGES} pages");
    fs.0.files.settle_file(inode.inode());
    let before = fs.0.store.region.counters().blocks_read;
    for page in (0..PAGES).map(|n| n * 1021 % PAGES).take(64) {
        let mut bytes = [0; 4096];
        fs.read(&inode, page * 4096, &mut bytes, ReadMode::Cached)
            .unwrap();
    }
    let blocks = fs.0.store.region.counters().blocks_read - before;
    assert!(blocks <= 64 + 2 * 32, "{blocks} blocks for 64 random pages");
}

#[test]
fn tasks_that_miss_the_same_page_share_one_read() {
    const TASKS: u64 = 4;
    let scene = Scene::new(Rule::default());
    let before = scene.fs.0.store.region.counters().reads;
    let (fs, inode) = (scene.fs.clone(), scene.inode.clone());
    let readers: Arc<Mutex<{ u8::MAX - 1 }, Vec<JoinHandle<()>>>> = Arc::default();
    let others = readers.clone();
    scene.before_read(move |_, _| {
        for _ in 0..TASKS {
            let (fs, inode) = (fs.clone(), inode.clone());
            let reader = thread::spawn("reader", move || {
                let mut bytes = [0; 4096];
                fs.read(&inode, 0, &mut bytes, ReadMode::Cached).unwrap();
                assert_eq!(bytes, [OLD; 4096]);
            });
            others.lock().push(reader);
        }
        // They come while the page is under way; later they would find it in memory.
        while fs.0.files.misses.waiting() < TASKS {
            thread::yield_now();
        }
        Ok(())
    });
    assert_eq!(scene.read(ReadMode::Cached).unwrap(), (4096, OLD));
    for reader in std::mem::take(&mut *readers.lock()) {
        reader.join().unwrap();
    }
    let reads = scene.fs.0.store.region.counters().reads - before;
    assert_eq!(reads, 1, "of one page for {} tasks", TASKS + 1);
    scene.end();
}

/// The next reads of the block fail, so many of them: a read that fails is made again, page by page.
fn fail_reads(device: &Arc<Slow>, lba: Lba, times: u32) {
    let again = device.clone();
    device.before(Op::Read, lba.range(1), move || {
        if times > 1 {
            fail_reads(&again, lba, times - 1);
        }
        Err(failed(lba))
    });
}

#[test]
fn an_error_is_told_to_each_task_that_waited_for_the_page() {
    let scene = Scene::new(Rule::default());
    let lba = scene.lba();
    let (fs, inode, device) = (scene.fs.clone(), scene.inode.clone(), scene.device.clone());
    let other: Arc<Mutex<{ u8::MAX - 1 }, Option<JoinHandle<bool>>>> = Arc::default();
    let told = other.clone();
    scene.before_read(move |_, _| {
        let misses = fs.clone();
        let reader = thread::spawn("reader", move || {
            let mut bytes = [0; 4096];
            fs.read(&inode, 0, &mut bytes, ReadMode::Cached).is_err()
        });
        *told.lock() = Some(reader);
        while misses.0.files.misses.waiting() < 1 {
            thread::yield_now();
        }
        fail_reads(&device, lba, 3);
        Err(failed(lba))
    });
    scene.read(ReadMode::Cached).unwrap_err();
    let other = other.lock().take().expect("it was started");
    assert!(other.join().unwrap(), "the error is of the page");
    scene.end();
}
