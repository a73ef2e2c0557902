//! Rings that cannot be had, and such as end with requests under way. Each test has a mount of its
//! own; where FUSE cannot be used, or the kernel offers no rings, it says so and ends.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a panic is how a test fails, and a test that cannot run says so"
)]

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use dure_block::ram::RamDevice;
use dure_block::{Device, DeviceInfo, Io, share};
use dure_fs::{FileSystem, MountOptions};
use dure_fuse::mount::{Lazy, MountError};
use dure_fuse::{MountSettings, Session, Transport, unmount};
use dure_sync::atomic::{AtomicBool, Ordering};
use dure_sync::{Arc, thread};
use tempfile::TempDir;

const BLOCKS: u64 = 16 << 10;

fn mount(device: Arc<dyn Device>, directory: &Path) -> Option<(FileSystem, Session)> {
    let format = crate::format_options();
    FileSystem::format(Arc::clone(&device), &format).unwrap();
    mount_again(device, directory)
}

/// Mounts a new volume in memory, where the kernel offers rings.
pub(crate) fn mount_ram(directory: &Path) -> Option<(FileSystem, Session)> {
    let (volume, session) = mount(share(RamDevice::new("ram", BLOCKS)), directory)?;
    match session.fallback() {
        None => Some((volume, session)),
        Some(why) => {
            println!("not run: {why}");
            None
        }
    }
}

/// Mounts what is on the device.
fn mount_again(device: Arc<dyn Device>, directory: &Path) -> Option<(FileSystem, Session)> {
    let volume = FileSystem::open(device, MountOptions::default()).unwrap();
    let settings = MountSettings {
        transport: Transport::Uring,
        ..MountSettings::default()
    };
    match Session::mount(volume.clone(), directory, &settings) {
        Ok(session) => Some((volume, session)),
        Err(error @ (MountError::NoFuse(_) | MountError::NoHelper)) => {
            println!("not run: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// From now on the calling thread, and those it starts, get `verdict` where they make the system
/// call with this number. What seccomp(2) returns.
pub(crate) fn filter_calls(number: u32, verdict: u32, flags: libc::c_ulong) -> i32 {
    let filter = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter {
        code: u16::try_from(code).unwrap(),
        jt,
        jf,
        k,
    };
    let returns = libc::BPF_RET | libc::BPF_K;
    let mut program = [
        // The number of the call; if it is that one, the verdict, else go on.
        filter(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        filter(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, number),
        filter(returns, 0, 0, verdict),
        filter(returns, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).unwrap(),
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the call takes numbers only.
    let fixed = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(fixed, 0);
    let mode = libc::SECCOMP_SET_MODE_FILTER;
    // SAFETY: the kernel copies the program during the call.
    let set = unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program) };
    assert!(set >= 0, "{}", std::io::Error::last_os_error());
    i32::try_from(set).unwrap()
}

/// From now on the calling thread, and those it starts, get `errno` from io_uring_setup(2).
fn forbid_io_uring(errno: i32) {
    const SETUP: u32 = 425;
    let errno = u32::try_from(errno).unwrap();
    assert_eq!(filter_calls(SETUP, libc::SECCOMP_RET_ERRNO | errno, 0), 0);
}

#[test]
fn where_io_uring_is_forbidden_the_device_is_used_and_the_reason_said() {
    falls_back(libc::EPERM, "io_uring_disabled");
}

#[test]
fn where_memory_for_a_ring_is_missing_the_device_is_used_and_the_reason_said() {
    falls_back(libc::ENOMEM, "no memory for a ring");
}

/// With `errno` from io_uring_setup(2), of which the mount says `reason`.
fn falls_back(errno: i32, reason: &'static str) {
    if !rustix::process::geteuid().is_root() {
        return println!("not run: who may gain no rights cannot use fusermount3");
    }
    let without_rings = thread::spawn("no-rings", move || {
        forbid_io_uring(errno);
        let directory = tempfile::tempdir().unwrap();
        let ram = share(RamDevice::new("no-rings", BLOCKS));
        let Some((volume, session)) = mount(ram, directory.path()) else {
            return;
        };
        assert_eq!(session.transport(), Transport::Device);
        let why = session.fallback().unwrap().to_owned();
        let is_not_offered = why.contains("switched off") || why.contains("6.14");
        assert!(is_not_offered || why.contains(reason), "{why}");
        let server = thread::spawn("server", move || session.run());
        fs::write(directory.path().join("file"), b"sown").unwrap();
        assert_eq!(fs::read(directory.path().join("file")).unwrap(), b"sown");
        unmount(directory.path(), Lazy::No).unwrap();
        server.join().unwrap().unwrap();
        volume.close().unwrap();
    });
    without_rings.join().unwrap();
}

/// What of a device waits while it is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waits {
    Flushes,
    Reads,
}

/// A device that can be held.
#[derive(Debug)]
struct Held {
    info: DeviceInfo,
    ram: Arc<RamDevice>,
    held: Arc<AtomicBool>,
    waits: Waits,
}

impl Held {
    fn on(ram: &Arc<RamDevice>, waits: Waits) -> (Arc<dyn Device>, Arc<AtomicBool>) {
        let held = Arc::new(AtomicBool::new(false));
        let info = DeviceInfo {
            volatile_cache: true,
            in_memory: false,
            ..ram.info().clone()
        };
        let device = Held {
            info,
            ram: Arc::clone(ram),
            held: Arc::clone(&held),
            waits,
        };
        (share(device), held)
    }
}

impl Device for Held {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn execute(&self, io: Io<'_>) -> dure_block::Result<()> {
        let waits = match self.waits {
            Waits::Flushes => matches!(io, Io::Flush),
            Waits::Reads => matches!(io, Io::Read { .. }),
        };
        // Relaxed: it only tells when to go on.
        while waits && self.held.load(Ordering::Relaxed) {
            thread::sleep(std::time::Duration::from_millis(1));
        }
        self.ram.execute(io)
    }
}

/// The file system with a directory for each connection.
struct Control(TempDir);

impl Control {
    /// `None` for those who may not.
    fn new() -> Option<Control> {
        let at = tempfile::tempdir().unwrap();
        let flags = rustix::mount::MountFlags::empty();
        match rustix::mount::mount("none", at.path(), "fusectl", flags, c"") {
            Ok(()) => Some(Control(at)),
            Err(error) => {
                println!("not run: fusectl: {error}");
                None
            }
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0.path(), rustix::mount::UnmountFlags::DETACH);
    }
}

/// More fsyncs than helpers or entries of a queue wait when the connection is aborted: the callers
/// get an error, and the server ends when the device goes on.
#[test]
fn an_aborted_connection_ends_with_requests_under_way() {
    const WAITING: usize = 70;
    let directory: TempDir = tempfile::tempdir().unwrap();
    let ram = Arc::new(RamDevice::new("held", BLOCKS));
    let (device, held) = Held::on(&ram, Waits::Flushes);
    let Some((volume, session)) = mount(device, directory.path()) else {
        return;
    };
    if let Some(why) = session.fallback() {
        println!("not run: {why}");
        return;
    }
    let server = thread::spawn("server", move || session.run());
    let Some(control) = Control::new() else {
        unmount(directory.path(), Lazy::Yes).unwrap();
        server.join().unwrap().unwrap();
        return;
    };
    let connection = fs::metadata(directory.path()).unwrap().dev().to_string();
    let abort = control.0.path().join(connection).join("abort");
    let files: Vec<File> = (0..WAITING)
        .map(|index| File::create(directory.path().join(format!("f{index}"))).unwrap())
        .collect();
    // Relaxed: see above.
    held.store(true, Ordering::Relaxed);
    thread::scope(|scope| {
        let syncs: Vec<_> = files
            .iter()
            .map(|file| {
                scope.spawn(move || {
                    file.write_all_at(b"waits", 0)
                        .and_then(|()| file.sync_all())
                })
            })
            .collect();
        thread::sleep(std::time::Duration::from_millis(300));
        unmount(directory.path(), Lazy::Yes).unwrap();
        fs::write(&abort, "1").unwrap();
        let ended: Vec<_> = syncs.into_iter().map(|sync| sync.join().unwrap()).collect();
        assert!(ended.iter().all(Result::is_err), "{ended:?}");
        held.store(false, Ordering::Relaxed);
    });
    drop(files);
    server.join().unwrap().unwrap();
    volume.close().unwrap();
}

/// The calling thread, and those it starts, run on one core: their requests go to one ring.
pub(crate) fn stay_on_one_core() {
    let mut set = rustix::thread::CpuSet::new();
    set.set(0);
    rustix::thread::sched_setaffinity(None, &set).unwrap();
}

/// Makes files that no cache has afterwards. False: it cannot be done here.
fn fill_and_unmount(ram: &Arc<RamDevice>, root: &Path, files: usize) -> bool {
    let (device, _) = Held::on(ram, Waits::Reads);
    let Some((volume, session)) = mount(device, root) else {
        return false;
    };
    if let Some(why) = session.fallback() {
        println!("not run: {why}");
        return false;
    }
    let server = thread::spawn("server", move || session.run());
    for file in 0..files {
        fs::write(root.join(format!("f{file}")), vec![7; 64 << 10]).unwrap();
    }
    fs::create_dir(root.join("cold")).unwrap();
    fs::write(root.join("cold/name"), b"sown").unwrap();
    unmount(root, Lazy::No).unwrap();
    server.join().unwrap().unwrap();
    volume.close().unwrap();
    true
}

/// Reads wait for the device on one core, and lookups of names
/// that are not in memory too. Whoever asks there for what is in memory is answered.
#[test]
fn a_ring_answers_while_reads_wait_for_the_device() {
    const READS: usize = 4;
    let directory: TempDir = tempfile::tempdir().unwrap();
    let root = directory.path();
    let ram = Arc::new(RamDevice::new("slow", BLOCKS));
    if !fill_and_unmount(&ram, root, READS) {
        return;
    }

    let (device, held) = Held::on(&ram, Waits::Reads);
    let (volume, session) = mount_again(device, root).unwrap();
    let server = thread::spawn("server", move || session.run());
    let files: Vec<File> = (0..READS)
        .map(|file| File::open(root.join(format!("f{file}"))).unwrap())
        .collect();
    fs::write(root.join("warm"), b"in memory").unwrap();
    let is_answered = AtomicBool::new(false);
    // Relaxed: see above.
    held.store(true, Ordering::Relaxed);
    thread::scope(|scope| {
        let readers: Vec<_> = files
            .iter()
            .map(|file| {
                scope.spawn(move || {
                    stay_on_one_core();
                    let mut byte = [0];
                    file.read_exact_at(&mut byte, 0).map(|()| byte[0])
                })
            })
            .collect();
        let cold = scope.spawn(|| {
            stay_on_one_core();
            fs::read(root.join("cold/name"))
        });
        thread::sleep(std::time::Duration::from_millis(200));
        let asked = scope.spawn(|| {
            stay_on_one_core();
            fs::write(root.join("warm"), b"still in memory").unwrap();
            // Not a change of the root: the kernel itself lets none in while a lookup there waits.
            assert!(fs::metadata(root.join("nothing")).is_err());
            // Relaxed: as `held`.
            is_answered.store(true, Ordering::Relaxed);
        });
        // A hang ends the test's process, not the others' patience.
        for _ in 0..1000 {
            if is_answered.load(Ordering::Relaxed) {
                break;
            }
            thread::sleep(std::time::Duration::from_millis(10));
        }
        let answered = is_answered.load(Ordering::Relaxed);
        held.store(false, Ordering::Relaxed);
        asked.join().unwrap();
        assert!(answered, "a ring's thread waited for the device");
        for reader in readers {
            assert_eq!(reader.join().unwrap().unwrap(), 7);
        }
        assert_eq!(cold.join().unwrap().unwrap(), b"sown");
    });
    drop(files);
    unmount(root, Lazy::No).unwrap();
    server.join().unwrap().unwrap();
    volume.close().unwrap();
}
