//! Joins a handle that changed whole buffers: files them in the running transaction.
//!
//! **Problem.** A buffer may be in the running transaction of another journal, or in a closed one
//! that has not captured it; and cores that join must not wait for each other. **Structure.** Under
//! the lock `joined` of the own journal only: two-way marks in the first case ([`super::running`]),
//! a copy to freeze in the second. **Invariants.** A buffer is in at most one running transaction.
//! **Crash.** Nothing is on the medium yet.

use crate::handle::Handle;
use crate::ids::{JournalId, Mark};
use crate::journal::{Journal, Settle};
use crate::records::{Buffer, TransactionId};
use crate::units::to_u64;

/// What an operation does to a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Its content changes.
    Content,
    /// Its life ends: it needs no image any more.
    End,
}

/// A buffer that a handle changes. The caller holds it exclusively.
#[derive(Debug)]
pub struct BufferUse {
    /// The buffer.
    pub buffer: Box<dyn Buffer>,
    /// The kind of change.
    pub change: Change,
}

/// The result of [`Handle::join_images`].
#[derive(Debug)]
pub struct ImageJoin {
    /// The handle's number.
    pub mark: Mark,
    /// Uses (by position) whose buffer the caller must [`crate::Hold::freeze`] for a transaction
    /// before it changes it.
    pub freeze: Vec<(usize, TransactionId)>,
}

/// A handle that is about to join.
struct NewHandle {
    journal: JournalId,
    number: u64,
    /// The first handle of its transaction.
    first: u64,
}

impl<S: Settle> Handle<'_, S> {
    /// Ends the handle, as [`Handle::join`]; the bytes it changed are logged as images of `uses`.
    /// The caller holds these buffers exclusively until it has changed them; it first freezes the
    /// ones that the result names. It has marked the last writers of all they hold.
    ///
    /// # Panics
    /// If the handle did not reserve enough when it began: 16 bytes for each buffer that may be in
    /// another journal's transaction.
    #[must_use = "images may have to be frozen"]
    pub fn join_images(mut self, uses: Vec<BufferUse>) -> ImageJoin {
        let mut buffers = self.take_buffers();
        let (journal, own) = (self.of(), self.journal());
        let log = journal.log(own);
        let mut joined = log.joined.lock();
        let me = NewHandle {
            journal: own,
            number: joined.next(),
            first: joined.pending.first,
        };
        let transaction = TransactionId {
            journal: own,
            number: me.first,
        };
        let mut freeze = Vec::new();
        let mut filed = 0;
        for (at, one) in uses.into_iter().enumerate() {
            let owner = one.buffer.hold().owner();
            if let Some(owner) = owner {
                if owner.transaction == transaction {
                    continue;
                }
                let foreign = owner.transaction.journal != own;
                if foreign && journal.share(&me, owner.transaction, &mut buffers.marks) {
                    log.tallies.join.two_way.add(1);
                    continue;
                }
                if !owner.captured && journal.rules.freeze.holds() {
                    freeze.push((at, owner.transaction));
                }
            }
            if one.change == Change::End {
                one.buffer.hold().set_owner(None);
                continue;
            }
            one.buffer.hold().set_owner(Some(transaction));
            joined.images.buffers.push(one.buffer);
            filed += 1;
        }
        log.tallies.join.frozen.add(to_u64(freeze.len()));
        let images = filed * journal.image_cost();
        let used = self.join_under(&mut joined, me.number, buffers, images);
        drop(joined);
        ImageJoin {
            mark: self.trace_join(me.number, used),
            freeze,
        }
    }
}

impl<S: Settle> Journal<S> {
    /// Two-way marks with `theirs`, in whose buffer the change of `me` will be, if that transaction
    /// runs: says whether it does.
    fn share(&self, me: &NewHandle, theirs: TransactionId, marks: &mut Vec<Mark>) -> bool {
        let running = &self.log(theirs.journal).running;
        let mut runs = running.is(theirs.number);
        // Both ways: only their image will hold this change.
        if runs && self.rules.two_way.holds() {
            let replaced;
            (runs, replaced) = running.share(theirs.number, me.journal, me.number);
            // Crash scenario without this mark (model case I15): an earlier transaction of this
            // journal also changed a buffer of theirs, and is lost with what it depends on. Nothing
            // names it any more, and half of it survives in their image.
            if replaced != 0 && replaced < me.first && self.rules.pass_on.holds() {
                let replaced = Mark::new(me.journal, replaced);
                if !self.is_valid(replaced) {
                    marks.push(replaced);
                }
            }
        }
        if runs {
            marks.push(Mark::new(theirs.journal, theirs.number));
        }
        // Else it may have closed in between: it has this mark, or the one after it. Harmless.
        runs
    }
}
