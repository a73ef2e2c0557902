//! A full volume, mounted: whatever `fsync` returned 0 for is whole after the server was killed.
//!
//! Fillers take all the room, deleters give some back, writers want to know. What the kernel hides
//! behind its caches shows here: a write that was cut short and acknowledged all the same.

#![expect(clippy::unwrap_used, reason = "tests panic")]

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use dure_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use dure_sync::thread;

const FILLERS: u64 = 4;
const WRITERS: u64 = 3;
const DELETERS: u64 = 2;
const SECONDS: u64 = 3;
const PAGE: usize = 4096;

fn dure(arguments: &[&str]) {
    let program = env!("CARGO_BIN_EXE_dure");
    let output = Command::new(program).args(arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A mount whose server can be killed.
struct Mounted {
    directory: PathBuf,
    server: Child,
}

impl Mounted {
    fn new(volume: &Path, directory: &Path, options: &str) -> Mounted {
        let mut server = Command::new(env!("CARGO_BIN_EXE_dure"));
        server.args(["mount", "--foreground", "-o", options]);
        server.args([volume, directory]).stdout(Stdio::null());
        let outside = fs::metadata(directory).unwrap();
        let mut mounted = Mounted {
            directory: directory.to_owned(),
            server: server.spawn().unwrap(),
        };
        while fs::metadata(directory).unwrap().dev() == outside.dev() {
            let ended = mounted.server.try_wait().unwrap();
            assert!(ended.is_none(), "the server does not serve: {ended:?}");
            thread::sleep(Duration::from_millis(10));
        }
        mounted
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = dure_fuse::unmount(&self.directory, dure_fuse::mount::Lazy::Yes);
    }
}

/// Content of which every page tells whose it is.
fn content(seed: u64) -> Vec<u8> {
    let pages = usize::try_from(1 + seed % 40).unwrap();
    let tail = usize::try_from(seed % 3 * 1000).unwrap();
    let mut bytes = vec![0; pages * PAGE + tail];
    for (n, page) in (0_u64..).zip(bytes.chunks_mut(PAGE)) {
        let word = (seed << 20 | n).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        for part in page.chunks_mut(8) {
            part.copy_from_slice(&word.to_le_bytes()[..part.len()]);
        }
    }
    bytes
}

/// Writes a file; whether all of it was acknowledged. No room is the only excuse.
fn write(path: &Path, bytes: &[u8], sync: bool) -> bool {
    let done = File::create(path).and_then(|mut file| {
        file.write_all(bytes)?;
        if sync { file.sync_all() } else { Ok(()) }
    });
    match done {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(
                error.kind(),
                ErrorKind::StorageFull,
                "{}: {error}",
                path.display()
            );
            false
        }
    }
}

/// Seeds of the files that were acknowledged, while others fill the volume and delete.
fn torture(directory: &Path) -> Vec<u64> {
    let (end, filled) = (&AtomicBool::new(false), &AtomicU64::new(0));
    // Relaxed: numbers and a flag, nothing hangs on their order.
    let running = &|| !end.load(Ordering::Relaxed);
    let filler = &|n: u64| directory.join(format!("fill-{n}"));
    let writer = &|first: u64| {
        let mut kept = Vec::new();
        let mut seed = first;
        while running() {
            if write(&directory.join(format!("w-{seed}")), &content(seed), true) {
                kept.push(seed);
            }
            seed += WRITERS;
        }
        kept
    };
    let mut acknowledged = Vec::new();
    thread::scope(|scope| {
        for _ in 0..FILLERS {
            scope.spawn(|| {
                while running() {
                    let n = filled.fetch_add(1, Ordering::Relaxed);
                    if !write(&filler(n), &vec![7; 50_000], n % 4 == 0) {
                        thread::sleep(Duration::from_millis(1));
                    }
                }
            });
        }
        for core in 0..DELETERS {
            scope.spawn(move || {
                let mut next = core;
                while running() {
                    if fs::remove_file(filler(next)).is_ok() {
                        next += DELETERS * 3;
                    } else if next < filled.load(Ordering::Relaxed) {
                        next += DELETERS;
                    }
                    thread::sleep(Duration::from_millis(3));
                }
            });
        }
        let writers: Vec<_> = (0..WRITERS)
            .map(|first| scope.spawn(move || writer(first)))
            .collect();
        thread::sleep(Duration::from_secs(SECONDS));
        end.store(true, Ordering::Relaxed);
        for writer in writers {
            acknowledged.extend(writer.join().unwrap());
        }
    });
    acknowledged
}

fn can_mount() -> bool {
    let fuse = File::options().read(true).write(true).open("/dev/fuse");
    let can = fuse.is_ok() && rustix::process::geteuid().is_root();
    if !can {
        eprintln!("skipped: mounting needs root and /dev/fuse");
    }
    can
}

/// A volume, and where to mount it.
fn made(folder: &Path) -> (PathBuf, PathBuf) {
    let (volume, directory) = (folder.join("v.img"), folder.join("m"));
    fs::create_dir(&directory).unwrap();
    dure(&["mkfs", "--size", "64M", "--journals", "4", text(&volume)]);
    (volume, directory)
}

fn what_was_acknowledged_is_whole(options: &str) {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (volume, directory) = made(folder.path());
    let mounted = Mounted::new(&volume, &directory, options);
    let acknowledged = torture(&directory);
    // SIGKILL, with everything under way.
    drop(mounted);
    let mounted = Mounted::new(&volume, &directory, options);
    for seed in &acknowledged {
        let found = fs::read(directory.join(format!("w-{seed}"))).unwrap();
        assert!(
            found == content(*seed),
            "file {seed} of {} is not whole",
            acknowledged.len()
        );
    }
    assert!(acknowledged.len() > 20, "{} files", acknowledged.len());
    dure(&["umount", text(&directory)]);
    drop(mounted);
    dure(&["check", "--data", text(&volume)]);
}

/// `sync` of a mounted image file reaches nobody.
#[test]
fn an_image_is_committed_soon_after_a_sync_that_nobody_hears_of() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (volume, directory) = made(folder.path());
    let mounted = Mounted::new(&volume, &directory, "rw");
    fs::write(directory.join("synced"), content(7)).unwrap();
    let synced = Command::new("sync").arg("-f").arg(&directory).status();
    assert!(synced.unwrap().success());
    thread::sleep(Duration::from_secs(3));
    drop(mounted);
    let mounted = Mounted::new(&volume, &directory, "rw");
    assert!(fs::read(directory.join("synced")).unwrap() == content(7));
    dure(&["umount", text(&directory)]);
    drop(mounted);
}

#[test]
fn a_full_volume_loses_nothing_that_was_synced() {
    what_was_acknowledged_is_whole("rw");
}

#[test]
fn a_full_volume_loses_nothing_that_was_synced_behind_the_kernels_cache() {
    what_was_acknowledged_is_whole("writeback");
}

#[test]
fn a_full_volume_loses_nothing_that_was_synced_with_the_baseline() {
    what_was_acknowledged_is_whole("journal=jbd2,data=journal");
}
