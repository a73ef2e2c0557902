//! Joins a handle that changed whole buffers: files them in the running transaction.
//!
//! **Problem.** A buffer may be in the running transaction of another journal, or in a closed one
//! that has not captured it. **Structure.** Under the locks `joined` of all journals concerned, taken
//! in ascending order: two-way marks in the first case, a copy to freeze in the second.
//! **Invariants.** A buffer is in at most one running transaction. **Crash.** Nothing is on the
//! medium yet.

use super::Guards;
use crate::handle::Handle;
use crate::ids::{JournalId, Mark};
use crate::journal::Settle;
use crate::log::Joined;
use crate::records::{Buffer, Owner, TransactionId};
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

impl<S: Settle> Handle<'_, S> {
    /// Ends the handle, as [`Handle::join`]; the bytes it changed are logged as images of `uses`.
    /// The caller holds these buffers exclusively until it has changed them; it first freezes the
    /// ones that the result names. It has marked the last writers of all they hold.
    ///
    /// # Panics
    /// If the handle did not reserve enough when it began.
    #[must_use = "images may have to be frozen"]
    pub fn join_images(mut self, uses: Vec<BufferUse>) -> ImageJoin {
        let mut buffers = self.take_buffers();
        let (journal, own) = (self.of(), self.journal());
        let owners: Vec<Option<Owner>> = uses.iter().map(|one| one.buffer.hold().owner()).collect();
        let foreign = owners
            .iter()
            .flatten()
            .map(|owner| owner.transaction.journal);
        let mut ids: Vec<JournalId> = foreign.chain([own]).collect();
        ids.sort_unstable();
        ids.dedup();
        let mut guards = Guards::lock(journal, ids);
        let number = guards.of(own).next();
        let transaction = TransactionId {
            journal: own,
            number: guards.of(own).images.running,
        };
        let mut freeze = Vec::new();
        let mut filed = 0;
        for (at, (one, owner)) in uses.into_iter().zip(&owners).enumerate() {
            let running = owner.filter(|owner| {
                let there = guards.of(owner.transaction.journal);
                there.images.running == owner.transaction.number
            });
            if let Some(owner) = running {
                let theirs = owner.transaction.journal;
                if theirs != own {
                    // Both ways: only their image will hold this change.
                    let there = guards.of(theirs);
                    buffers.marks.push(Mark::new(theirs, there.pending.first));
                    if journal.rules.two_way.holds() {
                        share(there, Mark::new(own, number));
                        journal.log(theirs).tallies.join.two_way.add(1);
                    }
                }
                continue;
            }
            if let Some(owner) = owner
                && !owner.captured
                && journal.rules.freeze.holds()
            {
                freeze.push((at, owner.transaction));
            }
            if one.change == Change::End {
                one.buffer.hold().set_owner(None);
                continue;
            }
            one.buffer.hold().set_owner(Some(transaction));
            let here = guards.of(own);
            here.images.buffers.push(one.buffer);
            filed += 1;
        }
        let here = guards.of(own);
        journal
            .log(own)
            .tallies
            .join
            .frozen
            .add(to_u64(freeze.len()));
        let used = self.join_under(here, number, buffers, filed * journal.image_cost());
        drop(guards);
        ImageJoin {
            mark: self.trace_join(number, used),
            freeze,
        }
    }
}

/// Notes that the running transaction of this journal is valid only with handle `mark`.
fn share<E>(joined: &mut Joined<E>, mark: Mark) {
    let before = joined.images.shared_cost();
    let marks = &mut joined.images.shared;
    match marks
        .iter_mut()
        .find(|known| known.journal() == mark.journal())
    {
        Some(known) => *known = (*known).max(mark),
        None => marks.push(mark),
    }
    joined.room -= i64::from(joined.images.shared_cost() - before);
}
