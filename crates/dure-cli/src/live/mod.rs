//! Asking the server of a mounted volume what it is doing.
//!
//! **Problem.** The numbers are in the memory of the process that serves the mount; `dure top` is
//! another. **Structure.** The server listens on a Unix socket in the abstract namespace, whose
//! name is made of the numbers of the volume's file or device ([`address`]); [`server`] and
//! [`client`] exchange a line of JSON for a line of JSON ([`wire`]). **Invariants.** What a side
//! reads is bounded in bytes and time. What a client changes (size, snapshots, the scrub) only the user of the
//! server and root may change. **Crash.** The kernel frees the name with the process.
//!
//! # Trust
//! Any process may take the name first. So both sides check with SO_PEERCRED which process they
//! talk to before they read: the server answers its own user and root; the client trusts its own
//! user, root, and, if it is root, the user that serves the mount according to the kernel.
//!
//! # Why an abstract socket
//! An extended attribute of the mount's root would be queued with all other requests, and not
//! answered while the file system hangs, which is when it is wanted; it cannot be longer than 64
//! KiB; and root cannot read it on a user's mount. A socket in a directory would stay behind after
//! a crash, and root would have to search every user's directory.

pub(crate) mod client;
pub(crate) mod scrub;
pub(crate) mod server;
pub(crate) mod snapshots;
pub(crate) mod wire;

use std::io;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::SocketAddr;
use std::path::Path;

use rustix::process::{Uid, geteuid};

/// Where the server of the volume at `volume` listens. Volumes are told apart by device and inode
/// numbers, not by uuid: copies of a volume have the same uuid.
pub(crate) fn address(volume: &Path) -> io::Result<SocketAddr> {
    let data = std::fs::metadata(volume)?;
    let name = if data.file_type().is_block_device() {
        format!("dure/device/{}", data.rdev())
    } else {
        format!("dure/file/{}/{}", data.dev(), data.ino())
    };
    SocketAddr::from_abstract_name(name)
}

/// Whether the other end of a connection belongs to this user or to root.
fn is_trusted(connection: impl AsFd) -> io::Result<bool> {
    let peer = rustix::net::sockopt::socket_peercred(connection)?;
    Ok(trusts(geteuid(), peer.uid))
}

fn trusts(own: Uid, peer: Uid) -> bool {
    peer.is_root() || peer == own
}

#[cfg(test)]
mod tests;
