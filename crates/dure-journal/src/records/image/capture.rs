//! Captures closed transactions: copies the images of their buffers into the log's bytes.
//!
//! **Problem.** Copies take time and lock buffers, and handles go on to join. **Structure.** A task
//! captures a transaction under its [`Capture`] and not under `joined`; a second task waits for the
//! first. Then the transaction is ready, and the holder of `writer` takes it. **Invariants.**
//! Transactions are taken in the order in which they closed. **Crash.** Nothing is on the medium
//! yet.

use dure_sync::Arc;

use super::{Capture, Work};
use crate::format::put_image;
use crate::ids::JournalId;
use crate::journal::{Journal, Settle};
use crate::log::{CoreLog, Joined, Writer};
use crate::space::HandleEnd;
use crate::units::to_u32;

impl<S: Settle> Journal<S> {
    /// Captures the images of everything closed in `journal` up to handle `upto`. A second task
    /// waits for the first.
    pub(crate) fn capture_closed(&self, journal: JournalId, upto: u64) {
        let log = self.log(journal);
        let work: Vec<Arc<Capture>> = {
            let joined = log.joined.lock();
            let closed = joined.images.closed.iter();
            let wanted = closed.filter(|closed| closed.first <= upto && closed.ready.is_none());
            wanted.map(|closed| Arc::clone(&closed.work)).collect()
        };
        for capture in work {
            let mut work = capture.0.lock();
            if let Some(work) = work.take() {
                capture_one(log, work);
            }
        }
    }
}

/// Moves the oldest closed transaction, which is captured, to the writer.
pub(crate) fn take_closed<E>(joined: &mut Joined<E>, writer: &mut Writer) {
    let closed = joined.images.closed.pop_front();
    let closed = closed.expect("what is joined and not written is closed before it is written");
    writer.taken = closed.ready.expect("captured before it is written");
    writer.pieces = closed.pieces;
    assert!(
        closed.sequence == writer.sequence && writer.taken.first == closed.first,
        "written in the order of closing"
    );
}

fn capture_one<E>(log: &CoreLog<E>, work: Work) {
    let Work {
        transaction,
        mut prefix,
        buffers,
    } = work;
    let mut image = Vec::new();
    let marks = prefix.start_of(prefix.ends.len()).marks;
    let mut logged = 0;
    for buffer in &buffers {
        image.clear();
        buffer.capture(transaction, &mut image);
        if !image.is_empty() {
            put_image(&mut prefix.bytes, buffer.nid(), &image);
            logged += 1;
        }
        prefix.ends.push(HandleEnd {
            bytes: to_u32(prefix.bytes.len()),
            marks,
        });
    }
    let mut joined = log.joined.lock();
    log.tallies.join.images.add(logged);
    let mut closed = joined.images.closed.iter_mut();
    let closed = closed
        .find(|closed| closed.first == prefix.first)
        .expect("it is written only once it is ready");
    closed.ready = Some(prefix);
}
