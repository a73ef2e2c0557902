//! Files of the library, opened in the mount.

use std::fs::{self, TryLockError};
use std::io::Read;

use rustix::io::Errno;

use super::{Both, Mapping};

fn create(both: &Both, name: &str) -> dure::File {
    let options = dure::OpenOptions::new().read(true).write(true).create(true);
    options.open(&both.library, name).unwrap()
}

#[test]
fn locks_hold_for_all_that_use_the_mount() {
    let Some(both) = Both::new() else { return };
    let here = both.mount.open(&create(&both, "f")).unwrap();
    let there = fs::File::open(both.path("f")).unwrap();
    here.lock().unwrap();
    assert!(matches!(there.try_lock(), Err(TryLockError::WouldBlock)));
    let other = std::process::Command::new("flock")
        .arg("-n")
        .arg(both.path("f"))
        .arg("true")
        .status();
    assert_ne!(
        other.unwrap().code(),
        Some(0),
        "a program there has to wait"
    );
    here.unlock().unwrap();
    there.try_lock_shared().unwrap();
    assert!(matches!(here.try_lock(), Err(TryLockError::WouldBlock)));
    drop((here, there));
    both.end();
}

#[test]
fn a_lent_descriptor_is_the_file_whatever_its_names_are() {
    let Some(both) = Both::new() else { return };
    let file = create(&both, "f");
    file.write_all_at(b"sown", 0).unwrap();
    both.library.rename("f", "g").unwrap();
    let mut text = String::new();
    both.mount
        .open(&file)
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(text, "sown");
    both.library.remove_file("g").unwrap();
    let lent = both.mount.open(&file).unwrap();
    let map = Mapping::new(&lent, 4096);
    file.write_all_at(b"S", 0).unwrap();
    assert_eq!(map.get(0), b'S');
    map.set(1, b'O');
    let mut got = [0; 4];
    file.read_exact_at(&mut got, 0).unwrap();
    assert_eq!(&got, b"SOwn");
    let listed = fs::read_dir(both.directory.path()).unwrap();
    assert_eq!(listed.count(), 0, "no listing has the name");
    drop((map, lent, file));
    both.end();
}

#[test]
fn a_lent_name_leads_nowhere_afterwards() {
    let Some(both) = Both::new() else { return };
    let lent = both.mount.open(&create(&both, "f")).unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&lent);
    let path = fs::read_link(format!("/proc/self/fd/{number}")).unwrap();
    let path = path.to_str().unwrap().trim_end_matches(" (deleted)");
    let path = std::path::Path::new(path);
    assert!(
        path.starts_with(both.directory.path()),
        "{}",
        path.display()
    );
    assert!(fs::File::open(path).is_err(), "{}", path.display());
    drop(lent);
    both.end();
}

#[test]
fn what_cannot_be_lent_is_refused() {
    let Some(mut both) = Both::new() else { return };
    let file = create(&both, "f");
    let errno = |opened: dure::Result<fs::File>| opened.unwrap_err().errno();
    let directory = both.library.open("/").unwrap();
    assert_eq!(
        errno(both.mount.open(&directory)),
        Errno::INVAL.raw_os_error()
    );
    let other = dure::Volume::in_memory(16 << 20).unwrap().root();
    let other = other.create("f").unwrap();
    assert_eq!(errno(both.mount.open(&other)), Errno::XDEV.raw_os_error());
    both.mount.unmount().unwrap();
    assert_eq!(errno(both.mount.open(&file)), Errno::NOTCONN.raw_os_error());
    both.volume.close().unwrap();
}
