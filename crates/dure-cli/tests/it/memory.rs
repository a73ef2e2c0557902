//! `cache=` bounds the memory of a mount's server: the program itself, mounted, and what the kernel
//! says it has resident. Played only where a mount can be made (root and /dev/fuse).

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests panic, and say how much it was"
)]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use dure_sync::thread;

/// What a server has resident whatever its cache is: the program, the tables of a small volume, the
/// buffers and stacks of its threads (docs/design/memory.md).
const FIXED_MIB: u64 = 28;
const CACHE_MIB: u64 = 16;
const MOST_MIB: u64 = FIXED_MIB + CACHE_MIB + CACHE_MIB / 10;

/// A mount whose server is a child of the test.
struct Mounted {
    folder: tempfile::TempDir,
    server: Child,
}

impl Mounted {
    fn new() -> Option<Mounted> {
        let fuse = File::options().read(true).write(true).open("/dev/fuse");
        if fuse.is_err() || !rustix::process::geteuid().is_root() {
            return None;
        }
        // In memory where there is such a place: a disk only makes these tests slow.
        let memory = Path::new("/dev/shm");
        let folder = match memory.is_dir() {
            true => tempfile::tempdir_in(memory).unwrap(),
            false => tempfile::tempdir().unwrap(),
        };
        let (volume, at) = (folder.path().join("v.img"), folder.path().join("m"));
        fs::create_dir(&at).unwrap();
        let dure = || Command::new(env!("CARGO_BIN_EXE_dure"));
        let made = dure()
            .args(["mkfs", "--size", "1G"])
            .arg(&volume)
            .stdout(Stdio::null())
            .status();
        assert!(made.unwrap().success());
        let mut server = dure()
            .arg("mount")
            .args([&volume, &at])
            .args(["--foreground", "-o", &format!("cache={CACHE_MIB}M")])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let out = server.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "it is not mounted");
        Some(Mounted { folder, server })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("m").join(name)
    }

    /// What the server has resident now, and had at most.
    fn check(&self, what: &str) {
        let status = format!("/proc/{}/status", self.server.id());
        let status = fs::read_to_string(status).unwrap();
        let mib = |key: &str| {
            let line = status.lines().find(|line| line.starts_with(key)).unwrap();
            let kib: u64 = line
                .split_ascii_whitespace()
                .nth(1)
                .unwrap()
                .parse()
                .unwrap();
            kib.div_ceil(1024)
        };
        let (now, peak) = (mib("VmRSS:"), mib("VmHWM:"));
        println!("{what}: {now} MiB resident, {peak} MiB at most");
        assert!(
            peak <= MOST_MIB,
            "{what}: {peak} MiB were resident, {now} MiB are, with cache={CACHE_MIB}M"
        );
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let at = self.path("");
        let _ = rustix::mount::unmount(&at, rustix::mount::UnmountFlags::DETACH);
        let _ = self.server.wait();
    }
}

/// Tasks that share the work, in a directory each, which the kernel locks for a create: a request to
/// the server is mostly a wait for it.
const TASKS: usize = 4;

/// Calls `what` with the directory of each task, and the numbers of its files.
fn tasks(folder: &Path, files: usize, what: impl Fn(PathBuf, Range<usize>) + Sync) {
    let (what, share) = (&what, files / TASKS);
    thread::scope(|scope| {
        for task in 0..TASKS {
            let directory = folder.join(format!("of-{task}"));
            scope.spawn(move || what(directory, task * share..(task + 1) * share));
        }
    });
}

/// Calls `what` with the path of each file.
fn each(folder: &Path, files: usize, what: impl Fn(PathBuf) + Sync) {
    tasks(folder, files, |directory, numbers| {
        numbers.for_each(|n| what(directory.join(format!("file-{n:06}"))));
    });
}

fn create(folder: &Path, files: usize, content: &[u8]) {
    tasks(folder, files, |directory, _| {
        fs::create_dir_all(directory).unwrap();
    });
    each(folder, files, |path| {
        let mut file = File::create(path).unwrap();
        file.write_all(content).unwrap();
    });
}

/// What the kernel knows costs the server nothing, and inodes, names and nodes are dropped.
#[test]
fn many_files_fit_into_a_small_cache() {
    let Some(mounted) = Mounted::new() else {
        return;
    };
    mounted.check("mounted");
    let empty = mounted.path("empty");
    create(&empty, 60_000, b"");
    mounted.check("60,000 empty files");
    tasks(&empty, 60_000, |directory, numbers| {
        let listed = fs::read_dir(directory).unwrap();
        let sizes = listed.map(|entry| entry.unwrap().metadata().unwrap().len());
        let sizes: Vec<u64> = sizes.collect();
        assert!(sizes.len() == numbers.len() && sizes.iter().all(|size| *size == 0));
    });
    mounted.check("listed");
    // Inodes with pages that wait, each on a list.
    let small = mounted.path("small");
    create(&small, 15_000, b"a few bytes");
    mounted.check("15,000 files of a few bytes");
    each(&small, 15_000, |path| {
        assert_eq!(fs::read(path).unwrap(), b"a few bytes");
    });
    mounted.check("read");
    tasks(&small, 15_000, |directory, _| {
        fs::remove_dir_all(directory).unwrap();
    });
    mounted.check("removed");
}

/// Pages of all cores together stay within the cache, and so does what many threads leave behind.
#[test]
fn much_data_fits_into_a_small_cache() {
    let Some(mounted) = Mounted::new() else {
        return;
    };
    let piece = vec![7; 1 << 20];
    let mut file = File::create(mounted.path("large")).unwrap();
    for _ in 0..200 {
        file.write_all(&piece).unwrap();
    }
    file.sync_all().unwrap();
    mounted.check("200 MiB written");
    thread::scope(|scope| {
        for task in 0..8 {
            let path = mounted.path(&format!("synced-{task}"));
            scope.spawn(move || {
                let mut file = File::create(path).unwrap();
                for _ in 0..60 {
                    file.write_all(&[3; 5000]).unwrap();
                    file.sync_all().unwrap();
                }
            });
        }
    });
    mounted.check("8 tasks that sync");
}
