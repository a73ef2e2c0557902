//! A mount of a volume that its process uses, too: what either side changes, the other sees.
//!
//! **Problem.** The kernel keeps names, attributes and pages, and believes that every change comes
//! through it. Here the process that serves the mount changes the volume by calls of the library.
//! **Structure.** Little is kept, and the library ends the rest. Of the kernel's side the server
//! says how long an answer holds ([`crate::server::Server`]); of the library's, each call that
//! changes something tells [`Coherence`], which knows what the kernel has open and sends
//! notifications:
//!
//! | of | the kernel keeps | a call of the library |
//! |---|---|---|
//! | content | nothing of read(2) and write(2), which pass its cache by; pages that are mapped, while the file is open | if it has asked for pages since the file is open: before a read or change of one that is open for writing, has stores in mappings sent; after a change, has its pages dropped |
//! | size, times, modes of files | nothing | - |
//! | attributes of directories, access control lists | for a second, if it asked for them | has them dropped |
//! | names, also that there is none | without end | has the name looked up anew |
//! | listings | nothing | - |
//! | an inode without a name | while it is used | is pinned, if the kernel has it |
//!
//! # Order
//! A call tells the kernel after its change, with no lock of the file system held, and before it
//! returns. So what begins after the call sees the change, on either side; what runs at the same
//! time sees either.
//!
//! | library | kernel |
//! |---|---|
//! | | 1. a fault takes the lock of page 7 and asks for it |
//! | | 2. the server notes that, and reads the old bytes |
//! | 3. changes the bytes | |
//! | 4. sees that the kernel has pages, as the server noted before it read | |
//! | 5. asks to drop page 7, and waits for its lock | 6. puts the old bytes there, and unlocks it |
//! | 7. the page is dropped | |
//!
//! The same holds for a name (a LOOKUP holds the lock of the directory until its answer is in
//! place; one that the kernel believes is not asked for) and for attributes (the kernel drops an
//! answer to a GETATTR that began before the notification; those of other answers are not kept).
//!
//! # No deadlock
//! A notification waits for locks of the kernel, whose holders may wait for a request: it is sent
//! by the caller of the library, with no lock held that a request needs, and never by a thread that
//! answers requests. The lock that is held meanwhile, `ASKS`, is also taken by the start and the end
//! of a mount. A buffer of a caller may itself be a mapping of the mount, so that copying waits
//! for a request: [`Coherence::may_be_mapped`] says when it has to be copied without locks.
//!
//! **Invariants.** The server notes that a file has pages before the kernel has any, and forgets it
//! after the last mapping is gone: RELEASE follows the last munmap(2), and the next open(2) drops what
//! is left. An inode that is open is
//! pinned. **Limits.** A store into a mapping and a call of the library that change one 4 KiB page
//! at the same time, with nothing that orders them: the store's page may be sent as a whole after
//! the call, so that the other bytes of the call are lost, as between two clients of NFS. **On a
//! crash** nothing is kept; the kernel answers ENOTCONN.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use dure_fs::{FileKind, InodeRef};
use dure_fuse_wire::protocol::ROOT;
use dure_fuse_wire::{Asks, Question};
use dure_sync::{Arc, Mutex, PerCoreRwLock, random};

use crate::nodes::{Unlinked, node_of};

/// Rank of the way to the kernel; no lock is taken while it is held.
const ASKS: u8 = 31;
/// Rank of names that are lent; no lock is taken while it is held.
const LENT: u8 = 33;
/// Rank of what the kernel has open; no lock is taken while it is held.
const OPENS: u8 = 32;

/// What the kernel may have of a volume, for changes that do not come through it.
#[derive(Debug, Default)]
pub struct Coherence {
    /// None while the volume is not mounted.
    asks: PerCoreRwLock<ASKS, Way>,
    opens: PerCoreRwLock<OPENS, Opens>,
    /// Inodes without a name that the kernel has; the server's.
    unlinked: Arc<Unlinked>,
    /// Names that are lent.
    lent: Mutex<LENT, BTreeMap<Vec<u8>, InodeRef>>,
}

#[derive(Default)]
struct Way(Option<Asks>);

impl fmt::Debug for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "mounted" } else { "not" })
    }
}

/// What the kernel has open, by node.
#[derive(Debug, Default)]
struct Opens {
    nodes: BTreeMap<u64, Opened>,
    /// How many of them are no directories.
    files: usize,
    /// Of how many the kernel may have pages.
    cached: usize,
}

/// An inode that the kernel has open.
#[derive(Debug)]
struct Opened {
    inode: InodeRef,
    times: u64,
    /// How many of the times for writing, which a mapping needs to change it.
    writers: u64,
    /// The kernel has asked for pages, which it keeps for mappings.
    cached: bool,
}

/// How an inode is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// For reading.
    Reads,
    /// For writing.
    Writes,
}

impl Mode {
    /// Of flags of open(2).
    #[must_use]
    pub fn of(flags: u32) -> Mode {
        match flags.cast_signed() & libc::O_ACCMODE {
            libc::O_RDONLY => Mode::Reads,
            _ => Mode::Writes,
        }
    }
}

fn node(inode: &InodeRef) -> u64 {
    node_of(inode.ino(), inode.generation())
}

/// What the server says.
impl Coherence {
    /// Requests are about to come, until [`Coherence::end`].
    pub(crate) fn begin(&self, asks: Asks) {
        *self.asks.write() = Way(Some(asks));
    }

    /// The connection has ended: the kernel has nothing any more.
    pub(crate) fn end(&self) {
        *self.asks.write() = Way(None);
        let opens = std::mem::take(&mut *self.opens.write());
        // Dropped without the lock: the last pin of an inode without a name deletes it.
        drop(opens);
        self.unlinked.clear();
    }

    pub(crate) fn unlinked(&self) -> Arc<Unlinked> {
        Arc::clone(&self.unlinked)
    }

    /// The kernel opens it: said before it is told so.
    pub(crate) fn opened(&self, inode: InodeRef, mode: Mode) {
        let is_file = inode.kind() != FileKind::Directory;
        let mut opens = self.opens.write();
        let opened = opens.nodes.entry(node(&inode)).or_insert(Opened {
            inode,
            times: 0,
            writers: 0,
            cached: false,
        });
        opened.times += 1;
        opened.writers += u64::from(mode == Mode::Writes);
        if opened.times == 1 && is_file {
            opens.files += 1;
        }
    }

    /// The kernel asks for pages of its cache: said before they are read.
    pub(crate) fn caches(&self, node: u64) {
        let known = |opened: &Opened| opened.cached;
        if self.opens.read().nodes.get(&node).is_none_or(known) {
            return;
        }
        let mut opens = self.opens.write();
        if let Some(opened) = opens.nodes.get_mut(&node)
            && !std::mem::replace(&mut opened.cached, true)
        {
            opens.cached += 1;
        }
    }

    /// What a name that is lent leads to.
    pub(crate) fn lent(&self, name: &[u8]) -> Option<InodeRef> {
        self.lent.lock().get(name).cloned()
    }

    /// The last user of an open has left.
    pub(crate) fn released(&self, node: u64, mode: Mode) {
        let mut opens = self.opens.write();
        let Some(opened) = opens.nodes.get_mut(&node) else {
            return;
        };
        opened.times -= 1;
        opened.writers -= u64::from(mode == Mode::Writes);
        if opened.times > 0 {
            return;
        }
        let closed = opens.nodes.remove(&node).expect("it was found");
        if closed.inode.kind() != FileKind::Directory {
            opens.files -= 1;
        }
        opens.cached -= usize::from(closed.cached);
        drop(opens);
        // The last pin of an inode without a name deletes it: without the lock.
        drop(closed);
    }
}

/// What the library says.
impl Coherence {
    /// Whether requests come.
    #[must_use]
    pub fn is_mounted(&self) -> bool {
        self.asks.read().0.is_some()
    }

    /// Whether memory of this process may be a mapping of the mount. One is made of an open file,
    /// and keeps it open: a buffer that a call has got was mapped before, if it is.
    #[must_use]
    pub fn may_be_mapped(&self) -> bool {
        self.opens.read().files > 0
    }

    /// Before `bytes` of a file are read or changed: has the kernel send what was stored there
    /// through mappings.
    pub fn settle(&self, inode: &InodeRef, bytes: Range<u64>) {
        if self.has_pages(inode, |opened| opened.writers > 0) {
            self.drop_pages(inode, bytes);
        }
    }

    /// Before everything is made durable: the same of all files.
    pub fn settle_all(&self) {
        let opens = self.opens.read();
        let stored = |opened: &&Opened| opened.cached && opened.writers > 0;
        let stored = opens.nodes.values().filter(stored);
        let inodes: Vec<_> = stored.map(|opened| opened.inode.clone()).collect();
        drop(opens);
        for inode in inodes {
            self.drop_pages(&inode, 0..u64::MAX);
        }
    }

    /// After `bytes` of a file were changed: has the kernel drop what is mapped of them.
    pub fn changed(&self, inode: &InodeRef, bytes: Range<u64>) {
        if self.has_pages(inode, |_| true) {
            self.drop_pages(inode, bytes);
        }
    }

    /// After attributes of an inode were changed, plain or extended, or the names in a directory.
    pub fn attributes_changed(&self, inode: &InodeRef) {
        self.ask(Question::Inode(node(inode)));
    }

    /// After a name was made in the directory, or leads elsewhere.
    pub fn name_changed(&self, directory: &InodeRef, name: &[u8]) {
        self.ask(Question::Name {
            parent: node(directory),
            name: name.to_vec(),
        });
        self.attributes_changed(directory);
    }

    /// After a name was removed. If it was the last of `nameless`, that lives as long as the kernel
    /// has it.
    pub fn name_removed(&self, directory: &InodeRef, name: &[u8], nameless: Option<InodeRef>) {
        let Some(nameless) = nameless else {
            return self.name_changed(directory, name);
        };
        let child = node(&nameless);
        // Pinned before the kernel is asked: its FORGET may come at any time, and unpins.
        self.unlinked.keep(nameless);
        self.ask(Question::Removed {
            parent: node(directory),
            child,
            name: name.to_vec(),
        });
        self.attributes_changed(directory);
        if !self.ask(Question::Inode(child)) {
            self.unlinked.let_go(child);
        }
    }

    /// A name that an inode has in the root directory of the mount for a moment, so that this process
    /// can open it there, whatever its names are. It cannot be guessed, and no listing has it.
    pub fn lend_name(&self, inode: InodeRef) -> LentName<'_> {
        let name = format!(".dure-{:016x}{:016x}", random::u64(), random::u64());
        self.lent.lock().insert(name.clone().into_bytes(), inode);
        LentName {
            coherence: self,
            name,
        }
    }

    /// Whether the kernel may have pages of an inode that is open so.
    fn has_pages(&self, inode: &InodeRef, open: impl Fn(&Opened) -> bool) -> bool {
        let opens = self.opens.read();
        let cached = |opened: &Opened| opened.cached && open(opened);
        opens.cached > 0 && opens.nodes.get(&node(inode)).is_some_and(cached)
    }

    fn drop_pages(&self, inode: &InodeRef, bytes: Range<u64>) {
        if bytes.is_empty() {
            return;
        }
        let node = node(inode);
        self.ask(Question::Pages { node, bytes });
    }

    /// Whether the kernel has it; not if nothing is mounted.
    fn ask(&self, question: Question) -> bool {
        let asks = self.asks.read();
        asks.0.as_ref().is_some_and(|asks| asks(question))
    }
}

/// A name that is lent until this is dropped.
#[derive(Debug)]
pub struct LentName<'a> {
    coherence: &'a Coherence,
    name: String,
}

impl LentName<'_> {
    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for LentName<'_> {
    fn drop(&mut self) {
        let name = self.name.as_bytes();
        let inode = self.coherence.lent.lock().remove(name);
        drop(inode);
        self.coherence.ask(Question::Name {
            parent: ROOT,
            name: name.to_vec(),
        });
    }
}
