//! Times of overwrites by tasks that share a file.
//!
//! **Problem.** An overwrite changes mtime and ctime, which all of them share; with
//! `durability=strict` they are durable when it returns. **Structure.** The clock of these times
//! ticks every few milliseconds. The first overwrite of a tick stores them with its slots, under the
//! shared inode lock and a mutex ([`TimeToStore`]); others of the tick find them stored
//! ([`StoredTime`]), or wait for the mutex.
//!
//! # Invariants
//! * Only a holder of the mutex, or of the exclusive inode lock, stores times. It asks the clock when
//!   it has the mutex, so times do not go back.
//! * A time counts as stored once its operation has finished, and is the last writer of the data that
//!   later operations depend on. The inode's data has it before, so it is not enough that this has it:
//!   *crash scenario,* an overwrite finds its time in the data, commits and returns, and the
//!   operation that stored the time is not committed.
//! * That the data has the time is asked for as well: a task may have set another one since.
//!
//! **On a crash** times are those of an operation that survived.

use std::mem::offset_of;

use dure_store::format::inode::{DataHead, Time};
use dure_store::op::Op;
use dure_store::units::Mark;
use dure_sync::MutexGuard;
use dure_sync::atomic::Ordering;
use zerocopy::IntoBytes;

use crate::file::Files;
use crate::file::state::Stamp;
use crate::file::stored_time::StoredTime;
use crate::inode::times::nanos;
use crate::inode::{Inode, StateChange};
use crate::ranks::OVERWRITE_TIMES;

/// The time that an operation is to store.
#[derive(Debug)]
pub(super) struct TimeToStore<'i> {
    time: Time,
    stored: &'i StoredTime,
    _storing: MutexGuard<'i, OVERWRITE_TIMES, ()>,
}

impl Inode {
    /// The time that an overwrite has to store, if there is one. The caller holds the inode shared.
    pub(super) fn time_to_store(&self, files: &Files, stamp: Stamp) -> Option<TimeToStore<'_>> {
        if stamp == Stamp::Keep {
            return None;
        }
        let stored = &self.overwrites().expect("the file is contended").time;
        let now = files.store.now();
        // Acquire: pairs with the Release in `stored`; a task that sees the time sees the last
        // writer.
        if stored.last.load(Ordering::Acquire) == nanos(now) && self.has_times(now) {
            return None;
        }
        let _storing = stored.storing.lock();
        let time = files.store.now();
        if self.has_times(time) {
            // By an operation that has finished: its task has given up the mutex, or the exclusive
            // lock.
            stored.last.store(nanos(time), Ordering::Release);
            return None;
        }
        Some(TimeToStore {
            time,
            stored,
            _storing,
        })
    }

    /// Whether the data says that it was changed at `time`. The caller holds the inode.
    pub(super) fn has_times(&self, time: Time) -> bool {
        let head = self.data_head();
        head.mtime == time && head.ctime == time
    }
}

/// Lets `op` store the time of a change, and nothing else, in the inode's data.
pub(super) fn store(op: &mut Op<'_>, inode: &Inode, time: Time) {
    let draft = op.edit_shared(&inode.node, inode.ino.data_index());
    for at in [offset_of!(DataHead, mtime), offset_of!(DataHead, ctime)] {
        let bytes = time.as_bytes();
        draft.part(at..at + bytes.len()).copy_from_slice(bytes);
    }
}

impl TimeToStore<'_> {
    /// Lets `op` store it.
    pub(super) fn store(&self, op: &mut Op<'_>, inode: &Inode) {
        store(op, inode, self.time);
    }

    /// The operation has finished.
    pub(super) fn stored(self, inode: &Inode, mark: Mark) {
        inode.data_granule_stored(mark);
        inode.access_time().change_stored(self.time);
        inode.state().changed_shared(StateChange::Made);
        // Release: as in `time_to_store`. Last: a task that sees it may return, and ask for the
        // times.
        self.stored.last.store(nanos(self.time), Ordering::Release);
    }
}
