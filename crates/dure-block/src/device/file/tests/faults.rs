//! Rings that fail for good, and devices that go under requests.

use std::io::Write;

use super::*;
use crate::Completion;
use crate::engine::uring::replace_file;

/// What the kernel says of a call to a ring that is none.
const NO_RING: OsError = OsError::new(libc::EOPNOTSUPP);

fn read(lba: u64) -> Bio {
    Bio::read(Lba::new(lba), BlockBuf::zeroed(1)).with_cookie(lba)
}

/// Has a ring made for each core.
fn make_rings(device: &FileDevice) {
    for core in 0..core_count() {
        let core = CoreId::new(u16::try_from(core).unwrap());
        assert!(device.ring(core).is_some());
    }
}

fn fail_rings(device: &FileDevice) {
    for ring in device.existing_rings() {
        let Kernel::Uring(uring) = ring.channel() else {
            panic!("the engine is io_uring");
        };
        uring.fail_calls();
    }
}

/// The error names the request, and its memory comes back.
fn assert_failed(done: &Completion, path: &Path, os: OsError) {
    let expected = Error::Io {
        device: path.display().to_string(),
        op: Op::Read,
        lba: Lba::new(done.cookie),
        blocks: 1,
        os,
    };
    assert_eq!(done.result, Err(expected));
    assert_eq!(done.segments.len(), 1);
    assert_eq!(done.segments[0].as_slice(), [0; BLOCK_BYTES]);
}

/// It was a panic, under the lock of the ring.
#[test]
fn a_ring_that_fails_for_good_fails_its_requests() {
    let place = Place::new();
    let path = place.image();
    for engine in engines(&path) {
        // One with a thread of the kernel may do without calls; and what a device that is polled
        // refuses with this error is done by calls.
        if !matches!(engine, Engine::Uring(ring) if !ring.iopoll && !ring.sqpoll) {
            continue;
        }
        let device = Arc::new(open_file(&path, with(engine, Direct::Auto)).unwrap());
        make_rings(&device);
        let queue = Queue::new(share(Arc::clone(&device)), QueueConfig::default());
        queue.wait(queue.submit(read(1)).unwrap()).result.unwrap();
        fail_rings(&device);
        for round in [0, 10] {
            let tickets = queue.submit_all((2..5).map(|lba| read(round + 2 * lba)));
            for ticket in tickets.unwrap() {
                assert_failed(&queue.wait(ticket), &path, NO_RING);
            }
        }
        assert_eq!((queue.counters().errors, queue.in_flight()), (6, 0));
        // System calls go on.
        queue.read(Lba::new(1), &mut [1; BLOCK_BYTES]).unwrap();
    }
}

/// Requests that the kernel has when its ring fails, and does not complete: who waits gets an error
/// and other memory, and what the kernel writes later overwrites nobody's.
#[test]
fn requests_that_a_failed_ring_keeps_are_abandoned() {
    let place = Place::new();
    let path = place.image();
    let engine = ring(false, false, None);
    let device = match open_file(&path, with(engine, Direct::Never)) {
        Err(refused @ Error::EngineUnavailable { .. }) => return eprintln!("SKIPPED: {refused}"),
        device => Arc::new(device.unwrap()),
    };
    make_rings(&device);
    // Reads of an empty pipe do not return.
    let (pipe, mut writer) = std::io::pipe().unwrap();
    replace_file(&device.target.fd, &pipe);
    let queue = Queue::new(share(Arc::clone(&device)), QueueConfig::default());
    let mut tickets = queue.submit_all([read(1), read(3)]).unwrap();
    fail_rings(&device);
    tickets.push(queue.submit(read(9)).unwrap());
    let done: Vec<_> = tickets
        .into_iter()
        .map(|ticket| queue.wait(ticket))
        .collect();
    writer.write_all(&[8; 2 * BLOCK_BYTES]).unwrap();
    for done in &done {
        assert_failed(done, &path, NO_RING);
    }
    assert_eq!((queue.counters().errors, queue.in_flight()), (3, 0));
    // What comes late is nobody's.
    assert_eq!(queue.poll(), 0);
}
