use super::*;
use crate::ram::RamDevice;
use crate::{Bio, Queue, QueueConfig, share};

fn faulty(rules: impl IntoIterator<Item = Rule>) -> (Arc<FaultDevice>, Arc<Queue>) {
    let old = vec![1; 64 * BLOCK_BYTES];
    let device = FaultDevice::new(share(RamDevice::from_bytes("ram0", &old)));
    rules.into_iter().for_each(|rule| device.add(rule));
    let device = Arc::new(device);
    let queue = Queue::new(share(Arc::clone(&device)), QueueConfig::default());
    (device, queue)
}

fn write(queue: &Queue, lba: u64, blocks: usize) -> Result<()> {
    queue.write(
        Lba::new(lba),
        &vec![2; blocks * BLOCK_BYTES],
        WriteFlags::NONE,
    )
}

fn block(queue: &Queue, lba: u64) -> Vec<u8> {
    let mut out = vec![9; BLOCK_BYTES];
    queue.read(Lba::new(lba), &mut out).unwrap();
    out
}

#[test]
fn the_nth_write_fails_once() {
    let rule = Rule::new(When::Nth(2), Fault::Error(OsError::ENOSPC)).on(Op::Write);
    let (device, queue) = faulty([rule]);
    write(&queue, 0, 1).unwrap();
    queue.flush().unwrap();
    let error = write(&queue, 1, 1).unwrap_err();
    assert_eq!(
        error.to_string(),
        "ram0: write of 1 block at block 1 failed: No space left on device (os error 28)"
    );
    write(&queue, 2, 1).unwrap();
    assert_eq!(block(&queue, 1), [1; BLOCK_BYTES]);
    assert_eq!(block(&queue, 2), [2; BLOCK_BYTES]);
    let seen = device.seen();
    assert_eq!(
        (seen.writes, seen.flushes, seen.reads, seen.hits),
        (3, 1, 2, 1)
    );
    assert_eq!(seen.requests(), 6);
}

#[test]
fn any_request_counts_without_an_operation() {
    let (_, queue) = faulty([Rule::new(When::Nth(3), Fault::Error(OsError::EIO))]);
    write(&queue, 0, 1).unwrap();
    queue.flush().unwrap();
    queue.read(Lba::new(0), &mut [0; BLOCK_BYTES]).unwrap_err();
    queue.discard(Lba::new(0), 1).unwrap();
}

#[test]
fn a_persistent_failure_lasts_until_cleared() {
    let rule = Rule::new(When::From(2), Fault::Error(OsError::EIO)).on(Op::Flush);
    let (device, queue) = faulty([rule]);
    queue.flush().unwrap();
    queue.flush().unwrap_err();
    queue.flush().unwrap_err();
    device.clear();
    queue.flush().unwrap();
}

#[test]
fn addresses_select() {
    let range = Rule::new(When::From(1), Fault::Error(OsError::EIO))
        .within(Lba::new(10).range(2))
        .on(Op::Write);
    let odd =
        Rule::new(When::From(1), Fault::Error(OsError::EIO)).where_block(|lba| lba.number() == 21);
    let (_, queue) = faulty([range, odd]);
    write(&queue, 8, 2).unwrap();
    write(&queue, 9, 2).unwrap_err();
    write(&queue, 11, 2).unwrap_err();
    write(&queue, 12, 2).unwrap();
    write(&queue, 20, 2).unwrap_err();
    queue.read(Lba::new(10), &mut [0; BLOCK_BYTES]).unwrap();
}

#[test]
fn a_short_write_leaves_its_beginning() {
    let (_, queue) = faulty([Rule::new(When::Nth(1), Fault::Short { blocks: 1 })]);
    write(&queue, 4, 3).unwrap_err();
    assert_eq!(block(&queue, 4), [2; BLOCK_BYTES]);
    assert_eq!(block(&queue, 5), [1; BLOCK_BYTES]);
}

fn sectors_of(block: &[u8]) -> Vec<u8> {
    block
        .chunks(512)
        .map(|sector| {
            assert!(
                sector.iter().all(|byte| *byte == sector[0]),
                "sectors are not torn"
            );
            sector[0]
        })
        .collect()
}

#[test]
fn a_torn_write_leaves_some_sectors() {
    let fault = Fault::Torn { seed: 1 };
    let (_, queue) = faulty([Rule::new(When::Nth(1), fault)]);
    write(&queue, 4, 1).unwrap_err();
    let sectors = sectors_of(&block(&queue, 4));
    assert!(sectors.contains(&1) && sectors.contains(&2), "{sectors:?}");

    let (_, queue) = faulty([Rule::new(When::Nth(1), Fault::TornSilently { seed: 1 })]);
    write(&queue, 4, 1).unwrap();
    assert_eq!(sectors_of(&block(&queue, 4)), sectors, "the seed decides");
}

#[test]
fn a_lost_write_reports_success() {
    let (_, queue) = faulty([Rule::new(When::Nth(1), Fault::Lost)]);
    write(&queue, 4, 1).unwrap();
    assert_eq!(block(&queue, 4), [1; BLOCK_BYTES]);
}

#[test]
fn a_misdirected_write_lands_elsewhere() {
    let fault = Fault::Misdirected { to: Lba::new(63) };
    let (_, queue) = faulty([Rule::new(When::Nth(1), fault)]);
    write(&queue, 4, 2).unwrap();
    assert_eq!(block(&queue, 4), [1; BLOCK_BYTES]);
    assert_eq!(block(&queue, 63), [2; BLOCK_BYTES]);
}

#[test]
fn a_flipped_bit_is_the_only_difference() {
    let (_, queue) = faulty([Rule::new(When::Nth(1), Fault::BitFlip { bit: 8 * 100 + 3 })]);
    let mut expected = vec![1; BLOCK_BYTES];
    expected[100] = 1 | 8;
    assert_eq!(block(&queue, 4), expected);
    assert_eq!(block(&queue, 4), [1; BLOCK_BYTES]);
}

#[test]
fn asynchronous_requests_fail_as_well() {
    let (_, queue) = faulty([Rule::new(When::Nth(1), Fault::Error(OsError::EIO))]);
    let ticket = queue
        .submit(Bio::read(Lba::new(0), BlockBuf::zeroed(1)))
        .unwrap();
    assert_eq!(
        queue.wait(ticket).result.unwrap_err().os(),
        Some(OsError::EIO)
    );
}
