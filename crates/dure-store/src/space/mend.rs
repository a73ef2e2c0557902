//! Mount: bringing the space in step with what the logs, the journal headers and the NAT say.
//!
//! **Structure.** Called before anything is allocated, in any order but one: [`Space::mark_log`]
//! first. They take addresses from the medium, so an impossible one is
//! corruption, not a bug. **Invariants.** Each keeps the count of available blocks right, and each
//! may be repeated. **Crash.** Nothing is written; a crash during recovery starts over.

use dure_sync::current_core;

use super::partition::Piece;
use super::segment::Role;
use super::{Space, now};
use crate::error::{Error, Result};
use crate::units::{BlockNo, Run};

/// What a call did to the counts.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Change {
    /// Blocks that are allocated now and were not.
    pub(super) taken: u64,
    /// Blocks that were allocated and are not any more.
    pub(super) given: u64,
    /// Blocks that are live now, less those that were.
    pub(super) live: i64,
}

impl Space {
    /// A journal header lists the segment that starts at `first`. The headers are the truth: what
    /// the SIT says about the segment is from before it was freed and taken for the ring.
    ///
    /// # Errors
    /// `Corrupt` when no segment starts there, or it is in two rings.
    pub fn mark_log(&self, first: BlockNo) -> Result<()> {
        let wrong = |what: &str| Error::Corrupt {
            what: format!("journal headers: {what}"),
            at: self.layout.journal_headers,
            want: self.layout.main,
            got: first.0,
        };
        let Some((segment, 0)) = self.layout.locate(first) else {
            return Err(wrong("no segment starts at this log segment"));
        };
        let change = self.segments.with(segment, |state| {
            if state.role == Role::Log || state.is_pinned() {
                return None;
            }
            assert!(
                state.role == Role::Closed,
                "mending comes before allocation"
            );
            let change = Change {
                taken: u64::from(state.free(self.layout.segment_blocks)),
                given: 0,
                live: -i64::from(state.live.count()),
            };
            state.become_log();
            Some(change)
        });
        self.apply(
            change.ok_or_else(|| {
                wrong("a log segment is listed twice, or has blocks of a snapshot")
            })?,
        );
        Ok(())
    }

    /// These blocks are live: a slot or the NAT points to them in the recovered state.
    ///
    /// # Errors
    /// `Corrupt` for blocks outside of the main area or inside a log.
    pub fn mend_live(&self, run: Run) -> Result<()> {
        let now = now();
        for Piece {
            segment,
            first,
            count,
        } in self.checked_pieces(run)?
        {
            let change = self.segments.with(segment, |state| {
                if state.role == Role::Log {
                    return None;
                }
                let before = state.live.count();
                let taken = u64::from(state.mend_live(first, count, now));
                let live = i64::from(state.live.count()) - i64::from(before);
                Some(Change {
                    taken,
                    given: 0,
                    live,
                })
            });
            self.apply(change.ok_or_else(|| Error::Corrupt {
                what: "owner of a block inside a log segment".to_owned(),
                at: run.first.0,
                want: 0,
                got: u64::from(segment.0),
            })?);
        }
        Ok(())
    }

    /// These blocks are free: nothing points to them in the recovered state. Blocks in a log
    /// segment are passed over: the ring took them after they were freed.
    ///
    /// # Errors
    /// `Corrupt` for blocks outside of the main area.
    pub fn mend_dead(&self, run: Run) -> Result<()> {
        let now = now();
        for Piece {
            segment,
            first,
            count,
        } in self.checked_pieces(run)?
        {
            let change = self.segments.with(segment, |state| {
                if state.role == Role::Log {
                    return Change::default();
                }
                let before = state.live.count();
                let given = u64::from(state.mend_dead(first, count, now));
                Change {
                    taken: 0,
                    given,
                    live: i64::from(state.live.count()) - i64::from(before),
                }
            });
            self.apply(change);
        }
        Ok(())
    }

    /// What is on the medium names these blocks: recovery and repair must not allocate them, or a
    /// crash inside of these would find them overwritten. Live or not is for the others to say.
    ///
    /// # Errors
    /// `Corrupt` for blocks outside of the main area.
    pub fn fence(&self, run: Run) -> Result<()> {
        for Piece {
            segment,
            first,
            count,
        } in self.checked_pieces(run)?
        {
            let taken = self.segments.with(segment, |state| {
                if state.role == Role::Log {
                    0
                } else {
                    state.fence(first, count)
                }
            });
            self.apply(Change {
                taken: u64::from(taken),
                ..Change::default()
            });
        }
        self.fenced.lock().push(run);
        Ok(())
    }

    /// The logs are empty: blocks of [`Space::fence`] that are not live are free.
    pub(crate) fn lift_fences(&self) {
        let fenced = std::mem::take(&mut *self.fenced.lock());
        for Piece {
            segment,
            first,
            count,
        } in fenced.into_iter().flat_map(|run| self.pieces(run))
        {
            let given = self.segments.with(segment, |state| {
                if state.role == Role::Log {
                    0
                } else {
                    state.lift_fence(first, count)
                }
            });
            self.apply(Change {
                given: u64::from(given),
                ..Change::default()
            });
        }
    }

    /// Whether the space map has this block as live.
    pub(crate) fn is_live(&self, block: BlockNo) -> bool {
        let place = self.layout.locate(block);
        place.is_some_and(|(segment, index)| {
            self.segments
                .with(segment, |state| state.live.contains(index))
        })
    }

    /// Whether the block could be live and is not: it lies in no log and not outside of the main
    /// area.
    #[must_use]
    pub fn is_dead(&self, block: BlockNo) -> bool {
        let place = self.layout.locate(block);
        place.is_some_and(|(segment, index)| {
            self.segments.with(segment, |state| {
                state.role != Role::Log && !state.live.contains(index)
            })
        })
    }

    pub(super) fn apply(&self, change: Change) {
        self.live.add(change.live);
        if change.taken > 0 {
            self.available.withdraw(change.taken);
        }
        self.available.give(current_core(), change.given);
    }

    /// Like [`Space::pieces`], for a run from the medium.
    pub(super) fn checked_pieces(&self, run: Run) -> Result<impl Iterator<Item = Piece>> {
        let start = self.layout.main;
        let end = start + u64::from(self.layout.segments) * u64::from(self.layout.segment_blocks);
        let run_end = run.first.0.checked_add(u64::from(run.count));
        if run.first.0 < start || run_end.is_none_or(|run_end| run_end > end) {
            let what = "block outside of the main area".to_owned();
            return Err(Error::Corrupt {
                what,
                at: run.first.0,
                want: start,
                got: run.first.0,
            });
        }
        Ok(self.pieces(run))
    }
}
