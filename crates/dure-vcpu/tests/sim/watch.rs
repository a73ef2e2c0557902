//! Watching which lines tasks share.

use std::time::Duration;

use dure_vcpu::{
    Access, Config, Detail, SharedLine, Sighting, Symbols, access, access_to, charge, forget, join,
    note, run, spawn, touch, watch_begin, watch_end, watch_task,
};

/// Two watched tasks, one on each of two cores, each with its own piece of code.
fn watched(
    detail: Detail,
    left: impl FnOnce() + 'static,
    right: impl FnOnce() + 'static,
) -> Vec<SharedLine> {
    let body = move || {
        watch_begin(detail);
        let watch = |body: Box<dyn FnOnce()>| {
            move || {
                watch_task(true);
                body();
                watch_task(false);
            }
        };
        let tasks = [
            spawn("left", Some(0), watch(Box::new(left))),
            spawn("right", Some(1), watch(Box::new(right))),
        ];
        tasks.into_iter().for_each(join);
        watch_end()
    };
    run(Config::min_clock(2), body).value
}

/// The address of words that live as long as the program.
fn words() -> usize {
    Box::leak(Box::new([0_u64; 32])).as_ptr().addr()
}

#[test]
fn sim_watch_finds_the_lines_that_are_written_and_shared() {
    let words = words();
    let found = watched(
        Detail::Lines,
        move || {
            access(Access::Load, words);
            access_to(Access::Update, words + 72, "count");
            access(Access::Store, words + 128);
        },
        move || {
            access(Access::Load, words + 8);
            touch(Access::Load, words + 64, 8, "neighbour");
            access(Access::Store, words + 192);
        },
    );
    // Line 0 is only read, lines 2 and 3 are of one core each.
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0].address, words + 64);
    let seen = |sighting: &Sighting| (sighting.core, sighting.address - words, sighting.what);
    let mut seen: Vec<_> = found[0].sightings.iter().map(seen).collect();
    seen.sort();
    assert_eq!(seen, [(0, 72, "count"), (1, 64, "neighbour")]);
}

#[test]
fn sim_watch_sees_only_tasks_that_are_watched_and_what_is_only_noted() {
    let words = words();
    let found = watched(
        Detail::Lines,
        move || {
            note(Access::Store, words, 128, "statistics");
            watch_task(false);
            access(Access::Store, words + 128);
        },
        move || {
            access(Access::Load, words + 64);
            access(Access::Store, words + 128);
        },
    );
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0].address, words + 64);
}

#[test]
fn sim_watch_does_not_connect_the_users_of_freed_memory() {
    let words = words();
    let found = watched(
        Detail::Lines,
        move || {
            access(Access::Store, words);
            access(Access::Store, words + 64);
            forget(words, 64);
        },
        move || {
            charge(Duration::from_millis(1));
            access(Access::Store, words);
            access(Access::Store, words + 64);
            forget(words, 128);
        },
    );
    let lines: Vec<usize> = found.iter().map(|line| line.address).collect();
    assert_eq!(lines, [words + 64]);
}

#[inline(never)]
fn who_writes(address: usize) {
    access(Access::Store, address);
}

#[test]
fn sim_watch_knows_which_code_used_a_line() {
    let words = words();
    let (left, right) = (move || who_writes(words), move || who_writes(words + 8));
    let found = watched(Detail::Stacks, left, right);
    let mut symbols = Symbols::default();
    for sighting in &found[0].sightings {
        let frames = symbols.frames(&sighting.stack);
        let found = frames
            .iter()
            .find(|frame| frame.function.ends_with("who_writes"));
        let frame = found.expect("the function is on the stack");
        assert!(
            frame.file.ends_with("watch.rs") && frame.line > 0,
            "{frame:?}"
        );
    }
}

#[test]
fn sim_watching_changes_no_schedule() {
    let program = |watching: bool| {
        move || {
            if watching {
                watch_begin(Detail::Stacks);
            }
            let words = words();
            let body = move || {
                watch_task(true);
                (0..100).for_each(|_| access(Access::Update, words));
            };
            let tasks = [spawn("a", Some(0), body), spawn("b", Some(1), body)];
            tasks.into_iter().for_each(join);
            watch_end().len()
        }
    };
    let (without, with) = (
        run(Config::random(2, 5), program(false)),
        run(Config::random(2, 5), program(true)),
    );
    assert_eq!((without.value, with.value), (0, 1));
    assert_eq!(without.report.schedule_hash, with.report.schedule_hash);
}
