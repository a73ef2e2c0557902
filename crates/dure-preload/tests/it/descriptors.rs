//! What a descriptor leads to.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{FileExt, MetadataExt};

use crate::run::run;

fn with(name: &str, content: &str) -> File {
    let mut file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(name)
        .unwrap();
    file.write_all(content.as_bytes()).unwrap();
    file
}

fn first(file: &File) -> u8 {
    let mut byte = [0];
    file.read_exact_at(&mut byte, 0).unwrap();
    byte[0]
}

#[test]
fn duplicates_lead_to_the_same_file() {
    run("duplicates", 8);
}

pub(crate) fn duplicates() {
    let (mut one, two) = (with("one", "1"), with("two", "2"));
    let mut again = one.try_clone().unwrap();
    one.rewind().unwrap();
    let mut byte = [0];
    again.read_exact(&mut byte).unwrap();
    assert_eq!(one.read(&mut byte).unwrap(), 0);
    // SAFETY: numbers of open files.
    let made = unsafe { libc::dup2(two.as_raw_fd(), again.as_raw_fd()) };
    assert_eq!(made, again.as_raw_fd());
    assert_eq!((first(&again), first(&one)), (b'2', b'1'));
    // SAFETY: likewise.
    let refused = unsafe { libc::dup2(9999, again.as_raw_fd()) };
    assert_eq!((refused, first(&again)), (-1, b'2'));
    // SAFETY: likewise.
    let third = unsafe { File::from_raw_fd(libc::fcntl(two.as_raw_fd(), libc::F_DUPFD, 100)) };
    drop(two);
    assert_eq!(first(&third), b'2');
    // By the kernel, without a word to the library.
    let null = File::open("/dev/null").unwrap();
    let number = again.as_raw_fd();
    drop(again);
    // SAFETY: the number is free, and its file is dropped once.
    let mut place =
        std::mem::ManuallyDrop::new(unsafe { std::os::fd::OwnedFd::from_raw_fd(number) });
    rustix::io::dup2(&null, &mut place).unwrap();
    // SAFETY: it was just opened.
    let other = unsafe { File::from_raw_fd(number) };
    assert_eq!((&other).read(&mut byte).unwrap(), 0);
}

#[test]
fn what_is_closed_is_closed_and_the_library_keeps_its_own() {
    run("closes", 4);
}

pub(crate) fn closes() {
    let (one, two) = (with("one", "1"), with("two", "2"));
    // The first number that is not the program's.
    let own = (1000..2000).find(|fd| std::fs::metadata(format!("/proc/self/fd/{fd}")).is_ok());
    let own = own.expect("the library has descriptors");
    // SAFETY: numbers.
    assert_eq!(unsafe { libc::close(own) }, -1);
    // SAFETY: likewise.
    assert_eq!(unsafe { libc::dup2(one.as_raw_fd(), own) }, -1);
    let (low, _) = (one.as_raw_fd().cast_unsigned(), two.as_raw_fd());
    std::mem::forget((one, two));
    // SAFETY: it closes the files that were forgotten; the test harness has what lies below.
    assert_eq!(unsafe { libc::close_range(low, u32::MAX, 0) }, 0);
    let null = File::open("/dev/null").unwrap();
    assert_eq!(null.as_raw_fd().cast_unsigned(), low);
    assert_eq!((&null).read(&mut [0]).unwrap(), 0);
    assert_eq!(first(&File::open("two").unwrap()), b'2');
    drop(null);
    let three = with("three", "3");
    // SAFETY: numbers: a close that goes by the C library's.
    unsafe { libc::syscall(libc::SYS_close, three.as_raw_fd()) };
    std::mem::forget(three);
    assert_eq!(
        (&File::open("/dev/null").unwrap()).read(&mut [0]).unwrap(),
        0
    );
}

#[test]
fn streams_of_the_c_library_see_the_same_file() {
    run("streams", 1);
}

pub(crate) fn streams() {
    let file = with("stream", "sown");
    // SAFETY: texts with their ends; the stream owns the descriptor.
    let stream = unsafe { libc::fdopen(std::os::fd::IntoRawFd::into_raw_fd(file), c"r+".as_ptr()) };
    // SAFETY: the stream is open until it is closed, and the memory lives.
    unsafe {
        let number = libc::fileno(stream);
        libc::rewind(stream);
        let mut bytes = [0_u8; 2];
        assert_eq!(libc::fread(bytes.as_mut_ptr().cast(), 1, 2, stream), 2);
        assert_eq!(&bytes, b"so");
        assert_eq!(libc::fclose(stream), 0);
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY);
        assert_eq!(
            (null, libc::read(null, bytes.as_mut_ptr().cast(), 2)),
            (number, 0)
        );
        libc::close(null);
    }
}

#[test]
fn sizes_and_attributes_are_those_of_the_mount() {
    run("sizes", 4);
}

pub(crate) fn sizes() {
    let file = with("sized", "sown together");
    file.set_len(4).unwrap();
    assert_eq!(std::fs::metadata("sized").unwrap().len(), 4);
    let mut found = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: an open file, and a place.
    let done = unsafe { libc::fstat(file.as_raw_fd(), found.as_mut_ptr()) };
    assert_eq!(done, 0);
    // SAFETY: it was written.
    let found = unsafe { found.assume_init() };
    let by_name = std::fs::metadata("sized").unwrap();
    assert_eq!(
        (
            found.st_dev,
            found.st_ino,
            found.st_mode,
            found.st_size,
            found.st_nlink
        ),
        (
            by_name.dev(),
            by_name.ino(),
            by_name.mode(),
            4,
            by_name.nlink()
        )
    );
    assert_eq!(
        (found.st_mtime, found.st_mtime_nsec),
        (by_name.mtime(), by_name.mtime_nsec())
    );
    assert_eq!(
        (found.st_blksize, found.st_uid),
        (by_name.blksize().cast_signed(), by_name.uid())
    );
    file.sync_all().unwrap();
    file.sync_data().unwrap();
    let only_read = File::open("sized").unwrap();
    let refused = only_read.write_at(b"x", 0).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EBADF));
    // SAFETY: a number.
    assert_eq!(unsafe { libc::ftruncate(only_read.as_raw_fd(), 0) }, -1);
    assert_eq!(
        std::io::Error::last_os_error().raw_os_error(),
        Some(libc::EINVAL)
    );
}

/// Regression: the kernel copied as much as it knew of, nothing.
#[test]
fn copies_by_descriptor_are_whole() {
    run("copies", 2);
}

pub(crate) fn copies() {
    let file = with("from", "sown together");
    let null = std::ptr::null_mut();
    for (name, by_sendfile) in [("range", false), ("sent", true)] {
        let to = with(name, "");
        (&file).rewind().unwrap();
        let (from, into) = (file.as_raw_fd(), to.as_raw_fd());
        // SAFETY: open files, and no places.
        let copied = unsafe {
            match by_sendfile {
                true => libc::sendfile(into, from, null, 100),
                false => libc::copy_file_range(from, null, into, null, 100, 0),
            }
        };
        assert_eq!(copied, 13, "{name}: {}", std::io::Error::last_os_error());
        assert_eq!(std::fs::read(name).unwrap(), b"sown together");
    }
}

/// `struct file_dedupe_range` with two targets.
#[repr(C)]
struct Dedupe {
    from: u64,
    len: u64,
    targets: u64,
    found: [Target; 2],
}

#[repr(C)]
struct Target {
    fd: i64,
    to: u64,
    same: u64,
    status: i32,
    reserved: u32,
}

/// Clones what is stored in a mapping, by each request of Linux.
pub(crate) fn clones() {
    let new = |name| {
        let mut options = File::options();
        let options = options.read(true).write(true).create_new(true);
        options.open(name).unwrap()
    };
    let (source, target) = (new("source"), new("target"));
    for file in [&source, &target] {
        file.write_all_at(&[7; 8192], 0).unwrap();
    }
    let fd = |file: &File| file.as_raw_fd();
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let null = std::ptr::null_mut();
    // SAFETY: new memory.
    let page = unsafe { libc::mmap(null, 8192, access, libc::MAP_SHARED, fd(&source), 0) };
    // SAFETY: its second page.
    unsafe { page.cast::<u8>().add(4096).write_volatile(9) };
    let of = |fd: i32| Target {
        fd: fd.into(),
        to: 0,
        same: 0,
        status: 0,
        reserved: 0,
    };
    let mut dedupe = Dedupe {
        from: 0,
        len: 8192,
        targets: 2,
        found: [of(fd(&target)), of(1)],
    };
    // SAFETY: the structure of the request.
    let done = unsafe { libc::ioctl(fd(&source), 0xc018_9436, &raw mut dedupe) };
    let [of_target, of_output] = dedupe.found;
    assert_eq!((done, of_target.same, of_target.status), (0, 0, 1));
    assert_eq!((of_output.same, of_output.status), (0, -libc::EXDEV));
    let range = libc::file_clone_range {
        src_fd: fd(&source).into(),
        src_offset: 4096,
        src_length: 0,
        dest_offset: 0,
    };
    // SAFETY: likewise.
    let done = unsafe { libc::ioctl(fd(&target), libc::FICLONERANGE, &raw const range) };
    assert_eq!(done, 0);
    let mut bytes = [0; 8192];
    target.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!((bytes[0], bytes[1], bytes[4096]), (9, 7, 7));
    let whole = new("whole");
    // SAFETY: a number.
    let done = unsafe { libc::ioctl(fd(&whole), libc::FICLONE, fd(&source)) };
    assert_eq!(done, 0);
    assert_eq!(whole.metadata().unwrap().len(), 8192);
    let host = File::open("/proc/self/exe").unwrap();
    // SAFETY: a number.
    let done = unsafe { libc::ioctl(fd(&whole), libc::FICLONE, fd(&host)) };
    assert_eq!(done, -1);
}

#[test]
fn clones_share_what_both_ways_have_written() {
    run("clones", 6);
}
