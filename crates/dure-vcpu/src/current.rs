//! What a task can do: the calls that end up in the running machine.
//!
//! **Problem.** Code under simulation reaches its machine from anywhere, without a handle, and
//! also runs where there is no machine. **Structure.** A thread-local pointer to the world of the
//! run in progress. Each call takes it, does its work without switching, puts it back, and only
//! then gives way if it has to. **Invariants.** At most one `&mut World` exists: while a call has
//! taken the pointer, nested calls (an allocator freeing memory) see no machine. Nothing switches
//! while a panic unwinds, since the panic count belongs to the thread: a task that has to wait then
//! ends the run with that panic ([`unwinding`]). **Crash.** Nothing is kept.

use std::any::Any;
use std::cell::Cell;
use std::ops::Range;
use std::time::Duration;

use crate::account::{Account, Cause, Waiting};
use crate::lines::Access;
use crate::task::{TaskId, TaskYielder, Wake};
use crate::unwinding;
use crate::watch::{Detail, SharedLine, Watch};
use crate::world::World;

thread_local! {
    static WORLD: Cell<*mut World> = const { Cell::new(std::ptr::null_mut()) };
}

/// Puts the pointer back when a call is over, also if it panicked.
struct PutBack(*mut World);

impl Drop for PutBack {
    fn drop(&mut self) {
        WORLD.set(self.0);
    }
}

/// Installs the world of a run (null: none) and returns the one before.
pub(crate) fn install(world: *mut World) -> *mut World {
    WORLD.replace(world)
}

/// Runs `act` on the world, if this code runs in one.
#[inline]
pub(crate) fn with_world<R>(act: impl FnOnce(&mut World) -> R) -> Option<R> {
    let world = WORLD.replace(std::ptr::null_mut());
    if world.is_null() {
        return None;
    }
    let _put_back = PutBack(world);
    // SAFETY: the runner keeps the world alive while the pointer is installed, and taking the
    // pointer out makes this the only reference.
    Some(act(unsafe { &mut *world }))
}

/// What to do after a call into the world.
enum Then<R> {
    GoOn(R),
    GiveWay(*const TaskYielder),
}

fn yielder_of_running(world: &World) -> *const TaskYielder {
    world.tasks[world.running].yielder
}

/// Leaves the task's stack until the runner comes back to it.
fn give_way(yielder: *const TaskYielder) {
    assert!(!yielder.is_null(), "a running task has stored its yielder");
    // SAFETY: the yielder lives at the bottom of the stack of the task that runs this code.
    let yielder = unsafe { &*yielder };
    yielder.suspend(());
}

/// Whether this code may switch: no panic unwinds. Where one was given up, the thread does not tell any
/// more.
#[inline]
fn may_switch() -> bool {
    !std::thread::panicking() || unwinding::was_given_up()
}

/// Does `act` as a visible operation: tasks that are due run first.
#[inline]
fn visible<R>(slack: impl Fn(&World) -> u64, act: impl FnOnce(&mut World) -> R) -> Option<R> {
    let mut act = Some(act);
    let first = with_world(|world| {
        let slack_ns = slack(world);
        let yielder = yielder_of_running(world);
        if may_switch() && world.point(slack_ns) {
            return Then::GiveWay(yielder);
        }
        Then::GoOn(act.take().expect("the first attempt takes the act")(world))
    })?;
    match first {
        Then::GoOn(result) => Some(result),
        Then::GiveWay(yielder) => {
            give_way(yielder);
            with_world(act.take().expect("giving way left the act"))
        }
    }
}

/// Does `act`, which returns whether the task must give way.
fn leaving(act: impl FnOnce(&mut World) -> bool) {
    let way_out = with_world(|world| {
        let yielder = yielder_of_running(world);
        act(world).then_some(yielder)
    });
    if let Some(Some(yielder)) = way_out {
        give_way(yielder);
    }
}

/// Whether this code runs in a machine.
#[inline]
#[must_use]
pub fn is_running() -> bool {
    !WORLD.get().is_null()
}

/// A visible operation on the word at `address`, before the real one is done.
#[inline]
pub fn access(access: Access, address: usize) {
    access_to(access, address, "");
}

/// Like [`access`], on a word that is part of a `what`, a name for reports.
#[inline]
pub fn access_to(access: Access, address: usize, what: &'static str) {
    with_world(World::pace);
    visible(
        |world| world.slack(access, address),
        |world| {
            world.note(access, address, what);
            world.access(access, address);
        },
    );
}

/// A visible copy of `bytes` bytes from or to `address` on, before it is done.
pub fn copy(access: Access, address: usize, bytes: usize) {
    with_world(World::pace);
    visible(
        |world| world.slack(access, address),
        |world| {
            world.note(access, address, "");
            let bytes = u64::try_from(bytes).expect("64 bits");
            world.copy(access, address, bytes);
        },
    );
}

/// The persistent memory at these addresses is on the modules of a socket, for all cores. What is not
/// placed is on those of whichever core copies.
pub fn place_persistent(addresses: Range<usize>, socket: usize) {
    with_world(|world| world.place_persistent(addresses, socket));
}

/// A copy of `bytes` bytes from or to persistent memory at `address`, before it is done. Visible if
/// it costs anything, since the modules of a socket serve cores in the order in which they ask.
pub fn copy_persistent(access: Access, address: usize, bytes: usize) {
    if with_world(|world| world.config.model.persistent.is_none()) != Some(false) {
        return;
    }
    visible(
        |_| 0,
        |world| {
            let bytes = u64::try_from(bytes).expect("64 bits");
            world.copy_persistent(access, address, bytes);
        },
    );
}

/// From now on each visible operation on memory takes so many picoseconds more: the work between
/// two of them, which touches nothing shared. Turns of loops that spin do not.
pub fn set_pace(picoseconds: u64) {
    with_world(|world| world.pace_ps = picoseconds);
}

/// From now on, or no longer, what the calling task does counts in the account.
pub fn measure(on: bool) {
    with_world(|world| {
        let task = world.running;
        world.tasks[task].is_measured = on;
    });
}

/// What measured tasks do counts from one time to another only.
pub fn measure_within(start_ns: u64, stop_ns: u64) {
    with_world(|world| world.window = (start_ns, stop_ns));
}

/// What was counted so far.
#[must_use]
pub fn measured() -> Option<Account> {
    with_world(|world| world.account.clone())
}

/// The calling task waits for `what` from now on, unless it waits for something already; whether it
/// does.
pub fn wait_begin(what: Waiting) -> bool {
    with_world(|world| {
        let task = world.running;
        let waiting = &mut world.tasks[task].waiting;
        let begins = waiting.is_none();
        waiting.get_or_insert(what);
        begins
    })
    .unwrap_or(false)
}

/// What the task said it waits for has come.
pub fn wait_end() {
    with_world(|world| {
        let task = world.running;
        world.tasks[task].waiting = None;
    });
}

/// The first address of `bytes` from `address` on in each line.
fn words(address: usize, bytes: usize) -> impl Iterator<Item = usize> {
    let lines = (address >> 6)..(address + bytes.max(1)).div_ceil(64);
    lines.map(move |line| (line << 6).max(address))
}

/// Counts the use of plain data, part of a `what`: costs and cache lines, but no switch.
pub fn touch(access: Access, address: usize, bytes: usize, what: &'static str) {
    with_world(|world| {
        for word in words(address, bytes) {
            world.note(access, word, what);
            world.access(access, word);
        }
    });
}

/// Tells a watch of the use of plain data; costs nothing and counts nowhere else.
pub fn note(access: Access, address: usize, bytes: usize, what: &'static str) {
    with_world(|world| {
        if world.watch.is_some() {
            words(address, bytes).for_each(|word| world.note(access, word, what));
        }
    });
}

/// From now on the machine notes what watched tasks use. No task is watched yet.
pub fn watch_begin(detail: Detail) {
    with_world(|world| world.watch = Some(Watch::new(detail)));
}

/// From now on, or no longer, the calling task is watched.
pub fn watch_task(on: bool) {
    with_world(|world| {
        let task = world.running;
        if let Some(watch) = &mut world.watch {
            watch.include(task, on);
        }
    });
}

/// Ends the watch: the lines that more than one core used, and one of them wrote.
#[must_use]
pub fn watch_end() -> Vec<SharedLine> {
    let watch = with_world(|world| world.watch.take()).flatten();
    watch.map_or_else(Vec::new, Watch::finish)
}

/// Work of the processor that touches nothing shared.
pub fn charge(duration: Duration) {
    with_world(|world| world.charge(nanos(duration)));
}

/// Whether tasks run in the order of their clocks, with costs that differ a little at most.
#[must_use]
pub fn is_measurement() -> bool {
    with_world(|world| world.config.schedule.is_measurement()).unwrap_or(false)
}

/// One turn of a spin loop.
pub fn spin_hint() {
    if !is_running() {
        std::hint::spin_loop();
        return;
    }
    let spin_ns = |world: &mut World| {
        world.charge(world.config.model.spin_hint_ns);
        let core = world.core();
        world.cores[core].spun = true;
    };
    visible(|_| 0, spin_ns);
    // A spinner waits for another task. Where schedules follow clocks, its own advancing clock lets
    // that task run; where they ignore clocks, it has to give way.
    leaving(|world| world.config.schedule.ignores_clocks() && may_switch() && world.yield_now());
}

/// Lets other tasks of this core run first.
pub fn yield_now() {
    visible(
        |_| 0,
        |world| world.spend(Cause::Kernel, world.config.model.system_call_ns),
    );
    leaving(|world| may_switch() && world.yield_now());
}

/// The clock of the current core.
#[must_use]
pub fn now_ns() -> Option<u64> {
    // Reading the clock is a visible operation: tasks with earlier clocks run first.
    visible(|_| 0, |world| world.now())
}

/// Sleeps for `duration`.
pub fn sleep(duration: Duration) {
    visible(
        |_| 0,
        |world| world.spend(Cause::Kernel, world.config.model.system_call_ns),
    );
    end_if_unwinding();
    leaving(|world| {
        let deadline = world.now().saturating_add(nanos(duration));
        world.block(crate::task::Blocked::Sleep, Some(deadline));
        true
    });
}

/// Sleeps on `address` if `still` holds once the call has begun. Only wakers with a common bit in
/// `mask` wake it.
pub fn futex_wait(
    address: usize,
    mask: u32,
    timeout: Option<Duration>,
    still: impl FnOnce() -> bool,
) -> Wake {
    visible(
        |world| world.slack(Access::Load, address),
        |world| {
            world.note(Access::Load, address, "");
            world.access(Access::Load, address);
            world.spend(Cause::Kernel, world.config.model.system_call_ns);
        },
    );
    // No switch between this check and the sleep: they are one step.
    if !still() {
        return Wake::Changed;
    }
    end_if_unwinding();
    leaving(|world| world.futex_wait(address, mask, timeout.map(nanos)));
    with_world(|world| world.tasks[world.running].wake).expect("the machine is still there")
}

/// Wakes up to `count` sleepers of `address` with a common bit in `mask`; returns how many.
pub fn futex_wake(address: usize, count: u32, mask: u32) -> u32 {
    let wake = |world: &mut World| {
        world.spend(Cause::Kernel, world.config.model.system_call_ns);
        world.futex_wake(address, count, mask)
    };
    visible(|_| 0, wake).unwrap_or(0)
}

/// Starts a task on `core` (modulo the number of cores; none: the next in turn).
///
/// # Panics
/// If this code does not run in a machine.
pub fn spawn(name: &str, core: Option<usize>, body: impl FnOnce() + 'static) -> TaskId {
    let body = Box::new(body);
    visible(
        |_| 0,
        |world| TaskId(world.spawn(name.to_owned(), core, body)),
    )
    .expect("tasks are started by tasks")
}

/// Waits until a task has ended.
pub fn join(task: TaskId) {
    visible(
        |_| 0,
        |world| world.spend(Cause::Kernel, world.config.model.system_call_ns),
    );
    end_if_unwinding();
    leaving(|world| world.join(task.0));
}

/// Whether a task has ended.
#[must_use]
pub fn is_finished(task: TaskId) -> bool {
    visible(
        |_| 0,
        |world| world.tasks[task.0].state == crate::task::State::Done,
    )
    .expect("the caller has a task of this machine")
}

/// The current core.
#[must_use]
pub fn current_core() -> Option<usize> {
    with_world(|world| world.core())
}

/// The number of virtual cores.
#[must_use]
pub fn core_count() -> Option<usize> {
    with_world(|world| world.config.cores)
}

/// The number of cores of a NUMA node, which are numbered node by node.
#[must_use]
pub fn cores_of_node() -> Option<usize> {
    with_world(|world| match world.config.model.is_numa {
        true => world.config.model.cores_per_socket,
        false => world.config.cores,
    })
}

/// The current task.
#[must_use]
pub fn current_task() -> Option<TaskId> {
    with_world(|world| TaskId(world.running))
}

/// Moves the current task to another core; false if the machine lacks it.
pub fn move_to(core: usize) -> bool {
    let exists = core_count().is_some_and(|cores| core < cores);
    if exists && may_switch() {
        leaving(|world| world.move_to(core));
    }
    exists
}

/// A random number that follows from the seed.
#[must_use]
pub fn random() -> Option<u64> {
    visible(|_| 0, |world| world.rng.next_u64())
}

/// Cache lines moved between cores so far in this run.
#[must_use]
pub fn transfers() -> Option<u64> {
    with_world(|world| world.lines.transfers())
}

/// Bytes allocated less bytes freed in this run, in whole cache lines.
#[must_use]
pub fn heap_bytes() -> Option<i64> {
    with_world(|world| world.heap_bytes)
}

/// Names a range of memory for reports.
pub fn label(address: usize, bytes: usize, name: &str) {
    with_world(|world| {
        world
            .labels
            .push((address, address + bytes, name.to_owned()))
    });
}

/// Ends the run as if the task had not caught this panic. Returns only outside machines.
pub fn fail_run(panic: &(dyn Any + Send)) {
    leaving(|world| {
        world.fail_panic(panic_message(panic));
        true
    });
}

/// The text of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else {
        "a value that is not text".to_owned()
    }
}

/// Memory was freed: clears the state of its cache lines, so that its next user finds them in no
/// core's cache.
pub fn forget(address: usize, bytes: usize) {
    with_world(|world| {
        world.heap_bytes -= i64::try_from(bytes).unwrap_or(i64::MAX);
        world.lines.forget(address, bytes);
        if let Some(watch) = &mut world.watch {
            watch.forget(address, bytes);
        }
    });
}

/// Memory was allocated: a watch of stacks notes where in the program.
pub fn allocated(address: usize, bytes: usize) {
    with_world(|world| {
        world.heap_bytes += i64::try_from(bytes).unwrap_or(i64::MAX);
        if let Some(watch) = &mut world.watch {
            watch.allocated(address, bytes);
        }
    });
}

/// Uses the value the current task has under `key`, made by `make` at first use. None outside any
/// machine, or while the value is being made.
///
/// # Panics
/// If the value under `key` is of another type.
pub fn with_local<T: 'static, R>(
    key: usize,
    make: impl FnOnce() -> T,
    act: impl FnOnce(&T) -> R,
) -> Option<R> {
    let find = |world: &mut World| {
        let locals = &world.tasks[world.running].locals;
        let found = locals.iter().find(|(of, _)| *of == key);
        found.map(|(_, value)| std::ptr::from_ref::<dyn Any>(&**value))
    };
    let value = if let Some(value) = with_world(find)? {
        value
    } else {
        let value: Box<dyn Any> = Box::new(make());
        let address = std::ptr::from_ref::<dyn Any>(&*value);
        with_world(|world| world.tasks[world.running].locals.push((key, value)))?;
        address
    };
    // SAFETY: values are boxed and dropped only when their task ends; the caller is that task.
    let value = unsafe { &*value };
    Some(act(value.downcast_ref::<T>().expect("a key has one type")))
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A task cannot wait while it unwinds: the others would run with its panic on the thread. The run
/// has failed anyway: it ends here, with that panic, and the stack is abandoned.
fn end_if_unwinding() {
    if may_switch() {
        return;
    }
    leaving(|world| {
        world.fail_panic(unwinding::give_up());
        true
    });
}
