//! Room for what waits in the kernel's cache.
//!
//! **Problem.** Where the kernel collects writes, write(2) succeeds before dure has seen a byte. If
//! the volume is full when the pages come, they are lost, and only fsync(2) or close(2) says so.
//! **Structure.** The kernel has a limit for the dirty pages of a mount ([`KernelLimit`]), and
//! [`FileSystem::promise_room`] keeps blocks that only such pages can have: two for each page of the
//! limit (a page that is the first of its part of a file takes a node of the map, too), and those
//! for what writers go beyond it. The limit follows the room there is: a thirty-second part, in
//! powers of two, at least [`LEAST`]. It falls before the room does, and is at the least as soon as
//! any other request finds none.
//!
//! The core of a WRITE counts its bytes, on a line of its own, and looks at the room each time they
//! have become a sixty-fourth part of the limit.
//!
//! **Invariants.** Blocks are promised for the largest limit that the kernel may still follow:
//! before it rises, and, when it has fallen, until as much as the old one was written or the kernel
//! has had [`FOLLOWS`] to do so. So what write(2) took while there was room finds its blocks,
//! whichever writer takes the rest. What it takes when there is none, at most the least limit at
//! once, may be refused.
//!
//! **On a crash** nothing is promised.

use std::time::Duration;

use dure_fs::FileSystem;
use dure_fuse_wire::KernelLimit;
use dure_sync::atomic::{AtomicU64, Ordering};
use dure_sync::{CachePadded, Mutex, MutexGuard, PerCore, clock, core_count};

/// Rank of the limit: the locks of space are taken while it is held.
const LIMIT: u8 = 19;
/// The least limit in bytes: twelve writers go on at 80 to 150 MiB/s.
const LEAST: u64 = 256 << 10;
/// Room, in limits: at so much it is set, below so much it falls.
const ROOM: (u64, u64) = (32, 16);
/// Blocks for each page of the limit.
const BLOCKS_PER_PAGE: u64 = 2;
/// Bytes that writers go beyond a limit: measured 320 KiB.
const BEYOND: u64 = 512 << 10;
/// How often a core looks, in parts of the limit.
const LOOKS: u64 = 64;
/// When the kernel keeps to a lower limit at the latest, if nothing more is written: it looks every
/// 5 s (`vm.dirty_writeback_centisecs`), and writes then.
const FOLLOWS: Duration = Duration::from_secs(20);
const BLOCK: u64 = 4096;
/// Blocks of the smallest volume for which room is kept by default: the least takes a thirty-second
/// part.
pub(crate) const SMALLEST: u64 = 32 * blocks_for(LEAST);

/// What the kernel's cache may hold of a mount, and the room for it.
#[derive(Debug)]
pub(crate) struct KernelCache {
    limit: KernelLimit,
    /// Bytes that came; written by the core of the slot: Relaxed, as they only say when to look.
    written: PerCore<AtomicU64>,
    /// A core looks each time it has written so many bytes. Like `written`, by the holder of
    /// `state`.
    looks_at: CachePadded<AtomicU64>,
    state: Mutex<LIMIT, State>,
}

#[derive(Debug)]
struct State {
    /// The limit that is set.
    bytes: u64,
    /// It has fallen, and the kernel may still hold more.
    fallen: Option<Fallen>,
}

/// A limit that is lower now.
#[derive(Debug, Clone, Copy)]
struct Fallen {
    from: u64,
    /// Bytes that had come by then.
    written: u64,
    at_ns: u64,
}

/// The largest limit for so much room.
fn limit_for(room: u64, most: u64) -> u64 {
    let part = (room / ROOM.0).min(most).max(1);
    (1 << part.ilog2()).max(LEAST)
}

/// Blocks to be promised with a limit.
const fn blocks_for(limit: u64) -> u64 {
    (limit * BLOCKS_PER_PAGE + BEYOND) / BLOCK
}

impl KernelCache {
    /// The cache of a mount of `volume` that is not served yet. On a full volume blocks that come
    /// back are promised.
    pub(crate) fn new(limit: KernelLimit, volume: &FileSystem) -> KernelCache {
        volume.promise_room(blocks_for(LEAST));
        // What fails here is a mount that is gone.
        let _ = limit.set(LEAST);
        let cache = KernelCache {
            limit,
            written: PerCore::new(core_count(), |_| AtomicU64::new(0)),
            looks_at: CachePadded::new(AtomicU64::new(LEAST / LOOKS)),
            state: Mutex::new(State {
                bytes: LEAST,
                fallen: None,
            }),
        };
        cache.look(volume);
        cache
    }

    /// Pages of so many bytes came, and were written or refused.
    pub(crate) fn came(&self, bytes: u64, volume: &FileSystem) {
        let before = self.written.local().fetch_add(bytes, Ordering::Relaxed);
        let every = self.looks_at.load(Ordering::Relaxed);
        if before / every != (before + bytes) / every {
            self.look(volume);
        }
    }

    /// Fits limit and promise to the room there is, unless another task does it.
    pub(crate) fn look(&self, volume: &FileSystem) {
        let Some(mut state) = self.state.try_lock() else {
            return;
        };
        self.follow(&mut state, volume);
        let room = volume.room_at_hand() * BLOCK;
        let fitting = limit_for(room, self.limit.most());
        if room < state.bytes * ROOM.1 && fitting < state.bytes {
            self.fall(&mut state, fitting);
        } else if fitting > state.bytes && state.fallen.is_none() {
            self.rise(&mut state, fitting, volume);
        }
        // It is a part of the memory for dirty pages, which may have grown.
        let now = self.limit.bytes().unwrap_or(0);
        if now > state.bytes + state.bytes / 4 {
            let _ = self.limit.set(state.bytes);
        }
    }

    /// A request that is not the kernel's cache's found no room.
    pub(crate) fn was_refused(&self, volume: &FileSystem) {
        let mut state = self.state.lock();
        self.follow(&mut state, volume);
        if state.bytes > LEAST {
            self.fall(&mut state, LEAST);
        }
    }

    /// The volume was closed, and is mounted again.
    pub(crate) fn mounted_again(&self, volume: &FileSystem) {
        let state = self.state.lock();
        let from = state.fallen.map_or(0, |fallen| fallen.from);
        volume.promise_room(blocks_for(state.bytes.max(from)));
    }

    /// The limit that is set, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.state.lock().bytes
    }

    /// Lets go of the promise for an old limit, if the kernel keeps to the new one.
    fn follow(&self, state: &mut MutexGuard<'_, LIMIT, State>, volume: &FileSystem) {
        let Some(fallen) = state.fallen else { return };
        let since = Duration::from_nanos(clock::monotonic_ns().saturating_sub(fallen.at_ns));
        if self.written() - fallen.written >= fallen.from || since >= FOLLOWS {
            state.fallen = None;
            volume.promise_room(blocks_for(state.bytes));
        }
    }

    /// Sets a lower limit. The promise stays until the kernel follows.
    fn fall(&self, state: &mut MutexGuard<'_, LIMIT, State>, to: u64) {
        if self.limit.set(to).is_err() {
            return;
        }
        let from = state.fallen.map_or(0, |fallen| fallen.from);
        state.fallen = Some(Fallen {
            from: from.max(state.bytes),
            written: self.written(),
            at_ns: clock::monotonic_ns(),
        });
        self.put(state, to);
    }

    /// Sets a higher limit, if room can be promised for it.
    fn rise(&self, state: &mut MutexGuard<'_, LIMIT, State>, to: u64, volume: &FileSystem) {
        let wanted = blocks_for(to);
        if volume.promise_room(wanted) < wanted || self.limit.set(to).is_err() {
            volume.promise_room(blocks_for(state.bytes));
            return;
        }
        self.put(state, to);
    }

    fn put(&self, state: &mut MutexGuard<'_, LIMIT, State>, bytes: u64) {
        state.bytes = bytes;
        self.looks_at.store(bytes / LOOKS, Ordering::Relaxed);
    }

    /// Bytes that came. A sum over the cores.
    fn written(&self) -> u64 {
        let counts = self.written.iter();
        counts.map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests;
