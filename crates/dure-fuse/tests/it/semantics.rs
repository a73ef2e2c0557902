//! What the user's page of semantics says of calls on a mount, and no other test asks.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::ffi::{CString, c_void};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use dure_fuse::{Transport, WriteCache};
use rustix::fs::{
    FallocateFlags, FlockOperation, RenameFlags, SeekFrom, XattrFlags, fallocate, flock,
    renameat_with, seek, setxattr,
};
use rustix::io::Errno;

use crate::cache::Mounted;

const PAGE: u64 = 4096;
/// The largest file.
const FILE_BYTES_MAX: u64 = dure_fs::FILE_BYTES_MAX;

fn mounted() -> Option<Mounted> {
    Mounted::new(WriteCache::Through, Transport::Device)
}

fn file(path: &Path) -> File {
    let mut options = File::options();
    let options = options.create_new(true).read(true).write(true);
    options.open(path).unwrap()
}

fn failed<T: std::fmt::Debug>(result: rustix::io::Result<T>) -> Errno {
    result.unwrap_err()
}

fn ioctl(fd: RawFd, command: u64, argument: *mut c_void) -> Option<i32> {
    // SAFETY: the argument is memory of the size that the command says.
    let done = unsafe { libc::ioctl(fd, command, argument) };
    (done != 0).then(|| std::io::Error::last_os_error().raw_os_error().unwrap())
}

#[test]
fn a_preallocated_page_is_a_hole_until_it_is_written() {
    for write_cache in [WriteCache::Through, WriteCache::Back] {
        let Some(mounted) = Mounted::new(write_cache, Transport::Device) else {
            return;
        };
        preallocated_pages_are_holes(&mounted);
    }
}

fn preallocated_pages_are_holes(mounted: &Mounted) {
    let file = file(&mounted.path("f"));
    fallocate(&file, FallocateFlags::empty(), 0, 8 * PAGE).unwrap();
    assert_eq!(file.metadata().unwrap().blocks(), 64, "it has its blocks");
    assert_eq!(failed(seek(&file, SeekFrom::Data(0))), Errno::NXIO);
    assert_eq!(seek(&file, SeekFrom::Hole(PAGE)), Ok(PAGE));
    file.write_all_at(b"data", 3 * PAGE + 5).unwrap();
    assert_eq!(seek(&file, SeekFrom::Data(0)), Ok(3 * PAGE));
    assert_eq!(seek(&file, SeekFrom::Hole(3 * PAGE)), Ok(4 * PAGE));
    assert_eq!(failed(seek(&file, SeekFrom::Data(4 * PAGE))), Errno::NXIO);
    for target in [SeekFrom::Data(8 * PAGE), SeekFrom::Hole(8 * PAGE)] {
        assert_eq!(failed(seek(&file, target)), Errno::NXIO, "at the end");
    }
}

#[test]
fn what_is_refused_is_refused_with_the_documented_error() {
    let Some(mounted) = mounted() else { return };
    let (from, to) = (mounted.path("from"), mounted.path("to"));
    let (source, target) = (file(&from), file(&to));
    source.write_all_at(&[7; 8192], 0).unwrap();
    let (fd, source_fd) = (target.as_raw_fd(), source.as_raw_fd());
    // struct fiemap, without room for extents.
    let mut map = [0_u64; 4];
    map[1] = u64::MAX;
    let fiemap = 0xc020_660b;
    let asked = ioctl(source_fd, fiemap, map.as_mut_ptr().cast());
    assert!(
        [Some(libc::ENOTTY), Some(libc::EOPNOTSUPP)].contains(&asked),
        "{asked:?}"
    );
    let (get_flags, set_flags) = (0x8008_6601, 0x4008_6602);
    let mut flags = 0x10_u64;
    for command in [get_flags, set_flags] {
        let asked = ioctl(fd, command, (&raw mut flags).cast());
        assert_eq!(asked, Some(libc::ENOTTY));
    }
    let clone = 0x4004_9409;
    // SAFETY: the argument of this command is a descriptor.
    let cloned = unsafe { libc::ioctl(fd, clone, source_fd) };
    let error = std::io::Error::last_os_error().raw_os_error();
    assert_eq!((cloned, error), (-1, Some(libc::EOPNOTSUPP)));
    for flags in [
        FallocateFlags::COLLAPSE_RANGE,
        FallocateFlags::INSERT_RANGE,
        FallocateFlags::UNSHARE_RANGE,
    ] {
        let refused = failed(fallocate(&source, flags, 0, PAGE));
        assert_eq!(refused, Errno::OPNOTSUPP, "{flags:?}");
    }
}

#[test]
fn a_rename_leaves_a_whiteout_for_who_asks() {
    let Some(mounted) = mounted() else { return };
    let (from, to) = (mounted.path("from"), mounted.path("to"));
    file(&from).write_all_at(&[7; 100], 0).unwrap();
    file(&to);
    let cwd = rustix::fs::CWD;
    renameat_with(cwd, &from, cwd, &to, RenameFlags::WHITEOUT).unwrap();
    assert_eq!(fs::metadata(&to).unwrap().len(), 100);
    let left = fs::metadata(&from).unwrap();
    assert!(left.file_type().is_char_device());
    assert_eq!((left.rdev(), left.nlink()), (0, 1));
    let both = RenameFlags::WHITEOUT | RenameFlags::EXCHANGE;
    let refused = renameat_with(cwd, &to, cwd, &from, both);
    assert_eq!(failed(refused), Errno::INVAL);
}

#[test]
fn limits_are_said_at_once() {
    let Some(mounted) = mounted() else { return };
    let path = mounted.path("f");
    let file = file(&path);
    let beyond = file.write_at(b"x", FILE_BYTES_MAX).unwrap_err();
    assert_eq!(beyond.raw_os_error(), Some(libc::EFBIG));
    assert_eq!(file.write_at(b"two", FILE_BYTES_MAX - 1).unwrap(), 1);
    assert_eq!(file.metadata().unwrap().len(), FILE_BYTES_MAX);
    let set = |bytes: usize| setxattr(&path, "user.x", &vec![1; bytes], XattrFlags::empty());
    assert_eq!(set(65_536), Ok(()));
    // The kernel itself refuses what is longer.
    assert_eq!(failed(set(65_537)), Errno::TOOBIG);
    let other = setxattr(&path, "user.y", &[1; 65_536], XattrFlags::empty());
    assert_eq!(failed(other), Errno::NOSPC, "both together are too much");
    let link = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: a string that ends with zero.
    let most = unsafe { libc::pathconf(link.as_ptr(), libc::_PC_LINK_MAX) };
    assert_eq!(most, 127, "the C library knows no better");
    let long = mounted.path(&"n".repeat(256));
    let refused = File::create(long).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::ENAMETOOLONG));
}

/// ext4 says EPERM. Here nothing is changed, set-id bits included.
#[test]
fn a_change_of_owner_that_changes_nothing_succeeds_for_everybody() {
    let Some(mounted) = mounted() else { return };
    let path = mounted.path("f");
    drop(file(&path));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6755)).unwrap();
    let program = "import os, sys; os.setgid(1000); os.setuid(1000); os.chown(sys.argv[1], -1, -1)";
    let ran = Command::new("python3")
        .args(["-c", program])
        .arg(&path)
        .status();
    match ran {
        Ok(status) => assert!(status.success()),
        Err(error) => return assert_eq!(error.kind(), ErrorKind::NotFound),
    }
    let mode = fs::metadata(&path).unwrap().mode();
    assert_eq!(mode & 0o7777, 0o6755);
}

#[test]
fn locks_exclude_the_processes_of_a_mount() {
    let Some(mounted) = mounted() else { return };
    let path = mounted.path("f");
    let first = file(&path);
    let second = File::open(&path).unwrap();
    flock(&first, FlockOperation::LockExclusive).unwrap();
    let taken = flock(&second, FlockOperation::NonBlockingLockShared);
    assert_eq!(failed(taken), Errno::WOULDBLOCK);
    drop(first);
    flock(&second, FlockOperation::NonBlockingLockShared).unwrap();
}

/// Positions stay valid while names come and go.
#[test]
fn a_listing_goes_on_where_it_was() {
    let Some(mounted) = mounted() else { return };
    for n in 0..500 {
        drop(file(&mounted.path(&format!("name{n}"))));
    }
    let root = mounted.path("");
    let mut listing = fs::read_dir(&root).unwrap();
    let mut seen: Vec<_> = listing
        .by_ref()
        .take(100)
        .map(|entry| entry.unwrap().file_name())
        .collect();
    for name in &seen {
        fs::remove_file(root.join(name)).unwrap();
    }
    seen.extend(listing.map(|entry| entry.unwrap().file_name()));
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 500);
}

/// What is mapped is the kernel's until it hands it over.
#[test]
fn a_mapping_is_seen_by_others_and_written_by_msync() {
    let Some(mounted) = mounted() else { return };
    let path = mounted.path("f");
    let mut file = file(&path);
    file.write_all(&[0; 8192]).unwrap();
    let len = 8192;
    let (prot, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a new mapping of an open file.
    let map = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, shared, file.as_raw_fd(), 0) };
    assert_ne!(map, libc::MAP_FAILED);
    // SAFETY: the mapping has 8192 bytes.
    let place = unsafe { map.cast::<u8>().add(5000) };
    // SAFETY: nobody else uses the mapping.
    unsafe { place.write(9) };
    let mut byte = [0];
    File::open(&path).unwrap().read_at(&mut byte, 5000).unwrap();
    assert_eq!(byte, [9]);
    // SAFETY: the whole mapping.
    let synced = unsafe { libc::msync(map, len, libc::MS_SYNC) };
    // SAFETY: it is not used any more.
    let unmapped = unsafe { libc::munmap(map, len) };
    assert_eq!((synced, unmapped), (0, 0));
}
