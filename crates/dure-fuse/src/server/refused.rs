//! Writers that are to hear that the volume is full.
//!
//! **Problem.** write(2) into the kernel's cache goes on on a full volume: the pages are refused
//! later, and a program that looks only at write(2), as dd(1) does, would write without end.
//! **Structure.** A WRITE of the kernel's cache that finds no room notes its node, and a thread
//! makes the kernel drop what it knows of the file's mode. So the next write(2) to the file asks
//! for it first, with a file handle (GETATTR); it gets ENOSPC, which is what write(2) then says.
//! The kernel asks again at the next one, until there is room.
//!
//! Only write(2) asks so: stat(2) asks without a handle, and the end of the file, which read(2) and
//! lseek(2) need, the kernel believes itself for an hour after it has had attributes.
//!
//! **Invariants.** The thread is none that answers requests: the kernel may make it wait while it
//! evicts the inode, which waits for WRITEs. It ends when all are told.
//!
//! **On a crash** nothing of this remains.

use std::collections::BTreeSet;
use std::fmt;

use dure_fuse_wire::{Asks, Question};
use dure_sync::atomic::{AtomicBool, Ordering};
use dure_sync::{Arc, Mutex, thread};

/// Rank of the files whose pages were refused; no lock is taken while it is held.
const REFUSED: u8 = 16;
/// Files that are noted at most. Of others only fsync(2) and close(2) say it.
const FILES_MAX: usize = 4096;

/// Files whose pages were refused.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    /// There are some. Only saves looking: Relaxed.
    any: AtomicBool,
    files: Mutex<REFUSED, Files>,
}

#[derive(Default)]
struct Files {
    nodes: BTreeSet<u64>,
    /// Those of which the kernel is to drop the mode.
    untold: Vec<u64>,
    /// Tells the kernel. None before there are requests, and while the thread has it.
    asks: Option<Asks>,
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, {:?} untold", self.nodes, self.untold)
    }
}

impl Refused {
    /// From now on the kernel can be told.
    pub(crate) fn begin(&self, asks: Asks) {
        self.files.lock().asks = Some(asks);
    }

    /// No writer is there any more to be told.
    pub(crate) fn end(&self) {
        *self.files.lock() = Files::default();
    }

    /// A page of the file was refused.
    pub(crate) fn note(refused: &Arc<Refused>, node: u64) {
        let mut files = refused.files.lock();
        if files.nodes.len() == FILES_MAX && !files.nodes.contains(&node) {
            return;
        }
        files.nodes.insert(node);
        if !files.untold.contains(&node) {
            files.untold.push(node);
        }
        refused.any.store(true, Ordering::Relaxed);
        if let Some(asks) = files.asks.take() {
            drop(files);
            let refused = Arc::clone(refused);
            thread::spawn("dure-full", move || refused.tell(asks));
        }
    }

    /// Whether pages of the file were refused since there was room last.
    pub(crate) fn has(&self, node: u64) -> bool {
        self.any.load(Ordering::Relaxed) && self.files.lock().nodes.contains(&node)
    }

    /// There is room.
    pub(crate) fn clear(&self) {
        self.any.store(false, Ordering::Relaxed);
        self.files.lock().nodes.clear();
    }

    /// Tells the kernel of all, and gives `asks` back.
    fn tell(&self, asks: Asks) {
        loop {
            let mut files = self.files.lock();
            let Some(node) = files.untold.pop() else {
                files.asks = Some(asks);
                return;
            };
            drop(files);
            let _ = asks(Question::Inode(node));
        }
    }
}
