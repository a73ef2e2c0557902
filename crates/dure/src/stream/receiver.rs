//! Applying the records of a stream, and the note of how far that is.
//!
//! **Structure.** Each record is applied ([`Target`]), and every [`How::sync_bytes`] what was done is made
//! durable and noted in the [`State`]. Last the snapshot is taken. **Invariants.** Between two notes all
//! records are such that they may be applied again.
//!
//! # Order
//! Three points, each with what a crash would leave without it:
//! 1. The state is durable before the first change. Else a changed tree has no state, and every stream
//!    is refused from then on.
//! 2. What a record does is durable before the state says that it is. Else the next receive skips it, and
//!    the snapshot lacks it.
//! 3. The snapshot is there before the state is removed. Else the volume has the tree of the new
//!    snapshot, but only the base, and every stream is refused.

use dure_fs::{FileSystem, SetGid, XattrMode};

use super::apply::Target;
use super::fault::Fault;
use super::frames::{FrameReader, Position};
use super::receive::{How, Plan};
use super::state::{AWAY, STATE, State};
use super::{Callback, Done, is_end, tell};
use crate::error::{Cause, Context, Result};
use crate::volume::Volume;

/// A receive under way.
pub(super) struct Receiver<'v> {
    pub(super) how: How,
    pub(super) volume: &'v Volume,
    /// Where the state says that it is.
    noted: Position,
    pub(super) state: State,
    /// Where files are put away.
    pub(super) away: &'static [u8],
    /// Whether it ends with a snapshot.
    pub(super) takes: bool,
}

impl<'v> Receiver<'v> {
    /// One that ends with a snapshot of the name that the state has.
    pub(super) fn new((how, volume): (How, &'v Volume), state: State) -> Receiver<'v> {
        Receiver {
            how,
            volume,
            noted: Position::default(),
            state,
            away: AWAY,
            takes: true,
        }
    }

    /// Returns how many bytes an earlier receive had applied.
    pub(super) fn run(
        &mut self,
        plan: Plan,
        frames: &mut FrameReader<'_>,
        callback: Callback<'_>,
    ) -> Result<u64> {
        let mut from = (0, 0);
        let base = match plan {
            Plan::All(base) => {
                self.begin().during("receive")?;
                base
            }
            Plan::Rest(base, state) => {
                from = (state.offset, state.digest);
                self.state = State {
                    name: self.state.name.clone(),
                    ..state
                };
                base
            }
            Plan::Nothing(name) => {
                self.state.name = name;
                drain(frames, callback)?;
                return Ok(frames.at.offset);
            }
            Plan::Snapshot(state) => {
                self.state = State {
                    name: self.state.name.clone(),
                    ..state
                };
                drain(frames, callback)?;
                self.snapshot().during("receive")?;
                return Ok(frames.at.offset);
            }
        };
        self.apply_all((base, from), frames, callback)?;
        self.finish().during("receive")?;
        Ok(from.0)
    }

    /// Applies what follows, from this offset on; records before have this digest.
    fn apply_all(
        &mut self,
        (base, (from, digest)): (Option<FileSystem>, (u64, u32)),
        frames: &mut FrameReader<'_>,
        callback: Callback<'_>,
    ) -> Result<()> {
        let mut target = Target::new(self.volume, base, self.away);
        loop {
            if frames.at.offset < from {
                let skipped = self.skip(&mut target, frames, (from, digest));
                let skipped = skipped.and_then(|()| tell(frames.at, callback));
                skipped.map_err(|cause| frames.failure(cause).during("receive"))?;
                continue;
            }
            let read = frames.advance().and_then(|()| is_end(frames));
            let read = read.and_then(|is_end| tell(frames.at, callback).map(|()| is_end));
            if read.map_err(|cause| frames.failure(cause).during("receive"))? {
                let ended = target.end();
                return ended.map_err(|cause| frames.failure(cause).during("receive"));
            }
            let record = frames.record().during("receive")?;
            let applied = target.apply(&record);
            applied.map_err(|cause| target.told(&record, frames.failure(cause)))?;
            if frames.at.offset - self.noted.offset >= self.how.sync_bytes {
                self.note(frames.at).during("receive")?;
            }
        }
    }

    /// Reads a record that was applied, if it is one of those.
    fn skip(
        &mut self,
        target: &mut Target<'_>,
        frames: &mut FrameReader<'_>,
        (from, digest): (u64, u32),
    ) -> Done {
        frames.advance()?;
        let ends = is_end(frames)?;
        target.skip(&frames.record()?);
        let at = frames.at;
        if !ends && at.offset < from || (at.offset, at.digest) == (from, digest) {
            self.noted = at;
            return Ok(());
        }
        (self.state.offset, self.state.digest) = (0, 0);
        self.store()?;
        Err(Cause::Stream(Fault::OtherRecords))
    }

    /// Before the first change. Crash scenario if it was not durable then: the tree has changes, and no
    /// state that says of what; no stream is taken from then on.
    fn begin(&mut self) -> Done {
        if self.how.state_first.holds() {
            self.store()?;
            self.volume.file_system().sync()?;
        }
        Ok(())
    }

    /// How far it is. Crash scenario if it was stored before what was done is durable: the state is, and
    /// content of a file is lost with the memory; the next receive skips it.
    fn note(&mut self, at: Position) -> Done {
        if self.how.sync_first.holds() {
            self.volume.file_system().sync()?;
        }
        (self.state.offset, self.state.digest) = (at.offset, at.digest);
        self.noted = at;
        self.store()
    }

    fn store(&self) -> Done {
        let root = self.volume.file_system().root()?;
        let attribute = (STATE, &self.state.encode()[..]);
        let how = (XattrMode::Any, SetGid::Keep);
        Ok(self.volume.shared().set_xattr(&root, attribute, how)?)
    }

    /// All was applied. Crash scenario if the state was removed before that is durable: the tree is a
    /// part of it, and nothing says so.
    fn finish(&mut self) -> Done {
        // As in `note`: the state says that the tree is whole.
        self.volume.file_system().sync()?;
        if self.takes {
            return self.snapshot();
        }
        let root = self.volume.file_system().root()?;
        Ok(self.volume.shared().remove_xattr(&root, STATE)?)
    }

    /// Takes the snapshot of a tree that is whole and durable. Crash scenario if the state was removed
    /// before: the tree is that of no snapshot, and no stream is taken from then on.
    fn snapshot(&mut self) -> Done {
        let fs = self.volume.file_system();
        let last = fs.snapshots().last().map_or(0, |last| last.id);
        self.state.whole = Some(last + 1);
        self.store()?;
        if !self.how.state_last.holds() {
            self.volume.shared().remove_xattr(&fs.root()?, STATE)?;
            fs.sync()?;
        }
        let taken = fs.create_snapshot(&self.state.name)?;
        if taken.id != last + 1 {
            // Another one came between; this has a state with the wrong number.
            fs.delete_snapshot(&self.state.name)?;
            return Err(Cause::Stream(Fault::Busy));
        }
        if self.how.state_last.holds() {
            self.volume.shared().remove_xattr(&fs.root()?, STATE)?;
        }
        Ok(())
    }
}

/// Reads the stream to its end.
fn drain(frames: &mut FrameReader<'_>, callback: Callback<'_>) -> Result<()> {
    let mut rest = || -> Done {
        loop {
            frames.advance()?;
            let is_end = is_end(frames)?;
            tell(frames.at, callback)?;
            if is_end {
                return Ok(());
            }
        }
    };
    let rest = rest();
    rest.map_err(|cause| frames.failure(cause).during("receive"))
}
