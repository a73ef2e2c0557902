//! The one flush of a commit.
//!
//! **Problem.** What a commit has written is durable after a flush, and other committers' writes
//! are with it. **Structure.** How far each journal is written is loaded, then the medium is
//! flushed, then that much is durable. **Invariants.** The order of these three. Nothing becomes
//! durable once the journal has stopped. **Crash.** After the flush, all of the closure is on the
//! medium.

use dure_sync::{clock, current_core};

use super::Result;
use crate::closure::Closure;
use crate::error::StopCause;
use crate::journal::{Journal, Settle};
use crate::statistics::Stall;
use crate::trace::TraceEvent;

impl<S: Settle> Journal<S> {
    /// One flush for everything in the closure that is written and not known to be durable. The
    /// last write of this commit, if it wrote, ended at `wrote_ns`. Returns the time.
    pub(crate) fn flush(&self, closure: &Closure, wrote_ns: Option<u64>) -> Result<u64> {
        let logs = || closure.journals().iter().map(|journal| self.log(*journal));
        let begin_ns = wrote_ns.unwrap_or_else(clock::monotonic_ns);
        if logs().all(|log| log.reached.durable() >= closure.upto(log.id)) {
            return Ok(begin_ns);
        }
        // What is written before the flush starts is durable after it; so load that first.
        let written: Vec<(u64, u64)> = logs()
            .map(|log| {
                let number = log.reached.written();
                (number, log.tallies.write.transactions.get())
            })
            .collect();
        let core = current_core();
        let tallies = self.commit_tallies(self.journal_of(core));
        let trace = |event| self.trace.record(Some(self.journal_of(core)), || event);
        // Crash scenario without this flush: the log of core 1 reaches the medium, that of core 0,
        // on which it depends, does not; fsync has returned, and recovery rejects the transaction.
        if self.rules.flush.holds() {
            tallies.flushes.add_shared(1);
            trace(TraceEvent::FlushBegin);
            if let Err(error) = self.medium.flush() {
                return Err(self.stop_for(StopCause::Flush, None, &error));
            }
            trace(TraceEvent::FlushEnd);
        }
        // Another committer's flush may have failed, and our writes may be lost with it.
        self.check_running()?;
        let ns = clock::monotonic_ns();
        self.stalled(core, Stall::Flush, ns.saturating_sub(begin_ns));
        for (log, (written, sequence)) in logs().zip(written) {
            assert!(
                written >= closure.upto(log.id),
                "the closure is written before its flush"
            );
            log.reached.raise_durable(written);
            log.tallies.commit.durable(sequence, ns);
        }
        Ok(ns)
    }
}
