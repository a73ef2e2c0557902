//! `fusermount3`, the set-uid program through which ordinary users mount and unmount.
//!
//! The environment variable `_FUSE_COMMFD` tells it which of its descriptors is a socket; it
//! mounts, and sends the connection to the kernel through that socket. The socket is its standard
//! input, so no other descriptor need be inherited.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::{Lazy, MountError, Settings, flags};
use crate::transport::device;

const PROGRAM: &str = "fusermount3";

/// Mounts on `path`; returns the connection to the kernel.
pub(super) fn mount(path: &Path, settings: &Settings) -> Result<OwnedFd, MountError> {
    let failed = |source| MountError::Mount {
        path: path.to_owned(),
        source,
    };
    // The helper opens it with the caller's rights, and its complaint says no more.
    let fuse = File::options().read(true).write(true).open(device::PATH);
    drop(fuse.map_err(MountError::NoFuse)?);
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    let mut command = Command::new(PROGRAM);
    command
        .arg("-o")
        .arg(options(settings))
        .arg("--")
        .arg(path)
        .env("_FUSE_COMMFD", "0")
        .stdin(OwnedFd::from(theirs));
    run(&mut command).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => MountError::NoHelper,
        _ => failed(error),
    })?;
    // Drops our copy of its end: otherwise receiving would block if the helper sent nothing.
    drop(command);
    receive(&ours).map_err(failed)
}

/// Unmounts `at`.
pub(super) fn unmount(at: &Path, lazy: Lazy) -> io::Result<()> {
    let mut command = Command::new(PROGRAM);
    command.arg("-u");
    if lazy == Lazy::Yes {
        command.arg("-z");
    }
    run(command.arg("--").arg(at).stdin(Stdio::null()))
}

/// Runs the helper until it exits; its complaint is the error.
fn run(command: &mut Command) -> io::Result<()> {
    let output = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(missing)?
        .wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    let kind = match complaint.contains("busy") {
        true => io::ErrorKind::ResourceBusy,
        false => io::ErrorKind::Other,
    };
    let complaint = complaint.trim().trim_start_matches("fusermount3: ");
    let status = output.status;
    let told = format!("{PROGRAM} ended with {status}: {complaint}");
    Err(io::Error::new(kind, told))
}

/// The error of a helper that could not be started. Where a directory of `$PATH` may not be searched
/// the system says "permission denied" of a program that is nowhere.
fn missing(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => {
            io::Error::new(io::ErrorKind::NotFound, MountError::NoHelper)
        }
        _ => error,
    }
}

/// The mount options in the helper's syntax; a comma in the source name would end it.
fn options(settings: &Settings) -> String {
    let source = settings.source.replace('\\', "\\\\").replace(',', "\\,");
    let subtype = &settings.subtype;
    let mut options = format!("fsname={source},subtype={subtype},default_permissions");
    let allow_other = settings.allow_other.then_some("allow_other");
    for option in flags::words(settings.flags).chain(allow_other) {
        write!(options, ",{option}").expect("a string takes everything");
    }
    options
}

/// Receives the descriptor that the helper sends.
fn receive(socket: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut data = [IoSliceMut::new(&mut byte)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    rustix::io::retry_on_intr(|| recvmsg(socket, &mut data, &mut control, flags))?;
    let sent = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    sent.ok_or_else(|| io::Error::other(format!("{PROGRAM} sent no connection to the kernel")))
}

#[cfg(test)]
mod tests {
    use rustix::mount::MountFlags;

    use super::*;

    #[test]
    fn a_helper_that_may_not_be_run_is_told_as_one_that_is_missing() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for program in [Path::new("/nowhere/fusermount3"), file.path()] {
            let error = run(&mut Command::new(program)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
            assert!(error.to_string().contains("install the package fuse3"));
        }
    }

    #[test]
    fn a_source_with_a_comma_stays_one_option() {
        let settings = Settings {
            source: "/v,ro\\.img".into(),
            subtype: "dure".into(),
            flags: flags::DEFAULT | MountFlags::NOATIME,
            ..Settings::default()
        };
        assert_eq!(
            options(&settings),
            "fsname=/v\\,ro\\\\.img,subtype=dure,default_permissions,nosuid,nodev,noatime"
        );
    }

    #[test]
    fn a_descriptor_crosses_the_socket_and_nothing_is_an_error() {
        use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
        use std::io::{IoSlice, Read, Write};
        use std::os::fd::AsFd;

        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [writer.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        let data = [IoSlice::new(&[0])];
        sendmsg(&theirs, &data, &mut control, SendFlags::empty()).unwrap();
        let received = receive(&ours).unwrap();
        drop(writer);
        std::fs::File::from(received).write_all(b"sown").unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "sown");

        drop(theirs);
        assert!(receive(&ours).is_err());
    }
}
