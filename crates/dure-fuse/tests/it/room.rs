//! When a deleted file has made room. Alone in its program: a test that starts others would have
//! the file open in them for a moment.
//!
//! Where FUSE cannot be used, or the caller is not root, the test says so and ends.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a panic is how a test fails, and a test that cannot run says so"
)]

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use dure_block::ram::RamDevice;
use dure_block::share;
use dure_fs::{FileSystem, MountOptions};
use dure_fuse::mount::{Lazy, MountError};
use dure_fuse::{MountSettings, Session, Transport, WriteCache, unmount};
use dure_sync::{Arc, thread};
use rustix::fs::{FallocateFlags, fallocate, statvfs};

/// 64 MiB.
const BLOCKS: u64 = 16 << 10;

/// A mount of a volume in memory, and what is to hold there: what did not, or `None`. `None` too
/// where it cannot be mounted so, which is said.
fn on_a_mount(
    settings: &MountSettings,
    holds: impl FnOnce(&Path) -> Option<String>,
) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        println!("not run: only root can mount");
        return None;
    }
    let ram = Arc::new(RamDevice::new("room", BLOCKS));
    FileSystem::format(share(ram.clone()), &crate::format_options()).unwrap();
    let volume = FileSystem::open(share(ram), MountOptions::default()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let session = match Session::mount(volume.clone(), directory.path(), settings) {
        Ok(session) => session,
        Err(error @ MountError::NoFuse(_)) => {
            println!("not run: {error}");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let why = session.fallback().or_else(|| session.writes_through());
    if let Some(why) = why {
        println!("not run: {why}");
        drop(session);
        volume.close().unwrap();
        return None;
    }
    let server = thread::spawn("server", move || session.run());
    let broken = holds(directory.path());
    unmount(directory.path(), Lazy::Yes).unwrap();
    server.join().unwrap().unwrap();
    volume.close().unwrap();
    broken
}

/// close(2) returns before the kernel has told the server that nobody has the file any more.
#[test]
fn an_unlinked_file_makes_room_when_it_is_closed() {
    for (write_cache, transport) in [
        (WriteCache::Through, Transport::Device),
        (WriteCache::Back, Transport::Device),
        (WriteCache::Through, Transport::Uring),
        (WriteCache::Back, Transport::Uring),
    ] {
        let settings = MountSettings {
            write_cache,
            transport,
            ..MountSettings::default()
        };
        let broken = on_a_mount(&settings, room_comes_back);
        assert_eq!(broken, None, "{write_cache:?}");
    }
}

/// Others take all the room while it waits in the kernel's cache.
#[test]
fn what_write_took_while_there_was_room_is_kept() {
    let settings = MountSettings {
        transport: Transport::Device,
        ..MountSettings::default()
    };
    let broken = on_a_mount(&settings, |directory| {
        let (waits, taken) = (directory.join("waits"), directory.join("taken"));
        let data = vec![7; 400 << 10];
        let mut file = File::create(&waits).unwrap();
        file.write_all(&data).unwrap();
        let other = File::create(&taken).unwrap();
        let mut size = 0;
        for piece in [1 << 20, 4096] {
            while fallocate(&other, FallocateFlags::empty(), size, piece).is_ok() {
                size += piece;
            }
        }
        if let Err(error) = file.sync_all() {
            return Some(format!("fsync: {error}"));
        }
        let is_whole = fs::read(&waits).unwrap() == data;
        (!is_whole).then(|| "it is not what was written".to_owned())
    });
    assert_eq!(broken, None);
}

/// A program that looks at write(2) alone, on a volume that is full; what it does not take from it.
#[test]
fn write_says_that_the_volume_is_full_although_the_kernel_collects() {
    let settings = MountSettings {
        transport: Transport::Device,
        ..MountSettings::default()
    };
    let broken = on_a_mount(&settings, |directory| {
        let (spare, filled) = (directory.join("spare"), directory.join("filled"));
        fs::write(&spare, vec![1; 8 << 20]).unwrap();
        let mut file = File::create(&filled).unwrap();
        let piece = vec![7; 64 << 10];
        let mut end_of_room = |most: u64| {
            for _ in 0..most / 64 {
                if let Err(error) = file.write_all(&piece) {
                    return Ok(error.raw_os_error());
                }
            }
            Err(format!("{most} KiB were taken"))
        };
        if let Err(broken) = end_of_room(80 << 10) {
            return Some(broken);
        }
        // While it is full, the file is read to its end, and looked at.
        let read = fs::read(&filled).unwrap();
        let seen = fs::metadata(&filled).unwrap().len();
        if seen != read.len() as u64 {
            return Some(format!("{seen} bytes, {} read", read.len()));
        }
        fs::remove_file(&spare).unwrap();
        // There is room again, and an end of it.
        match (end_of_room(4 << 10), end_of_room(16 << 10)) {
            (Err(_), Ok(Some(libc::ENOSPC))) => None,
            other => Some(format!("{other:?} with 8 MiB of room")),
        }
    });
    assert_eq!(broken, None);
}

/// Fills the volume with a file and deletes it, again and again; what did not hold.
fn room_comes_back(directory: &Path) -> Option<String> {
    let available = || statvfs(directory).unwrap().f_bavail << 12;
    let before = available();
    let path = directory.join("large");
    for n in 0..30 {
        let file = File::create(&path).unwrap();
        let length = before - (4 << 20);
        if let Err(error) = fallocate(&file, FallocateFlags::empty(), 0, length) {
            return Some(format!("{n}: {error}"));
        }
        file.sync_all().unwrap();
        fs::remove_file(&path).unwrap();
        drop(file);
    }
    None
}
