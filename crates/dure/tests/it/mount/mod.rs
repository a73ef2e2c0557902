//! A volume that is open here and mounted there: what one side does, the other sees when the call
//! has returned.
//!
//! Where FUSE cannot be used the tests say so and end.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod ends;
mod lent;
mod random;
mod seen;
mod taken;
mod threads;

use std::path::PathBuf;

use dure::{Cause, Mount, MountError, Session, Volume};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use tempfile::TempDir;

/// A volume in memory, and its mount.
struct Both {
    volume: Volume,
    library: Session,
    mount: Mount,
    directory: TempDir,
}

impl Both {
    /// `None` where FUSE cannot be used.
    fn new() -> Option<Both> {
        let volume = Volume::in_memory(64 << 20).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let library = volume.root();
        library.chown("/", Some(own_uid()), None).unwrap();
        let mount = mounted(volume.mount(directory.path()))?;
        Some(Both {
            volume,
            library,
            mount,
            directory,
        })
    }

    /// A path of the mount.
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Unmounts and closes.
    fn end(mut self) {
        self.mount.unmount().unwrap();
        self.volume.close().unwrap();
    }
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[expect(clippy::print_stdout, reason = "a test that cannot run says so")]
pub(crate) fn mounted(mount: dure::Result<Mount>) -> Option<Mount> {
    match mount {
        Ok(mount) => Some(mount),
        Err(error) => match error.cause() {
            Cause::Mount(MountError::NoFuse(_) | MountError::NoHelper) => {
                println!("not run: {error}");
                None
            }
            _ => panic!("{error}"),
        },
    }
}

/// A shared mapping of the first bytes of a file.
#[derive(Debug)]
struct Mapping {
    at: *mut u8,
    len: usize,
}

impl Mapping {
    fn new(file: &std::fs::File, len: usize) -> Mapping {
        Mapping::with(file, len, ProtFlags::READ | ProtFlags::WRITE)
    }

    /// Of a file that is open for reading.
    fn of_reader(file: &std::fs::File, len: usize) -> Mapping {
        Mapping::with(file, len, ProtFlags::READ)
    }

    fn with(file: &std::fs::File, len: usize, prot: ProtFlags) -> Mapping {
        // SAFETY: a new mapping, where the kernel finds room.
        let at = unsafe { mmap(std::ptr::null_mut(), len, prot, MapFlags::SHARED, file, 0) };
        let at = at.unwrap().cast();
        Mapping { at, len }
    }

    fn get(&self, index: usize) -> u8 {
        assert!(index < self.len);
        // SAFETY: it lies in the mapping.
        let at = unsafe { self.at.add(index) };
        // SAFETY: as above; others may write it.
        unsafe { at.read_volatile() }
    }

    fn set(&self, index: usize, byte: u8) {
        assert!(index < self.len);
        // SAFETY: it lies in the mapping.
        let at = unsafe { self.at.add(index) };
        // SAFETY: as above.
        unsafe { at.write_volatile(byte) };
    }

    /// As memory of the process.
    fn bytes(&self) -> &[u8] {
        // SAFETY: it is mapped, and no test changes it while it has this.
        unsafe { std::slice::from_raw_parts(self.at, self.len) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.len) }
    }
}

// SAFETY: memory of the process; it is read and written as what others may write, too.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nothing refers to it any more.
        let unmapped = unsafe { rustix::mm::munmap(self.at.cast(), self.len) };
        unmapped.unwrap();
    }
}
