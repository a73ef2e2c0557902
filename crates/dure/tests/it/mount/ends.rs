//! How a mount begins and ends.

use std::fs;

use rustix::io::Errno;

use super::{Both, mounted};

#[test]
fn a_mount_in_use_stays_and_a_mounted_volume_is_not_closed() {
    let Some(mut both) = Both::new() else { return };
    both.library.write("f", b"f").unwrap();
    let open = fs::File::open(both.path("f")).unwrap();
    let busy = both.mount.unmount().unwrap_err();
    assert_eq!(busy.errno(), Errno::BUSY.raw_os_error(), "{busy}");
    assert!(
        busy.to_string()
            .contains(both.directory.path().to_str().unwrap()),
        "{busy}"
    );
    let closed = both.volume.close().unwrap_err();
    assert_eq!(closed.errno(), Errno::BUSY.raw_os_error());
    assert!(
        closed.to_string().contains("unmount that first"),
        "{closed}"
    );
    let elsewhere = tempfile::tempdir().unwrap();
    let again = both.volume.mount(elsewhere.path()).unwrap_err();
    assert_eq!(again.errno(), Errno::BUSY.raw_os_error(), "{again}");
    both.library.write("g", b"g").unwrap();
    assert_eq!(fs::read(both.path("g")).unwrap(), b"g");
    drop(open);
    both.mount.unmount().unwrap();
    both.mount.unmount().unwrap();
    assert!(!both.path("f").exists());
    // It can be mounted again, also elsewhere.
    let mut again = mounted(both.volume.mount(elsewhere.path())).unwrap();
    assert_eq!(fs::read(elsewhere.path().join("g")).unwrap(), b"g");
    again.unmount().unwrap();
    both.volume.close().unwrap();
}

#[test]
fn a_dropped_mount_serves_its_last_user() {
    let Some(both) = Both::new() else { return };
    both.library.write("f", b"kept").unwrap();
    let open = fs::File::open(both.path("f")).unwrap();
    drop(both.mount);
    assert!(!both.directory.path().join("f").exists());
    both.library.write("f", b"KEPT").unwrap();
    let mut got = [0; 4];
    std::os::unix::fs::FileExt::read_exact_at(&open, &mut got, 0).unwrap();
    assert_eq!(&got, b"KEPT");
    assert!(both.volume.close().is_err(), "it is still served");
    drop(open);
    for _ in 0..1000 {
        if both.volume.close().is_ok() {
            return;
        }
        dure_sync::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("the mount does not end");
}

#[test]
fn a_directory_that_is_none_is_told() {
    let Some(both) = Both::new() else { return };
    let volume = dure::Volume::in_memory(32 << 20).unwrap();
    for (name, errno) in [("missing", Errno::NOENT), ("file", Errno::NOTDIR)] {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("file"), b"").unwrap();
        let error = volume.mount(place.path().join(name)).unwrap_err();
        assert_eq!(error.errno(), errno.raw_os_error(), "{error}");
        assert!(error.to_string().contains("existing directory"), "{error}");
    }
    both.end();
}

#[test]
fn a_volume_that_is_read_only_is_mounted_so() {
    let Some(both) = Both::new() else { return };
    both.library.write("f", b"then").unwrap();
    both.volume.create_snapshot("monday").unwrap();
    both.library.write("f", b"now").unwrap();
    let monday = both
        .volume
        .open_snapshot("monday", dure::MountOptions::default());
    let (monday, place) = (monday.unwrap(), tempfile::tempdir().unwrap());
    let mut mount = monday.mount(place.path()).unwrap();
    assert_eq!(fs::read(place.path().join("f")).unwrap(), b"then");
    let refused = fs::write(place.path().join("f"), b"no").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(Errno::ROFS.raw_os_error()));
    mount.unmount().unwrap();
    both.end();
}
