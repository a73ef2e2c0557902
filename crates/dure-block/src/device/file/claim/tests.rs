use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use dure_sync::thread;

use crate::Error;
use crate::device::file::loop_device::Loop;
use crate::file::{
    Allocation, FileDevice, OpenOptions, Sharing, create_image, open_file, resize_image,
};

fn image(directory: &Path) -> PathBuf {
    let path = directory.join("image");
    let options = OpenOptions::default();
    drop(create_image(&path, 512, Allocation::Sparse, options).unwrap());
    path
}

fn opened(path: &Path) -> crate::Result<FileDevice> {
    open_file(path, OpenOptions::default())
}

fn reading() -> OpenOptions {
    OpenOptions {
        read_only: true,
        ..OpenOptions::default()
    }
}

#[test]
fn an_image_is_locked_under_all_its_names() {
    let place = tempfile::tempdir().unwrap();
    let path = image(place.path());
    let other = place.path().join("other");
    std::fs::hard_link(&path, &other).unwrap();
    let held = opened(&path).unwrap();
    assert!(matches!(opened(&other), Err(Error::Locked { .. })));
    drop(held);
    opened(&other).unwrap();
}

/// A process that is being started has the files of its parent for a moment, and had our locks: an
/// image that was just closed could not be opened again.
#[test]
fn an_image_is_unlocked_when_closed_whoever_else_has_the_file() {
    let place = tempfile::tempdir().unwrap();
    let path = image(place.path());
    let device = opened(&path).unwrap();
    let inherited = device.target.fd.try_clone().unwrap();
    drop(device);
    opened(&path).unwrap();
    drop(inherited);
}

/// After a kill, a volume could not be mounted for a moment: the kernel had yet to release the rings of
/// the process, and with them its lock.
#[test]
fn a_lock_of_a_process_that_is_over_is_waited_for() {
    let place = tempfile::tempdir().unwrap();
    let path = image(place.path());
    // The lock is flock(1)'s, which ends; its open file is ours too.
    let held = std::fs::File::open(&path).unwrap();
    let lock = Command::new("flock")
        .args(["--exclusive", "0"])
        .stdin(held.try_clone().unwrap())
        .status();
    if !lock.is_ok_and(|status| status.success()) {
        eprintln!("skipped: flock(1) is not there");
        return;
    }
    let release = thread::spawn("release", move || {
        thread::sleep(Duration::from_millis(200));
        drop(held);
    });
    opened(&path).unwrap();
    release.join().unwrap();
}

/// A loop device over a mounted image was mounted a second time.
#[test]
fn an_image_and_the_loop_devices_over_it_are_one_volume() {
    let place = tempfile::tempdir().unwrap();
    let path = image(place.path());
    let (Some(first), Some(second)) = (Loop::new(&path), Loop::new(&path)) else {
        return;
    };
    let held = opened(&path).unwrap();
    for device in [&first, &second] {
        // The kernel's claim or the image's lock: whichever is seen first.
        let error = opened(&device.0).unwrap_err();
        assert!(
            matches!(error, Error::Locked { .. } | Error::Busy { .. }),
            "{error}"
        );
    }
    drop(held);
    let held = opened(&first.0).unwrap();
    let error = opened(&path).unwrap_err();
    assert!(error.to_string().contains("in use by process"), "{error}");
    assert!(matches!(error, Error::Locked { .. }));
    assert!(matches!(opened(&second.0), Err(Error::Locked { .. })));
    drop(held);
    // As dure mounts a block device: the kernel claims it, the image is ours to lock.
    let options = OpenOptions {
        sharing: Sharing::Kernel,
        ..OpenOptions::default()
    };
    let held = open_file(&first.0, options).unwrap();
    assert!(matches!(opened(&path), Err(Error::Locked { .. })));
    drop(held);
    // A user of the device that does not know of our locks, such as a kernel's file system.
    let mut exclusive = std::fs::OpenOptions::new();
    let held = exclusive.read(true).custom_flags(libc::O_EXCL);
    let held = held.open(&second.0).unwrap();
    assert!(matches!(opened(&path), Err(Error::Busy { path }) if path == second.0));
    drop(held);
    let readers = (open_file(&path, reading()), open_file(&first.0, reading()));
    assert!(readers.0.is_ok() && readers.1.is_ok(), "readers share");
}

#[test]
fn a_name_that_leads_elsewhere_meanwhile_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let path = image(place.path());
    // A process makes an image and fails, while another one waits for its lock.
    let error = super::super::open::open_claimed(&path, OpenOptions::default(), |_, _| {
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, [0; 8192]).unwrap();
        Ok(super::Claim::default())
    })
    .unwrap_err();
    assert!(error.to_string().contains("replaced"), "{error}");
}

#[test]
fn an_image_gets_another_size_under_its_lock() {
    let place = tempfile::tempdir().unwrap();
    let path = image(place.path());
    let device = resize_image(&path, opened(&path).unwrap(), 700).unwrap();
    assert_eq!(crate::Device::info(&device).blocks, 700);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 700 * 4096);
    assert!(matches!(opened(&path), Err(Error::Locked { .. })));
}
