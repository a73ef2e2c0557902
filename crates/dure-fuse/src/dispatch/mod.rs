//! From a request to its reply: asks the [`Server`] and encodes its answer.
//!
//! **Structure.** One file per kind of request; here what they share. **Invariants.** Every request
//! but FORGET gets exactly one reply. Requests that dure need not see (OPEN, OPENDIR, FLUSH, ACCESS,
//! locks) are answered ENOSYS once, and the kernel does not send them again; after the refused
//! OPENDIR it also keeps what it has listed of a directory until an entry changes. (A volume that its
//! process uses, too, serves OPEN and OPENDIR: [`crate::coherence`].) So is CREATE:
//! the kernel sends MKNOD and OPEN instead, and after the refused OPEN no RELEASE. A RELEASE is answered after
//! close(2) has returned and keeps the inode until then, so a STATFS of the same process could
//! still count the blocks of a deleted file. **Crash.** Nothing is kept.

mod attributes;
mod content;
mod directory;
mod names;
mod waits;

use dure_fs::SyncScope;
use dure_fs::format::inode::Time;
use dure_fs::units::Ino;

use dure_fuse_wire::protocol::reply::{Attr as WireAttr, EntryOut};
use dure_fuse_wire::protocol::{Operation, Request};
use dure_fuse_wire::{Asks, Errno, Knows, Outcome, Question, Reply, Sent, Service};

use crate::nodes::{is_hidden, node_of};
use crate::server::{Answer, Attr, ENTRY_SECONDS, Entry, Server};

/// The block size reported to every caller.
const BLOCK: u32 = 4096;

/// How often a request that found no space is retried after deletions.
const DELETIONS_ROUNDS: u32 = 10;

impl Service for Server {
    fn begin(&self, asks: Asks) {
        self.tell_by(asks);
    }

    fn answer(&self, request: &Request<'_>, knows: Knows<'_>, reply: &mut Reply) -> Outcome {
        let sent = serve_with_room(self, knows, request, reply)?;
        settle(self, request).map(|()| sent)
    }

    fn may_wait(&self, request: &Request<'_>) -> bool {
        waits::may_wait(self, request)
    }

    fn answer_promptly(&self, request: &Request<'_>, reply: &mut Reply) -> Option<Outcome> {
        if waits::asks_the_kernel(self, &request.operation)
            || waits::takes_long(&request.operation)
            || self.may_wait(request)
        {
            return None;
        }
        // None of the operations that are left asks the kernel about an inode.
        let served = serve(Call::new(self, request, reply), &|_| true);
        // A thread that can wait makes more room, or is the one that says that there is none.
        if is_full(&served) && reply.is_empty() {
            return None;
        }
        Some(served)
    }
}

/// Whether a deletion that is under way may make room, or did.
fn is_full(served: &Outcome) -> bool {
    matches!(served, Err(libc::ENOSPC | libc::EDQUOT))
}

/// Makes durable what was just changed, on a mount that promises it (`sync`, `dirsync`).
fn settle(server: &Server, request: &Request<'_>) -> Result<(), Errno> {
    if !server.settles(request.operation.changes()) {
        return Ok(());
    }
    let changed = match request.operation {
        Operation::Copy { range, .. } => range.node_out,
        _ => request.node,
    };
    server.fsync(changed, SyncScope::All)
}

/// One request on its way to its reply; the methods are in the file of their kind.
struct Call<'a> {
    server: &'a Server,
    request: &'a Request<'a>,
    reply: &'a mut Reply,
}

impl<'a> Call<'a> {
    fn new(server: &'a Server, request: &'a Request<'a>, reply: &'a mut Reply) -> Call<'a> {
        Call {
            server,
            request,
            reply,
        }
    }
}

/// Serves a request; one that fails for lack of space is retried while deletions free some: the
/// caller may have closed a deleted file before, and cannot know that freeing its blocks takes a
/// while.
fn serve_with_room(
    server: &Server,
    knows: Knows<'_>,
    request: &Request<'_>,
    reply: &mut Reply,
) -> Outcome {
    match request.operation {
        // What is being deleted counts as free.
        Operation::Statistics => {
            server.finish_deletions(knows);
        }
        Operation::Write { cached: true, .. } => {
            return serve(Call::new(server, request, reply), knows);
        }
        _ => {}
    }
    let mut served = serve(Call::new(server, request, reply), knows);
    for _ in 0..DELETIONS_ROUNDS {
        if !is_full(&served) || !reply.is_empty() {
            break;
        }
        // A user at a limit leaves the kernel's cache of all the others as it is.
        if matches!(served, Err(libc::ENOSPC)) {
            server.was_refused();
        }
        // A deletion that freed space may have ended before this call: try again in any case.
        let more = server.finish_deletions(knows);
        served = serve(Call::new(server, request, reply), knows);
        if !more {
            break;
        }
    }
    served
}

/// Every operation has its line here: a new one does not compile without.
fn serve(call: Call<'_>, knows: Knows<'_>) -> Outcome {
    let (server, node) = (call.server, call.request.node);
    match call.request.operation {
        // INIT comes once, and was answered before.
        Operation::Init(..) => Err(libc::EIO),
        Operation::Destroy => {
            server.forget_all();
            Ok(Sent::Reply)
        }
        Operation::Forget { .. } => forget(server, knows, [node]),
        Operation::BatchForget(batch) => forget(server, knows, batch.iter().map(|one| one.node)),
        // Every request ends by itself: none is interrupted, and the kernel need not ask again.
        Operation::Interrupt => Err(libc::ENOSYS),
        // Nothing is to be done at close(2), locks are the kernel's, and so on.
        Operation::Unserved(_) => Err(libc::ENOSYS),

        Operation::Lookup(name) => call.lookup(name),
        Operation::Create {
            name,
            mode,
            umask,
            rdev,
        } => call.create(name, mode, umask, rdev),
        Operation::CreateUnnamed { mode, umask } => call.temporary(mode, umask),
        Operation::MakeDirectory { name, mode, umask } => call.mkdir(name, mode, umask),
        Operation::Symlink { name, target } => call.symlink(name, target),
        Operation::Link { node: linked, name } => call.link(linked, name),
        Operation::Unlink(name) => done(server.unlink(node, name)),
        Operation::RemoveDirectory(name) => done(server.rmdir(node, name)),
        Operation::Rename {
            name,
            to,
            to_name,
            flags,
        } => call.rename(name, (to, to_name), flags),

        Operation::GetAttr { has_handle } => call.attributes(has_handle),
        Operation::Statx => call.statx(),
        Operation::SetAttr(set) => call.set_attributes(set),
        Operation::SetXattr {
            name,
            value,
            flags,
            drops_set_gid,
        } => call.set_xattr((name, value), flags, drops_set_gid),
        Operation::GetXattr { name, size } => call.xattr(name, size),
        Operation::ListXattr { size } => call.xattr_names(size),
        Operation::RemoveXattr(name) => done(server.remove_xattr(node, name)),
        Operation::Statistics => call.statistics(),

        Operation::Read { .. } => call.read(),
        Operation::Write { .. } => call.write(),
        Operation::Allocate { offset, len, mode } => call.allocate(offset, len, mode),
        Operation::Seek { offset, whence } => call.seek(offset, whence, knows),
        Operation::Copy { range, form } => {
            let copied = call.copy(range, form);
            // The kernel does not take a copy for a read, and would keep the access time of its
            // source. To ask for the inode makes it drop the attributes.
            let _ = knows(Question::Inode(node));
            copied
        }
        Operation::Ioctl { command, data, .. } => call.ioctl(command, data),
        Operation::Fsync { data_only: true } => call.fsync(SyncScope::Data),
        Operation::Fsync { .. } | Operation::FsyncDirectory => call.fsync(SyncScope::All),
        Operation::SyncAll => done(server.sync()),

        Operation::ReadLink => call.read_link(),
        Operation::ReadDirectory {
            position,
            size,
            form,
        } => call.read_directory(position, size, form),
        Operation::Open { .. }
        | Operation::OpenDirectory
        | Operation::Release(_)
        | Operation::ReleaseDirectory => call.open_or_close(),
    }
}

/// The reply to a request that asks for nothing but that it is done.
fn done(answer: Answer<()>) -> Outcome {
    answer.map(|()| Sent::Reply)
}

fn forget(server: &Server, knows: Knows<'_>, nodes: impl IntoIterator<Item = u64>) -> Outcome {
    nodes
        .into_iter()
        .for_each(|node| server.forget(node, knows));
    Ok(Sent::Nothing)
}

fn secs(at: Time) -> i64 {
    at.secs.get()
}

fn nanos(at: Time) -> u32 {
    at.nanos.get()
}

/// How long the kernel may cache that a name leads to this.
fn entry_seconds(attr: &Attr) -> u64 {
    if is_hidden(attr.ino) {
        0
    } else {
        ENTRY_SECONDS
    }
}

fn mode(attr: &Attr) -> u32 {
    attr.kind.mode() | u32::from(attr.permissions)
}

fn wire_attr(attr: &Attr) -> WireAttr {
    WireAttr {
        ino: attr.ino,
        size: attr.size,
        blocks: attr.blocks,
        atime: secs(attr.atime),
        mtime: secs(attr.mtime),
        ctime: secs(attr.ctime),
        atime_nanos: nanos(attr.atime),
        mtime_nanos: nanos(attr.mtime),
        ctime_nanos: nanos(attr.ctime),
        mode: mode(attr),
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        block_size: BLOCK,
        flags: 0,
    }
}

fn wire_entry(server: &Server, entry: &Entry) -> EntryOut {
    EntryOut {
        node: node_of(Ino(entry.attr.ino), entry.attr.generation),
        generation: entry.attr.generation.into(),
        entry_valid: entry_seconds(&entry.attr),
        attr_valid: server.attr_seconds_of_entry(&entry.attr),
        entry_valid_nanos: 0,
        attr_valid_nanos: 0,
        attr: wire_attr(&entry.attr),
    }
}
