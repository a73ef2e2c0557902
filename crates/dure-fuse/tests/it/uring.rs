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
use dure_fs::{FileSystem, FormatOptions, MountOptions};
use dure_fuse::mount::{Lazy, MountError};
use dure_fuse::{MountSettings, Session, Transport, unmount};
use dure_sync::atomic::{AtomicBool, Ordering};
use dure_sync::{Arc, thread};
use tempfile::TempDir;

const BLOCKS: u64 = 16 << 10;

fn mount(device: Arc<dyn Device>, directory: &Path) -> Option<(FileSystem, Session)> {
    let format = FormatOptions::default();
    FileSystem::format(Arc::clone(&device), &format).unwrap();
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

/// From now on the calling thread, and those it starts, get EPERM from io_uring_setup(2).
fn forbid_io_uring() {
    const SETUP: u32 = 425;
    let filter = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter {
        code: u16::try_from(code).unwrap(),
        jt,
        jf,
        k,
    };
    let errno = u32::try_from(libc::EPERM).unwrap();
    let mut program = [
        // The number of the call; if it is that one, EPERM, else go on.
        filter(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        filter(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, SETUP),
        filter(
            libc::BPF_RET | libc::BPF_K,
            0,
            0,
            libc::SECCOMP_RET_ERRNO | errno,
        ),
        filter(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).unwrap(),
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the call takes numbers only.
    let fixed = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(fixed, 0);
    // SAFETY: the kernel copies the program during the call.
    let set = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
        )
    };
    assert_eq!(set, 0);
}

#[test]
fn where_io_uring_is_forbidden_the_device_is_used_and_the_reason_said() {
    let forbidden = thread::spawn("forbidden", || {
        forbid_io_uring();
        let directory = tempfile::tempdir().unwrap();
        let ram = share(RamDevice::new("forbidden", BLOCKS));
        let Some((volume, session)) = mount(ram, directory.path()) else {
            return;
        };
        assert_eq!(session.transport(), Transport::Device);
        let why = session.fallback().unwrap().to_owned();
        let is_known = why.contains("switched off") || why.contains("6.14");
        assert!(is_known || why.contains("io_uring_disabled"), "{why}");
        let server = thread::spawn("server", move || session.run());
        fs::write(directory.path().join("file"), b"sown").unwrap();
        assert_eq!(fs::read(directory.path().join("file")).unwrap(), b"sown");
        unmount(directory.path(), Lazy::No).unwrap();
        server.join().unwrap().unwrap();
        volume.close().unwrap();
    });
    forbidden.join().unwrap();
}

/// A device whose flushes wait while it is held.
#[derive(Debug)]
struct Held {
    info: DeviceInfo,
    ram: RamDevice,
    held: Arc<AtomicBool>,
}

impl Device for Held {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn execute(&self, io: Io<'_>) -> dure_block::Result<()> {
        // Relaxed: it only tells when to go on.
        while matches!(io, Io::Flush) && self.held.load(Ordering::Relaxed) {
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
    let held = Arc::new(AtomicBool::new(false));
    let ram = RamDevice::new("held", BLOCKS);
    let mut info = ram.info().clone();
    info.volatile_cache = true;
    let device = Held {
        info,
        ram,
        held: Arc::clone(&held),
    };
    let Some((volume, session)) = mount(share(device), directory.path()) else {
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
