//! The shape of what `dure sim scale` says, and that it finds what is planted.
//!
//! Runs with the sim backend only: `cargo xtask sim -p dure-sim -- sim_room`.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use dure_sim::room::{Kind, Plan, Planted, Point, Workload, machine, point};
use dure_sync::atomic::{AtomicU64, Ordering};
use dure_sync::{Condvar, Mutex};
use dure_vcpu::{Access, copy};

fn plan(workload: Workload, policy: &str, cores: usize) -> Plan {
    Plan {
        machine: machine("4x20-6138").unwrap(),
        work: Kind::Calls(workload).work(policy).unwrap(),
        cores,
        seed: 1,
        planted: None,
    }
}

fn simulate(workload: Workload, policy: &str, cores: usize) -> Point {
    point(&plan(workload, policy, cores)).unwrap_or_else(|what| panic!("{workload:?}: {what}"))
}

/// Rate of the first by that of the second.
fn ratio(first: &Point, second: &Point) -> f64 {
    first.ops_per_second / second.ops_per_second
}

#[test]
fn sim_room_a_journal_for_each_core_is_many_times_as_fast_as_one() {
    let own = simulate(Workload::Dwol, "journal=per-core,data=journal", 40);
    let one = simulate(Workload::Dwol, "journal=jbd2,data=journal", 40);
    assert_eq!(own.lines_per_op, 0.0, "{own:?}");
    let times = ratio(&own, &one);
    assert!((20.0..1_000.0).contains(&times), "{times}");
    assert!(
        one.bottleneck.starts_with("lock JOINED"),
        "{}",
        one.bottleneck
    );
}

#[test]
fn sim_room_private_calls_scale_and_move_no_line() {
    for workload in [
        Workload::Drbl,
        Workload::Drbm,
        Workload::Dwol,
        Workload::Mrpl,
    ] {
        let alone = simulate(workload, "", 1);
        let many = simulate(workload, "", 40);
        assert!(many.lines_per_op < 0.05, "{workload:?}: {many:?}");
        let times = ratio(&many, &alone);
        assert!(
            (30.0..44.0).contains(&times),
            "{workload:?}: {times} times one core"
        );
    }
}

/// They fell behind from 40 cores on: when the name of a directory that all walk through left the
/// dentry cache, all slept for its bucket; and new inodes went into the shard of a shared directory.
#[test]
fn sim_room_changes_of_names_scale_to_80_cores() {
    for (workload, least) in [(Workload::Mwcl, 60.0), (Workload::Mwcm, 45.0)] {
        let times = ratio(&simulate(workload, "", 80), &simulate(workload, "", 1));
        assert!(times > least, "{workload:?}: {times} times one core");
    }
}

#[test]
fn sim_room_ranges_of_a_file_are_faster_than_its_lock() {
    let ranges = simulate(Workload::Dwom, "", 20);
    let whole = simulate(Workload::Dwom, "range_lock=rwsem", 20);
    let times = ratio(&ranges, &whole);
    assert!((3.0..300.0).contains(&times), "{times}");
    assert!(
        !whole.bottleneck.starts_with("none"),
        "{}",
        whole.bottleneck
    );
}

/// They fell behind from 30 cores on: a task that does not get its range soon takes the whole file,
/// which kept others from letting go of theirs.
#[test]
fn sim_room_parts_of_a_file_are_written_and_read_on_80_cores() {
    let rates = [20, 80].map(|cores| simulate(Workload::Dwom75, "", cores));
    let times = ratio(&rates[1], &rates[0]);
    assert!(times > 2.0, "{times}: {}", rates[1].bottleneck);
}

#[test]
fn sim_room_one_core_takes_as_long_as_its_instructions() {
    let done = simulate(Workload::Mwcl, "", 1);
    let plan = plan(Workload::Mwcl, "", 1);
    let instructions = 11_152.0;
    #[expect(clippy::cast_precision_loss, reason = "hundreds")]
    let wanted = instructions * plan.machine.instruction_new_ps as f64 / 1_000.0;
    let of_wanted = done.ns_per_op / wanted;
    assert!(
        (0.9..1.2).contains(&of_wanted),
        "{} ns, not {wanted}",
        done.ns_per_op
    );
}

#[test]
fn sim_room_a_point_gives_the_same_twice() {
    let twice = [(); 2].map(|()| simulate(Workload::Mwcl, "", 4));
    assert_eq!(twice[0], twice[1]);
}

/// Its first run had no whole operation in it, so the pace was 0, and a rate by it overflowed.
#[test]
fn sim_room_a_slow_drive_takes_no_instructions() {
    let with_flush = |flush_ns| {
        let mut plan = plan(Workload::Dwsl, "", 1);
        plan.machine.device.as_mut().unwrap().flush_ns = flush_ns;
        point(&plan).unwrap()
    };
    let (fast, slow) = (with_flush(16_000), with_flush(40_000_000));
    // Of 50 operations, those at both ends of a window count by a part.
    assert!(
        fast.pace_ps.abs_diff(slow.pace_ps) * 10 < fast.pace_ps,
        "{fast:?} {slow:?}"
    );
    assert!((24.0..26.0).contains(&slow.ops_per_second), "{slow:?}");
}

/// What the canaries write.
static SHARED: AtomicU64 = AtomicU64::new(0);
static PAGE: Mutex<3, u64> = Mutex::new(0);
static BYTES: [u8; 4096] = [0; 4096];
static NEVER: (Mutex<3, ()>, Condvar) = (Mutex::new(()), Condvar::new());

fn count_together() {
    // Relaxed: a count.
    SHARED.fetch_add(1, Ordering::Relaxed);
}

fn copy_under_a_lock() {
    let mut copies = PAGE.lock();
    copy(Access::Store, BYTES.as_ptr().addr(), BYTES.len());
    *copies += 1;
}

fn wait_for_ever() {
    drop(NEVER.1.wait(NEVER.0.lock()));
}

fn planted(act: fn()) -> Result<Point, String> {
    let mut plan = plan(Workload::Dwol, "", 20);
    plan.planted = Some(Planted { act });
    point(&plan)
}

#[test]
fn sim_room_canary_a_shared_counter_is_found_by_name() {
    let found = planted(count_together).unwrap();
    assert!(found.bottleneck.contains("count_together"), "{found:?}");
    assert!(found.lines_per_op > 0.5, "{found:?}");
}

#[test]
fn sim_room_canary_a_lock_over_a_copy_is_found_by_name() {
    let found = planted(copy_under_a_lock).unwrap();
    assert_eq!(found.bottleneck, "lock rank 3", "{found:?}");
}

#[test]
fn sim_room_a_run_that_does_not_end_says_who_waits_for_what() {
    let what = planted(wait_for_ever).unwrap_err();
    assert!(what.contains("deadlock"), "{what}");
    let waits = "which waits for a condition under a lock of rank 3";
    assert!(what.matches(waits).count() >= 20, "{what}");
    assert!(what.contains("on core 19"), "{what}");
}
