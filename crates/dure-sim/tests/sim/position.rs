//! The position that two descriptors share: a read moves it from where it was to behind what it
//! returned, and a seek comes before or after a read, not into its middle.
//!
//! Runs with the sim backend only: `cargo xtask sim -p dure-sim -- sim_position`.

#![expect(clippy::unwrap_used, reason = "a panic is how a run fails")]

use dure::{Seek, Volume};
use dure_sim::schedules::{Trial, play_each};
use dure_sync::{CoreId, thread};

/// One core reads three bytes, another seeks. What the read returned says where it began; a seek to
/// where the position is, or was before the read, changes nothing, or what the read left.
fn read_beside_a_seek(trial: Trial) {
    let volume = Volume::in_memory(32 << 20).unwrap();
    let session = volume.root();
    let made = session.create("/file").unwrap();
    made.write_all_at(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], 0)
        .unwrap();
    let file = session.open("/file").unwrap();
    let to = trial.seed % 3 * 2;
    file.seek_to(Seek::Set(2)).unwrap();
    let other = file.try_clone();
    let mut bytes = [0; 3];
    thread::scope(|scope| {
        let core = |n| CoreId::new(n);
        scope.spawn_on(core(0), || {
            assert_eq!(file.read_next(&mut bytes).unwrap(), 3)
        });
        scope.spawn_on(core(1), || {
            assert_eq!(other.seek_to(Seek::Set(to)).unwrap(), to)
        });
    });
    let begin = u64::from(bytes[0]);
    let end = file.seek_to(Seek::Current(0)).unwrap();
    let seek_first = begin == to && end == to + 3;
    let read_first = begin == 2 && end == to;
    assert!(
        seek_first || read_first,
        "seek to {to}: read from {begin}, then at {end}"
    );
}

#[test]
fn sim_position_a_seek_comes_before_or_after_a_read() {
    play_each(60, 2, read_beside_a_seek);
}
