//! Runs a program on a machine.
//!
//! **Problem.** All tasks share one thread of the real machine, and each needs a stack.
//! **Structure.** The runner resumes the stack of whichever task the world names, until the world
//! says the run is over. Stacks are kept for later tasks and later runs. **Invariants.** The
//! world's pointer is installed only while a task runs. After a failed run the stacks of
//! unfinished tasks are abandoned, not unwound: their destructors would run without a machine.
//! **Crash.** Nothing is kept.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use corosensei::stack::{DefaultStack, Stack};
use corosensei::{Coroutine, CoroutineResult};

use crate::config::Config;
use crate::current::{self, panic_message, with_world};
use crate::report::{Failure, Report};
use crate::task::TaskYielder;
use crate::unwinding;
use crate::world::{Next, World};

/// Stacks kept per thread, at most.
const STACKS_KEPT_MAX: usize = 256;

thread_local! {
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

type TaskStack = Coroutine<(), (), (), DefaultStack>;

/// A finished run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run<T> {
    /// What the first task returned.
    pub value: T,
    /// The figures.
    pub report: Report,
}

/// Runs `program` as the first task of a machine, until all tasks have ended.
///
/// # Panics
/// If the run fails; the message begins with the seed.
pub fn run<T: 'static>(config: Config, program: impl FnOnce() -> T + 'static) -> Run<T> {
    try_run(config, program).unwrap_or_else(|failure| panic!("{failure}"))
}

/// Like [`run`], with a failure as a value.
///
/// # Errors
/// If a task panicked, all tasks wait for each other, or the run takes too many steps.
///
/// # Panics
/// If called from a task: machines do not nest.
pub fn try_run<T: 'static>(
    config: Config,
    program: impl FnOnce() -> T + 'static,
) -> Result<Run<T>, Box<Failure>> {
    assert!(!current::is_running(), "machines do not nest");
    unwinding::note_panics();
    let value = Rc::new(Cell::new(None));
    let result = Rc::clone(&value);
    let stack_bytes = config.stack_bytes;
    let mut world = Box::new(World::new(config));
    world.spawn(
        "main".to_owned(),
        Some(0),
        Box::new(move || result.set(Some(program()))),
    );
    world.choose_next();
    let mut runner = Runner {
        world: Box::into_raw(world),
        stacks: Vec::new(),
        stack_bytes,
    };
    let outcome = runner.drive();
    // SAFETY: the pointer came from `Box::into_raw`, and no task will run any more.
    let mut world = unsafe { Box::from_raw(runner.world) };
    match outcome {
        Ok(()) => {
            let value = value.take().expect("the first task has ended");
            Ok(Run {
                value,
                report: world.report(),
            })
        }
        Err(failure) => {
            runner.abandon();
            // Task-local values and bodies belong to abandoned tasks.
            std::mem::forget(std::mem::take(&mut world.tasks));
            std::mem::forget(std::mem::take(&mut world.bodies));
            Err(failure)
        }
    }
}

struct Runner {
    world: *mut World,
    stacks: Vec<Option<TaskStack>>,
    stack_bytes: usize,
}

impl Runner {
    /// Resumes tasks until the run is over.
    fn drive(&mut self) -> Result<(), Box<Failure>> {
        loop {
            // SAFETY: no task runs here, so this is the only reference to the world.
            let world = unsafe { &mut *self.world };
            let task = match std::mem::replace(&mut world.next, Next::Finished) {
                Next::Run(task) => task,
                Next::Finished => return Ok(()),
                Next::Failed(kind) => {
                    return Err(Box::new(world.failure(unwinding::reason(kind))));
                }
            };
            if self.stacks.len() <= task {
                self.stacks.resize_with(task + 1, || None);
            }
            if let Some(body) = world.bodies[task].take() {
                self.stacks[task] = Some(new_stack(self.stack_bytes, body));
            }
            let stack = self.stacks[task]
                .as_mut()
                .expect("an unfinished task has a stack");
            current::install(self.world);
            let result = stack.resume(());
            current::install(std::ptr::null_mut());
            if let CoroutineResult::Return(()) = result {
                let stack = self.stacks[task]
                    .take()
                    .expect("it was just resumed")
                    .into_stack();
                self.keep(stack);
            }
        }
    }

    fn keep(&mut self, stack: DefaultStack) {
        let end = stack.base().get();
        let start = stack.limit().get();
        // SAFETY: no task runs here, so this is the only reference to the world.
        let world = unsafe { &mut *self.world };
        world.lines.forget(start, end - start);
        STACKS.with_borrow_mut(|kept| {
            if kept.len() < STACKS_KEPT_MAX {
                kept.push(stack);
            }
        });
    }

    /// Leaves unfinished tasks as they are.
    fn abandon(&mut self) {
        for stack in self.stacks.iter_mut().flatten() {
            if stack.started() && !stack.done() {
                // SAFETY: nothing on that stack is used again: only unfinished tasks could hold
                // references into it, and none of them runs, or is dropped, any more.
                unsafe { stack.force_reset() };
            }
        }
    }
}

fn new_stack(bytes: usize, body: Box<dyn FnOnce()>) -> TaskStack {
    let kept = STACKS.with_borrow_mut(|kept| {
        let fits = |stack: &DefaultStack| stack.base().get() - stack.limit().get() >= bytes;
        let place = kept.iter().rposition(fits)?;
        Some(kept.swap_remove(place))
    });
    let stack = kept.unwrap_or_else(|| {
        DefaultStack::new(bytes)
            .unwrap_or_else(|error| panic!("no memory for a stack of {bytes} bytes: {error}"))
    });
    Coroutine::with_stack(stack, move |yielder: &TaskYielder, ()| {
        run_task(yielder, body)
    })
}

/// The life of a task, on its own stack.
fn run_task(yielder: &TaskYielder, body: Box<dyn FnOnce()>) {
    with_world(|world| world.tasks[world.running].yielder = yielder);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        body();
        drop_locals();
    }));
    with_world(|world| match outcome {
        Ok(()) => world.finish(),
        Err(panic) => world.fail_panic(panic_message(&*panic)),
    });
}

/// Drops the task's own values while it can still run; dropping one may make others.
fn drop_locals() {
    for _round in 0..8 {
        let locals = with_world(|world| std::mem::take(&mut world.tasks[world.running].locals));
        if locals.is_none_or(|locals| locals.is_empty()) {
            return;
        }
    }
}
