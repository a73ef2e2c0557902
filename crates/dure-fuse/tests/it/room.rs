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
use std::path::Path;

use dure_block::ram::RamDevice;
use dure_block::share;
use dure_fs::{FileSystem, FormatOptions, MountOptions};
use dure_fuse::mount::{Lazy, MountError};
use dure_fuse::{MountSettings, Session, Transport, WriteCache, unmount};
use dure_sync::{Arc, thread};
use rustix::fs::{FallocateFlags, fallocate, statvfs};

/// 64 MiB.
const BLOCKS: u64 = 16 << 10;

/// close(2) returns before the kernel has told the server that nobody has the file any more.
#[test]
fn an_unlinked_file_makes_room_when_it_is_closed() {
    if !rustix::process::geteuid().is_root() {
        println!("not run: only root can mount");
        return;
    }
    for (write_cache, transport) in [
        (WriteCache::Through, Transport::Device),
        (WriteCache::Back, Transport::Device),
        (WriteCache::Through, Transport::Uring),
        (WriteCache::Back, Transport::Uring),
    ] {
        let ram = Arc::new(RamDevice::new("room", BLOCKS));
        FileSystem::format(share(ram.clone()), &FormatOptions::default()).unwrap();
        let volume = FileSystem::open(share(ram), MountOptions::default()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let settings = MountSettings {
            write_cache,
            transport,
            ..MountSettings::default()
        };
        let session = match Session::mount(volume.clone(), directory.path(), &settings) {
            Ok(session) => session,
            Err(error @ MountError::NoFuse(_)) => {
                println!("not run: {error}");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        if let Some(why) = session.fallback() {
            println!("not run: {why}");
            drop(session);
            volume.close().unwrap();
            return;
        }
        let server = thread::spawn("server", move || session.run());
        let broken = room_comes_back(directory.path());
        unmount(directory.path(), Lazy::Yes).unwrap();
        server.join().unwrap().unwrap();
        volume.close().unwrap();
        assert_eq!(broken, None, "{write_cache:?}");
    }
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
