use std::time::Duration;

use dure_block::ram::RamDevice;
use dure_block::{Device, Lba, Media, Queue, QueueConfig, share};
use dure_sync::atomic::{AtomicBool, Ordering};
use dure_sync::{Arc, Condvar, CoreId, Mutex, thread};

use super::*;
use crate::error::CommitError;
use crate::ids::{GranuleId, Nid};
use crate::recovery::{LogLayout, scan, write_fresh_headers};

#[derive(Default)]
struct Collected(Mutex<10, Vec<u32>>);

impl Settle for Collected {
    type Effect = u32;

    fn settle(&self, effects: Effects<u32>) {
        self.0.lock().extend(effects);
    }
}

const SEGMENT_BLOCKS: u32 = 8;

fn config(journals: u64, segments: u64, order: Order) -> JournalConfig {
    let rings = (0..journals)
        .map(|journal| RingStart {
            header: Lba::new(4 * journal),
            generation: 1,
            segments: (0..segments)
                .map(|n| Lba::new(64 + (journal * 16 + n) * 8))
                .collect(),
        })
        .collect();
    JournalConfig {
        epoch: 4,
        first_number: 100,
        order,
        records: Records::Delta,
        seed: 3,
        segment_blocks: SEGMENT_BLOCKS,
        journals: rings,
        rules: Rules::default(),
    }
}

fn medium_on(device: impl Device + 'static) -> LogMedium {
    LogMedium::on(Media::behind(Queue::new(
        share(device),
        QueueConfig::default(),
    )))
}

fn start(config: JournalConfig) -> (Journal<Collected>, Arc<Collected>, LogMedium) {
    let medium = medium_on(RamDevice::new("ram", 4096));
    write_fresh_headers(
        &medium,
        config.seed,
        config.segment_blocks,
        &config.journals,
    )
    .unwrap();
    let settled = Arc::new(Collected::default());
    let journal = Journal::start(medium.clone(), Arc::clone(&settled), config).unwrap();
    (journal, settled, medium)
}

fn core(number: u16) -> CoreId {
    CoreId::new(number)
}

fn join(journal: &Journal<Collected>, on: u16, bytes: usize, marks: &[Mark], effect: u32) -> Mark {
    let mut handle = journal
        .begin(core(on), bytes + 24 + 8 * marks.len())
        .unwrap();
    let granule = GranuleId {
        nid: Nid(1),
        index: 0,
    };
    handle.delta(granule, 1, 0, &vec![5; bytes]);
    marks.iter().for_each(|mark| handle.mark(*mark));
    handle.effect(effect);
    handle.join()
}

fn layout(config: &JournalConfig) -> LogLayout {
    LogLayout {
        seed: config.seed,
        segment_blocks: config.segment_blocks,
        first_number: config.first_number,
        device_blocks: 4096,
        headers: config.journals.iter().map(|ring| ring.header).collect(),
        clean: false,
        rules: Rules::default(),
    }
}

#[test]
fn numbers_begin_where_the_epoch_says_and_rise_by_one() {
    let (journal, _, _) = start(config(2, 2, Order::PerCore));
    let marks: Vec<Mark> = [0, 0, 1, 2].map(|on| join(&journal, on, 10, &[], 0)).into();
    let numbers: Vec<(u16, u64)> = marks
        .iter()
        .map(|mark| (mark.journal().number(), mark.number()))
        .collect();
    // Core 2 shares the journal of core 0.
    assert_eq!(numbers, [(0, 100), (0, 101), (1, 100), (0, 102)]);
}

#[test]
fn the_single_journal_serves_all_cores() {
    let (journal, _, _) = start(config(3, 2, Order::Single));
    assert_eq!(join(&journal, 7, 10, &[], 0).journal().number(), 0);
    assert_eq!(join(&journal, 2, 10, &[], 0).number(), 101);
}

#[test]
fn a_dropped_handle_leaves_no_trace() {
    let config = config(1, 2, Order::PerCore);
    let (journal, settled, medium) = start(config.clone());
    let before = journal.dump();
    for _ in 0..1000 {
        let mut handle = journal.begin(core(0), 500).unwrap();
        handle.note(1, &[1; 300]);
        handle.effect(9);
    }
    assert_eq!(journal.dump(), before);
    journal.commit_all().unwrap();
    assert!(settled.0.lock().is_empty());
    assert!(
        scan(&medium, &layout(&config), 4, 1)
            .unwrap()
            .transactions()
            .is_empty()
    );
}

#[test]
fn effects_are_settled_in_join_order_when_valid_and_not_before() {
    let (journal, settled, _) = start(config(2, 2, Order::PerCore));
    let first = join(&journal, 0, 10, &[], 1);
    let second = join(&journal, 1, 10, &[first], 2);
    let third = join(&journal, 0, 10, &[second], 3);
    let fourth = join(&journal, 0, 10, &[], 4);
    assert!(settled.0.lock().is_empty());
    journal.commit(&[second]).unwrap();
    assert_eq!(*settled.0.lock(), [1, 2]);
    assert!(journal.is_valid(second) && !journal.is_valid(third));
    journal.commit(&[fourth]).unwrap();
    assert_eq!(*settled.0.lock(), [1, 2, 3, 4]);
    let flushes = journal.counters().flushes;
    journal.commit(&[first, fourth, Mark::NONE]).unwrap();
    assert_eq!(
        journal.counters().flushes,
        flushes,
        "what is valid needs nothing"
    );
}

#[test]
fn marks_that_say_nothing_are_not_written() {
    let config = config(2, 2, Order::PerCore);
    let (journal, _, medium) = start(config.clone());
    let valid = join(&journal, 1, 10, &[], 0);
    journal.commit(&[valid]).unwrap();
    let other = join(&journal, 1, 10, &[], 0);
    let own = join(&journal, 0, 10, &[valid, other, other], 0);
    let last = join(&journal, 0, 10, &[own, other], 0);
    journal.commit(&[last]).unwrap();
    let found = scan(&medium, &layout(&config), 4, 1).unwrap();
    let marks: Vec<_> = found
        .transactions()
        .iter()
        .map(|found| found.marks.clone())
        .collect();
    assert_eq!(marks, [vec![other], vec![], vec![]]);
    assert_eq!(
        found.transactions()[0].last,
        last.number(),
        "one transaction for both handles"
    );
}

#[test]
fn the_log_fills_up_and_a_checkpoint_makes_room_for_ever() {
    let config = config(1, 2, Order::PerCore);
    let (journal, _, medium) = start(config.clone());
    let mut checkpoints = 0;
    let mut last = Mark::NONE;
    for round in 0..2000_u64 {
        let bytes = usize::try_from(round * 37 % 1500).unwrap();
        while journal.begin(core(0), bytes + 24).is_err() {
            let cut = journal.cut();
            journal.commit_cut(&cut).unwrap();
            checkpoints += 1;
            journal.checkpoint_done(&cut, checkpoints).unwrap();
        }
        last = join(&journal, 0, bytes, &[], 0);
        if round % 3 == 0
            && let Err(error) = journal.commit(&[last])
        {
            assert_eq!(error, CommitError::LogFull(last.journal()));
        }
    }
    assert!(checkpoints > 50, "{checkpoints}");
    while journal.commit_all().is_err() {
        let cut = journal.cut();
        journal.commit_cut(&cut).unwrap();
        journal.checkpoint_done(&cut, checkpoints + 1).unwrap();
    }
    let found = scan(&medium, &layout(&config), 4, 1).unwrap();
    assert_eq!(found.rings()[0].next_number, last.number() + 1);
    assert!(found.rings()[0].tail.number > 100, "the tail has moved");
}

/// Only the checkpoint may use the slack: what has joined always fits.
#[test]
fn a_cut_always_fits_however_the_space_was_used() {
    for open in 0..8 {
        let (journal, _, _) = start(config(1, 2, Order::PerCore));
        let mut handles: Vec<_> = (0..open)
            .map(|_| journal.begin(core(0), 1200).unwrap())
            .collect();
        let mut checkpoint = 0;
        for round in 0..300_usize {
            if let Ok(handle) = journal.begin(core(0), 700) {
                let mark = handle.join();
                drop(journal.commit(&[mark]));
            }
            if round % 17 == 3
                && let Some(mut handle) = handles.pop()
            {
                handle.note(1, &vec![3; 1100]);
                handle.join();
            }
            if round % 5 == 0 {
                let cut = journal.cut();
                journal.commit_cut(&cut).unwrap();
                checkpoint += 1;
                journal.checkpoint_done(&cut, checkpoint).unwrap();
            }
        }
    }
}

#[test]
fn one_handle_is_told_that_the_log_is_half_full() {
    let (journal, _, _) = start(config(1, 4, Order::PerCore));
    let told = |times: u32| {
        let mut count = 0;
        let mut last = Mark::NONE;
        for _ in 0..times {
            let Ok(mut handle) = journal.begin(core(0), 1000) else {
                break;
            };
            count += u32::from(handle.found_log_half_full());
            handle.note(1, &[1; 900]);
            last = handle.join();
        }
        (count, last)
    };
    assert_eq!(told(1).0, 0, "it is nearly empty");
    let (count, last) = told(u32::MAX);
    assert_eq!(count, 1, "of all who filled it");
    journal.commit(&[last]).unwrap();
    let cut = journal.cut();
    journal.checkpoint_done(&cut, 1).unwrap();
    assert_eq!(told(1).0, 0, "a checkpoint has made room");
    assert_eq!(told(u32::MAX).0, 1, "and it was filled again");
}

#[test]
fn a_ring_grows_up_to_what_its_header_can_list() {
    let config = config(1, 2, Order::PerCore);
    let (journal, _, medium) = start(config.clone());
    let id = journal.journal_of(core(0));
    let before = journal.usage(id).capacity;
    for number in 0..478_u64 {
        journal.grow(id, Lba::new(200 + number * 8)).unwrap();
    }
    assert!(matches!(
        journal.grow(id, Lba::new(9999)),
        Err(Error::RingFull(_))
    ));
    assert_eq!(journal.usage(id).capacity, before + 478 * 8);
    let mark = join(&journal, 0, 10, &[], 0);
    journal.commit(&[mark]).unwrap();
    let mut layout = layout(&config);
    layout.device_blocks = 8192;
    let found = scan(&medium, &layout, 4, 1).unwrap();
    assert_eq!(found.rings()[0].start.segments.len(), 480);
    assert_eq!(found.transactions().len(), 1);
}

#[test]
fn configurations_that_cannot_work_are_refused() {
    let refuse = |change: fn(&mut JournalConfig)| {
        let mut config = config(1, 2, Order::PerCore);
        change(&mut config);
        let medium = medium_on(RamDevice::new("ram", 64));
        let error = Journal::start(medium, Arc::new(Collected::default()), config).unwrap_err();
        assert!(matches!(error, Error::Config { .. }), "{error}");
    };
    refuse(|config| config.journals.clear());
    refuse(|config| config.journals[0].segments.truncate(1));
    refuse(|config| config.segment_blocks = 7);
    refuse(|config| config.segment_blocks = 2049);
    refuse(|config| config.first_number = 0);
}

/// Each transaction keeps room for a mark of each other journal: with too many of them, a segment
/// would have none for a handle.
#[test]
fn journals_whose_marks_fill_a_segment_are_refused() {
    let try_start = |journals| {
        let mut config = config(journals, 2, Order::PerCore);
        let image_bytes_max = 100;
        config.records = Records::Image { image_bytes_max };
        let medium = medium_on(RamDevice::new("ram", 64));
        Journal::start(medium, Arc::new(Collected::default()), config)
    };
    let journal = try_start(241).unwrap();
    drop(journal.begin(core(0), journal.handle_bytes_max()).unwrap());
    let error = try_start(242).unwrap_err().to_string();
    assert!(
        error.contains("number of journals that log images"),
        "{error}"
    );
}

#[test]
#[should_panic(expected = "reserved")]
fn a_handle_cannot_take_more_than_it_reserved() {
    let (journal, _, _) = start(config(1, 2, Order::PerCore));
    let mut handle = journal.begin(core(0), 20).unwrap();
    handle.note(1, &[0; 16]);
}

#[test]
#[should_panic(expected = "names no joined handle")]
fn a_mark_must_name_a_handle_that_has_joined() {
    let (journal, _, _) = start(config(2, 2, Order::PerCore));
    let mark = join(
        &journal,
        0,
        10,
        &[Mark::new(JournalId::new(1).unwrap(), 100)],
        0,
    );
    drop(journal.commit(&[mark]));
}

#[test]
fn counters_and_dump_tell_what_happened() {
    let (journal, _, _) = start(config(2, 2, Order::PerCore));
    let first = join(&journal, 0, 10, &[], 0);
    let second = join(&journal, 1, 10, &[first], 0);
    journal.commit(&[second]).unwrap();
    let counters = journal.counters();
    assert_eq!(
        (counters.handles, counters.transactions, counters.flushes),
        (2, 2, 1)
    );
    assert_eq!(
        (counters.commits, counters.commit_journals, counters.marks),
        (1, 2, 1)
    );
    assert!(counters.to_string().contains("transactions 2"));
    assert!(
        journal
            .dump()
            .contains("journal 1: joined 100 written 100 durable 100 valid 100")
    );
    let id = journal.journal_of(core(0));
    assert_eq!(
        journal.usage(id),
        Usage {
            used: 1,
            capacity: 16,
            pending: 0
        }
    );
}

/// Settling waits for a word.
#[derive(Default)]
struct Slow {
    state: Mutex<10, (bool, bool)>,
    changed: Condvar,
    done: AtomicBool,
}

impl Settle for Slow {
    type Effect = u32;

    fn settle(&self, _effects: Effects<u32>) {
        let mut state = self.state.lock();
        state.0 = true;
        self.changed.notify_all();
        while !state.1 {
            state = self.changed.wait(state);
        }
        self.done.store(true, Ordering::SeqCst);
    }
}

/// A handle that another committer has made valid, and whose effects it is about to settle, belongs
/// to the cut of a checkpoint: the space map written next must know them.
#[test]
fn a_checkpoint_waits_for_effects_that_another_committer_settles() {
    let config = config(1, 2, Order::PerCore);
    let medium = medium_on(RamDevice::new("ram", 4096));
    write_fresh_headers(
        &medium,
        config.seed,
        config.segment_blocks,
        &config.journals,
    )
    .unwrap();
    let slow = Arc::new(Slow::default());
    let journal = Journal::start(medium, Arc::clone(&slow), config).unwrap();
    let mut handle = journal.begin(core(0), 100).unwrap();
    handle.note(1, &[1; 8]);
    handle.effect(7);
    let mark = handle.join();
    thread::scope(|scope| {
        let committer = scope.spawn(|| journal.commit(&[mark]));
        let mut state = slow.state.lock();
        while !state.0 {
            state = slow.changed.wait(state);
        }
        drop(state);
        let checkpoint = scope.spawn(|| {
            journal.commit_cut(&journal.cut()).unwrap();
            slow.done.load(Ordering::SeqCst)
        });
        thread::sleep(Duration::from_millis(50));
        slow.state.lock().1 = true;
        slow.changed.notify_all();
        committer.join().unwrap().unwrap();
        assert!(checkpoint.join().unwrap(), "the cut was not settled");
    });
}

/// docs/testing/races.md, published 5: the commit block held 504 marks, unchecked, and ended with
/// (0, 0).
#[test]
fn published_5_more_marks_than_a_block_holds() {
    let config = JournalConfig {
        journals: (0..600)
            .map(|journal| RingStart {
                header: Lba::new(4 * journal),
                generation: 1,
                segments: (0..2)
                    .map(|n| Lba::new(1300 + (2 * journal + n) * 8))
                    .collect(),
            })
            .collect(),
        ..config(1, 2, Order::PerCore)
    };
    let ram = RamDevice::new("ram", 1300 + 1200 * 8);
    let medium = medium_on(ram);
    write_fresh_headers(
        &medium,
        config.seed,
        config.segment_blocks,
        &config.journals,
    )
    .unwrap();
    let settled = Arc::new(Collected::default());
    let journal = Journal::start(medium.clone(), settled, config.clone()).unwrap();
    // Journal 0's own first handle too: nothing about journal 0 may look like an end.
    let marks: Vec<Mark> = (0..600).map(|on| join(&journal, on, 10, &[], 0)).collect();
    let more = marks.chunks(100).map(|part| join(&journal, 1, 10, part, 0));
    let last = more.last().unwrap();
    journal.commit(&[last]).unwrap();
    let layout = LogLayout {
        device_blocks: 1300 + 1200 * 8,
        ..layout(&config)
    };
    let mut found = scan(&medium, &layout, 4, 1).unwrap();
    let all = found.transactions();
    let at = all
        .iter()
        .position(|one| one.last == last.number() && one.journal == last.journal());
    let at = at.expect("it was committed");
    // Its own journal's handle is in the same transaction.
    assert_eq!(all[at].marks.len(), 599);
    assert!(found.survivors().iter().all(|survives| *survives));
    // The last of the marks counts as the first does.
    found.discard(all.len() - 1);
    assert!(!found.survivors()[at]);
}

/// docs/testing/races.md, published 7: the number of the processor was the index of the journal,
/// unchecked.
#[test]
fn published_7_more_cores_than_journals() {
    let (journal, _, _) = start(config(3, 2, Order::PerCore));
    let marks: Vec<Mark> = [0, 3, 127, 1023]
        .map(|on| join(&journal, on, 10, &[], 0))
        .into();
    let journals: Vec<u16> = marks.iter().map(|mark| mark.journal().number()).collect();
    assert_eq!(journals, [0, 0, 1, 0]);
    journal.commit(&marks).unwrap();
}

/// Committers that wait for the same log are served by one write of its holder.
#[test]
fn what_others_wait_for_is_written_along() {
    let (journal, settled, _) = start(config(1, 2, Order::PerCore));
    let marks: Vec<Mark> = (0..5).map(|n| join(&journal, 0, 10, &[], n)).collect();
    let log = &journal.logs[0];
    let held = log.writer.lock();
    thread::scope(|scope| {
        for mark in &marks {
            scope.spawn(|| journal.commit(&[*mark]).unwrap());
        }
        while log.reached.wanted() < marks[4].number() {
            thread::yield_now();
        }
        drop(held);
    });
    assert!(marks.iter().all(|mark| journal.is_valid(*mark)));
    assert_eq!(settled.0.lock()[..], [0, 1, 2, 3, 4]);
    // At most one committer had not said yet how far it needs the log.
    assert!(journal.counters().transactions <= 2);
}

/// A handle of another task that depends on another journal would make its closure ours.
#[test]
fn what_others_wait_for_is_left_when_it_depends_on_another_journal() {
    let (journal, _, _) = start(config(2, 2, Order::PerCore));
    let elsewhere = join(&journal, 1, 10, &[], 0);
    let first = join(&journal, 0, 10, &[], 1);
    let second = join(&journal, 0, 10, &[first], 2);
    let third = join(&journal, 0, 10, &[elsewhere], 3);
    journal.logs[0].reached.raise_wanted(third.number());
    journal.commit(&[first]).unwrap();
    assert_eq!(journal.logs[0].reached.written(), second.number());
    assert!(journal.is_valid(second), "it is in the same transaction");
    assert!(!journal.is_valid(third) && !journal.is_valid(elsewhere));
    journal.commit(&[third]).unwrap();
    assert!(journal.is_valid(third) && journal.is_valid(elsewhere));
}

#[test]
fn a_closed_gate_lets_open_handles_end_and_no_other_begin() {
    let (journal, _, _) = start(config(2, 3, Order::PerCore));
    let (first, second) = (CoreId::new(0), CoreId::new(1));
    let open = journal.begin(first, 100).expect("an open gate");
    let dropped = journal.begin(second, 100).expect("an open gate");
    let gate = journal.close_gate();
    for core in [first, second] {
        let refused = journal.begin(core, 0).err();
        assert!(matches!(refused, Some(BeginError::LogFull)), "{refused:?}");
    }
    assert!(!gate.is_quiet());
    open.join();
    assert!(!gate.is_quiet());
    drop(dropped);
    assert!(gate.is_quiet());
    // The checkpoint that is made meanwhile commits what has joined.
    journal.commit_cut(&journal.cut()).expect("a good device");
    drop(gate);
    journal.begin(first, 100).expect("an open gate").join();
    journal.commit_all().expect("a good device");
}
