//! Open files and the end of their names, where cores lend pins: a file lives as long as somebody has it.
//!
//! Runs with the sim backend only: `cargo xtask sim -p dure-sim -- sim_pins`.

#![cfg(dure_backend = "sim")]
#![expect(clippy::unwrap_used, reason = "tests say what they expect")]

use dure_fs::{Error, FileSystem, InodeRef, NewInode, ReadMode, RenameMode, Stamp, VolumeRules};
use dure_sim::schedules::{assert_whole, mount_small, small_volume};
use dure_sync::sim::{Config, run};
use dure_sync::{CoreId, thread};

const FILE: NewInode = NewInode {
    mode: 0o100_644,
    umask: 0,
    uid: 0,
    gid: 0,
    rdev: 0,
};

/// How a file loses its name.
#[derive(Debug, Clone, Copy)]
enum End {
    Unlinked,
    Replaced,
}

/// A core lends all its uses of a file from one pin: the count of pins does not tell whether another task of
/// that core has the file open.
#[test]
fn sim_race_a_file_that_another_task_of_the_core_has_open_lives_on() {
    for end in [End::Unlinked, End::Replaced] {
        run(Config::random(2, 1), move || {
            let ram = small_volume(1024);
            let fs = mount_small(&ram, VolumeRules::default());
            let root = fs.root().unwrap();
            drop(fs.create(&root, b"file", &FILE).unwrap());
            lend(&fs, &root, b"file");
            let open = fs.lookup(&root, b"file").unwrap().unwrap();
            match end {
                End::Unlinked => fs.unlink(&root, b"file").unwrap(),
                End::Replaced => {
                    drop(fs.create(&root, b"new", &FILE).unwrap());
                    let replace = RenameMode::Replace;
                    fs.rename(&root, b"new", &root, b"file", replace).unwrap();
                }
            }
            assert_eq!(fs.attributes(&open).unwrap().nlink, 0);
            let other = fs.create(&root, b"other", &FILE).unwrap();
            assert_ne!(other.ino(), open.ino(), "it is in use");
            assert_eq!(fs.write(&open, 0, b"mine", Stamp::Set).unwrap(), 4);
            let mut bytes = [0; 4];
            assert_eq!(fs.read(&open, 0, &mut bytes, ReadMode::Cached).unwrap(), 4);
            assert_eq!(&bytes, b"mine");
            drop((open, other, root));
            fs.close().unwrap();
            assert_whole(ram);
        });
    }
}

/// The same of a directory.
#[test]
fn sim_race_a_directory_that_another_task_of_the_core_has_open_lives_on() {
    run(Config::random(2, 1), || {
        let ram = small_volume(1024);
        let fs = mount_small(&ram, VolumeRules::default());
        let root = fs.root().unwrap();
        let new = NewInode {
            mode: 0o755,
            ..NewInode::default()
        };
        drop(fs.mkdir(&root, b"directory", &new).unwrap());
        lend(&fs, &root, b"directory");
        let open = fs.lookup(&root, b"directory").unwrap().unwrap();
        fs.rmdir(&root, b"directory").unwrap();
        let other = fs.mkdir(&root, b"other", &new).unwrap();
        assert_ne!(other.ino(), open.ino(), "it is in use");
        assert_eq!(fs.attributes(&open).unwrap().nlink, 0);
        let made = fs.create(&open, b"file", &FILE).map(|made| made.ino());
        assert!(matches!(made, Err(Error::NotFound)), "{made:?}");
        drop((open, other, root));
        fs.close().unwrap();
        assert_whole(ram);
    });
}

/// Two cores take turns until each lends pins of its own.
fn lend(fs: &FileSystem, root: &InodeRef, name: &[u8]) {
    for turn in 0..12 {
        thread::scope(|scope| {
            scope.spawn_on(CoreId::new(turn % 2), || {
                drop(fs.lookup(root, name).unwrap().unwrap());
            });
        });
    }
}
