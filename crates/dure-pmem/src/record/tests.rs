use std::collections::BTreeSet;

use super::*;
use crate::Region;

fn states(recorder: &Recorder, events: usize) -> BTreeSet<Vec<u8>> {
    let crash = recorder.crash_after(events);
    crash.states(&Selection::default()).collect()
}

/// The first bytes of the words that the states may have in a line.
fn firsts(states: &BTreeSet<Vec<u8>>, words: &[usize]) -> BTreeSet<Vec<u8>> {
    let of = |state: &Vec<u8>| words.iter().map(|word| state[word * 8]).collect();
    states.iter().map(of).collect()
}

#[test]
fn stores_through_the_cache_reach_a_line_in_their_order() {
    let (region, recorder) = Region::recording(&[0; 256]).unwrap();
    let first = region.store(0, &[1; 8]).unwrap();
    let second = region.store(8, &[2; 8]).unwrap();
    let found = firsts(&states(&recorder, 2), &[0, 1]);
    assert_eq!(found, [vec![0, 0], vec![1, 0], vec![1, 2]].into());
    // The second one's write-back takes the line, and so the first, along.
    drop(first);
    second.write_back().fence();
    let found = firsts(&states(&recorder, recorder.events()), &[0, 1]);
    assert_eq!(found, [vec![1, 2]].into());
}

#[test]
fn stores_past_the_cache_reach_it_in_any_order() {
    let (region, recorder) = Region::recording(&[0; 256]).unwrap();
    let words = region.copy(0, &[3; 16]).unwrap();
    let found = firsts(&states(&recorder, 1), &[0, 1]);
    assert_eq!(found.len(), 4, "{found:?}");
    words.fence();
    assert_eq!(states(&recorder, recorder.events()).len(), 1);
}

#[test]
fn lines_reach_the_medium_in_any_order() {
    let (region, recorder) = Region::recording(&[0; 256]).unwrap();
    let _ = region.store(0, &[1; 8]).unwrap();
    let _ = region.store(64, &[2; 8]).unwrap();
    let found = firsts(&states(&recorder, 2), &[0, 8]);
    assert_eq!(found.len(), 4, "{found:?}");
}

#[test]
fn a_write_back_without_a_fence_promises_nothing() {
    let (region, recorder) = Region::recording(&[0; 256]).unwrap();
    let flushed = region.store(0, &[1; 8]).unwrap().write_back();
    assert_eq!(states(&recorder, recorder.events()).len(), 2);
    flushed.fence();
    assert_eq!(states(&recorder, recorder.events()).len(), 1);
}

#[test]
fn a_fence_speaks_for_its_own_thread() {
    let (region, recorder) = Region::recording(&[0; 256]).unwrap();
    let flushed = region.copy(0, &[1; 8]).unwrap();
    dure_sync::thread::scope(|scope| {
        scope.spawn(|| region.copy(64, &[2; 8]).unwrap().fence());
    });
    let found = firsts(&states(&recorder, recorder.events()), &[0, 8]);
    assert_eq!(found, [vec![0, 2], vec![1, 2]].into());
    flushed.fence();
    assert_eq!(states(&recorder, recorder.events()).len(), 1);
}

#[test]
fn words_are_whole_and_odd_ends_are_cut_at_them() {
    let (region, recorder) = Region::recording(&[0; 256]).unwrap();
    let _ = region.copy(5, &[9; 17]).unwrap();
    for state in states(&recorder, recorder.events()) {
        for (word, bytes) in [(0, 5..8), (1, 8..16), (2, 16..22)] {
            let kept = state[bytes.clone()].iter().filter(|byte| **byte == 9);
            let kept = kept.count();
            assert!(kept == 0 || kept == bytes.len(), "word {word} is torn");
        }
        assert!(state[..5].iter().chain(&state[22..]).all(|byte| *byte == 0));
    }
}

#[test]
fn canary_lost_fences_leave_everything_open() {
    let (region, recorder) = Region::recording(&[0; 256]).unwrap();
    region.copy(0, &[1; 8]).unwrap().fence();
    let crash = recorder.crash_with(recorder.events(), LostFences::All);
    assert_eq!(crash.states(&Selection::default()).count(), 2);
}

#[test]
fn many_open_stores_are_drawn_from_within_the_rules() {
    let (region, recorder) = Region::recording(&[0; 4096]).unwrap();
    for number in 0..64_u8 {
        let _ = region
            .store(u64::from(number) * 64, &[number + 1; 32])
            .unwrap();
    }
    let selection = Selection {
        random: 100,
        ..Selection::default()
    };
    let crash = recorder.crash_after(recorder.events());
    let states: BTreeSet<_> = crash.states(&selection).collect();
    assert!(states.len() > 50, "{} states", states.len());
    for state in states {
        for line in state.chunks(64) {
            let kept: Vec<_> = line[..32].chunks(8).map(|word| word[0] != 0).collect();
            assert!(kept.is_sorted_by(|a, b| a >= b), "not the first: {kept:?}");
        }
    }
}
