//! Content of files.

use dure_fs::SyncScope;

use super::{Call, Outcome, Sent, done};
use crate::coherence::Mode;
use crate::server::{Answer, Caller};
use dure_fuse_wire::Knows;
use dure_fuse_wire::protocol::operation::CopyForm;
use dure_fuse_wire::protocol::reply::{CopyOut, IoctlOut, LseekOut, OpenOut, WriteOut};
use dure_fuse_wire::protocol::request::CopyIn;
use dure_fuse_wire::protocol::{Operation, opcode};

/// ioctl(2) of fstrim(8), `_IOWR('X', 121, struct fstrim_range)`: which bytes, and runs of at least
/// how many. It gives how many bytes were trimmed in place of the second.
pub(super) const FITRIM: u32 = 0xc018_5879;

/// Flags of an open file of a volume that the process uses, too. A close(2) that waits for an answer
/// would wait for ever where the process itself has the file open, and is killed: none of its
/// threads answers any more, and the connection ends with its last descriptor.
pub(super) const OPENED: u32 = opcode::OPEN_DIRECT_IO | opcode::OPEN_NO_FLUSH;

/// What a copy does at most, when the reply counts in 32 bits.
const COPY_BYTES: u64 = 1 << 30;

impl Call<'_> {
    pub(super) fn read(self) -> Outcome {
        let (server, node) = (self.server, self.request.node);
        let Operation::Read {
            offset,
            size,
            cached,
        } = self.request.operation
        else {
            return Err(libc::EIO);
        };
        let want = usize::try_from(size).map_err(|_| libc::EIO)?;
        if cached {
            server.caches(node);
        }
        self.reply
            .fill(want, |room| server.read(node, offset, room))?;
        Ok(Sent::Reply)
    }

    pub(super) fn write(self) -> Outcome {
        let (server, node) = (self.server, self.request.node);
        let Operation::Write {
            offset,
            data,
            cached,
            drops_set_id,
            appends,
        } = self.request.operation
        else {
            return Err(libc::EIO);
        };
        if drops_set_id {
            server.drop_set_id(node, Caller::from(self.request))?;
        }
        let taken = if cached {
            server.write_pages(node, offset, data)?;
            data.len()
        } else if appends && server.knows_the_end_better() {
            server.append(node, data)?
        } else {
            server.write(node, offset, data)?
        };
        self.put_written(taken)
    }

    fn put_written(self, taken: usize) -> Outcome {
        self.reply.put(&WriteOut {
            size: u32::try_from(taken).expect("no more is written than was sent"),
            reserved: 0,
        });
        Ok(Sent::Reply)
    }

    /// OPEN, OPENDIR, RELEASE and RELEASEDIR. Content passes the kernel's cache by, but for what is
    /// mapped, and listings are not kept.
    pub(super) fn open_or_close(self) -> Outcome {
        let (server, node) = (self.server, self.request.node);
        let (opened, flags) = match self.request.operation {
            Operation::Open { flags } => (server.open(node, Mode::of(flags))?, OPENED),
            Operation::OpenDirectory => (server.open(node, Mode::Reads)?, 0),
            Operation::Release(open) => {
                server.release(node, Mode::of(open.flags));
                return Ok(Sent::Reply);
            }
            _ => {
                server.release(node, Mode::Reads);
                return Ok(Sent::Reply);
            }
        };
        opened.ok_or(libc::ENOSYS)?;
        self.reply.put(&OpenOut {
            flags,
            ..OpenOut::default()
        });
        Ok(Sent::Reply)
    }

    pub(super) fn allocate(self, offset: u64, len: u64, mode: u32) -> Outcome {
        let mode = i32::try_from(mode).map_err(|_| libc::EOPNOTSUPP)?;
        let node = self.request.node;
        self.drop_set_id(node)?;
        done(self.server.allocate(node, offset, len, mode))
    }

    pub(super) fn fsync(self, scope: SyncScope) -> Outcome {
        done(self.server.fsync(self.request.node, scope))
    }

    pub(super) fn seek(self, offset: u64, whence: u32, knows: Knows<'_>) -> Outcome {
        // The offset is one of lseek(2), which has a sign.
        i64::try_from(offset).map_err(|_| libc::ENXIO)?;
        let whence = i32::try_from(whence).map_err(|_| libc::EINVAL)?;
        let offset = self.server.seek(self.request.node, offset, whence, knows)?;
        self.reply.put(&LseekOut { offset });
        Ok(Sent::Reply)
    }

    /// Serves one command: that of fstrim(8).
    pub(super) fn ioctl(self, command: u32, data: &[u8]) -> Outcome {
        let (words, []) = data.as_chunks::<8>() else {
            return Err(libc::ENOTTY);
        };
        let (FITRIM, &[start, len, least]) = (command, words) else {
            return Err(libc::ENOTTY);
        };
        let [start, len, least] = [start, len, least].map(u64::from_le_bytes);
        let bytes = start..start.saturating_add(len);
        let told = self.server.trim(self.request.uid, bytes, least)?;
        self.reply.put(&IoctlOut::default());
        self.reply.put(&[start, told, least]);
        Ok(Sent::Reply)
    }

    pub(super) fn copy(self, range: &CopyIn, form: CopyForm) -> Outcome {
        self.drop_set_id(range.node_out)?;
        let from = (self.request.node, range.offset_in);
        let to = (range.node_out, range.offset_out);
        // A longer copy is continued by the caller.
        let bytes = self.server.copy(from, to, range.len.min(COPY_BYTES))?;
        match form {
            CopyForm::Short => self.reply.put(&WriteOut {
                size: u32::try_from(bytes).expect("one copy transfers at most a gigabyte"),
                reserved: 0,
            }),
            CopyForm::Long => self.reply.put(&CopyOut { bytes }),
        }
        Ok(Sent::Reply)
    }

    /// Set-id bits go, where the request does not say whether the caller may keep them.
    fn drop_set_id(&self, node: u64) -> Answer<()> {
        let caller = Caller::from(self.request);
        match caller.is_root() {
            true => Ok(()),
            false => self.server.drop_set_id(node, caller),
        }
    }
}
