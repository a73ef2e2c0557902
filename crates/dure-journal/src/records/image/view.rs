//! Compound transactions as a person sees them.
//!
//! **Problem.** What waits for what is spread over journals. **Structure.** A list of all that is
//! not found to be valid. **Invariants.** Each journal's part is of one moment, the whole is not.
//! **Crash.** Nothing is written.

use dure_sync::Arc;

use super::Capture;
use crate::ids::{JournalId, Mark, Nid};
use crate::journal::{Journal, Settle};

/// How far a compound transaction has come that is not found to be valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionState {
    /// Handles join it.
    Running,
    /// It is being committed.
    Committing,
    /// It is durable.
    Committed,
}

/// A compound transaction, or a piece of one that does not fit a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionView {
    /// Its journal.
    pub journal: JournalId,
    /// +1 with each transaction of the journal.
    pub sequence: u64,
    /// The handle numbers that are its.
    pub handles: std::ops::RangeInclusive<u64>,
    /// How far it has come.
    pub state: TransactionState,
    /// Handles without which it is not valid, its own left out.
    pub marks: Vec<Mark>,
    /// What it is to log; empty once it has copies.
    pub buffers: Vec<Nid>,
}

impl<S: Settle> Journal<S> {
    /// All transactions that are not found to be valid, by journal and in order. Only with
    /// [`crate::Records::Image`].
    #[must_use]
    pub fn transactions(&self) -> Vec<TransactionView> {
        self.logs
            .iter()
            .flat_map(|log| self.transactions_of(log.id))
            .collect()
    }

    fn transactions_of(&self, id: JournalId) -> Vec<TransactionView> {
        let log = self.log(id);
        let joined = log.joined.lock();
        let view = |sequence, handles, state, marks| TransactionView {
            journal: id,
            sequence,
            handles,
            state,
            marks,
            buffers: Vec::new(),
        };
        let mut all: Vec<TransactionView> = Vec::new();
        for link in &joined.links {
            let state = match link.last <= log.reached.durable() {
                true => TransactionState::Committed,
                false => TransactionState::Committing,
            };
            let handles = link.first..=link.last;
            all.push(view(link.sequence, handles, state, link.marks.clone()));
        }
        let images = &joined.images;
        if !joined.pending.ends.is_empty() {
            let mut marks = joined.pending.marks.clone();
            log.running.marks(&mut marks);
            let handles = joined.pending.first..=joined.next() - 1;
            let state = TransactionState::Running;
            let mut one = view(images.sequence, handles, state, marks);
            one.buffers = images.buffers.iter().map(|buffer| buffer.nid()).collect();
            all.push(one);
        }
        let closed: Vec<(u64, Arc<Capture>)> = images
            .closed
            .iter()
            .map(|closed| (closed.first, Arc::clone(&closed.work)))
            .collect();
        drop(joined);
        for (first, work) in closed {
            let one = all.iter_mut().find(|one| *one.handles.start() == first);
            if let (Some(one), Some(work)) = (one, &*work.0.lock()) {
                one.buffers = work.buffers.iter().map(|buffer| buffer.nid()).collect();
            }
        }
        for one in &mut all {
            let own = |mark: &Mark| mark.journal() == id && one.handles.contains(&mark.number());
            one.marks.retain(|mark| !own(mark) && !self.is_valid(*mark));
            one.marks.sort_unstable();
            one.marks.dedup();
        }
        all
    }
}
