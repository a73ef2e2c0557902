//! The real machine.
//!
//! **Problem.** The facade must cost nothing in the product. **Structure.** Atomics and
//! thread-locals are re-exports; the futex, clocks, affinity and random numbers are system calls.
//! **Invariants.** No allocation and no lock in any function called by a lock.
//! **Crash.** Nothing is kept.

use std::any::Any;
use std::num::NonZeroU32;
use std::time::Duration;

use rustix::thread::futex;
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::clock::Timestamp;
use crate::futex::WaitOutcome;

use super::ends::Thread;
pub(crate) use super::ends::leave_threads;
pub(crate) use super::rseq::current_core_index;
pub(crate) use std::sync::Arc as BackendArc;
pub(crate) use std::sync::Weak as BackendWeak;

/// A static of which every task has its own value; declared by `task_local!`.
#[cfg(not(dure_backend = "sim"))]
pub type TaskLocal<T> = std::thread::LocalKey<T>;

pub(crate) mod atomic {
    #[cfg_attr(
        dure_backend = "sim",
        expect(unreachable_pub, reason = "the simulation covers these types")
    )]
    pub use std::sync::atomic::{
        AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
        fence,
    };
}

use atomic::AtomicU32;

/// Turns of spinning before sleeping: about a microsecond, the cost of two context switches.
pub(crate) const SPIN_TURNS: u32 = 40;

/// Like `SPIN_TURNS`, but some microseconds, for waits whose alternative is much slower than a
/// sleep.
pub(crate) const fn patient_turns() -> u32 {
    320
}

/// Readers of a per-core lock that contend before one opens its gate: enough to pay for the next
/// writer's visit of all counts.
#[cfg(not(dure_backend = "sim"))]
pub(crate) const CONTENDED_AFTER: u32 = 32;

/// Nothing to do: here SeqCst accesses have a single total order.
#[inline]
pub(crate) fn seq_cst_where_it_needs_saying() {}

/// A chunk of a range lock is 2^this words.
pub(crate) const CHUNK_SHIFT: u32 = 4;

/// Whether lock ranks are checked in this build.
#[cfg(not(dure_backend = "sim"))]
pub(crate) const RANKS_CHECKED: bool = cfg!(debug_assertions);

/// Bookkeeping next to the data of a lock; the real machine needs none.
#[cfg(not(dure_backend = "sim"))]
#[derive(Debug, Default)]
pub(crate) struct Shadow;

#[cfg(not(dure_backend = "sim"))]
impl Shadow {
    pub(crate) const fn new() -> Self {
        Self
    }

    /// The holder may now read the data at `_data`, or stops doing so.
    #[inline]
    pub(crate) fn read<T>(&self, _data: *const T) {}

    /// The holder may now write the data at `_data`, or stops doing so.
    #[inline]
    pub(crate) fn write<T>(&self, _data: *const T) {}
}

/// Called before the reference count of `_object` changes.
#[inline]
#[cfg(not(dure_backend = "sim"))]
pub(crate) fn reference_counted<T: ?Sized>(_object: &T) {}

fn mask_bits(mask: u32) -> NonZeroU32 {
    NonZeroU32::new(mask).expect("callers pass the constants of crate::futex, none is zero")
}

/// Sleeps while `word` holds `expected`; may return early.
pub(crate) fn futex_wait(
    word: &AtomicU32,
    expected: u32,
    mask: u32,
    timeout: Option<Duration>,
) -> WaitOutcome {
    let deadline = timeout.and_then(deadline_after);
    let slept = futex::wait_bitset(
        word,
        futex::Flags::PRIVATE,
        expected,
        deadline.as_ref(),
        mask_bits(mask),
    );
    match slept {
        Err(rustix::io::Errno::TIMEDOUT) => WaitOutcome::TimedOut,
        Err(rustix::io::Errno::AGAIN) => WaitOutcome::Changed,
        // A signal is an early return, which every caller handles as a wake-up.
        Ok(()) | Err(rustix::io::Errno::INTR) => WaitOutcome::Woken,
        Err(error) => panic!("futex wait on a valid word failed: {error}"),
    }
}

/// The monotonic instant `timeout` from now; none if the clock cannot express it (no deadline).
fn deadline_after(timeout: Duration) -> Option<Timespec> {
    let now = clock_gettime(ClockId::Monotonic);
    let nanos = now.tv_nsec + i64::from(timeout.subsec_nanos());
    let secs = now
        .tv_sec
        .checked_add(i64::try_from(timeout.as_secs()).ok()?)?;
    Some(Timespec {
        tv_sec: secs.checked_add(nanos / 1_000_000_000)?,
        tv_nsec: nanos % 1_000_000_000,
    })
}

/// Wakes up to `count` sleepers of `word` whose mask shares a bit with `mask`; returns how many.
pub(crate) fn futex_wake(word: &AtomicU32, count: u32, mask: u32) -> u32 {
    // The kernel takes a signed count.
    let count = count.min(i32::MAX.unsigned_abs());
    let woken = futex::wake_bitset(word, futex::Flags::PRIVATE, count, mask_bits(mask))
        .expect("waking on a valid word cannot fail");
    u32::try_from(woken).expect("the kernel wakes no more than asked")
}

/// A started thread.
pub(crate) type BackendJoin<T> = Thread<T>;

/// Starts a thread.
pub(crate) fn spawn<T: Send + 'static>(
    name: &str,
    core: Option<usize>,
    body: impl FnOnce() -> T + Send + 'static,
) -> BackendJoin<T> {
    let started = Thread::start(name, move || {
        if let Some(core) = core {
            pin_to(core);
        }
        body()
    });
    started.unwrap_or_else(|error| panic!("cannot start thread {name:?}: {error}"))
}

/// Waits for the end of a thread.
pub(crate) fn join<T>(handle: BackendJoin<T>) -> Result<T, Box<dyn Any + Send>> {
    handle.join()
}

/// Whether the thread has ended.
pub(crate) fn is_finished<T>(handle: &BackendJoin<T>) -> bool {
    handle.is_finished()
}

/// Called when a scope has caught a panic, which it raises again when all its threads have ended.
#[cfg(not(dure_backend = "sim"))]
pub(crate) fn caught(_panic: &(dyn Any + Send)) {}

/// Gives up the rest of the time slice.
pub(crate) fn yield_now() {
    std::thread::yield_now();
}

/// Sleeps for at least `duration`.
pub(crate) fn sleep(duration: Duration) {
    std::thread::sleep(duration);
}

/// Called before `left` bytes from `_address` on are copied; returns how many to copy in one go.
#[inline]
#[cfg(not(dure_backend = "sim"))]
pub(crate) fn before_copy(_way: super::Copying, _address: usize, left: usize) -> usize {
    left
}

/// One turn of a spin loop.
#[inline]
#[cfg(not(dure_backend = "sim"))]
pub(crate) fn spin_hint() {
    std::hint::spin_loop();
}

/// A number unique among the threads of this process.
pub(crate) fn current_id() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    std::thread_local! {
        // Relaxed: only distinctness matters, and it comes from the read-modify-write.
        static ID: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    ID.with(|id| *id)
}

/// Binds the calling thread to a core; returns whether the kernel did so.
pub(crate) fn pin_to(core: usize) -> bool {
    pin_among(&[core])
}

/// Binds the calling thread to any of these cores; returns whether the kernel did so.
pub(crate) fn pin_among(cores: &[usize]) -> bool {
    use rustix::thread::{CpuSet, sched_setaffinity};
    let mut set = CpuSet::new();
    let known = cores.iter().filter(|core| **core < CpuSet::MAX_CPU);
    known.for_each(|core| set.set(*core));
    // None of them: the kernel refuses.
    sched_setaffinity(None, &set).is_ok()
}

/// A thread that others wait for has panicked.
#[cfg(not(dure_backend = "sim"))]
pub(crate) fn vital_thread_died() {
    std::process::abort();
}

/// The cores of each NUMA node; nothing if the kernel does not tell. It is asked once: each volume
/// and each queue wants to know.
pub(crate) fn numa_nodes() -> Vec<(u32, Vec<usize>)> {
    static NODES: crate::ProcessOnce<Vec<(u32, Vec<usize>)>> = crate::ProcessOnce::new();
    NODES.get_or_init(read_numa_nodes).clone()
}

fn read_numa_nodes() -> Vec<(u32, Vec<usize>)> {
    let Ok(entries) = std::fs::read_dir("/sys/devices/system/node") else {
        return Vec::new();
    };
    let node = |entry: std::fs::DirEntry| {
        let name = entry.file_name();
        let number = name.to_str()?.strip_prefix("node")?.parse().ok()?;
        let list = std::fs::read_to_string(entry.path().join("cpulist")).ok()?;
        Some((number, parse_cores(&list)?))
    };
    let mut nodes: Vec<(u32, Vec<usize>)> = entries.flatten().filter_map(node).collect();
    nodes.sort_unstable();
    nodes
}

/// The numbers in a kernel core list such as `0-3,8`; an empty list has none.
pub(crate) fn parse_cores(list: &str) -> Option<Vec<usize>> {
    let mut cores = Vec::new();
    for part in list.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        cores.extend(first..=last);
    }
    Some(cores)
}

/// One more than the highest core number this machine can ever have.
pub(crate) fn core_count() -> usize {
    static COUNT: crate::ProcessOnce<usize> = crate::ProcessOnce::new();
    *COUNT.get_or_init(|| {
        std::fs::read_to_string("/sys/devices/system/cpu/possible")
            .ok()
            .and_then(|list| parse_last_core(&list))
            .map_or_else(online_cores, |last| last + 1)
    })
}

fn online_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The last number of a kernel core list such as `0-3,8-11`.
pub(crate) fn parse_last_core(list: &str) -> Option<usize> {
    list.trim().rsplit([',', '-']).next()?.parse().ok()
}

/// Nanoseconds of a clock that never goes back.
pub(crate) fn monotonic_ns() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// CPU time of this thread.
pub(crate) fn thread_cpu_ns() -> u64 {
    nanoseconds(ClockId::ThreadCPUTime)
}

#[inline]
fn nanoseconds(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    let secs = u64::try_from(now.tv_sec).expect("the clock starts at zero");
    let nanos = u64::try_from(now.tv_nsec).expect("nanoseconds of a second are positive");
    secs * 1_000_000_000 + nanos
}

fn timestamp(clock: ClockId) -> Timestamp {
    let now = clock_gettime(clock);
    Timestamp {
        secs: now.tv_sec,
        nanos: u32::try_from(now.tv_nsec).expect("nanoseconds of a second fit"),
    }
}

/// The time of day.
pub(crate) fn wall() -> Timestamp {
    timestamp(ClockId::Realtime)
}

/// The time of day as of the last timer tick.
pub(crate) fn wall_coarse() -> Timestamp {
    timestamp(ClockId::RealtimeCoarse)
}

/// Fills `bytes` from the kernel's generator.
pub(crate) fn random_fill(mut bytes: &mut [u8]) {
    while !bytes.is_empty() {
        match rustix::rand::getrandom(&mut *bytes, rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => bytes = &mut bytes[count..],
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("the kernel gives no random numbers: {error}"),
        }
    }
}

/// Called before a statistic changes; unused here.
#[cfg(not(dure_backend = "sim"))]
#[inline]
pub(crate) fn statistic_changes(_address: usize) {}

/// Nothing: only simulations say what tasks wait for.
#[cfg(not(dure_backend = "sim"))]
#[inline]
pub(crate) fn wait_begins(_what: crate::waiting::Awaited) -> bool {
    false
}

/// Never called, as no wait begins.
#[cfg(not(dure_backend = "sim"))]
#[inline]
pub(crate) fn wait_ends() {}

/// Nothing: only simulations need to be told.
#[cfg(not(dure_backend = "sim"))]
#[inline]
pub(crate) fn before_persistent_copy(_way: super::Copying, _address: usize, _bytes: usize) {}
