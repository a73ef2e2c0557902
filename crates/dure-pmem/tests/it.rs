//! Regions on real memory and files.

use std::fs::OpenOptions;
use std::os::fd::AsFd;

use dure_pmem::{Access, Error, Medium, Need, Region, WriteBack};

#[test]
fn what_is_stored_can_be_read() {
    let region = Region::anonymous(1 << 16).unwrap();
    assert_eq!(region.medium(), Medium::Emulated);
    let bytes: Vec<u8> = (0..=255).cycle().take(5000).collect();
    for (at, len) in [
        (0, 0),
        (0, 1),
        (3, 4),
        (7, 9),
        (8, 64),
        (24, 200),
        (61, 4999),
        (4096, 4096),
    ] {
        let _ = region.copy(at, &bytes[..len]).unwrap().fence();
        let mut found = vec![1; len];
        region.read(at, &mut found).unwrap();
        assert!(found == bytes[..len], "{len} bytes at {at}");
        let other: Vec<u8> = bytes[..len].iter().map(|byte| !byte).collect();
        let _ = region.store(at, &other).unwrap().write_back().fence();
        region.read(at, &mut found).unwrap();
        assert!(found == other, "{len} bytes at {at}");
    }
}

#[test]
fn an_access_outside_is_refused() {
    let region = Region::anonymous(4096).unwrap();
    for (at, len) in [(4096, 1), (4090, 7), (u64::MAX, 1), (u64::MAX - 2, 8)] {
        let refused = Error::OutOfRange {
            at,
            bytes: len,
            region_bytes: 4096,
        };
        let len = usize::try_from(len).unwrap();
        assert_eq!(region.read(at, &mut vec![0; len]).unwrap_err(), refused);
        assert_eq!(region.store(at, &vec![0; len]).unwrap_err(), refused);
        assert_eq!(region.copy(at, &vec![0; len]).unwrap_err(), refused);
    }
    region.read(4096, &mut []).unwrap();
}

#[test]
fn a_file_keeps_what_was_persisted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nvm");
    let file = || {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        options.open(&path).unwrap()
    };
    file().set_len(1 << 16).unwrap();
    let map = |access| Region::map(file().as_fd(), 1 << 16, access, Need::Emulation).unwrap();
    let _ = map(Access::ReadWrite)
        .copy(4096, b"persisted")
        .unwrap()
        .fence();
    let region = map(Access::Read);
    let mut found = [0; 9];
    region.read(4096, &mut found).unwrap();
    assert_eq!(&found, b"persisted");
    assert_eq!(region.store(0, &[1]).unwrap_err(), Error::ReadOnly);
    assert_eq!(region.copy(0, &[1]).unwrap_err(), Error::ReadOnly);
}

#[test]
fn a_file_that_is_not_on_persistent_memory_is_refused_if_it_must_be() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(4096).unwrap();
    let region = Region::map(file.as_fd(), 4096, Access::ReadWrite, Need::Direct);
    // Where the tests run on a DAX file system it is one.
    match region {
        Ok(region) => assert_eq!(region.medium(), Medium::Direct),
        Err(error) => assert_eq!(error, Error::NotDirect),
    }
}

#[test]
fn memory_that_is_gone_is_an_error_and_not_the_end_of_the_process() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(3 * 4096).unwrap();
    let region = Region::map(file.as_fd(), 3 * 4096, Access::ReadWrite, Need::Emulation).unwrap();
    let _ = region.copy(0, &[5; 4096]).unwrap().fence();
    file.set_len(4096).unwrap();
    let gone = |at, bytes| Error::Poison { at, bytes };
    let mut out = [0; 8192];
    assert_eq!(region.read(0, &mut out).unwrap_err(), gone(0, 8192));
    assert_eq!(region.store(4096, &[1; 16]).unwrap_err(), gone(4096, 16));
    assert_eq!(region.copy(8192, &[1; 64]).unwrap_err(), gone(8192, 64));
    assert_eq!(region.copy(8192, &[1; 24]).unwrap_err(), gone(8192, 24));
    // What is left is still there, on any thread.
    dure_sync::thread::scope(|scope| {
        scope.spawn(|| {
            let mut out = [0; 4096];
            region.read(0, &mut out).unwrap();
            assert_eq!(out, [5; 4096]);
            assert!(region.read(4096, &mut out).is_err());
        });
    });
}

#[test]
fn the_processor_has_one_of_the_instructions() {
    let region = Region::anonymous(4096).unwrap();
    let name = region.instruction().name();
    assert!(["clwb", "clflushopt", "clflush"].contains(&name));
    assert_eq!(region.instruction(), WriteBack::best());
}
