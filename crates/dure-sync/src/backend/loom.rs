//! loom: every ordering of one small primitive.
//!
//! **Problem.** Only a model checker sees what a weak ordering allows. **Structure.** loom's
//! atomics in wrappers that can weaken an ordering on request, for canaries; a sleep is one turn of
//! a yield loop, since all sleepers re-check; data of locks is shadowed by a loom cell, which finds
//! accesses that are not ordered. **Invariants.** Everything is used inside `loom::model`. Timeouts
//! pass at once, ranks are not checked, the one core is core 0. **Crash.** Nothing is kept.

use std::any::Any;
use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::covered::Use;
use crate::clock::Timestamp;
use crate::futex::WaitOutcome;

pub(crate) use std::sync::Arc as BackendArc;
pub(crate) use std::sync::Weak as BackendWeak;

/// A static of which every task has its own value; declared by `task_local!`.
pub type TaskLocal<T> = ::loom::thread::LocalKey<T>;

pub(crate) mod atomic {
    pub use super::super::covered::{
        AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
        fence,
    };
}

/// The types that the wrappers wrap.
pub(crate) mod inner {
    pub(crate) use ::loom::sync::atomic::*;
}

use atomic::AtomicU32;

/// Whether lock ranks are checked in this build.
pub(crate) const RANKS_CHECKED: bool = false;

/// Spinning would only repeat what yielding explores.
pub(crate) const SPIN_TURNS: u32 = 0;

/// Few: one more turn shows what trying again does.
pub(crate) const fn patient_turns() -> u32 {
    2
}

/// Readers of a per-core lock that contend before one opens its gate.
pub(crate) const CONTENDED_AFTER: u32 = 1;

/// Loom treats SeqCst accesses as AcqRel: a SeqCst fence between two of them gives them their
/// order.
pub(crate) fn seq_cst_where_it_needs_saying() {
    if WEAKEN.get() != Weaken::SeqCst {
        ::loom::sync::atomic::fence(Ordering::SeqCst);
    }
}

/// A chunk of a range lock is 2^this words: as few as can show what happens between words.
pub(crate) const CHUNK_SHIFT: u32 = 1;

/// Which orderings a canary removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weaken {
    /// None.
    Nothing,
    /// Acquire becomes Relaxed.
    Acquire,
    /// Release becomes Relaxed.
    Release,
    /// SeqCst accesses have no order among each other.
    SeqCst,
}

thread_local! {
    // All threads of a model are coroutines of one real thread, so this is per test.
    static WEAKEN: Cell<Weaken> = const { Cell::new(Weaken::Nothing) };
}

/// Makes all atomics of this test weaker than they ask for: a canary, which must fail.
pub fn weaken(what: Weaken) {
    WEAKEN.set(what);
}

pub(crate) fn before(_how: Use, _address: usize) {}

pub(crate) fn order(ordering: Ordering) -> Ordering {
    match (WEAKEN.get(), ordering) {
        (Weaken::Acquire, Ordering::Acquire) | (Weaken::Release, Ordering::Release) => {
            Ordering::Relaxed
        }
        (Weaken::Acquire, Ordering::AcqRel) => Ordering::Release,
        (Weaken::Release, Ordering::AcqRel) => Ordering::Acquire,
        (Weaken::SeqCst, Ordering::SeqCst) => Ordering::AcqRel,
        _ => ordering,
    }
}

/// A loom cell that is accessed whenever the data of a lock may be.
#[derive(Debug, Default)]
pub(crate) struct Shadow(::loom::cell::UnsafeCell<()>);

// SAFETY: it holds nothing; loom reports accesses that are not ordered.
unsafe impl Sync for Shadow {}

impl Shadow {
    pub(crate) fn new() -> Self {
        Self(::loom::cell::UnsafeCell::new(()))
    }

    /// The holder may now read the data, or stops doing so.
    pub(crate) fn read<T>(&self, _data: *const T) {
        self.0.with(|_| ());
    }

    /// The holder may now write the data, or stops doing so.
    pub(crate) fn write<T>(&self, _data: *const T) {
        self.0.with_mut(|_| ());
    }
}

/// Called before a reference count changes; loom does not watch it.
pub(crate) fn reference_counted<T: ?Sized>(_object: &T) {}

/// One turn of a yield loop: all callers look at their word again.
pub(crate) fn futex_wait(
    word: &AtomicU32,
    expected: u32,
    _mask: u32,
    timeout: Option<Duration>,
) -> WaitOutcome {
    // Relaxed: callers take no ordering from a sleep.
    if word.load(Ordering::Relaxed) != expected {
        return WaitOutcome::Changed;
    }
    ::loom::thread::yield_now();
    if timeout.is_some() {
        WaitOutcome::TimedOut
    } else {
        WaitOutcome::Woken
    }
}

/// Wakes no task: a sleep here is a yield.
pub(crate) fn futex_wake(_word: &AtomicU32, _count: u32, _mask: u32) -> u32 {
    0
}

/// A started thread.
pub(crate) type BackendJoin<T> = ::loom::thread::JoinHandle<T>;

/// Starts a thread.
pub(crate) fn spawn<T: Send + 'static>(
    _name: &str,
    _core: Option<usize>,
    body: impl FnOnce() -> T + Send + 'static,
) -> BackendJoin<T> {
    ::loom::thread::spawn(body)
}

/// Waits for the end of a thread.
pub(crate) fn join<T>(handle: BackendJoin<T>) -> Result<T, Box<dyn Any + Send>> {
    handle.join()
}

/// loom cannot tell.
pub(crate) fn is_finished<T>(_handle: &BackendJoin<T>) -> bool {
    false
}

/// Called when a scope has caught a panic, which it raises again when all its threads have ended.
pub(crate) fn caught(_panic: &(dyn Any + Send)) {}

/// Lets other tasks run.
pub(crate) fn yield_now() {
    ::loom::thread::yield_now();
}

/// Lets other tasks run: there is no time.
pub(crate) fn sleep(_duration: Duration) {
    ::loom::thread::yield_now();
}

/// Called before `left` bytes from `_address` on are copied; returns how many to copy in one go.
pub(crate) fn before_copy(_way: super::Copying, _address: usize, left: usize) -> usize {
    left
}

/// Lets other tasks run.
pub(crate) fn spin_hint() {
    ::loom::thread::yield_now();
}

/// A number no other thread of this model has.
pub(crate) fn current_id() -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    ::loom::thread::current().id().hash(&mut hasher);
    hasher.finish()
}

/// There is one core.
pub(crate) fn pin_to(core: usize) -> bool {
    core == 0
}

/// There is one core.
pub(crate) fn pin_among(cores: &[usize]) -> bool {
    cores == [0]
}

/// Its panic ends the model.
pub(crate) fn vital_thread_died() {}

/// Nothing: a model has no process that shares its memory.
pub(crate) fn leave_threads() {}

/// One node with the one core.
pub(crate) fn numa_nodes() -> Vec<(u32, Vec<usize>)> {
    vec![(0, vec![0])]
}

/// The one core.
pub(crate) fn current_core_index() -> usize {
    0
}

/// The one core.
pub(crate) fn core_count() -> usize {
    1
}

/// There is no time.
pub(crate) fn monotonic_ns() -> u64 {
    0
}

/// There is no time.
pub(crate) fn thread_cpu_ns() -> u64 {
    0
}

/// There is no time.
pub(crate) fn wall() -> Timestamp {
    Timestamp::default()
}

/// There is no time.
pub(crate) fn wall_coarse() -> Timestamp {
    Timestamp::default()
}

/// A fixed sequence per call, since all executions of a model must agree.
pub(crate) fn random_fill(bytes: &mut [u8]) {
    for (byte, value) in bytes.iter_mut().zip((1..=u8::MAX).cycle()) {
        *byte = value;
    }
}

/// Called before a statistic changes; unused here.
#[inline]
pub(crate) fn statistic_changes(_address: usize) {}

/// Nothing: only simulations say what tasks wait for.
#[inline]
pub(crate) fn wait_begins(_what: crate::waiting::Awaited) -> bool {
    false
}

/// Never called, as no wait begins.
#[inline]
pub(crate) fn wait_ends() {}

/// Nothing: only simulations need to be told.
#[inline]
pub(crate) fn before_persistent_copy(_way: super::Copying, _address: usize, _bytes: usize) {}
