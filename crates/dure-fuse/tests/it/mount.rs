//! A volume in memory, mounted for real and used through system calls.
//!
//! Where FUSE cannot be used (no `/dev/fuse`; an ordinary user without `fusermount3`) the tests say
//! so and end; so do those with rings where the kernel offers none.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a panic is how a test fails, and a test that cannot run says so"
)]

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use dure_block::ram::RamDevice;
use dure_block::{Device, DeviceInfo, Io, share};
use dure_check::{CheckOptions, check};
use dure_fs::{FileSystem, MountOptions};
use dure_fuse::mount::{Lazy, MountError};
use dure_fuse::{MountSettings, Session, Transport, unmount};
use dure_sync::atomic::{AtomicBool, Ordering};
use dure_sync::{Arc, Condvar, Mutex, thread};
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, SeekFrom, StatxFlags};
use tempfile::TempDir;

const BLOCKS: u64 = 16 << 10;

/// Each test runs with both transports.
macro_rules! tests {
    ($($name:ident,)+) => {
        mod device {
            $(
                #[test]
                fn $name() {
                    super::$name(super::Transport::Device);
                }
            )+
        }
        mod uring {
            $(
                #[test]
                fn $name() {
                    super::$name(super::Transport::Uring);
                }
            )+
        }
    };
}

tests! {
    files_names_and_links_are_what_was_made,
    large_content_holes_and_copies_come_back,
    a_temporary_file_is_linked_and_birth_times_are_kept,
    large_directories_are_listed_whole_and_emptied,
    many_threads_are_answered_by_few_workers,
    a_detached_mount_serves_its_last_user,
    a_session_that_is_not_served_leaves_nothing,
    others_are_answered_while_all_workers_wait_for_a_flush,
}

/// A mounted volume; unmounted and checked by [`Mounted::end`].
struct Mounted {
    ram: Arc<RamDevice>,
    volume: FileSystem,
    directory: TempDir,
    server: Option<thread::JoinHandle<Result<(), MountError>>>,
}

impl Mounted {
    /// `None` where FUSE cannot be used.
    fn new(transport: Transport, workers: usize) -> Option<Mounted> {
        Mounted::on((transport, workers), share)
    }

    /// On a RAM disk behind what `before` puts before it.
    fn on(
        (transport, workers): (Transport, usize),
        before: impl FnOnce(Arc<RamDevice>) -> Arc<dyn Device>,
    ) -> Option<Mounted> {
        let ram = Arc::new(RamDevice::new("mounted", BLOCKS));
        FileSystem::format(share(ram.clone()), &crate::format_options()).unwrap();
        let volume = FileSystem::open(before(ram.clone()), MountOptions::default()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let settings = MountSettings {
            workers: Some(workers),
            transport,
            ..MountSettings::default()
        };
        let session = match Session::mount(volume.clone(), directory.path(), &settings) {
            Ok(session) => session,
            Err(error @ (MountError::NoFuse(_) | MountError::NoHelper)) => {
                println!("not run: {error}");
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        if let Some(why) = session.fallback() {
            println!("not run: {why}");
            return None;
        }
        let server = thread::spawn("server", move || session.run());
        Some(Mounted {
            ram,
            volume,
            directory,
            server: Some(server),
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Unmounts, waits for the server, checks.
    fn end(mut self) {
        unmount(self.directory.path(), Lazy::No).unwrap();
        self.served();
    }

    fn served(&mut self) {
        let server = self.server.take().unwrap();
        server.join().unwrap().unwrap();
        self.volume.close().unwrap();
        let report = check(share(self.ram.clone()), &CheckOptions::default()).unwrap();
        assert!(report.issues().is_empty(), "{:#?}", report.issues());
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.server.is_some() {
            let _ = unmount(self.directory.path(), Lazy::Yes);
        }
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn files_names_and_links_are_what_was_made(transport: Transport) {
    let Some(mounted) = Mounted::new(transport, 2) else {
        return;
    };
    let (one, two) = (mounted.path("one"), mounted.path("two"));
    fs::write(&one, b"sown").unwrap();
    fs::write(&two, b"reaped").unwrap();
    fs::create_dir(mounted.path("dir")).unwrap();
    symlink("one", mounted.path("link")).unwrap();
    fs::hard_link(&one, mounted.path("dir/hard")).unwrap();
    assert_eq!(fs::read(mounted.path("link")).unwrap(), b"sown");
    assert_eq!(fs::metadata(&one).unwrap().nlink(), 2);

    rustix::fs::renameat_with(CWD, &one, CWD, &two, RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read(&one).unwrap(), b"reaped");
    let refused = rustix::fs::renameat_with(CWD, &one, CWD, &two, RenameFlags::NOREPLACE);
    assert_eq!(refused.unwrap_err(), rustix::io::Errno::EXIST);
    fs::rename(&one, mounted.path("dir/one")).unwrap();
    assert_eq!(names(mounted.directory.path()), ["dir", "link", "two"]);
    assert_eq!(names(&mounted.path("dir")), ["hard", "one"]);
    assert!(!one.exists());
    fs::remove_dir_all(mounted.path("dir")).unwrap();
    mounted.end();
}

fn large_content_holes_and_copies_come_back(transport: Transport) {
    let Some(mounted) = Mounted::new(transport, 3) else {
        return;
    };
    let content: Vec<u8> = (0_u32..3_000_001)
        .map(|n| (n % 251).to_le_bytes()[0])
        .collect();
    let path = mounted.path("large");
    fs::write(&path, &content).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    file.sync_all().unwrap();
    drop_caches(&file);
    assert_eq!(fs::read(&path).unwrap(), content);

    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, 1 << 20, 1 << 20).unwrap();
    let hole = rustix::fs::seek(&file, SeekFrom::Hole(0)).unwrap();
    let data = rustix::fs::seek(&file, SeekFrom::Data(hole)).unwrap();
    assert_eq!((hole, data), (1 << 20, 2 << 20));

    let copy = File::create(mounted.path("copy")).unwrap();
    let (mut from, mut to) = (0, 0);
    while rustix::fs::copy_file_range(&file, Some(&mut from), &copy, Some(&mut to), 1 << 30)
        .unwrap()
        > 0
    {}
    assert_eq!(
        fs::read(mounted.path("copy")).unwrap(),
        fs::read(&path).unwrap()
    );
    file.write_all_at(b"end", 1 << 40).unwrap();
    assert_eq!(file.metadata().unwrap().len(), (1 << 40) + 3);
    drop((file, copy));
    mounted.end();
}

/// The next read comes from the server.
fn drop_caches(file: &File) {
    use rustix::fs::{Advice, fadvise};
    fadvise(file, 0, None, Advice::DontNeed).unwrap();
}

fn a_temporary_file_is_linked_and_birth_times_are_kept(transport: Transport) {
    let Some(mounted) = Mounted::new(transport, 2) else {
        return;
    };
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    let mode = Mode::from_raw_mode(0o640);
    let unnamed = rustix::fs::open(mounted.directory.path(), flags, mode).unwrap();
    let unnamed = File::from(unnamed);
    unnamed.write_all_at(b"sown", 0).unwrap();
    assert_eq!(unnamed.metadata().unwrap().nlink(), 0);
    assert_eq!(names(mounted.directory.path()), [""; 0]);
    let lost = rustix::fs::open(mounted.directory.path(), flags, mode).unwrap();
    drop(lost);

    let path = mounted.path("named");
    rustix::fs::linkat(&unnamed, "", CWD, &path, AtFlags::EMPTY_PATH).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"sown");
    assert_eq!(fs::metadata(&path).unwrap().nlink(), 1);

    let born = || {
        let wanted = StatxFlags::BTIME | StatxFlags::BASIC_STATS;
        let found = rustix::fs::statx(CWD, &path, AtFlags::empty(), wanted).unwrap();
        assert_ne!(found.stx_mask & StatxFlags::BTIME.bits(), 0);
        (found.stx_btime.tv_sec, found.stx_btime.tv_nsec)
    };
    let before = born();
    unnamed.set_modified(std::time::UNIX_EPOCH).unwrap();
    unnamed.sync_all().unwrap();
    assert_eq!(born(), before);
    assert!(before.0 > 0);
    drop(unnamed);
    mounted.end();
}

fn large_directories_are_listed_whole_and_emptied(transport: Transport) {
    let Some(mounted) = Mounted::new(transport, 2) else {
        return;
    };
    let directory = mounted.path("many");
    fs::create_dir(&directory).unwrap();
    let made: Vec<String> = (0..1500)
        .map(|n| format!("a rather long name {n:04}"))
        .collect();
    for name in &made {
        File::create(directory.join(name)).unwrap();
    }
    assert_eq!(names(&directory), made);
    fs::remove_dir_all(&directory).unwrap();
    mounted.end();
}

fn many_threads_are_answered_by_few_workers(transport: Transport) {
    let Some(mounted) = Mounted::new(transport, 2) else {
        return;
    };
    thread::scope(|scope| {
        for index in 0..6 {
            let directory = mounted.path(&format!("d{index}"));
            scope.spawn(move || {
                fs::create_dir(&directory).unwrap();
                for round in 0..40_usize {
                    let path = directory.join(format!("f{}", round % 7));
                    let content = vec![0x5a; 1000 * round];
                    fs::write(&path, &content).unwrap();
                    if round % 5 == 0 {
                        File::open(&path).unwrap().sync_all().unwrap();
                    }
                    assert_eq!(fs::read(&path).unwrap(), content);
                }
            });
        }
    });
    mounted.end();
}

fn a_detached_mount_serves_its_last_user(transport: Transport) {
    let Some(mut mounted) = Mounted::new(transport, 2) else {
        return;
    };
    let path = mounted.path("open");
    fs::write(&path, b"sown").unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    assert!(unmount(mounted.directory.path(), Lazy::No).is_err(), "busy");
    fs::remove_file(&path).unwrap();
    unmount(mounted.directory.path(), Lazy::Yes).unwrap();
    assert!(!path.exists());
    file.write_all_at(b"reaped", 0).unwrap();
    file.sync_all().unwrap();
    drop_caches(&file);
    let mut content = [0; 6];
    file.read_exact_at(&mut content, 0).unwrap();
    assert_eq!(&content, b"reaped");
    drop(file);
    mounted.served();
}

fn a_session_that_is_not_served_leaves_nothing(transport: Transport) {
    let ram = share(RamDevice::new("unserved", BLOCKS));
    FileSystem::format(Arc::clone(&ram), &crate::format_options()).unwrap();
    let volume = FileSystem::open(ram, MountOptions::default()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let outside = fs::metadata(directory.path()).unwrap().dev();
    let settings = MountSettings {
        transport,
        ..MountSettings::default()
    };
    match Session::mount(volume.clone(), directory.path(), &settings) {
        Ok(session) => drop(session),
        Err(error) => println!("not run: {error}"),
    }
    assert_eq!(fs::metadata(directory.path()).unwrap().dev(), outside);
    let missing = directory.path().join("missing");
    let error = Session::mount(volume.clone(), &missing, &settings).unwrap_err();
    assert!(matches!(error, MountError::MountPoint { .. }));
    volume.close().unwrap();
}

/// A device whose flushes wait while the gate is shut.
#[derive(Debug, Clone)]
struct Gated {
    info: DeviceInfo,
    ram: Arc<RamDevice>,
    gate: Arc<Gate>,
}

/// Below all locks of a device: nothing is taken under it.
const GATE_RANK: u8 = 239;

#[derive(Debug)]
struct Gate {
    /// Shut, and how many wait.
    shut: Mutex<GATE_RANK, (bool, usize)>,
    opened: Condvar,
}

impl Device for Gated {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn execute(&self, io: Io<'_>) -> dure_block::Result<()> {
        if matches!(io, Io::Flush) {
            let mut shut = self.gate.shut.lock();
            shut.1 += 1;
            while shut.0 {
                shut = self.gate.opened.wait(shut);
            }
        }
        self.ram.execute(io)
    }
}

fn others_are_answered_while_all_workers_wait_for_a_flush(transport: Transport) {
    const WAITING: usize = 5;
    let gate = Arc::new(Gate {
        shut: Mutex::new((false, 0)),
        opened: Condvar::new(),
    });
    let before = |ram: Arc<RamDevice>| {
        let mut info = ram.info().clone();
        info.volatile_cache = true;
        info.in_memory = false;
        let gate = Arc::clone(&gate);
        share(Gated { info, ram, gate })
    };
    let Some(mounted) = Mounted::on((transport, 2), before) else {
        return;
    };
    let files: Vec<File> = (0..WAITING)
        .map(|index| File::create(mounted.path(&format!("f{index}"))).unwrap())
        .collect();
    fs::write(mounted.path("other"), b"sown").unwrap();
    *gate.shut.lock() = (true, 0);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for file in &files {
            scope.spawn(|| {
                file.write_all_at(b"waits", 0).unwrap();
                file.sync_all().unwrap();
            });
        }
        thread::sleep(std::time::Duration::from_millis(300));
        // Each of these needs an answer of the server.
        scope.spawn(|| {
            for index in 0..20 {
                fs::create_dir(mounted.path(&format!("dir{index}"))).unwrap();
            }
            // Relaxed: it tells only that.
            done.store(true, Ordering::Relaxed);
        });
        let answered = (0..100).any(|_| {
            thread::sleep(std::time::Duration::from_millis(100));
            done.load(Ordering::Relaxed)
        });
        let waiting = std::mem::take(&mut *gate.shut.lock()).1;
        gate.opened.notify_all();
        assert!(waiting > 0, "an fsync flushes");
        assert!(answered, "nobody answered");
    });
    drop(files);
    mounted.end();
}
