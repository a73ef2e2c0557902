//! The simulation, on the virtual cores of `dure-vcpu`.
//!
//! **Problem.** The same code must run under any schedule that a seed describes. **Structure.**
//! Inside a machine every call goes to `dure_vcpu`; outside, to the real machine, so that test
//! programs work around their runs. Sleepers and wakers must be on the same side.
//! **Invariants.** Two runs of one seed take the same steps; the allocator of `dure-vcpu` is
//! installed because cache lines are found from addresses. **Crash.** Nothing is kept.

use std::any::Any;
use std::time::Duration;

use dure_vcpu::{Access, Wake};

use super::covered::Use;
use super::real;
use crate::clock::Timestamp;
use crate::futex::WaitOutcome;

pub(crate) use super::real::leave_threads;
pub(crate) use super::real::{
    BackendArc, BackendWeak, CHUNK_SHIFT, SPIN_TURNS, seq_cst_where_it_needs_saying,
};

/// Few in schedules that look for races, so that runs also reach the code after such a wait has
/// ended; a measurement has as many as the machine.
pub(crate) fn patient_turns() -> u32 {
    match dure_vcpu::is_measurement() {
        true => real::patient_turns(),
        false => 12,
    }
}

/// Readers of a per-core lock that contend before one opens its gate: few, so that runs open gates.
pub(crate) const CONTENDED_AFTER: u32 = 2;

pub(crate) mod atomic {
    pub use super::super::covered::{
        AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
        fence,
    };
}

/// The types that the wrappers wrap.
pub(crate) mod inner {
    pub(crate) use super::real::atomic::*;
}

use atomic::AtomicU32;
use std::sync::atomic::Ordering;

/// The system's took a sixth of the time of schedules: it is slow at blocks that begin on lines.
#[global_allocator]
static ALLOCATOR: dure_vcpu::LineAllocator<mimalloc::MiMalloc> =
    dure_vcpu::LineAllocator(mimalloc::MiMalloc);

/// Whether lock ranks are checked in this build.
pub(crate) const RANKS_CHECKED: bool = true;

/// The time of day at which every machine starts: 2026-01-01 00:00 UTC.
const DAY_ONE_SECS: i64 = 1_767_225_600;
/// The step of the coarse clock: Linux with 250 ticks a second.
const TICK_NS: u64 = 4_000_000;

#[inline]
pub(crate) fn before(how: Use, address: usize) {
    let access = match how {
        Use::Load => Access::Load,
        Use::Store => Access::Store,
        Use::Update => Access::Update,
    };
    dure_vcpu::access(access, address);
}

#[inline]
pub(crate) fn order(ordering: Ordering) -> Ordering {
    ordering
}

/// Bookkeeping next to the data of a lock: a task that takes the lock counts as using the data.
#[derive(Debug, Default)]
pub(crate) struct Shadow;

impl Shadow {
    pub(crate) const fn new() -> Self {
        Self
    }

    /// The holder may now read the data at `data`, or stops doing so.
    #[inline]
    pub(crate) fn read<T>(&self, data: *const T) {
        touch(Access::Load, data);
    }

    /// The holder may now write the data at `data`, or stops doing so.
    #[inline]
    pub(crate) fn write<T>(&self, data: *const T) {
        touch(Access::Store, data);
    }
}

/// Counts the use of the data of a lock: its first two lines, since of a large structure each
/// holder uses only a part.
fn touch<T>(access: Access, data: *const T) {
    if size_of::<T>() > 0 {
        let what = std::any::type_name::<T>();
        dure_vcpu::touch(access, data.addr(), size_of::<T>().min(128), what);
    }
}

/// Called before the reference count of `object` changes. The count lies in front of the object.
#[inline]
pub(crate) fn reference_counted<T: ?Sized>(object: &T) {
    let address = std::ptr::from_ref(object).addr();
    let header = align_of_val(object).max(2 * size_of::<usize>());
    let what = std::any::type_name_of_val(object);
    dure_vcpu::access_to(Access::Update, address - header, what);
}

/// Called before the statistic at `address` changes. No schedule depends on it, so only a watch is
/// notified.
#[inline]
pub(crate) fn statistic_changes(address: usize) {
    dure_vcpu::note(Access::Store, address, size_of::<u64>(), "statistic");
}

/// Sleeps while `word` holds `expected`; may return early.
pub(crate) fn futex_wait(
    word: &AtomicU32,
    expected: u32,
    mask: u32,
    timeout: Option<Duration>,
) -> WaitOutcome {
    if !dure_vcpu::is_running() {
        return real::futex_wait(word.uncovered(), expected, mask, timeout);
    }
    let address = std::ptr::from_ref(word).addr();
    // SeqCst: as the kernel's comparison, which takes a lock.
    let still = || word.uncovered().load(Ordering::SeqCst) == expected;
    match dure_vcpu::futex_wait(address, mask, timeout, still) {
        Wake::Woken => WaitOutcome::Woken,
        Wake::Changed => WaitOutcome::Changed,
        Wake::TimedOut => WaitOutcome::TimedOut,
    }
}

/// Wakes up to `count` sleepers of `word` whose mask shares a bit with `mask`; returns how many.
pub(crate) fn futex_wake(word: &AtomicU32, count: u32, mask: u32) -> u32 {
    if dure_vcpu::is_running() {
        dure_vcpu::futex_wake(std::ptr::from_ref(word).addr(), count, mask)
    } else {
        real::futex_wake(word.uncovered(), count, mask)
    }
}

/// A started thread or task.
pub(crate) enum BackendJoin<T> {
    Real(real::BackendJoin<T>),
    Virtual {
        task: dure_vcpu::TaskId,
        result: Slot<T>,
    },
}

/// Never locked across a visible operation, hence never contended inside a machine.
#[expect(
    clippy::disallowed_types,
    reason = "the result of a task is no part of the simulation"
)]
type Slot<T> = std::sync::Arc<std::sync::Mutex<Option<T>>>;

/// Starts a task, or a thread outside machines.
pub(crate) fn spawn<T: Send + 'static>(
    name: &str,
    core: Option<usize>,
    body: impl FnOnce() -> T + Send + 'static,
) -> BackendJoin<T> {
    if !dure_vcpu::is_running() {
        return BackendJoin::Real(real::spawn(name, core, body));
    }
    let result = Slot::<T>::default();
    let slot = Slot::clone(&result);
    let task = dure_vcpu::spawn(name, core, move || {
        let value = body();
        *slot.lock().expect("no panic while it is locked") = Some(value);
    });
    BackendJoin::Virtual { task, result }
}

/// Waits for the end of a thread. A task that panics ends the whole run.
pub(crate) fn join<T>(handle: BackendJoin<T>) -> Result<T, Box<dyn Any + Send>> {
    match handle {
        BackendJoin::Real(thread) => real::join(thread),
        BackendJoin::Virtual { task, result } => {
            dure_vcpu::join(task);
            let value = result.lock().expect("no panic while it is locked").take();
            Ok(value.expect("a task that ended has left its result"))
        }
    }
}

/// Whether the thread has ended.
pub(crate) fn is_finished<T>(handle: &BackendJoin<T>) -> bool {
    match handle {
        BackendJoin::Real(thread) => real::is_finished(thread),
        BackendJoin::Virtual { task, .. } => dure_vcpu::is_finished(*task),
    }
}

/// Called when a scope has caught a panic: ends the run at once, since waiting for the other tasks
/// of the scope could turn it into a deadlock.
pub(crate) fn caught(panic: &(dyn Any + Send)) {
    dure_vcpu::fail_run(panic);
}

/// Lets the core's other tasks run first.
pub(crate) fn yield_now() {
    if dure_vcpu::is_running() {
        dure_vcpu::yield_now()
    } else {
        real::yield_now()
    }
}

/// Sleeps for at least `duration`.
pub(crate) fn sleep(duration: Duration) {
    if dure_vcpu::is_running() {
        dure_vcpu::sleep(duration)
    } else {
        real::sleep(duration)
    }
}

/// Called before `left` bytes from `address` on are copied; returns how many to copy in one go: so
/// that other tasks see a page that is half copied.
pub(crate) fn before_copy(way: super::Copying, address: usize, left: usize) -> usize {
    const COPY_BYTES: usize = 2048;
    const PIECE_BYTES: usize = 256;
    let access = match way {
        super::Copying::Out => Access::Load,
        super::Copying::In => Access::Store,
    };
    // Shorter copies, such as a granule of a node, go in pieces as well.
    let len = match left {
        0..=PIECE_BYTES => left,
        257..=COPY_BYTES => left.div_ceil(2),
        _ => COPY_BYTES,
    };
    dure_vcpu::copy(access, address, len);
    dure_vcpu::note(access, address, len, "bytes that several may copy");
    len
}

/// Called before `bytes` bytes are copied from or to persistent memory at `address`.
pub(crate) fn before_persistent_copy(way: super::Copying, address: usize, bytes: usize) {
    let access = match way {
        super::Copying::Out => Access::Load,
        super::Copying::In => Access::Store,
    };
    dure_vcpu::copy_persistent(access, address, bytes);
}

/// One turn of a spin loop.
#[inline]
pub(crate) fn spin_hint() {
    dure_vcpu::spin_hint();
}

/// A number unique among the tasks of this machine.
pub(crate) fn current_id() -> u64 {
    match dure_vcpu::current_task() {
        Some(task) => u64::try_from(task.index()).expect("a task number fits in 64 bits") + 1,
        None => real::current_id(),
    }
}

/// Moves the calling task to a core; returns whether that was possible.
pub(crate) fn pin_to(core: usize) -> bool {
    if dure_vcpu::is_running() {
        dure_vcpu::move_to(core)
    } else {
        real::pin_to(core)
    }
}

/// Moves the calling task to the first of these cores; returns whether that was possible.
pub(crate) fn pin_among(cores: &[usize]) -> bool {
    if dure_vcpu::is_running() {
        cores.first().is_some_and(|core| dure_vcpu::move_to(*core))
    } else {
        real::pin_among(cores)
    }
}

/// Its panic ends the run.
pub(crate) fn vital_thread_died() {}

/// Nodes of the virtual machine.
pub(crate) fn numa_nodes() -> Vec<(u32, Vec<usize>)> {
    let (Some(count), Some(each)) = (dure_vcpu::core_count(), dure_vcpu::cores_of_node()) else {
        return real::numa_nodes();
    };
    let nodes = (0..count).step_by(each);
    let nodes = nodes.map(|first| (first..count.min(first + each)).collect());
    (0..).zip(nodes).collect()
}

/// The calling task waits from now on; false if it does already.
pub(crate) fn wait_begins(what: crate::waiting::Awaited) -> bool {
    use crate::waiting::Awaited;
    dure_vcpu::wait_begin(match what {
        Awaited::Lock(rank) => dure_vcpu::Waiting::Lock(rank),
        Awaited::Condition(rank) => dure_vcpu::Waiting::Condition(rank),
        Awaited::Device => dure_vcpu::Waiting::Device,
    })
}

/// What it waited for has come.
pub(crate) fn wait_ends() {
    dure_vcpu::wait_end();
}

/// The number of the core this task runs on.
#[inline]
pub(crate) fn current_core_index() -> usize {
    dure_vcpu::current_core().unwrap_or_else(real::current_core_index)
}

/// The number of virtual cores.
pub(crate) fn core_count() -> usize {
    dure_vcpu::core_count().unwrap_or_else(real::core_count)
}

/// Nanoseconds of the virtual clock.
pub(crate) fn monotonic_ns() -> u64 {
    dure_vcpu::now_ns().unwrap_or_else(real::monotonic_ns)
}

/// Virtual time of the task.
pub(crate) fn thread_cpu_ns() -> u64 {
    dure_vcpu::now_ns().unwrap_or_else(real::thread_cpu_ns)
}

fn timestamp(ns: u64) -> Timestamp {
    Timestamp {
        secs: DAY_ONE_SECS + i64::try_from(ns / 1_000_000_000).expect("292 years at most"),
        nanos: u32::try_from(ns % 1_000_000_000).expect("nanoseconds of a second fit"),
    }
}

/// The time of day.
pub(crate) fn wall() -> Timestamp {
    dure_vcpu::now_ns().map_or_else(real::wall, timestamp)
}

/// The time of day as of the last timer tick.
pub(crate) fn wall_coarse() -> Timestamp {
    dure_vcpu::now_ns().map_or_else(real::wall_coarse, |ns| timestamp(ns - ns % TICK_NS))
}

/// Fills `bytes` from the seed.
pub(crate) fn random_fill(bytes: &mut [u8]) {
    if !dure_vcpu::is_running() {
        return real::random_fill(bytes);
    }
    for chunk in bytes.chunks_mut(8) {
        let number = dure_vcpu::random()
            .expect("the caller runs inside a machine")
            .to_le_bytes();
        chunk.copy_from_slice(&number[..chunk.len()]);
    }
}

/// A static of which every task has its own value; declared by `task_local!`.
pub struct TaskLocal<T: 'static> {
    make: fn() -> T,
    /// The value of code outside machines.
    outside: std::thread::LocalKey<T>,
}

impl<T: 'static> TaskLocal<T> {
    /// For `task_local!` only.
    #[doc(hidden)]
    pub const fn new(make: fn() -> T, outside: std::thread::LocalKey<T>) -> Self {
        Self { make, outside }
    }

    /// Uses the value of the current task.
    pub fn with<R>(&'static self, act: impl FnOnce(&T) -> R) -> R {
        if dure_vcpu::is_running() {
            let key = std::ptr::from_ref(self).addr();
            dure_vcpu::with_local(key, self.make, act).expect("the caller runs inside a machine")
        } else {
            // A reference with the lifetime of the static that holds this value.
            self.outside.with(act)
        }
    }
}

impl<T> std::fmt::Debug for TaskLocal<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TaskLocal").finish_non_exhaustive()
    }
}
