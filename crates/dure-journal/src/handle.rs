//! A handle: one atomic operation, private until it joins.
//!
//! **Problem.** All changes of an operation must reach the log together, in the order in which they
//! were made to the granules, without a lock held while the operation runs. **Structure.** Records,
//! marks and effects gather in buffers of the handle's own; [`Handle::join`] appends them to its
//! journal, and the handle gets its number.
//!
//! **Invariants.** A handle reserves its log space when it begins, so joining cannot fail. It joins
//! while the caller still holds the locks of what it changed; so the numbers of two handles of one
//! journal that changed one granule have the order of the granule's versions. **Crash.** A handle
//! that has not joined leaves nothing; one that has survives wholly or not at all.

use dure_sync::clock;

use crate::format::{DELTA_HEAD_BYTES, NOTE_HEAD_BYTES, put_delta, put_note_of};
use crate::ids::{GranuleId, JournalId, Mark};
use crate::journal::{Journal, Settle};
use crate::log::{Buffers, Joined};
use crate::records::image::OpenHandle;
use crate::space::{HANDLE_BYTES, HandleEnd, MARK_BYTES};
use crate::statistics::OPERATION_KINDS;
use crate::trace::TraceEvent;
use crate::units::{to_u32, to_u64, to_usize};

/// Buffers kept per journal for reuse; if more handles are open at once, they allocate.
const SPARE_MAX: usize = 8;
/// A buffer that grew beyond this is freed instead of kept.
const SPARE_BYTES_MAX: usize = 64 << 10;
/// Records of a handle are copied when they are shorter than this.
const SWAP_BYTES_MIN: usize = 1024;
/// How many of the latest marks are compared before one is added.
const DUPLICATES_SEEN: usize = 16;

/// An open handle. Dropping it without [`Handle::join`] leaves no trace.
pub struct Handle<'j, S: Settle> {
    journal: &'j Journal<S>,
    id: JournalId,
    /// Bytes reserved, [`HANDLE_BYTES`] included.
    reserved: u32,
    /// Bytes reserved for images, not part of `reserved`.
    images: u32,
    half_full: bool,
    /// Bytes of records in memory of handles that joined earlier and that no commit has taken yet.
    waiting: u64,
    /// The kind of operation; statistics only.
    operation: u8,
    /// Marks it was given, duplicates included.
    marks_given: u32,
    _open: OpenHandle,
    /// `Some` until joined or dropped.
    buffers: Option<Buffers<S::Effect>>,
}

impl<S: Settle> std::fmt::Debug for Handle<'_, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle")
            .field("journal", &self.id)
            .field("reserved", &self.reserved)
            .field("used", &self.used())
            .finish_non_exhaustive()
    }
}

impl<'j, S: Settle> Handle<'j, S> {
    pub(crate) fn new(
        journal: &'j Journal<S>,
        id: JournalId,
        (reserved, images): (u32, u32),
        (half_full, waiting): (bool, u64),
        (buffers, open): (Buffers<S::Effect>, OpenHandle),
    ) -> Self {
        Self {
            journal,
            id,
            reserved,
            images,
            half_full,
            waiting,
            operation: 0,
            marks_given: 0,
            _open: open,
            buffers: Some(buffers),
        }
    }

    /// Sets the kind of operation, for [`Journal::statistics`]: any number below
    /// [`OPERATION_KINDS`]; the default is 0.
    ///
    /// # Panics
    /// If it is not below that.
    pub fn set_operation(&mut self, operation: u8) {
        assert!(
            usize::from(operation) < OPERATION_KINDS,
            "kind {operation} of operations is not told apart"
        );
        self.operation = operation;
    }

    /// Whether this handle was the first to leave less than half of the log's room: a checkpoint
    /// started now should end before any task has to wait for it. No further handle returns `true`
    /// until a checkpoint has made room.
    #[must_use]
    pub fn found_log_half_full(&self) -> bool {
        self.half_full
    }

    /// Bytes in memory of the handles that, when this one began, had joined and waited for a
    /// commit.
    #[must_use]
    pub fn found_waiting(&self) -> u64 {
        self.waiting
    }

    fn buffers(&mut self) -> &mut Buffers<S::Effect> {
        self.buffers.as_mut().expect("an open handle has buffers")
    }

    /// Bytes of the reservation that are used.
    #[must_use]
    pub fn used(&self) -> usize {
        self.buffers.as_ref().map_or(0, |buffers| {
            buffers.bytes.len() + buffers.marks.len() * to_usize(MARK_BYTES)
        })
    }

    /// Bytes of the reservation that are left: for records, and 8 per mark.
    #[must_use]
    pub fn room(&self) -> usize {
        to_usize(self.reserved - HANDLE_BYTES).saturating_sub(self.used())
    }

    fn take_room(&self, bytes: usize) {
        let room = self.room();
        assert!(
            bytes <= room,
            "a handle reserved {} bytes, has {room} left and needs {bytes}",
            self.reserved
        );
    }

    /// Records that `granule` got `bytes` at `offset`, which made it `version`.
    ///
    /// # Panics
    /// If the handle did not reserve enough when it began.
    pub fn delta(&mut self, granule: GranuleId, version: u64, offset: u16, bytes: &[u8]) {
        if self.journal.is_unlogged() {
            return;
        }
        self.take_room(DELTA_HEAD_BYTES + bytes.len());
        put_delta(&mut self.buffers().bytes, granule, version, offset, bytes);
    }

    /// Records a note that only the file system interprets.
    ///
    /// # Panics
    /// If the handle did not reserve enough when it began.
    pub fn note(&mut self, kind: u8, bytes: &[u8]) {
        self.note_of(kind, bytes, &[]);
    }

    /// Like [`Handle::note`], of two pieces of memory, one after the other.
    ///
    /// # Panics
    /// If the handle did not reserve enough when it began.
    pub fn note_of(&mut self, kind: u8, head: &[u8], tail: &[u8]) {
        if self.journal.is_unlogged() {
            return;
        }
        self.take_room(NOTE_HEAD_BYTES + head.len() + tail.len());
        put_note_of(&mut self.buffers().bytes, kind, head, tail);
    }

    /// Makes this handle valid only if the one that `mark` names is. Call it for the last writer of
    /// everything the handle writes and of everything it read to decide.
    ///
    /// # Panics
    /// If the handle did not reserve enough when it began.
    pub fn mark(&mut self, mark: Mark) {
        if mark.is_none() || self.journal.is_unlogged() {
            return;
        }
        assert!(
            mark.journal().index() < self.journal.journal_count(),
            "{mark} names a journal this volume does not have"
        );
        self.marks_given += 1;
        let marks = &self.buffers().marks;
        let latest = marks.len().saturating_sub(DUPLICATES_SEEN);
        if marks[latest..].contains(&mark) {
            return;
        }
        self.take_room(to_usize(MARK_BYTES));
        self.buffers().marks.push(mark);
    }

    /// Adds an effect for [`Settle::settle`], to be carried out once the handle is valid.
    pub fn effect(&mut self, effect: S::Effect) {
        self.buffers().effects.push(effect);
    }

    /// The journal it will join.
    #[must_use]
    pub fn journal(&self) -> JournalId {
        self.id
    }

    /// Ends the handle: it gets the next number of its journal. The caller still holds the locks
    /// of what it changed, and then stores the mark as their last writer.
    pub fn join(mut self) -> Mark {
        let buffers = self.take_buffers();
        let log = self.journal.log(self.id);
        let mut joined = log.joined.lock();
        let number = joined.next();
        let used = self.join_under(&mut joined, number, buffers, 0);
        drop(joined);
        self.trace_join(number, used)
    }

    pub(crate) fn take_buffers(&mut self) -> Buffers<S::Effect> {
        self.buffers.take().expect("a handle joins once")
    }

    pub(crate) fn of(&self) -> &'j Journal<S> {
        self.journal
    }

    /// Appends the handle to those that have joined. `images` of its reserved bytes are for images.
    /// Returns the bytes it used.
    pub(crate) fn join_under(
        &self,
        joined: &mut Joined<S::Effect>,
        number: u64,
        mut buffers: Buffers<S::Effect>,
        images: u32,
    ) -> usize {
        let used = buffers.bytes.len() + buffers.marks.len() * to_usize(MARK_BYTES);
        let log = self.journal.log(self.id);
        let mut kept = HANDLE_BYTES;
        if self.journal.is_unlogged() {
            self.journal.join_unlogged(log, joined);
            kept = 0;
        } else {
            append(joined, &mut buffers);
        }
        joined
            .effects
            .extend(buffers.effects.drain(..).map(|effect| (number, effect)));
        let reserved = to_usize(self.reserved - HANDLE_BYTES);
        assert!(
            used <= reserved && images <= self.images,
            "a handle reserved {reserved} bytes and {} for images, and uses {used} and {images}",
            self.images
        );
        let unused = to_u32(reserved - used) + (self.images - images) + (HANDLE_BYTES - kept);
        joined.room += i64::from(unused);
        self.journal.end_handle(log, joined);
        let tallies = &log.tallies.join;
        tallies.marks_given.add(u64::from(self.marks_given));
        tallies.marks_joined.add(to_u64(buffers.marks.len()));
        tallies.joined(self.operation, to_u64(used));
        keep(&mut joined.spare, buffers);
        used
    }

    /// Traces a completed join; returns the handle's mark.
    pub(crate) fn trace_join(&self, number: u64, used: usize) -> Mark {
        let event = || TraceEvent::Join {
            number,
            bytes: to_u32(used),
            operation: self.operation,
        };
        self.journal.trace.record(Some(self.id), event);
        Mark::new(self.id, number)
    }
}

/// Appends the records and marks of a handle to those that wait for a commit.
fn append<E>(joined: &mut Joined<E>, buffers: &mut Buffers<E>) {
    let pending = &mut joined.pending;
    if pending.ends.is_empty() {
        joined.since_ns = clock::monotonic_ns();
    }
    // Handles carry file data: where nothing else is pending the buffer is swapped in, not copied.
    let large = buffers.bytes.len() >= SWAP_BYTES_MIN;
    if pending.bytes.is_empty() && large && pending.bytes.capacity() <= SPARE_BYTES_MAX {
        std::mem::swap(&mut pending.bytes, &mut buffers.bytes);
    } else {
        pending.bytes.extend_from_slice(&buffers.bytes);
    }
    pending.marks.extend_from_slice(&buffers.marks);
    pending.ends.push(HandleEnd {
        bytes: to_u32(pending.bytes.len()),
        marks: to_u32(pending.marks.len()),
    });
}

/// Keeps the memory of a handle for the next one.
fn keep<E>(spare: &mut Vec<Buffers<E>>, mut buffers: Buffers<E>) {
    if spare.len() < SPARE_MAX && buffers.bytes.capacity() <= SPARE_BYTES_MAX {
        buffers.bytes.clear();
        buffers.marks.clear();
        buffers.effects.clear();
        spare.push(buffers);
    }
}

impl<S: Settle> Drop for Handle<'_, S> {
    fn drop(&mut self) {
        let Some(mut buffers) = self.buffers.take() else {
            return;
        };
        // Dropping effects may free memory, or do more: not under the lock.
        buffers.effects.clear();
        let log = self.journal.log(self.id);
        let mut joined = log.joined.lock();
        joined.room += i64::from(self.reserved) + i64::from(self.images);
        self.journal.end_handle(log, &mut joined);
        log.tallies.join.dropped.add(1);
        keep(&mut joined.spare, buffers);
        drop(joined);
        self.journal
            .trace
            .record(Some(self.id), || TraceEvent::Drop);
    }
}
