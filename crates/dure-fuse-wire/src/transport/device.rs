//! `/dev/fuse`: the connection to the kernel.
//!
//! **Structure.** A [`Channel`] is one open file of the connection; each worker has its own, made
//! by FUSE_DEV_IOC_CLONE, so that replies do not contend for one list of requests in flight. Where
//! that is refused (an ordinary user may not open `/dev/fuse` on some systems), workers share the
//! first. **Invariants.** A reply goes through the channel its request came from. **Crash.** When
//! the last channel is closed the kernel answers every request with ENOTCONN.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use dure_sync::Arc;
use rustix::io::Errno;
use rustix::ioctl;
use zerocopy::IntoBytes;

use super::inherited::Listed;
use crate::protocol::reply::{
    Delete, InvalEntry, InvalInode, NOTIFY_DELETE, NOTIFY_INVAL_ENTRY, NOTIFY_INVAL_INODE,
    OutHeader,
};
use crate::service::Question;

/// The device file.
pub const PATH: &str = "/dev/fuse";

/// Opcode of the ioctl that clones; its argument is the descriptor to clone. Encoded as `_IOR(229,
/// 0, u32)`, although the kernel reads the number.
const IOC_CLONE: ioctl::Opcode = ioctl::opcode::read::<u32>(229, 0);

/// One way to take requests and to send replies.
#[derive(Debug, Clone)]
pub struct Channel(Arc<Listed>);

/// The result of reading a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// A request of so many bytes.
    Request(usize),
    /// Nothing: it was withdrawn, or a signal came.
    Nothing,
    /// The file system was unmounted, or the connection ended.
    End,
}

impl Channel {
    /// The connection behind `fuse`, which a mount was made with.
    #[must_use]
    pub fn new(fuse: OwnedFd) -> Channel {
        Channel(Arc::new(Listed::new(fuse)))
    }

    /// A channel to the same connection: a clone with a file of its own, or else one that shares
    /// this file.
    #[must_use]
    pub fn another(&self) -> Channel {
        self.cloned().unwrap_or_else(|_| self.clone())
    }

    fn cloned(&self) -> io::Result<Channel> {
        let fresh = File::options().read(true).write(true).open(PATH)?;
        let connected = u32::try_from(self.0.fd().as_raw_fd()).expect("an open file has a number");
        // SAFETY: the opcode takes a pointer to an u32, which the kernel only reads.
        let clone = unsafe { ioctl::Setter::<IOC_CLONE, u32>::new(connected) };
        // SAFETY: `fresh` is a FUSE device, to which the opcode belongs; the argument outlives the
        // call.
        unsafe { ioctl::ioctl(&fresh, clone) }?;
        Ok(Channel::new(fresh.into()))
    }

    /// The number of its open file.
    #[must_use]
    pub fn raw(&self) -> RawFd {
        self.0.fd().as_raw_fd()
    }

    /// Waits for a request.
    ///
    /// # Errors
    /// What read(2) says, except for what [`Received`] reports.
    pub fn receive(&self, into: &mut [u8]) -> io::Result<Received> {
        match rustix::io::read(self.0.fd().as_fd(), into) {
            Ok(0) | Err(Errno::NODEV | Errno::CONNABORTED) => Ok(Received::End),
            Ok(len) => Ok(Received::Request(len)),
            Err(Errno::INTR | Errno::NOENT | Errno::AGAIN) => Ok(Received::Nothing),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the kernel has the node's inode. The query invalidates the kernel's attributes of
    /// it, which does no harm; ENOENT is the answer that it has none.
    ///
    /// It waits until the kernel has finished evicting the inode, if it is doing so, and until pages
    /// that are asked for are written, so another thread has to answer requests meanwhile.
    pub fn knows(&self, question: &Question) -> bool {
        let answer = rustix::io::write(self.0.fd().as_fd(), &notification(question));
        answer != Err(Errno::NOENT)
    }

    /// Sends a reply. If the kernel no longer has the request, that is no error.
    ///
    /// # Errors
    /// What write(2) says, except for that.
    pub fn send(&self, reply: &[u8]) -> io::Result<()> {
        match rustix::io::write(self.0.fd().as_fd(), reply) {
            Ok(sent) if sent == reply.len() => Ok(()),
            Ok(sent) => Err(io::Error::other(format!(
                "the kernel took {sent} bytes of a reply of {}",
                reply.len()
            ))),
            Err(Errno::NOENT | Errno::NODEV | Errno::CONNABORTED) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// The notification that a question is.
fn notification(question: &Question) -> Vec<u8> {
    match question {
        Question::Inode(node) => inode(*node, -1, 0),
        Question::Pages { node, bytes } => {
            let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
            let len = match bytes.end {
                // 0 bytes: to the end.
                u64::MAX => 0,
                end => signed(end - bytes.start),
            };
            inode(*node, signed(bytes.start), len)
        }
        Question::Name { parent, name } => {
            let entry = InvalEntry {
                header: header(NOTIFY_INVAL_ENTRY, size_of::<InvalEntry>() + name.len() + 1),
                parent: *parent,
                name_len: short(name.len()),
                flags: 0,
            };
            [entry.as_bytes(), name, &[0]].concat()
        }
        Question::Removed {
            parent,
            child,
            name,
        } => {
            let entry = Delete {
                header: header(NOTIFY_DELETE, size_of::<Delete>() + name.len() + 1),
                parent: *parent,
                child: *child,
                name_len: short(name.len()),
                reserved: 0,
            };
            [entry.as_bytes(), name, &[0]].concat()
        }
    }
}

fn inode(node: u64, offset: i64, len: i64) -> Vec<u8> {
    let inode = InvalInode {
        header: header(NOTIFY_INVAL_INODE, size_of::<InvalInode>()),
        node,
        offset,
        len,
    };
    inode.as_bytes().to_vec()
}

fn header(code: i32, len: usize) -> OutHeader {
    OutHeader {
        len: short(len),
        error: code,
        unique: 0,
    }
}

fn short(len: usize) -> u32 {
    u32::try_from(len).expect("a notification is short")
}
