use std::collections::BTreeSet;

use dure_sync::Arc;

use super::*;
use crate::fault::{Fault, FaultDevice, Rule, When};
use crate::ram::RamDevice;
use crate::record::{LostFlushes, RecordDevice};
use crate::{Bio, BlockBuf, Op, OsError, Queue, QueueConfig, WriteFlags, share};

struct Run {
    queue: Arc<Queue>,
    log: Arc<RecordLog>,
}

impl Run {
    fn new(lost: LostFlushes) -> Self {
        let record = RecordDevice::with_lost_flushes(share(RamDevice::new("ram0", 64)), lost);
        let log = record.log();
        Self {
            queue: Queue::new(share(record), QueueConfig::default()),
            log,
        }
    }

    fn write(&self, lba: u64, byte: u8, blocks: usize) {
        let data = vec![byte; blocks * BLOCK_BYTES];
        self.queue
            .write(Lba::new(lba), &data, WriteFlags::NONE)
            .unwrap();
    }

    fn images(&self) -> CrashImages {
        CrashImages::new(Image::zeroed(64), &self.log)
    }
}

/// The first byte of blocks 0 to 3 in every state that the last step may leave.
fn states(images: &CrashImages, step: u64, selection: Selection) -> BTreeSet<[u8; 4]> {
    let point = images.at(step);
    let state = |choice: &Choice| {
        let image = point.image(choice).snapshot();
        [0, 1, 2, 3].map(|lba| image.get(Lba::new(lba)).map_or(0, |block| block.bytes()[0]))
    };
    point
        .choices(selection)
        .map(|choice| state(&choice))
        .collect()
}

fn last_states(run: &Run) -> BTreeSet<[u8; 4]> {
    let images = run.images();
    states(&images, images.last_step(), Selection::default())
}

#[test]
fn unflushed_writes_leave_every_subset() {
    let run = Run::new(LostFlushes::None);
    run.write(0, 1, 1);
    run.queue.flush().unwrap();
    run.write(1, 2, 1);
    run.write(0, 3, 1);
    let expected = [[1, 0, 0, 0], [1, 2, 0, 0], [3, 0, 0, 0], [3, 2, 0, 0]];
    assert_eq!(last_states(&run), BTreeSet::from(expected));
}

#[test]
fn a_step_in_the_past_shows_the_past() {
    let run = Run::new(LostFlushes::None);
    run.write(0, 1, 1);
    let before_flush = run.log.step();
    run.queue.flush().unwrap();
    let after_flush = run.log.step();
    run.write(1, 2, 1);
    let images = run.images();
    let all = Selection::default();
    assert_eq!(states(&images, 0, all), BTreeSet::from([[0; 4]]));
    let either = BTreeSet::from([[0; 4], [1, 0, 0, 0]]);
    assert_eq!(states(&images, before_flush, all), either);
    // The flush has been submitted but has not completed.
    assert_eq!(states(&images, after_flush - 1, all), either);
    assert_eq!(
        states(&images, after_flush, all),
        BTreeSet::from([[1, 0, 0, 0]])
    );
    assert_eq!(images.frontiers(), [after_flush - 1, images.last_step()]);
}

#[test]
fn canary_a_lost_flush_is_noticed() {
    let run = Run::new(LostFlushes::Nth(2));
    run.write(0, 1, 1);
    run.queue.flush().unwrap();
    run.write(1, 2, 1);
    run.queue.flush().unwrap();
    assert_eq!(
        last_states(&run),
        BTreeSet::from([[1, 0, 0, 0], [1, 2, 0, 0]])
    );
    run.queue.flush().unwrap();
    assert_eq!(last_states(&run), BTreeSet::from([[1, 2, 0, 0]]));
}

#[test]
fn fua_is_durable_at_once_and_hides_older_open_writes() {
    let run = Run::new(LostFlushes::None);
    run.write(0, 1, 2);
    run.queue
        .write(Lba::new(0), &[5; BLOCK_BYTES], WriteFlags::FUA)
        .unwrap();
    assert_eq!(
        last_states(&run),
        BTreeSet::from([[5, 0, 0, 0], [5, 1, 0, 0]])
    );
}

#[test]
fn a_write_that_nobody_waited_for_is_not_covered_by_a_flush() {
    let run = Run::new(LostFlushes::None);
    let bio = |byte| Bio::write(Lba::new(byte), BlockBuf::from_slice(&[7; BLOCK_BYTES]));
    let (early, late) = (
        run.queue.submit(bio(0)).unwrap(),
        run.queue.submit(bio(1)).unwrap(),
    );
    run.queue.wait(early).result.unwrap();
    run.queue.flush().unwrap();
    run.queue.wait(late).result.unwrap();
    assert_eq!(
        last_states(&run),
        BTreeSet::from([[7, 0, 0, 0], [7, 7, 0, 0]])
    );
    run.queue.flush().unwrap();
    assert_eq!(last_states(&run), BTreeSet::from([[7, 7, 0, 0]]));
}

#[test]
fn a_failed_write_stays_open_and_a_failed_flush_covers_nothing() {
    let fault = FaultDevice::new(share(RamDevice::new("ram0", 64)));
    fault.add(Rule::new(When::Nth(1), Fault::Error(OsError::EIO)).on(Op::Write));
    fault.add(Rule::new(When::Nth(2), Fault::Error(OsError::EIO)).on(Op::Flush));
    let record = RecordDevice::new(share(fault));
    let log = record.log();
    let run = Run {
        queue: Queue::new(share(record), QueueConfig::default()),
        log,
    };
    run.queue
        .write(Lba::new(0), &[1; BLOCK_BYTES], WriteFlags::NONE)
        .unwrap_err();
    run.queue.flush().unwrap();
    assert_eq!(last_states(&run), BTreeSet::from([[0; 4], [1, 0, 0, 0]]));
    run.write(0, 2, 1);
    run.queue.flush().unwrap_err();
    let any = BTreeSet::from([[0; 4], [1, 0, 0, 0], [2, 0, 0, 0]]);
    assert_eq!(last_states(&run), any);
    run.queue.flush().unwrap();
    assert_eq!(last_states(&run), BTreeSet::from([[2, 0, 0, 0]]));
}

#[test]
fn discards_are_open_until_flushed() {
    let run = Run::new(LostFlushes::None);
    run.write(0, 1, 2);
    run.queue.flush().unwrap();
    run.queue.discard(Lba::new(1), 1).unwrap();
    assert_eq!(
        last_states(&run),
        BTreeSet::from([[1, 1, 0, 0], [1, 0, 0, 0]])
    );
}

fn count(writes: usize, selection: Selection) -> (usize, usize) {
    let choices = Choices::new(vec![Extent::Blocks(1); writes], selection);
    let count = choices.len();
    let distinct: BTreeSet<_> = choices.map(|choice| choice.to_string()).collect();
    (count, distinct.len())
}

#[test]
fn choices_are_counted() {
    let no_random = Selection {
        random: 0,
        ..Selection::default()
    };
    assert_eq!(count(0, no_random), (1, 1));
    assert_eq!(count(3, no_random), (8, 8));
    assert_eq!(count(12, no_random), (4096, 4096));
    // none, all, 13 with one missing, 13 with a single one, prefixes of 2 to 11.
    assert_eq!(count(13, no_random), (38, 38));
    assert_eq!(count(1000, no_random), (2 + 2000 + 997, 2 + 2000 + 997));
    let (count, distinct) = count(
        40,
        Selection {
            random: 100,
            ..no_random
        },
    );
    assert_eq!((count, distinct), (2 + 80 + 37 + 100, 2 + 80 + 37 + 100));
    // A few writes can be exhausted only below this limit.
    let few = Selection {
        exhaustive_max: 2,
        ..no_random
    };
    assert_eq!(
        [2, 3, 4].map(|writes| self::count(writes, few).1),
        [4, 8, 11]
    );
}

#[test]
fn choices_depend_on_the_seed_alone() {
    let list = |seed| {
        let selection = Selection {
            seed,
            tear: Tear::Sectors,
            ..Selection::default()
        };
        let choices = Choices::new(vec![Extent::Blocks(4); 20], selection);
        choices.map(|choice| choice.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(list(1), list(1));
    assert_ne!(list(1), list(2));
}

#[test]
fn torn_writes_are_exhausted_when_small() {
    let run = Run::new(LostFlushes::None);
    run.write(0, 1, 3);
    let images = run.images();
    let selection = Selection {
        tear: Tear::Blocks,
        ..Selection::default()
    };
    let torn = states(&images, images.last_step(), selection);
    assert_eq!(torn.len(), 8);
    let whole = states(&images, images.last_step(), Selection::default());
    assert_eq!(whole, BTreeSet::from([[0; 4], [1, 1, 1, 0]]));
}

#[test]
fn torn_writes_are_sampled_when_large() {
    let run = Run::new(LostFlushes::None);
    run.write(0, 1, 2);
    run.write(2, 2, 2);
    let images = run.images();
    let point = images.at(images.last_step());
    let selection = Selection {
        random: 5,
        tear: Tear::Sectors,
        ..Selection::default()
    };
    let choices = point.choices(selection);
    assert!(!choices.is_exhaustive());
    // Subsets of 2 writes, random subsets, 6 tears of each among kept and lost, random tears.
    assert_eq!(choices.len(), 4 + 5 + 2 * 6 * 2 + 5);
    let (mut torn_blocks, mut torn_sectors) = (0, 0);
    for choice in choices {
        let image = point.image(&choice).snapshot();
        for lba in 0..4 {
            let Some(block) = image.get(Lba::new(lba)) else {
                continue;
            };
            let sectors: BTreeSet<_> = block.bytes().chunks(512).map(<[u8]>::to_vec).collect();
            assert!(
                sectors
                    .iter()
                    .all(|sector| sector.iter().all(|byte| *byte == sector[0]))
            );
            torn_sectors += usize::from(sectors.len() > 1);
        }
        torn_blocks += usize::from(image.get(Lba::new(0)) != image.get(Lba::new(1)));
    }
    assert!(torn_blocks > 0 && torn_sectors > 0);
}

#[test]
fn a_choice_prints_what_happened() {
    let torn = Fate::Torn {
        unit_bytes: 512,
        kept: vec![true, false],
    };
    let choice = Choice::new(vec![Fate::Lost, torn, Fate::Kept]);
    assert_eq!(choice.to_string(), "-[+-]+");
}
