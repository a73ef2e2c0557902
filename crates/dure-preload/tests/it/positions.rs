//! Positions of descriptors, which processes share.

use std::fs::File;
use std::io::{IoSlice, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::process::Command;

use crate::run::run;

fn open(name: &str) -> File {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    options.open(name).unwrap()
}

#[test]
fn reads_and_writes_move_the_position_that_the_kernel_has() {
    run("positions", 6);
}

pub(crate) fn part() {
    let mut file = open("file");
    file.write_all(b"sown together").unwrap();
    assert_eq!(rustix::fs::tell(&file).unwrap(), 13);
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(5)).unwrap();
    let mut four = [0; 4];
    file.read_exact(&mut four).unwrap();
    assert_eq!(&four, b"toge");
    // By the kernel, then by the library: one position.
    rustix::io::read(&file, &mut four[..2]).unwrap();
    assert_eq!(&four[..2], b"th");
    assert_eq!(file.read(&mut four).unwrap(), 2);
    assert_eq!(&four[..2], b"er");
    assert_eq!(file.read(&mut four).unwrap(), 0);
    assert_eq!(file.seek(SeekFrom::End(-2)).unwrap(), 11);
    assert_eq!(file.seek(SeekFrom::Current(-1)).unwrap(), 10);
    // Calls at an offset leave it.
    file.write_all_at(b"S", 0).unwrap();
    file.read_exact_at(&mut four, 0).unwrap();
    assert_eq!(&four, b"Sown");
    assert_eq!(rustix::fs::tell(&file).unwrap(), 10);
    assert_eq!(std::fs::read("file").unwrap(), b"Sown together");
}

#[test]
fn appends_of_both_ways_go_to_the_end() {
    run("appends", 3);
}

pub(crate) fn appends() {
    let mut file = File::options()
        .append(true)
        .create(true)
        .open("log")
        .unwrap();
    file.write_all(b"one ").unwrap();
    rustix::io::write(&file, b"two ").unwrap();
    file.write_all(b"three ").unwrap();
    assert_eq!(rustix::fs::tell(&file).unwrap(), 14);
    // As Linux does: at the end, wherever the caller says.
    file.write_all_at(b"four", 0).unwrap();
    assert_eq!(std::fs::read("log").unwrap(), b"one two three four");
    // From now on at its position.
    // SAFETY: a number, and flags.
    let set = unsafe { libc::fcntl(std::os::fd::AsRawFd::as_raw_fd(&file), libc::F_SETFL, 0) };
    assert_eq!(set, 0);
    file.write_all_at(b"ONE", 0).unwrap();
    assert_eq!(std::fs::read("log").unwrap(), b"ONE two three four");
}

#[test]
fn parts_of_a_vector_are_one_write() {
    run("vectors", 3);
}

pub(crate) fn vectors() {
    let mut file = open("vector");
    let parts = [b"so".as_slice(), b"", b"wn"].map(IoSlice::new);
    assert_eq!(file.write_vectored(&parts).unwrap(), 4);
    file.rewind().unwrap();
    let (mut one, mut two) = ([0; 3], [0; 3]);
    let mut places = [&mut one[..], &mut two[..]].map(std::io::IoSliceMut::new);
    assert_eq!(file.read_vectored(&mut places).unwrap(), 4);
    assert_eq!((&one, &two[..1]), (b"sow", &b"n"[..]));
    assert_eq!(rustix::fs::tell(&file).unwrap(), 4);
    // SAFETY: one part, of memory that lives.
    let read = unsafe {
        let part = libc::iovec {
            iov_base: one.as_mut_ptr().cast(),
            iov_len: 3,
        };
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        libc::preadv(fd, &raw const part, 1, 1)
    };
    assert_eq!((read, &one), (3, b"own"));
}

#[test]
fn children_share_the_position() {
    run("children", 2);
}

pub(crate) fn children() {
    let mut file = open("shared");
    file.write_all(b"0123456789").unwrap();
    file.rewind().unwrap();
    let mut two = [0; 2];
    file.read_exact(&mut two).unwrap();
    // SAFETY: the child makes calls that take no lock, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let read = file.read(&mut two).is_ok_and(|count| count == 2) && &two == b"23";
        let written = file.write(b"AB").is_ok_and(|count| count == 2);
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(!(read && written))) };
    }
    let mut status = -1;
    // SAFETY: waits for the child.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0);
    file.read_exact(&mut two).unwrap();
    assert_eq!(&two, b"67");
    let position = file.try_clone().unwrap();
    let inherited = Command::new("cat").stdin(position).output().unwrap();
    assert_eq!(inherited.stdout, b"89");
    assert_eq!(file.read(&mut two).unwrap(), 0);
    let named = Command::new("cat").arg("shared").output().unwrap();
    assert_eq!(named.stdout, b"0123AB6789");
}

/// Regression: a child that no handler of the C library heard of used its copy of the volume.
#[test]
fn a_child_with_a_copy_of_the_memory_uses_the_mount() {
    run("copied memory", 2);
}

pub(crate) fn copied_memory() {
    let file = open("copied");
    file.write_all_at(b"0", 0).unwrap();
    // SAFETY: as fork(2); the child makes one call, which takes no lock, and ends.
    let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    if child == 0 {
        let written = file.write_at(b"1", 1).is_ok_and(|count| count == 1);
        // SAFETY: ends the child.
        unsafe { libc::syscall(libc::SYS_exit_group, i32::from(!written)) };
    }
    let mut status = -1;
    // SAFETY: waits for the child.
    unsafe { libc::waitpid(i32::try_from(child).unwrap(), &raw mut status, 0) };
    assert_eq!(status, 0);
    // It is here because the child has told the server.
    let mut both = [0; 2];
    file.read_exact_at(&mut both, 0).unwrap();
    assert_eq!(&both, b"01");
}
