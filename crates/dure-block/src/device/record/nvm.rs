//! What is done to a region of persistent memory, in the log of a recorded device.
//!
//! **Problem.** Of a volume on a disk and in persistent memory a crash leaves a state of both: their
//! writes must be in one order. **Structure.** [`NvmRecord`] is told of each store, write-back and
//! fence of a region ([`dure_pmem::record::Observer`]) and makes entries of them: a store is
//! submitted when it is made, and completes, durable, with the fence of its task that follows, if it
//! went past the cache or was written back. **Invariants.** Each word of 8 bytes of an open store is
//! there or not, for itself; of stores through the cache a processor leaves fewer states (in a line
//! any first so many), never more. Of several regions in one log each notes the fences that it is asked
//! for, although a processor's covers all: more states here, never fewer. **Crash.** [`crate::crash`]
//! cuts the log.

use std::ops::Range;

use dure_pmem::record::Observer;
use dure_sync::{Arc, Mutex, thread};

use super::{Effect, RecordLog};
use crate::ram::Image;
use crate::rank::HELD_RANK;
use crate::{BLOCK_BYTES, Lba};

/// Which instructions a region loses. Canaries: crash tests must fail.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum LostStores {
    /// None: a processor that keeps its rules.
    #[default]
    None,
    /// Fences do nothing.
    Fences,
    /// Nothing leaves the cache: write-backs do nothing, and stores past it go through it.
    WriteBacks,
}

/// A store that no fence has covered.
#[derive(Debug)]
struct Open {
    entry: usize,
    bytes: Range<usize>,
    /// The task whose fence makes it durable; none while it is only in the cache.
    waits_for: Option<u64>,
}

#[derive(Debug)]
struct Memory {
    content: Image,
    open: Vec<Open>,
}

/// Records a region.
#[derive(Debug)]
pub struct NvmRecord {
    log: Arc<RecordLog>,
    /// The block of what is recorded that the region begins with.
    first: Lba,
    lost: LostStores,
    memory: Mutex<HELD_RANK, Memory>,
}

impl NvmRecord {
    /// Records into `log` what is done to a region that holds `content`, and begins with block `first`
    /// of what is recorded.
    #[must_use]
    pub fn new(first: Lba, content: Image, log: Arc<RecordLog>, lost: LostStores) -> NvmRecord {
        let open = Vec::new();
        NvmRecord {
            log,
            first,
            lost,
            memory: Mutex::new(Memory { content, open }),
        }
    }

    fn store(&self, at: usize, bytes: &[u8], waits_for: Option<u64>) {
        let mut memory = self.memory.lock();
        let stored = at..at + bytes.len();
        let blocks = at / BLOCK_BYTES * BLOCK_BYTES..stored.end.next_multiple_of(BLOCK_BYTES);
        let data = blocks.clone().step_by(BLOCK_BYTES).map(|start| {
            let within = stored.start.max(start)..stored.end.min(start + BLOCK_BYTES);
            let bytes = &bytes[within.start - at..within.end - at];
            memory
                .content
                .store(lba_of(start), within.start - start, bytes)
        });
        let effect = Effect::Store {
            data: data.collect(),
            lba: self.first.offset(lba_of(at).number()),
            bytes: stored.start - blocks.start..stored.end - blocks.start,
        };
        let entry = self.log.submit(effect);
        memory.open.push(Open {
            entry,
            bytes: stored,
            waits_for,
        });
    }
}

/// The block of the region that the byte is in.
fn lba_of(at: usize) -> Lba {
    Lba::new(u64::try_from(at / BLOCK_BYTES).expect("a usize fits in 64 bits"))
}

impl Observer for NvmRecord {
    fn stored(&self, at: usize, bytes: &[u8]) {
        self.store(at, bytes, None);
    }

    fn streamed(&self, at: usize, bytes: &[u8]) {
        let waits_for = (self.lost != LostStores::WriteBacks).then(thread::current_id);
        self.store(at, bytes, waits_for);
    }

    fn written_back(&self, bytes: &Range<usize>) {
        if self.lost == LostStores::WriteBacks {
            return;
        }
        let mut memory = self.memory.lock();
        for open in &mut memory.open {
            if bytes.start <= open.bytes.start && open.bytes.end <= bytes.end {
                open.waits_for = open.waits_for.or_else(|| Some(thread::current_id()));
            }
        }
    }

    fn fenced(&self) {
        if self.lost == LostStores::Fences {
            return;
        }
        let mut memory = self.memory.lock();
        let own = Some(thread::current_id());
        let done = memory.open.extract_if(.., |open| open.waits_for == own);
        let done: Vec<usize> = done.map(|open| open.entry).collect();
        if !done.is_empty() {
            self.log.complete_all(&done);
        }
    }
}
