use dure_block::Lba;

use super::scan::{LoggedTransaction, Scan, ScannedRing};
use crate::format::{LoggedRecords, TailPosition};
use crate::ids::{JournalId, Mark};
use crate::journal::RingStart;
use crate::rules::Rules;

fn id(journal: u16) -> JournalId {
    JournalId::new(journal).unwrap()
}

fn mark(journal: u16, number: u64) -> Mark {
    Mark::new(id(journal), number)
}

/// Journals whose logs begin at handle `tail`, with transactions of the given lengths and marks.
fn scan(tail: u64, logs: &[Vec<(u64, Vec<Mark>)>]) -> Scan {
    let mut rings = Vec::new();
    let mut transactions = Vec::new();
    for (journal, log) in logs.iter().enumerate() {
        let journal = JournalId::from_index(journal);
        let mut first = tail;
        for (sequence, (handles, marks)) in log.iter().enumerate() {
            transactions.push(LoggedTransaction {
                journal,
                sequence: u64::try_from(sequence).unwrap() + 1,
                first,
                last: first + handles - 1,
                marks: marks.clone(),
                durable_upto: tail - 1,
                records: LoggedRecords::default(),
            });
            first += handles;
        }
        let start = RingStart {
            header: Lba::new(0),
            generation: 1,
            segments: Vec::new(),
        };
        rings.push(ScannedRing {
            start,
            header_epoch: 1,
            tail: TailPosition {
                segment: 0,
                offset: 0,
                sequence: 1,
                number: tail,
            },
            durable_upto: tail - 1,
            checkpoint: 0,
            next_number: first,
            next_sequence: crate::units::to_u64(log.len()) + 1,
            end: Lba::new(0),
            blocks: 0,
        });
    }
    let discarded = vec![false; transactions.len()];
    Scan {
        rings,
        transactions,
        beyond: Vec::new(),
        discarded,
        tolerant: false,
        rules: Rules::default(),
    }
}

#[test]
fn a_cycle_is_valid_and_falls_as_one() {
    let cycle = vec![vec![(2, vec![mark(1, 11)])], vec![(3, vec![mark(0, 10)])]];
    let mut found = scan(10, &cycle);
    assert_eq!(found.survivors(), [true, true]);
    found.discard(1);
    assert_eq!(found.survivors(), [false, false]);
}

#[test]
fn a_mark_below_the_tail_is_satisfied_and_one_beyond_the_end_is_not() {
    let logs = vec![
        vec![(1, vec![mark(1, 9)]), (1, vec![mark(1, 12)]), (1, vec![])],
        vec![(2, vec![])],
    ];
    // Journal 1 holds 10 and 11: handle 12 is not there. What follows in journal 0 stands by
    // itself.
    assert_eq!(scan(10, &logs).survivors(), [true, false, true, true]);
}

#[test]
fn a_mark_into_a_journal_that_does_not_exist_is_not_satisfied() {
    let logs = vec![vec![(1, vec![mark(7, 1)]), (1, vec![Mark::from_u64(0)])]];
    assert_eq!(scan(10, &logs).survivors(), [false, false]);
}

#[test]
fn a_mark_into_a_transaction_counts_for_the_whole_of_it() {
    let logs = vec![
        vec![(1, vec![mark(1, 11)])],
        vec![(5, vec![mark(2, 10)])],
        vec![],
    ];
    assert_eq!(scan(10, &logs).survivors(), [false, false]);
}

#[test]
fn max_number_looks_at_marks_too() {
    assert_eq!(
        scan(10, &[vec![(3, vec![mark(1, 900)])], vec![]]).max_number(),
        900
    );
    assert_eq!(scan(10, &[vec![(3, vec![])], vec![]]).max_number(), 12);
}

/// Against the definition: of all closed subsets, the union.
#[test]
fn survivors_are_the_greatest_closed_subset() {
    let mut random = 12345_u64;
    let mut below = move |bound: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 20) % bound
    };
    for _ in 0..400 {
        let mut logs = Vec::new();
        for _ in 0..3 {
            let log: Vec<(u64, Vec<Mark>)> = (0..1 + below(3))
                .map(|_| {
                    let marks = (0..below(3))
                        .map(|_| mark(u16::try_from(below(3)).unwrap(), 9 + below(8)))
                        .collect();
                    (1 + below(3), marks)
                })
                .collect();
            logs.push(log);
        }
        let mut found = scan(10, &logs);
        if below(2) == 0 {
            found.discard(usize::try_from(below(3)).unwrap());
        }
        assert_eq!(found.survivors(), by_definition(&found));
    }
}

fn by_definition(found: &Scan) -> Vec<bool> {
    let all = found.transactions();
    let satisfied = |mark: &Mark, set: u32| {
        mark.number() < 10
            || all.iter().enumerate().any(|(index, transaction)| {
                set >> index & 1 == 1
                    && transaction.journal == mark.journal()
                    && (transaction.first..=transaction.last).contains(&mark.number())
            })
    };
    let mut union = 0;
    for set in 0..1_u32 << all.len() {
        let closed = all
            .iter()
            .enumerate()
            .filter(|(index, _)| set >> index & 1 == 1)
            .all(|(index, transaction)| {
                !found.discarded[index] && transaction.marks.iter().all(|mark| satisfied(mark, set))
            });
        if closed {
            union |= set;
        }
    }
    (0..all.len())
        .map(|index| union >> index & 1 == 1)
        .collect()
}
