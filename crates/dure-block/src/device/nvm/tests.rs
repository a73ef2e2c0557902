use std::path::Path;

use dure_pmem::record::Selection;

use super::*;
use crate::device::file::loop_device::Loop;
use crate::file::{Allocation, OpenOptions, create_image, open_file};
use crate::{Queue, QueueConfig, WriteFlags};

fn image(path: &Path) -> FileDevice {
    create_image(path, 16, Allocation::Sparse, OpenOptions::default()).unwrap()
}

fn block(byte: u8) -> [u8; BLOCK_BYTES] {
    [byte; BLOCK_BYTES]
}

#[test]
fn emulated_nvm_stores_in_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nvm");
    let device = open(image(&path), Nvm::Emulated).unwrap();
    assert!(!device.info().volatile_cache);
    let queue = Queue::new(device, QueueConfig::default());
    let both = [block(1), block(2)].concat();
    queue.write(Lba::new(3), &both, WriteFlags::NONE).unwrap();
    queue.flush().unwrap();
    let mut found = vec![0; 2 * BLOCK_BYTES];
    queue.read(Lba::new(3), &mut found).unwrap();
    assert!(found == both);
    queue.discard(Lba::new(3), 1).unwrap();
    drop(queue);
    let file = open_file(&path, OpenOptions::default()).unwrap();
    file.execute(Io::Read {
        lba: Lba::new(3),
        out: &mut found,
    })
    .unwrap();
    assert!(found == [block(0), block(2)].concat());
}

#[test]
fn a_file_is_claimed_while_it_is_mapped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nvm");
    let device = open(image(&path), Nvm::Emulated).unwrap();
    let second = open_file(&path, OpenOptions::default());
    assert!(matches!(second, Err(Error::Locked { .. })));
    drop(device);
    open_file(&path, OpenOptions::default()).unwrap();
}

#[test]
fn what_is_no_persistent_memory_is_not_taken_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let device = open(image(&path), Nvm::Auto).unwrap();
    if !device.info().volatile_cache {
        // These tests run on a DAX file system.
        return;
    }
    drop(device);
    let file = open_file(&path, OpenOptions::default()).unwrap();
    let error = open(file, Nvm::Direct).unwrap_err();
    assert_eq!(error, Error::NotDirect { path: path.clone() });
    let text = error.to_string();
    assert!(
        text.contains("persistent memory") && text.contains("dax"),
        "{text}"
    );
}

/// `nvm=emulated` mapped a disk, whose page cache was then never flushed.
#[test]
fn a_block_device_is_no_persistent_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    drop(image(&path));
    let Some(Loop(disk)) = &Loop::new(&path) else {
        return;
    };
    let used_as = |nvm| open(open_file(disk, OpenOptions::default()).unwrap(), nvm);
    for nvm in [Nvm::Auto, Nvm::Off] {
        assert_eq!(used_as(nvm).unwrap().info().nvm, None, "{nvm:?}");
    }
    for (nvm, value) in [
        (Nvm::Emulated, "nvm=emulated"),
        (Nvm::Optane, "nvm=optane"),
        (Nvm::OptaneInterleaved, "nvm=optane-interleaved"),
        (Nvm::OptaneSeparate, "nvm=optane-separate"),
        (Nvm::Direct, "nvm=direct"),
    ] {
        let error = used_as(nvm).expect_err(value);
        assert!(matches!(error, Error::NotMapped { .. }), "{error}");
        let text = error.to_string();
        assert!(
            text.contains("block device") && text.contains(value),
            "{text}"
        );
    }
}

#[test]
fn a_file_that_becomes_shorter_is_an_io_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nvm");
    let device = open(image(&path), Nvm::Emulated).unwrap();
    std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(4096)
        .unwrap();
    let write = |lba| {
        device.execute(Io::Write {
            lba: Lba::new(lba),
            parts: &[&block(1)],
            flags: WriteFlags::NONE,
        })
    };
    write(0).unwrap();
    let error = write(9).unwrap_err();
    assert_eq!(error.os(), Some(OsError::EIO), "{error}");
    let mut out = block(0);
    let lba = Lba::new(9);
    assert!(device.execute(Io::Read { lba, out: &mut out }).is_err());
}

#[test]
fn a_device_that_is_read_only_stays_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nvm");
    drop(image(&path));
    let options = OpenOptions {
        read_only: true,
        ..OpenOptions::default()
    };
    let device = open(open_file(&path, options).unwrap(), Nvm::Emulated).unwrap();
    assert!(device.info().read_only);
    let queue = Queue::new(device, QueueConfig::default());
    assert!(
        queue
            .write(Lba::new(0), &block(1), WriteFlags::NONE)
            .is_err()
    );
}

#[test]
fn a_write_is_durable_when_it_returns_and_torn_at_words_before() {
    let (region, recorder) = Region::recording(&vec![0; 4 * BLOCK_BYTES]).unwrap();
    let device = NvmDevice::in_memory("nvm", region);
    let write = |lba, byte| {
        device
            .execute(Io::Write {
                lba: Lba::new(lba),
                parts: &[&block(byte), &block(byte)],
                flags: WriteFlags::NONE,
            })
            .unwrap();
    };
    write(0, 1);
    let first = recorder.events();
    write(2, 2);
    let selection = Selection::default();
    let mut torn = 0;
    for event in first..=recorder.events() {
        for state in recorder.crash_after(event).states(&selection) {
            assert!(state[..2 * BLOCK_BYTES].iter().all(|byte| *byte == 1));
            let words = state[2 * BLOCK_BYTES..].chunks(8);
            let kept = words.filter(|word| *word == [2; 8]).count();
            torn += usize::from(kept != 0 && kept != BLOCK_BYTES / 4);
            if event == recorder.events() {
                assert_eq!(kept, BLOCK_BYTES / 4);
            }
        }
    }
    assert!(torn > 0, "no state had a part of the write");
}
