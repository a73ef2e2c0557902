//! What the kernel's caches must not hide: of a real mount in both modes, how much room a file
//! takes while its data waits, where its holes are, that there is no room, and, call by call beside
//! ext4, who keeps set-id bits.
//!
//! Where FUSE cannot be used, or the caller is not root, the tests say so and end.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a panic is how a test fails, and a test that cannot run says so"
)]

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use dure_block::ram::RamDevice;
use dure_block::share;
use dure_fs::format::inode::Time;
use dure_fs::units::Ino;
use dure_fs::{FileSystem, MountOptions};
use dure_fuse::mount::{Lazy, MountError};
use dure_fuse::{MountSettings, Session, Transport, WriteCache, unmount};
use dure_sync::{Arc, thread};
use rustix::fs::{
    FallocateFlags, SeekFrom, XattrFlags, copy_file_range, fallocate, removexattr, setxattr,
};
use tempfile::TempDir;

/// 64 MiB.
const BLOCKS: u64 = 16 << 10;
const TRANSPORTS: [Transport; 2] = [Transport::Device, Transport::Uring];
/// Both caches by both ways.
const MOUNTS: [(WriteCache, Transport); 4] = [
    (WriteCache::Through, Transport::Device),
    (WriteCache::Back, Transport::Device),
    (WriteCache::Through, Transport::Uring),
    (WriteCache::Back, Transport::Uring),
];

/// A mounted volume, unmounted at the end.
pub(crate) struct Mounted {
    directory: TempDir,
    server: Option<thread::JoinHandle<Result<(), MountError>>>,
    volume: FileSystem,
}

impl Mounted {
    /// `None` where it cannot be.
    pub(crate) fn new(write_cache: WriteCache, transport: Transport) -> Option<Mounted> {
        if !rustix::process::geteuid().is_root() {
            println!("not run: only root can be everybody");
            return None;
        }
        let ram = Arc::new(RamDevice::new("cached", BLOCKS));
        FileSystem::format(share(ram.clone()), &crate::format_options()).unwrap();
        let volume = FileSystem::open(share(ram), MountOptions::default()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        let settings = MountSettings {
            allow_other: true,
            write_cache,
            transport,
            ..MountSettings::default()
        };
        match Session::mount(volume.clone(), directory.path(), &settings) {
            Ok(session) if session.fallback().is_some() => {
                println!("not run: {}", session.fallback().unwrap());
                None
            }
            Ok(session) => Some(Mounted {
                directory,
                server: Some(thread::spawn("server", move || session.run())),
                volume,
            }),
            Err(error @ MountError::NoFuse(_)) => {
                println!("not run: {error}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = unmount(self.directory.path(), Lazy::Yes);
        if let Some(server) = self.server.take() {
            let _ = server.join();
            let _ = self.volume.close();
        }
    }
}

/// Nothing is synced, and the file stays open: as `tar -S` meets it.
#[test]
fn a_file_that_is_being_written_does_not_look_sparse() {
    for (write_cache, transport) in MOUNTS {
        let Some(mounted) = Mounted::new(write_cache, transport) else {
            return;
        };
        let mut options = File::options();
        let options = options.read(true).write(true).create_new(true);
        let file = options.open(mounted.path("growing")).unwrap();
        file.write_all_at(&[7; 100_000], 0).unwrap();
        file.write_all_at(&[7; 100_000], 1 << 20).unwrap();
        let at = |pos| rustix::fs::seek(&file, pos).unwrap();
        let blocks = file.metadata().unwrap().blocks();
        match write_cache {
            WriteCache::Through => assert_eq!(blocks, 2 * 25 * 8),
            WriteCache::Back | WriteCache::Auto => assert!(blocks > 0),
        }
        assert_eq!(at(SeekFrom::Hole(0)), 25 << 12);
        assert_eq!(at(SeekFrom::Data(25 << 12)), 1 << 20);
        // Behind what was sent for that: in the same page, and in a page that was read as a hole.
        let mut page = [1; 4096];
        file.read_exact_at(&mut page, 50 << 12).unwrap();
        assert_eq!(page, [0; 4096]);
        file.write_all_at(b"more", (1 << 20) + 100_000).unwrap();
        file.write_all_at(b"in the hole", 50 << 12).unwrap();
        assert_eq!(at(SeekFrom::Hole(1 << 20)), (1 << 20) + 100_004);
        assert_eq!(at(SeekFrom::Data(25 << 12)), 50 << 12);
        assert_eq!(at(SeekFrom::Hole(50 << 12)), 51 << 12);
        file.read_exact_at(&mut page, 50 << 12).unwrap();
        assert!(page.starts_with(b"in the hole\0"));
    }
}

/// More tasks than threads that may wait for the kernel: each answer is right, whichever it is.
#[test]
fn many_seeks_at_once_end_and_take_no_data_for_a_hole() {
    for transport in [Transport::Device, Transport::Uring] {
        let Some(mounted) = Mounted::new(WriteCache::Back, transport) else {
            return;
        };
        thread::scope(|scope| {
            for n in 0..48_u64 {
                let mounted = &mounted;
                scope.spawn(move || {
                    let file = File::create_new(mounted.path(&format!("s{n}"))).unwrap();
                    for round in 0..10 {
                        let data = round << 20;
                        file.write_all_at(&[7; 5000], data).unwrap();
                        let hole = rustix::fs::seek(&file, SeekFrom::Hole(data)).unwrap();
                        assert!(hole >= data + 5000, "{n}: a hole at {hole} behind {data}");
                    }
                });
            }
        });
    }
}

#[test]
fn write_says_that_there_is_no_room() {
    for transport in TRANSPORTS {
        let Some(mounted) = Mounted::new(WriteCache::Through, transport) else {
            return;
        };
        let mut file = File::create(mounted.path("fill")).unwrap();
        let error = (0..100).find_map(|_| file.write_all(&[7; 1 << 20]).err());
        let error = error.expect("100 MiB do not fit into 64 MiB");
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
        let size = file.metadata().unwrap().len();
        assert!(size < BLOCKS * 4096, "{size} bytes were taken");
    }
}

/// A request of pages of the kernel's cache that meets the end of the room half way.
#[test]
fn an_fsync_that_succeeds_has_lost_nothing() {
    for (write_cache, transport) in MOUNTS {
        let Some(mounted) = Mounted::new(write_cache, transport) else {
            return;
        };
        // Before the room ends: what is kept for pages of the kernel's cache is not for names.
        let small = |n: u8| File::create_new(mounted.path(&format!("x{n}"))).unwrap();
        let small: Vec<File> = (0..100).map(small).collect();
        let fill = File::create(mounted.path("fill")).unwrap();
        let mut filled = 0;
        while fill.write_all_at(&[7; 1 << 20], filled).is_ok() && fill.sync_all().is_ok() {
            filled += 1 << 20;
        }
        fill.set_len(filled - (3 << 20)).unwrap();
        let (mut synced, mut refused) = (0, 0);
        for (n, mut file) in (0_u8..).zip(&small) {
            let len = (1 + usize::from(n) % 25) * 4096;
            let bytes = vec![n + 1; len];
            let done = file.write_all(&bytes).and_then(|()| file.sync_all());
            if done.is_err() {
                refused += 1;
                continue;
            }
            synced += 1;
            rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
            let mut found = vec![0; len];
            file.read_exact_at(&mut found, 0).unwrap();
            assert!(found == bytes, "{write_cache:?}: file {n} is not whole");
        }
        assert!(synced > 0 && refused > 0, "{synced} and {refused}");
    }
}

/// What a program sees of a file or directory, and what the server has.
fn both_views(mounted: &Mounted, path: &Path) -> [String; 2] {
    let seen = fs::symlink_metadata(path).unwrap();
    let inode = mounted.volume.inode(Ino(seen.ino())).unwrap();
    let has = mounted.volume.attributes(&inode).unwrap();
    let time = |at: Time| (at.secs.get(), i64::from(at.nanos.get()));
    let words = |mode, nlink, owner: (u32, u32), size, blocks, times: [(i64, i64); 3]| {
        format!("mode {mode:o} nlink {nlink} owner {owner:?} size {size} blocks {blocks} {times:?}")
    };
    [
        words(
            seen.mode() & 0o7777,
            seen.nlink(),
            (seen.uid(), seen.gid()),
            seen.size(),
            seen.blocks(),
            [
                (seen.atime(), seen.atime_nsec()),
                (seen.mtime(), seen.mtime_nsec()),
                (seen.ctime(), seen.ctime_nsec()),
            ],
        ),
        words(
            has.mode & 0o7777,
            has.nlink.into(),
            (has.uid, has.gid),
            has.size,
            has.blocks,
            [has.atime, has.mtime, has.ctime].map(time),
        ),
    ]
}

/// Changes the tree below the first argument.
type Change = fn(&Path);

/// Each changes attributes that the kernel keeps, in its own way.
const CHANGES: &[(&str, Change)] = &[
    ("append", |at| {
        let file = File::options().append(true).open(at.join("f")).unwrap();
        (&file).write_all(&[8; 5000]).unwrap();
    }),
    ("fsync", |at| {
        File::open(at.join("f")).unwrap().sync_all().unwrap()
    }),
    ("read", |at| drop(fs::read(at.join("f")).unwrap())),
    ("chmod", |at| {
        fs::set_permissions(at.join("f"), Permissions::from_mode(0o600)).unwrap()
    }),
    ("chown", |at| chown(at.join("f"), Some(7), Some(8)).unwrap()),
    ("truncate", |at| {
        let file = File::options().write(true).open(at.join("f")).unwrap();
        file.set_len(100_000).unwrap();
    }),
    ("allocate", |at| {
        let file = File::options().write(true).open(at.join("f")).unwrap();
        fallocate(&file, FallocateFlags::KEEP_SIZE, 1 << 20, 1 << 20).unwrap();
    }),
    ("punch", |at| {
        let file = File::options().write(true).open(at.join("f")).unwrap();
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&file, punch, 0, 8192).unwrap();
    }),
    ("copy", |at| {
        let from = File::open(at.join("g")).unwrap();
        let to = File::options().write(true).open(at.join("f")).unwrap();
        let (mut a, mut b) = (0, 300_000);
        copy_file_range(&from, Some(&mut a), &to, Some(&mut b), 9000).unwrap();
    }),
    ("setxattr", |at| {
        setxattr(at.join("f"), "user.a", b"value", XattrFlags::empty()).unwrap();
    }),
    ("removexattr", |at| {
        removexattr(at.join("f"), "user.a").unwrap()
    }),
    ("link", |at| {
        fs::hard_link(at.join("f"), at.join("h")).unwrap()
    }),
    ("rename", |at| {
        fs::rename(at.join("h"), at.join("d/h")).unwrap()
    }),
    ("rename over", |at| {
        fs::rename(at.join("d/h"), at.join("g")).unwrap()
    }),
    ("unlink", |at| fs::remove_file(at.join("g")).unwrap()),
    ("mkdir", |at| fs::create_dir(at.join("d/e")).unwrap()),
    ("rmdir", |at| fs::remove_dir(at.join("d/e")).unwrap()),
    ("create", |at| fs::write(at.join("g"), [9; 20_000]).unwrap()),
    ("set-id", |at| {
        fs::set_permissions(at.join("f"), Permissions::from_mode(0o6755)).unwrap()
    }),
];

/// The kernel may keep attributes, names and listings for long, so each change must make it ask.
#[test]
fn what_the_kernel_keeps_is_current_after_each_change() {
    TRANSPORTS.into_iter().for_each(changes_are_seen);
}

fn changes_are_seen(transport: Transport) {
    let Some(mounted) = Mounted::new(WriteCache::Through, transport) else {
        return;
    };
    let at = mounted.directory.path();
    fs::create_dir(at.join("d")).unwrap();
    fs::write(at.join("f"), [7; 30_000]).unwrap();
    fs::write(at.join("g"), [7; 30_000]).unwrap();
    let list = |directory: &Path| {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    for (name, change) in CHANGES {
        // Now the kernel keeps all there is to keep.
        for path in ["", "d", "f", "g"].map(|path| at.join(path)) {
            let _ = fs::symlink_metadata(path);
        }
        let kept = [list(at), list(&at.join("d"))];
        change(at);
        for path in ["", "d", "f", "g"].map(|path| at.join(path)) {
            if path.exists() {
                let [seen, has] = both_views(&mounted, &path);
                assert_eq!(seen, has, "{} after {name}", path.display());
            }
        }
        let listed = [list(at), list(&at.join("d"))];
        let renames = matches!(
            *name,
            "link" | "rename" | "rename over" | "unlink" | "mkdir" | "rmdir" | "create"
        );
        assert_eq!(kept != listed, renames, "{name}: {kept:?}, {listed:?}");
    }
}

const OWNER: u32 = 4001;
const MEMBER: u32 = 4002;
const STRANGER: u32 = 4003;
const GROUP: u32 = 5000;
const OTHER_GROUP: u32 = 5001;

/// Who calls, and what: a shell command about `f`.
const CALLS: &[(u32, &str)] = &[
    (0, "echo x >> f"),
    (OWNER, "echo x >> f"),
    (MEMBER, "echo x >> f"),
    (STRANGER, "echo x >> f"),
    (
        STRANGER,
        "dd if=/dev/zero of=f bs=4096 count=1 oflag=direct conv=notrunc status=none",
    ),
    (0, "truncate -s 5 f"),
    (OWNER, "truncate -s 5 f"),
    (MEMBER, "truncate -s 5 f"),
    (STRANGER, "truncate -s 5 f"),
    (STRANGER, ": > f"),
    (STRANGER, "fallocate -l 8192 f"),
    (MEMBER, "fallocate -l 8192 f"),
    (0, "fallocate -l 8192 f"),
    (0, "chown 4003 f"),
    (0, "chgrp 5001 f"),
    (OWNER, "chgrp 5001 f"),
    (OWNER, "chmod g+s f"),
    (OWNER, "setfacl -m u:4003:rw f"),
    (0, "setfacl -m u:4003:rw f"),
    (OWNER, "setfacl -b f"),
    (OWNER, "setfattr -x system.posix_acl_access f"),
    (0, "chown : f"),
    (OWNER, "chown : f"),
    (STRANGER, "head -c1 f > /dev/null"),
];

const MODES: [u32; 8] = [
    0o4777, 0o2777, 0o6777, 0o2666, 0o6666, 0o4666, 0o2767, 0o777,
];

/// Groups of a caller: the owner of the file is in `GROUP` or not.
fn groups(uid: u32, owner_is_member: bool) -> String {
    match uid {
        0 => "0".into(),
        MEMBER => format!("{MEMBER},{GROUP}"),
        OWNER if owner_is_member => format!("{OWNER},{OTHER_GROUP},{GROUP}"),
        OWNER => format!("{OWNER},{OTHER_GROUP}"),
        other => other.to_string(),
    }
}

/// The mode that each call leaves of each mode, in `directory`.
fn outcomes(directory: &Path) -> Vec<String> {
    let mut all = Vec::new();
    let file = directory.join("f");
    for mode in MODES {
        for &(uid, call) in CALLS {
            for owner_is_member in [false, true] {
                let _ = fs::remove_file(&file);
                fs::write(&file, vec![1; 10_000]).unwrap();
                chown(&file, Some(OWNER), Some(GROUP)).unwrap();
                fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
                let status = Command::new("setpriv")
                    .args(["--reuid", &uid.to_string(), "--regid", &uid.to_string()])
                    .args(["--groups", &groups(uid, owner_is_member)])
                    .args(["sh", "-c", call])
                    .current_dir(directory)
                    .stderr(Stdio::null())
                    .status()
                    .unwrap();
                let left = fs::metadata(&file).unwrap().mode() & 0o7777;
                all.push(format!(
                    "{mode:o} {uid} {call} (member: {owner_is_member}): {left:o}, {:?}",
                    status.code()
                ));
            }
        }
    }
    all
}

/// The same on ext4 in a file of this machine, if it can be mounted.
fn outcomes_of_ext4() -> Option<Vec<String>> {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("ext4.img");
    File::create(&image).unwrap().set_len(16 << 20).unwrap();
    let at = folder.path().join("m");
    fs::create_dir(&at).unwrap();
    let run = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).stdout(Stdio::null());
        command
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|done| done.success())
    };
    let (image, at) = (image.to_str().unwrap(), at.to_str().unwrap());
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    if !run("mkfs.ext4", &["-q", image]) || !run("mount", &["-o", "loop", image, at]) {
        println!("not compared: ext4 cannot be mounted");
        return None;
    }
    let all = outcomes(Path::new(at));
    assert!(run("umount", &[at]));
    Some(all)
}

#[test]
fn set_id_bits_go_as_on_ext4() {
    let installed = |program: &str| {
        let shown = Command::new(program).arg("--version").output();
        shown.is_ok_and(|shown| shown.status.success())
    };
    if !installed("setpriv") || !installed("setfacl") || !rustix::process::geteuid().is_root() {
        println!("not run: needs root, setpriv and setfacl");
        return;
    }
    let Some(expected) = outcomes_of_ext4() else {
        return;
    };
    for (write_cache, transport) in MOUNTS {
        let Some(mounted) = Mounted::new(write_cache, transport) else {
            return;
        };
        let found = outcomes(mounted.directory.path());
        let wrong: Vec<_> = expected
            .iter()
            .zip(&found)
            .filter(|(expected, found)| expected != found)
            .collect();
        assert!(wrong.is_empty(), "{write_cache:?}: {wrong:#?}");
    }
}
