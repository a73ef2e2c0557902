//! One journal in memory: the handles that have joined, and the state of its writer.
//!
//! **Problem.** A core must add handles without contending with other cores, while a committer
//! writes the log. **Structure.** [`CoreLog`] has two locks. `joined` is held for a memcpy, and
//! protects the handles waiting to be written, the marks of everything that is not valid yet,
//! effects, and the space left for reservations. `writer` is held over a log write, and protects
//! the ring, the sequence, the transactions between tail and head. Three numbers outside of the
//! locks tell how far the journal is written, durable and valid.
//!
//! # What holders of the locks see
//! **Invariants.** `valid <= durable <= written <= joined`, each only rises. Handles move from
//! `pending` to `links` under both locks; so a holder of `writer` sees `pending.first - 1 ==
//! written`, and a holder of `joined` finds every handle that is not valid in exactly one of the
//! two.
//!
//! **Crash.** Handles that are here and not on the medium are lost.

use std::collections::VecDeque;

use dure_block::Lba;
use dure_sync::atomic::{AtomicU64, Ordering};
use dure_sync::{CachePadded, Condvar, Mutex};

use crate::format::{SealBuffer, TailPosition};
use crate::ids::{JournalId, Mark};
use crate::records::image::{Head, Images, Running};
use crate::ring::Ring;
use crate::space::{HandleEnd, Piece};
use crate::statistics::Tallies;
use crate::units::to_u32;

/// Rank that a task holds while it has a handle open that a committer may wait for (policy
/// `image`): so it takes no lock that a task may hold which commits, or begins a handle.
pub(crate) const HANDLE: u8 = 57;
/// Rank of the lock over the capture of a closed transaction. Buffers are locked under it.
pub(crate) const CAPTURE: u8 = 95;
/// Rank of the lock over header writes. Held over I/O.
pub(crate) const HEADERS: u8 = 150;
/// Rank of a journal's `writer`. Held over I/O.
pub(crate) const WRITER: u8 = 160;
/// Rank of a journal's `joined`.
pub(crate) const JOINED: u8 = 170;
/// Rank of a buffer's record of its transactions.
pub(crate) const HOLD: u8 = 175;
/// Rank of the reason for a stop.
pub(crate) const STOP: u8 = 180;
/// Rank of the count of the trace's readers.
pub(crate) const TRACE_READERS: u8 = 184;
/// Rank of a core's ring of the trace.
pub(crate) const TRACE_RING: u8 = 185;

/// Memory of a handle, kept for the next one.
#[derive(Debug)]
pub(crate) struct Buffers<E> {
    pub(crate) bytes: Vec<u8>,
    pub(crate) marks: Vec<Mark>,
    pub(crate) effects: Vec<E>,
}

impl<E> Buffers<E> {
    pub(crate) const fn new() -> Self {
        Self {
            bytes: Vec::new(),
            marks: Vec::new(),
            effects: Vec::new(),
        }
    }
}

/// Joined handles in join order, waiting to be written.
#[derive(Debug, Default)]
pub(crate) struct Prefix {
    /// Number of the first handle.
    pub(crate) first: u64,
    pub(crate) ends: Vec<HandleEnd>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) marks: Vec<Mark>,
}

impl Prefix {
    /// Where handle `index` begins.
    pub(crate) fn start_of(&self, index: usize) -> HandleEnd {
        if index == 0 {
            HandleEnd::START
        } else {
            self.ends[index - 1]
        }
    }

    /// Marks of the handles `from..to`, counted from 0.
    pub(crate) fn marks_between(&self, from: usize, to: usize) -> &[Mark] {
        let start = crate::units::to_usize(self.start_of(from).marks);
        &self.marks[start..crate::units::to_usize(self.start_of(to).marks)]
    }

    /// Record bytes of the handles `from..to`, counted from 0.
    pub(crate) fn bytes_between(&self, from: usize, to: usize) -> &[u8] {
        let start = crate::units::to_usize(self.start_of(from).bytes);
        &self.bytes[start..crate::units::to_usize(self.start_of(to).bytes)]
    }

    /// Moves the first `count` handles to `out`. Taking all of them swaps memory; taking a part
    /// copies.
    pub(crate) fn take(&mut self, count: usize, out: &mut Self) {
        assert!(
            count > 0 && count <= self.ends.len(),
            "the caller knows what is pending"
        );
        out.ends.clear();
        out.bytes.clear();
        out.marks.clear();
        out.first = self.first;
        self.first += crate::units::to_u64(count);
        if count == self.ends.len() {
            std::mem::swap(&mut self.ends, &mut out.ends);
            std::mem::swap(&mut self.bytes, &mut out.bytes);
            std::mem::swap(&mut self.marks, &mut out.marks);
            return;
        }
        let cut = self.ends[count - 1];
        out.ends.extend(self.ends.drain(..count));
        out.bytes
            .extend(self.bytes.drain(..crate::units::to_usize(cut.bytes)));
        out.marks
            .extend(self.marks.drain(..crate::units::to_usize(cut.marks)));
        for end in &mut self.ends {
            end.bytes -= cut.bytes;
            end.marks -= cut.marks;
        }
    }
}

/// A transaction that is written, or about to be, and not yet valid.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) marks: Vec<Mark>,
    pub(crate) sequence: u64,
    /// When it began to run, and when it was taken; statistics only.
    pub(crate) since_ns: u64,
    pub(crate) taken_ns: u64,
}

/// Half of the room that an empty log has; its head takes a segment.
pub(crate) fn half_room(ring: &Ring, usable: i64) -> i64 {
    i64::from(to_u32(ring.segments().len()) - 1) * usable / 2
}

/// The data under the lock `joined`.
#[derive(Debug)]
pub(crate) struct Joined<E> {
    /// Joined, not taken by a commit.
    pub(crate) pending: Prefix,
    /// Taken by a commit, not valid; in order, without gaps.
    pub(crate) links: VecDeque<Link>,
    /// Effects of handles that are not valid, in join order.
    pub(crate) effects: VecDeque<(u64, E)>,
    /// A task is calling `settle` for this journal.
    pub(crate) settling: bool,
    /// Bytes that handles may still reserve; see `space`.
    pub(crate) room: i64,
    /// The first handle to leave less `room` than this is told so: [`half_room`] of the ring.
    pub(crate) half: i64,
    pub(crate) told_half: bool,
    pub(crate) spare: Vec<Buffers<E>>,
    /// Policy `image`.
    pub(crate) images: Images,
    /// When what is pending began to run; statistics only.
    pub(crate) since_ns: u64,
    /// When each transaction that the tail has not passed became valid; statistics only.
    pub(crate) valid_ns: VecDeque<u64>,
}

impl<E> Joined<E> {
    /// Number of the next handle to join.
    pub(crate) fn next(&self) -> u64 {
        self.pending.first + crate::units::to_u64(self.pending.ends.len())
    }

    /// Bytes of records in memory that wait for a commit.
    pub(crate) fn bytes_waiting(&self) -> u64 {
        let Prefix {
            ends, bytes, marks, ..
        } = &self.pending;
        let effects = self.effects.len() * size_of::<(u64, E)>();
        crate::units::to_u64(bytes.len() + size_of_val(&**marks) + size_of_val(&**ends) + effects)
    }

    /// Takes the transactions at the front of `links` that are valid by `is_valid`. Returns the last
    /// handle of them, if there are any.
    pub(crate) fn pop_valid(
        &mut self,
        tallies: &Tallies,
        ns: u64,
        is_valid: impl Fn(&Link) -> bool,
    ) -> Option<u64> {
        let mut upto = None;
        while let Some(link) = self.links.pop_front_if(|link| is_valid(link)) {
            upto = Some(link.last);
            tallies.became_valid(&link, ns);
            self.valid_ns.push_back(ns);
        }
        upto
    }

    /// Passes to `sink` the marks of the transactions in `links` that hold handles in `(above,
    /// upto]`. Returns the last number covered: a transaction counts as a whole.
    pub(crate) fn marks_of_links(&self, above: u64, upto: u64, sink: &mut dyn FnMut(Mark)) -> u64 {
        let mut covered = upto;
        for link in &self.links {
            if link.first > covered {
                break;
            }
            // A transaction is valid as a whole, so a part of it needs all its marks.
            covered = covered.max(link.last);
            if link.last > above {
                link.marks.iter().copied().for_each(&mut *sink);
            }
        }
        covered
    }
}

/// A transaction between tail and head.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed {
    pub(crate) last: u64,
    /// Where it begins.
    pub(crate) at: TailPosition,
}

/// The data under the lock `writer`.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) ring: Ring,
    /// Sequence of the next transaction.
    pub(crate) sequence: u64,
    /// Where the log begins according to the newest durable header.
    pub(crate) tail: TailPosition,
    /// Transactions from the tail to the head.
    pub(crate) placed: VecDeque<Placed>,
    pub(crate) taken: Prefix,
    pub(crate) pieces: Vec<Piece>,
    /// Marks of the transaction being built.
    pub(crate) marks: Vec<Mark>,
    pub(crate) buffer: SealBuffer,
}

impl Writer {
    /// Takes a free segment out of the ring. The caller holds the lock over headers: so no other
    /// task uses a position in the ring.
    pub(crate) fn remove_free(&mut self) -> Option<Lba> {
        let (segment, before, now) = self.ring.remove_free()?;
        let placed = self.placed.iter_mut().map(|placed| &mut placed.at);
        for at in placed.chain([&mut self.tail]) {
            if at.segment == before {
                at.segment = now;
            }
        }
        Some(segment)
    }
}

/// How far a journal has come. Every field is the last handle number of a prefix.
#[derive(Debug)]
pub(crate) struct Reached {
    /// Stored by the holder of `writer` when a write has completed. Publishes the completion: a
    /// task that loads n here and then flushes has made handle n durable.
    pub(crate) written: AtomicU64,
    /// Raised after a flush that began when `written` said so.
    pub(crate) durable: AtomicU64,
    /// Raised, under `joined`, when a closure is durable. Publishes that the handles need no mark.
    pub(crate) valid: AtomicU64,
    /// Raised by a committer before it asks for `writer`, to what it needs written; read by the
    /// holder of `writer`, which may write it along. A hint: no committer relies on it.
    pub(crate) wanted: AtomicU64,
}

impl Reached {
    pub(crate) fn written(&self) -> u64 {
        // Acquire: pairs with the Release in `set_written`; the write has completed.
        self.written.load(Ordering::Acquire)
    }

    pub(crate) fn set_written(&self, number: u64) {
        // Release: pairs with the Acquire in `written`.
        self.written.store(number, Ordering::Release);
    }

    pub(crate) fn durable(&self) -> u64 {
        // Acquire: pairs with the Release in `raise_durable`; the flush has completed.
        self.durable.load(Ordering::Acquire)
    }

    pub(crate) fn raise_durable(&self, number: u64) {
        // Release: pairs with the Acquire in `durable`.
        self.durable.fetch_max(number, Ordering::Release);
    }

    pub(crate) fn wanted(&self) -> u64 {
        // Relaxed: a hint about handles, whose content is found under `joined`.
        self.wanted.load(Ordering::Relaxed)
    }

    pub(crate) fn raise_wanted(&self, number: u64) {
        // Relaxed: see `wanted`.
        self.wanted.fetch_max(number, Ordering::Relaxed);
    }

    pub(crate) fn valid(&self) -> u64 {
        // Acquire: pairs with the Release in `raise_valid`; all its marks are valid too.
        self.valid.load(Ordering::Acquire)
    }

    pub(crate) fn raise_valid(&self, number: u64) {
        // Release: pairs with the Acquire in `valid`.
        self.valid.fetch_max(number, Ordering::Release);
    }
}

/// One journal.
#[derive(Debug)]
pub(crate) struct CoreLog<E> {
    pub(crate) id: JournalId,
    pub(crate) joined: CachePadded<Mutex<JOINED, Joined<E>>>,
    pub(crate) reached: CachePadded<Reached>,
    pub(crate) writer: CachePadded<Mutex<WRITER, Writer>>,
    /// Policy `image`: what other journals may do to its running transaction.
    pub(crate) running: Running,
    /// Signalled when `settling` ends.
    pub(crate) settled: Condvar,
    /// Signalled when the phase of the journal's committer changes, the last handle ends that it
    /// waits for, or the journal's thread fails or ends (policy `image`).
    pub(crate) turned: Condvar,
    /// Signalled when the thread of the journal is asked for a commit (policy `image`).
    pub(crate) asked: Condvar,
    pub(crate) tallies: Tallies,
}

impl<E> CoreLog<E> {
    /// A journal whose log is empty. Transactions of `sharing` journals may share buffers.
    pub(crate) fn new(
        id: JournalId,
        ring: Ring,
        first_number: u64,
        (usable, sharing): (i64, usize),
    ) -> Self {
        let room = i64::from(ring.free_count()) * usable;
        let head = Head {
            blocks_left: ring.blocks_left(),
            segments_free: ring.free_count(),
        };
        let before = first_number - 1;
        let tail = TailPosition {
            segment: 0,
            offset: 0,
            sequence: 1,
            number: first_number,
        };
        let joined = Joined {
            pending: Prefix {
                first: first_number,
                ..Prefix::default()
            },
            links: VecDeque::new(),
            effects: VecDeque::new(),
            settling: false,
            room,
            half: half_room(&ring, usable),
            told_half: false,
            spare: Vec::new(),
            images: Images::new(head),
            since_ns: 0,
            valid_ns: VecDeque::new(),
        };
        let writer = Writer {
            ring,
            sequence: 1,
            tail,
            placed: VecDeque::new(),
            taken: Prefix::default(),
            pieces: Vec::new(),
            marks: Vec::new(),
            buffer: SealBuffer::default(),
        };
        let tallies = Tallies::default();
        tallies.write.ring(&writer.ring);
        Self {
            id,
            joined: CachePadded::new(Mutex::new(joined)),
            reached: CachePadded::new(Reached {
                written: AtomicU64::new(before),
                durable: AtomicU64::new(before),
                valid: AtomicU64::new(before),
                wanted: AtomicU64::new(before),
            }),
            writer: CachePadded::new(Mutex::new(writer)),
            settled: Condvar::new(),
            turned: Condvar::new(),
            asked: Condvar::new(),
            running: Running::new(first_number, sharing),
            tallies,
        }
    }

    /// Marks of the handles in `(above, upto]` that are not valid; see [`crate::closure`].
    pub(crate) fn marks_of(&self, above: u64, upto: u64, sink: &mut dyn FnMut(Mark)) -> u64 {
        let joined = self.joined.lock();
        assert!(
            upto < joined.next(),
            "journal {}: mark {upto} names no joined handle",
            self.id
        );
        let covered = joined.marks_of_links(above, upto, sink);
        let pending = &joined.pending;
        if covered >= pending.first {
            let from = above.saturating_add(1).max(pending.first) - pending.first;
            let to = covered + 1 - pending.first;
            let index = |count: u64| usize::try_from(count).expect("handles are in memory");
            if from < to {
                let marks = pending.marks_between(index(from), index(to));
                marks.iter().copied().for_each(sink);
            }
        }
        covered
    }
}
