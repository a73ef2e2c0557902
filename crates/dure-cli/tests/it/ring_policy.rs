//! Threads of rings give way to their callers, and not to whoever keeps their core busy.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a panic is how a test fails, and a test that cannot run says so"
)]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use dure_sync::atomic::{AtomicBool, Ordering};
use dure_sync::{CoreId, clock, core_count, thread};

use crate::program::{can_mount, dure, text, volume};

/// As sched_setscheduler(2) numbers the policies.
const OTHER: i32 = 0;
const IDLE: i32 = 5;

/// How long until a thread has to have another policy: it tries again after some seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server in the foreground: in the session and the control group of this test.
struct Server {
    process: Child,
    at: PathBuf,
}

impl Server {
    /// Started by `command`, on a directory in `folder`. None where it has no rings.
    fn new(command: &[&str], folder: &Path, options: &str) -> Option<Server> {
        let (volume, at) = (volume(folder), folder.join("m"));
        fs::create_dir(&at).unwrap();
        let command: Vec<&str> = command
            .iter()
            .copied()
            .chain([env!("CARGO_BIN_EXE_dure")])
            .collect();
        let mut process = Command::new(command[0])
            .args(&command[1..])
            .args(["mount", "--foreground", "-o", options])
            .args([&volume, &at])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let outside = fs::metadata(folder).unwrap().dev();
        until(|| {
            let ended = process.try_wait().unwrap();
            assert!(ended.is_none(), "it does not mount: {ended:?}");
            fs::metadata(&at).unwrap().dev() != outside
        });
        fs::write(at.join("file"), b"sown").unwrap();
        let server = Server { process, at };
        if server.policies("dure-ring").is_empty() {
            println!("not run: no rings here");
            return None;
        }
        Some(server)
    }

    fn file(&self) -> File {
        let file = File::options().write(true).open(self.at.join("file"));
        file.unwrap()
    }

    /// One request from each core.
    fn ask(&self) {
        let asks = (0..core_count()).map(|core| {
            let file = self.file();
            let core = CoreId::new(u16::try_from(core).unwrap());
            let ask = move || file.write_all_at(b"reaped", 0).unwrap();
            thread::spawn_on("asks", core, ask)
        });
        for asked in asks.collect::<Vec<_>>() {
            asked.join().unwrap();
        }
    }

    /// Of the threads whose names begin so, by their number.
    fn policies(&self, name: &str) -> BTreeMap<String, i32> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.process.id())).unwrap();
        let of = |task: fs::DirEntry| {
            let stat = fs::read_to_string(task.path().join("stat")).ok()?;
            let (before, after) = stat.rsplit_once(')')?;
            let (number, of) = before.split_once(" (")?;
            // The 41st field of proc_pid_stat(5); the name is the second.
            let policy = after.split_whitespace().nth(38)?.parse().ok()?;
            of.starts_with(name).then(|| (number.to_owned(), policy))
        };
        tasks.filter_map(|task| of(task.unwrap())).collect()
    }

    /// Asks until each ring has had this policy: other tests may keep cores busy meanwhile.
    fn await_rings(&self, policy: i32) {
        let mut awaited = self.policies("dure-ring");
        until(|| {
            let now = self.policies("dure-ring");
            awaited.retain(|ring, _| now[ring] != policy);
            self.ask();
            awaited.is_empty()
        });
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(dure(&["umount", "--lazy", text(&self.at)]));
        drop(self.process.wait());
    }
}

fn until(mut is_so: impl FnMut() -> bool) {
    let begun = clock::monotonic_ns();
    while !is_so() {
        let passed = Duration::from_nanos(clock::monotonic_ns() - begun);
        assert!(passed < PATIENCE, "it does not come about");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Without the rule it stays idle behind the busy threads, and `tar x` takes a hundred times as
/// long.
#[test]
fn a_ring_beside_busy_threads_runs_as_they_do_until_they_end() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = Server::new(&[], folder.path(), "rw") else {
        return;
    };
    server.await_rings(IDLE);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for core in 0..core_count() {
            let (is_over, core) = (&is_over, CoreId::new(u16::try_from(core).unwrap()));
            scope.spawn(move || {
                thread::pin_to(core);
                // Relaxed: it only tells when to end.
                while !is_over.load(Ordering::Relaxed) {
                    thread::spin_hint();
                }
            });
        }
        server.await_rings(OTHER);
        is_over.store(true, Ordering::Relaxed);
    });
    server.await_rings(IDLE);
    // Only rings give way: not those whom they start.
    server.file().sync_all().unwrap();
    let others = ["dure-help", "dure-worker", "dure-fuse"].map(|name| server.policies(name));
    assert!(others.iter().all(|found| !found.is_empty()), "{others:?}");
    assert!(others.iter().flatten().all(|(_, policy)| *policy == OTHER));
}

/// A user without RLIMIT_NICE, who may enter SCHED_IDLE and not leave it.
#[test]
fn a_ring_that_could_not_return_does_not_give_way() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let without = [
        "setpriv",
        "--inh-caps=-sys_nice",
        "--bounding-set=-sys_nice",
    ];
    let limited = ["prlimit", "--nice=0:0"];
    let command = [&limited[..], &without].concat();
    if !Command::new(command[0])
        .args(&command[1..])
        .arg("true")
        .status()
        .is_ok_and(|status| status.success())
    {
        println!("not run: no setpriv(1) or prlimit(1)");
        return;
    }
    stays(&command, folder.path(), "rw");
}

#[test]
fn rings_do_not_give_way_where_the_options_say_so() {
    if can_mount() {
        stays(
            &[],
            tempfile::tempdir().unwrap().path(),
            "ring_policy=other",
        );
    }
}

fn stays(command: &[&str], folder: &Path, options: &str) {
    let Some(server) = Server::new(command, folder, options) else {
        return;
    };
    for _ in 0..20 {
        server.ask();
        let rings = server.policies("dure-ring");
        assert!(rings.values().all(|ring| *ring == OTHER), "{rings:?}");
    }
}
