//! A point: three runs, of which the last one counts.
//!
//! **Structure.** The first run, on one core without computing, counts what an operation does that
//! is visible: its operations on memory, and what they cost. What its instructions take in addition
//! is spread over these operations (the *pace*), so that it lies within and outside critical
//! sections as they do. The second run tells how long an operation of one core takes, so how long a
//! window has to be, and what it spends its time on. The third one has all cores.

use std::cell::RefCell;
use std::rc::Rc;

use dure_sync::sim::{Config, Schedule, try_run};

use super::causes::{bottleneck, causes};
use super::instructions::of_work;
use super::stage::{Done, Window, play};
use super::{Plan, Point};

/// A run with more operations on memory counts as hanging.
const STEPS_MAX: u64 = 2_000_000_000;
/// Of the first run.
const COUNTED: Window = Window {
    warm_ns: 50_000,
    run_ns: 100_000,
    fill: 400,
};
/// Operations of a core in the window, if no other one worked.
const OPERATIONS: u64 = 300;
/// Operations that each core must have done on average: of fewer, those at both ends of the window
/// that are in it by a part count too much.
const ENOUGH: u64 = 50;
/// What a window is longer than one in which they did less.
const LONGER: u64 = 5;
/// No window is longer, in time of all cores together, than so much and `LONGER` times as much.
const LONGEST_CORES_NS: u64 = 20_000_000_000;
/// The shortest and the longest window of the first try with all cores, in ns.
const RUN_NS: (u64, u64) = (1_000_000, 20_000_000);

fn run(plan: &Plan, cores: usize, window: Window, pace_ps: u64) -> Result<(Done, u64), String> {
    let all = cores + usize::from(plan.work.has_background());
    let config = Config {
        cores: all,
        seed: plan.seed,
        schedule: Schedule::MinClock { ahead_ns: 100 },
        stack_bytes: 512 * 1024,
        steps_max: STEPS_MAX,
        model: plan.machine.costs.clone(),
    };
    let own = plan.clone();
    let failed = Rc::new(RefCell::new(None));
    let failing = Rc::clone(&failed);
    let body = move || match play(&own, cores, window, pace_ps) {
        Ok(done) => Some(done),
        Err(error) => {
            *failing.borrow_mut() = Some(format!("{error:#}"));
            None
        }
    };
    let finished = try_run(config, body).map_err(|failure| failure.to_string())?;
    let error = failed.borrow_mut().take();
    let done = finished
        .value
        .ok_or_else(|| error.expect("an error was left"))?;
    Ok((done, finished.report.schedule_hash))
}

/// Runs in this window or a longer one, until each core has done enough.
fn run_enough(
    plan: &Plan,
    cores: usize,
    mut window: Window,
    pace_ps: u64,
) -> Result<(Done, u64), String> {
    let cores_u64 = u64::try_from(cores).expect("a thousand at most");
    loop {
        let (done, hash) = run(plan, cores, window, pace_ps)?;
        if done.works >= ENOUGH * cores_u64 {
            return Ok((done, hash));
        }
        if window.run_ns > LONGEST_CORES_NS / cores_u64 {
            let (works, ms) = (done.works, window.run_ns / 1_000_000);
            return Err(format!(
                "{works} operations of {cores} cores in {ms} ms: too few"
            ));
        }
        // Where cores wait for each other or for a slow drive, each does less.
        window.warm_ns *= LONGER;
        window.run_ns *= LONGER;
    }
}

/// What each operation on memory takes more, so that a work takes as long as its instructions.
fn pace_ps(plan: &Plan) -> Result<u64, String> {
    let work = of_work(&plan.work).expect("the plan was checked");
    let (counted, _) = run_enough(plan, 1, COUNTED, 0)?;
    let account = &counted.counts;
    if account.steps == 0 {
        return Err("an operation uses no memory that cores could share".to_owned());
    }
    let wanted_ps = counted.works * work.ps(&plan.machine);
    let seen_ps = (account.compute_ns + account.lines_ns) * 1_000;
    Ok(wanted_ps.saturating_sub(seen_ps) / account.steps)
}

/// Simulates a point.
///
/// # Errors
/// What cannot be simulated; a call that failed; a run that does not end, with what each task waits
/// for.
pub fn point(plan: &Plan) -> Result<Point, String> {
    plan.check()?;
    let plain = Plan {
        planted: None,
        ..plan.clone()
    };
    let pace_ps = pace_ps(&plain)?;
    let longer = Window {
        run_ns: 4 * COUNTED.run_ns,
        ..COUNTED
    };
    let (single, _) = run_enough(&plain, 1, longer, pace_ps)?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a positive time of seconds at most"
    )]
    let single_ns = ns_per_work(&single, 1) as u64;
    let run_ns = (single_ns * OPERATIONS).clamp(RUN_NS.0, RUN_NS.1);
    let window = Window {
        warm_ns: run_ns,
        run_ns,
        fill: OPERATIONS * 2,
    };
    let (done, hash) = run_enough(plan, plan.cores, window, pace_ps)?;
    let before = causes(&single);
    let causes = causes(&done);
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let (works, cores, transfers) = (
        done.works as f64,
        plan.cores as f64,
        done.counts.transfers as f64,
    );
    Ok(Point {
        ops_per_second: works / done.mean_ns * 1e9,
        ns_per_op: done.mean_ns * cores / works,
        lines_per_op: transfers / works,
        bottleneck: bottleneck(&causes, &before),
        causes,
        operations: done.works,
        pace_ps,
        hash,
    })
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn ns_per_work(done: &Done, cores: usize) -> f64 {
    done.mean_ns * cores as f64 / done.works as f64
}
