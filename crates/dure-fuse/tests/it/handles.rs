//! File handles (name_to_handle_at(2), as an NFS server keeps them) outlive the kernel's inode, and
//! even the mount. Needs root and `/dev/fuse`.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a panic is how a test fails, and a test that cannot run says so"
)]

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use dure_block::ram::RamDevice;
use dure_block::share;
use dure_fs::{FileSystem, MountOptions};
use dure_fuse::mount::{Lazy, MountError};
use dure_fuse::{MountSettings, Session, unmount};
use dure_sync::{Arc, thread};

/// `struct file_handle`.
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    data: [u8; 128],
}

fn handle_of(path: &Path) -> Handle {
    let mut handle = Handle {
        bytes: 128,
        kind: 0,
        data: [0; 128],
    };
    let name = CString::new(path.as_os_str().as_bytes()).unwrap();
    let mut mount = 0_i32;
    // SAFETY: the name ends with a NUL; the handle says how many bytes follow its head; both live
    // through the call, as does the number of the mount.
    let got = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            libc::AT_FDCWD,
            name.as_ptr(),
            &raw mut handle,
            &raw mut mount,
            0,
        )
    };
    assert_eq!(got, 0, "{}", io::Error::last_os_error());
    handle
}

fn open(on: &Path, handle: &mut Handle) -> io::Result<File> {
    let directory = File::open(on)?;
    // SAFETY: the handle is one that the kernel filled, and lives through the call.
    let got = unsafe {
        libc::syscall(
            libc::SYS_open_by_handle_at,
            directory.as_raw_fd(),
            std::ptr::from_mut(handle),
            libc::O_RDONLY,
        )
    };
    let Ok(descriptor) = i32::try_from(got) else {
        unreachable!("descriptors are small");
    };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just opened it for us.
    Ok(unsafe { File::from_raw_fd(descriptor) })
}

/// Serves the volume on `directory` while `body` runs; false where nothing can be mounted.
fn mounted(ram: &Arc<RamDevice>, directory: &Path, body: impl FnOnce()) -> bool {
    let volume = FileSystem::open(share(ram.clone()), MountOptions::default()).unwrap();
    let session = Session::mount(volume.clone(), directory, &MountSettings::default());
    let session = match session {
        Ok(session) => session,
        Err(error @ (MountError::NoFuse(_) | MountError::NoHelper)) => {
            println!("not run: {error}");
            return false;
        }
        Err(error) => panic!("{error}"),
    };
    let server = thread::spawn("server", move || session.run());
    body();
    unmount(directory, Lazy::No).unwrap();
    server.join().unwrap().unwrap();
    volume.close().unwrap();
    true
}

#[test]
fn a_handle_finds_its_file_after_the_mount_has_ended() {
    if !rustix::process::geteuid().is_root() {
        println!("not run: handles are opened by root only");
        return;
    }
    let ram = Arc::new(RamDevice::new("handles", 16 << 10));
    FileSystem::format(share(ram.clone()), &crate::format_options()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let mut handles = Vec::new();
    let made = mounted(&ram, directory.path(), || {
        fs::create_dir_all(path("a/b")).unwrap();
        for (name, content) in [("a/b/file", "sown"), ("a/gone", "lost")] {
            fs::write(path(name), content).unwrap();
            handles.push(handle_of(&path(name)));
        }
        handles.push(handle_of(&path("a/b")));
    });
    if !made {
        return;
    }
    mounted(&ram, directory.path(), || {
        fs::remove_file(path("a/gone")).unwrap();
        let mut content = String::new();
        let mut file = open(directory.path(), &mut handles[0]).unwrap();
        file.read_to_string(&mut content).unwrap();
        assert_eq!(content, "sown");
        let gone = open(directory.path(), &mut handles[1]).unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(libc::ESTALE));
        // The kernel asks for the parents of a directory until it reaches one that it knows.
        let below = open(directory.path(), &mut handles[2]).unwrap();
        let shown = fs::read_link(format!("/proc/self/fd/{}", below.as_raw_fd())).unwrap();
        assert_eq!(shown, path("a/b"));
    });
}
