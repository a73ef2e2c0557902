//! Descriptors of the mount, taken as files of the library.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;

use dure::Credentials;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::Both;

fn raw(flags: OFlags) -> i32 {
    flags.bits().cast_signed()
}

/// The file of the library.
fn taken(both: &Both, descriptor: &fs::File) -> dure::Result<Option<dure::File>> {
    let caller = Credentials::of_process();
    both.mount.file(descriptor.as_fd(), caller)
}

#[test]
fn a_descriptor_of_the_mount_is_a_file_of_the_library() {
    let Some(both) = Both::new() else { return };
    let path = both.path("f");
    let there = fs::File::create(&path).unwrap();
    let file = taken(&both, &there).unwrap().unwrap();
    file.write_all_at(b"sown", 0).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"sown");
    let mut bytes = [0; 4];
    let refused = file.read_at(&mut bytes, 0).unwrap_err().errno();
    assert_eq!(
        refused,
        Errno::BADF.raw_os_error(),
        "it is open for writing"
    );
    let reader = fs::File::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let nameless = taken(&both, &reader).unwrap().unwrap();
    nameless.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"sown");
    let refused = nameless.write_at(b"S", 0).unwrap_err().errno();
    assert_eq!(
        refused,
        Errno::BADF.raw_os_error(),
        "it is open for reading"
    );
    drop((there, file, reader, nameless));
    both.end();
}

#[test]
fn what_is_taken_appends_if_the_descriptor_does() {
    let Some(both) = Both::new() else { return };
    let path = both.path("log");
    let there = fs::File::options().append(true).create(true).open(&path);
    let file = taken(&both, &there.unwrap()).unwrap().unwrap();
    for line in [b"one\n", b"two\n"] {
        file.write_at(line, 0).unwrap();
    }
    assert_eq!(fs::read(&path).unwrap(), b"one\ntwo\n");
    drop(file);
    both.end();
}

/// A volume with the file `f` of four bytes, synced, and its mount.
struct Cut {
    folder: tempfile::TempDir,
    volume: dure::Volume,
    mount: dure::Mount,
}

impl Cut {
    fn new() -> Option<Cut> {
        let folder = tempfile::tempdir().unwrap();
        let options = dure::CreateOptions {
            image_bytes: Some(32 << 20),
            ..dure::CreateOptions::default()
        };
        let volume = dure::Volume::create(folder.path().join("v"), &options).unwrap();
        let owner = Some(super::own_uid());
        volume.root().chown("/", owner, None).unwrap();
        let directory = folder.path().join("m");
        fs::create_dir_all(&directory).unwrap();
        let mount = super::mounted(volume.mount(&directory))?;
        fs::write(directory.join("f"), b"----").unwrap();
        volume.sync().unwrap();
        Some(Cut {
            folder,
            volume,
            mount,
        })
    }

    fn open(&self, flags: OFlags) -> fs::File {
        let mut options = fs::File::options();
        options.read(true).write(true).custom_flags(raw(flags));
        options.open(self.folder.path().join("m/f")).unwrap()
    }

    /// The file after a power cut now.
    fn remains(&self) -> Vec<u8> {
        let copy = self.folder.path().join("copy");
        fs::copy(self.folder.path().join("v"), &copy).unwrap();
        let after = dure::Volume::open(&copy, dure::MountOptions::default()).unwrap();
        after.root().read("f").unwrap()
    }

    fn end(mut self) {
        self.mount.unmount().unwrap();
        self.volume.close().unwrap();
    }
}

/// Power fails after a write by what was taken of a descriptor with `O_SYNC`, `O_DSYNC` or neither.
#[test]
fn writes_are_durable_if_those_of_the_descriptor_are() {
    for (flags, durable) in [
        (OFlags::empty(), false),
        (OFlags::DSYNC, true),
        (OFlags::SYNC, true),
    ] {
        let Some(cut) = Cut::new() else { return };
        let opened = cut.open(flags);
        let caller = Credentials::of_process();
        let file = cut.mount.file(opened.as_fd(), caller);
        file.unwrap().unwrap().write_all_at(b"sown", 0).unwrap();
        drop(opened);
        assert_eq!(cut.remains() == b"sown", durable, "{flags:?}");
        cut.end();
    }
}

/// Regression: what stood in mappings of the mount only was no part of a sync by the library.
#[test]
fn a_sync_of_the_library_has_what_is_mapped() {
    let file = |cut: &Cut| cut.volume.root().open("/f").unwrap();
    let syncs: [&dyn Fn(&Cut); 3] = [
        &|cut| file(cut).sync_all().unwrap(),
        &|cut| file(cut).sync_data().unwrap(),
        &|cut| cut.volume.sync().unwrap(),
    ];
    for sync in syncs {
        let Some(cut) = Cut::new() else { return };
        let opened = cut.open(OFlags::empty());
        let mapping = super::Mapping::new(&opened, 4);
        mapping.set(0, b's');
        sync(&cut);
        assert_eq!(cut.remains(), b"s---");
        drop((mapping, opened));
        cut.end();
    }
}

#[test]
fn what_is_no_file_of_the_mount_is_not_taken() {
    let Some(both) = Both::new() else { return };
    let elsewhere = tempfile::tempfile().unwrap();
    assert!(taken(&both, &elsewhere).unwrap().is_none());
    let directory = fs::File::open(both.directory.path()).unwrap();
    assert!(taken(&both, &directory).unwrap().is_none());
    fs::write(both.path("f"), b"sown").unwrap();
    let name = fs::File::options()
        .read(true)
        .custom_flags(raw(OFlags::PATH))
        .open(both.path("f"))
        .unwrap();
    let refused = taken(&both, &name).unwrap_err().errno();
    assert_eq!(refused, Errno::BADF.raw_os_error());
    drop((directory, name));
    both.end();
}
