//! Devices that fail: the journal stops at the first failure, says why to everybody, retries
//! nothing, and has lost nothing it promised.

use crate::support::buffers::{Buffers, Change, TestRules};
use crate::support::disk::format;
use crate::support::power::{Effort, cut_everywhere};
use crate::support::recover::{mount, mount_faulty};
use dure_block::fault::{Fault, Rule, When};
use dure_block::{Op, OsError};
use dure_journal::{BeginError, CommitError, StopCause, StopReason};
use dure_sync::{CoreId, thread};

fn change(core: u16, writes: u8) -> Change {
    Change {
        core,
        writes,
        reads: 0,
        note: 900,
    }
}

/// Changes, commits and checkpoints until something fails. Says what failed.
fn play(buffers: &Buffers) -> Result<(), String> {
    for round in 0..12_u8 {
        for core in 0..2 {
            let writes = 1 << ((round + u8::try_from(core).unwrap()) % 4);
            buffers
                .try_change(change(core, writes | 1))
                .map_err(|error| error.to_string())?;
        }
        buffers.commit(0b0001).map_err(|error| error.to_string())?;
        if round % 4 == 3 {
            let checkpoint = buffers.checkpoint_copy();
            buffers.checkpoint_finish(&checkpoint, 4)?;
        }
    }
    Ok(())
}

/// After a stop: the reason everywhere, and no further write or flush.
fn must_be_stopped(buffers: &Buffers) -> StopReason {
    let reason = buffers
        .journal
        .stopped()
        .expect("a failure stops the journal");
    let seen = buffers.faulty.seen();
    let begun = buffers.journal.begin(CoreId::new(0), 10).map(drop);
    assert_eq!(begun, Err(BeginError::Stopped(reason.clone())));
    let cut = buffers.journal.cut();
    let stopped = Err(CommitError::Stopped(reason.clone()));
    assert_eq!(buffers.journal.commit_all(), stopped);
    assert_eq!(buffers.journal.commit_cut(&cut), stopped);
    buffers.journal.checkpoint_done(&cut, 99).unwrap_err();
    let id = buffers.journal.journal_of(CoreId::new(1));
    buffers
        .journal
        .grow(id, crate::support::disk::segment_at(90))
        .unwrap_err();
    assert_eq!(
        buffers.faulty.seen(),
        seen,
        "a stopped journal writes nothing"
    );
    reason
}

#[test]
fn every_single_failed_write_or_flush_stops_or_belongs_to_the_file_system() {
    let healthy = mount(format(2, 3), TestRules::default());
    play(&healthy).unwrap();
    let seen = healthy.faulty.seen();
    let mut causes = Vec::new();
    for (op, count) in [(Op::Write, seen.writes), (Op::Flush, seen.flushes)] {
        for nth in 1..=count {
            for fault in [Fault::Error(OsError::EIO), Fault::Torn { seed: nth }] {
                if op == Op::Flush && fault != Fault::Error(OsError::EIO) {
                    continue;
                }
                let rule = Rule::new(When::Nth(nth), fault).on(op);
                let buffers = mount_faulty(format(2, 3), vec![rule]);
                // Writes of images and NAT are the test's own and panic there.
                let played =
                    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| play(&buffers)));
                let Ok(Err(told)) = played else { continue };
                if buffers.journal.stopped().is_some() {
                    let reason = must_be_stopped(&buffers);
                    assert!(
                        told.contains(&reason.detail),
                        "{told} does not say {reason}"
                    );
                    causes.push(reason.cause);
                }
                cut_everywhere(&buffers, Effort::default()).unwrap();
            }
        }
    }
    for cause in [
        StopCause::LogWrite,
        StopCause::Flush,
        StopCause::HeaderWrite,
    ] {
        assert!(
            causes.contains(&cause),
            "no failure of kind {cause:?} was met"
        );
    }
}

#[test]
fn all_waiters_learn_of_a_failed_write() {
    let logs = crate::support::disk::segment_at(0)..crate::support::disk::segment_at(64);
    let rule = Rule::new(When::From(3), Fault::Error(OsError::EIO))
        .on(Op::Write)
        .within(logs);
    let buffers = mount_faulty(format(2, 3), vec![rule]);
    let stopped: usize = thread::scope(|scope| {
        let worker = |core: u16| {
            let buffers = &buffers;
            scope.spawn(move || {
                (0..20).any(|_| {
                    let changed = buffers.try_change(change(core % 2, 1 << core));
                    matches!(changed, Err(BeginError::Stopped(_)))
                        || matches!(buffers.commit(1 << core), Err(CommitError::Stopped(_)))
                })
            })
        };
        let workers: Vec<_> = (0..4).map(worker).collect();
        workers
            .into_iter()
            .filter_map(|thread| thread.join().unwrap().then_some(()))
            .count()
    });
    assert_eq!(stopped, 4);
    assert_eq!(must_be_stopped(&buffers).cause, StopCause::LogWrite);
    cut_everywhere(&buffers, Effort::default()).unwrap();
}

#[test]
fn the_first_reason_is_kept() {
    let buffers = mount(format(2, 3), TestRules::default());
    let reason = |detail: &str| StopReason {
        cause: StopCause::FileSystem,
        journal: None,
        at: None,
        detail: detail.into(),
    };
    buffers.journal.stop(reason("first"));
    buffers.journal.stop(reason("second"));
    assert_eq!(must_be_stopped(&buffers).detail, "first");
    let text = buffers.journal.stopped().unwrap().to_string();
    assert!(text.contains("read-only"), "{text}");
}

/// Silent faults: a lost or torn log write is found by the scan, and ends that log.
#[test]
fn silent_corruption_of_a_log_never_yields_nonsense() {
    for nth in 1..30 {
        for fault in [Fault::Lost, Fault::TornSilently { seed: nth }] {
            let logs = crate::support::disk::segment_at(0)..crate::support::disk::segment_at(64);
            let rule = Rule::new(When::Nth(nth), fault).on(Op::Write).within(logs);
            let buffers = mount_faulty(format(2, 3), vec![rule]);
            play(&buffers).unwrap();
            let image = buffers.faulty_image();
            let queue = crate::support::medium::queue_on(image);
            // Promises are off: the device lied. But what is there must be whole and closed.
            buffers.truth.lock().promises.clear();
            if let Ok(recovered) = crate::support::recover::read(&queue, TestRules::default(), 1) {
                buffers.truth.lock().judge(u64::MAX, &recovered).unwrap();
            } else {
                panic!("a bad transaction is no error");
            }
        }
    }
}
