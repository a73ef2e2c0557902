use super::*;
use crate::null::NullDevice;
use crate::ram::RamDevice;
use crate::{Bio, BlockBuf, Lba, Phases, Queue, QueueConfig, Trace, share};

fn queue(model: Model, nr_requests: u32) -> Arc<Queue> {
    let device = DelayDevice::with_model(share(NullDevice::new("null", 64)), model);
    let config = QueueConfig {
        nr_requests,
        trace: Trace::Ring {
            records_per_core: 1000,
        },
        ..QueueConfig::default()
    };
    Queue::new(share(device), config)
}

/// Submits so many reads that do not continue one another, and returns how long they took together.
fn read_all(queue: &Queue, count: u64) -> Duration {
    let start = clock::monotonic_ns();
    let bios = (0..count).map(|index| Bio::read(Lba::new(2 * index), BlockBuf::zeroed(1)));
    for ticket in queue.submit_all(bios).unwrap() {
        queue.wait(ticket).into_segments().unwrap();
    }
    Duration::from_nanos(clock::monotonic_ns() - start)
}

const TIME: Duration = Duration::from_millis(10);

fn model() -> Model {
    Model {
        read: TIME,
        ..Model::default()
    }
}

#[test]
fn requests_take_their_time_at_once_or_by_channels() {
    let queue_of = |channels| {
        let model = Model {
            channels: NonZeroU32::new(channels),
            ..model()
        };
        queue(model, 64)
    };
    let free = read_all(&queue_of(0), 8);
    assert!(free >= TIME && free < 4 * TIME, "{free:?}");
    let two = read_all(&queue_of(2), 8);
    assert!(two >= 4 * TIME, "{two:?}");
    let mut block = [0; BLOCK_BYTES];
    let start = clock::monotonic_ns();
    queue_of(0).read(Lba::new(0), &mut block).unwrap();
    assert!(clock::monotonic_ns() - start >= 10_000_000);
}

#[test]
fn bandwidth_bounds_what_channels_do_not() {
    let model = Model {
        bytes_per_second: NonZeroU64::new(4096 * 100),
        ..Model::default()
    };
    let took = read_all(&queue(model, 64), 4);
    assert!(took >= Duration::from_millis(40), "{took:?}");
}

/// With fewer tags than requests, these wait for tags longer than they are in the device.
#[test]
fn too_few_tags_show_in_q2g() {
    let many = queue(model(), 64);
    read_all(&many, 12);
    let few = queue(model(), 2);
    read_all(&few, 12);
    assert_eq!(many.counters().tag_waits, 0);
    assert!(few.counters().tag_waits > 0);
    let phases = |queue: &Queue| Phases::of(&queue.take_trace());
    let (many, few) = (phases(&many), phases(&few));
    assert!(many.q2g.total_ns() < many.d2c.total_ns(), "{many:?}");
    assert!(few.q2g.total_ns() > few.d2c.total_ns(), "{few:?}");
    assert!(few.d2c.min_ns >= 10_000_000, "{few:?}");
    assert_eq!((few.q2c.n, many.q2c.n), (12, 12));
}

#[test]
fn what_nobody_waits_for_is_carried_out_when_the_device_goes() {
    let ram = Arc::new(RamDevice::new("ram", 8));
    let model = Model {
        write: Duration::from_secs(3600),
        ..Model::default()
    };
    let device = DelayDevice::with_model(share(Arc::clone(&ram)), model);
    let queue = Queue::new(share(device), QueueConfig::default());
    let mut buffer = BlockBuf::zeroed(1);
    buffer.as_mut_slice().fill(7);
    let ticket = queue.submit(Bio::write(Lba::new(3), buffer)).unwrap();
    let late = queue.wait_timeout(ticket, Duration::from_millis(1));
    drop(late.expect_err("it takes an hour"));
    assert_eq!(queue.counters().timeouts, 1);
    drop(queue);
    let mut block = [0; BLOCK_BYTES];
    let read = Io::Read {
        lba: Lba::new(3),
        out: &mut block,
    };
    ram.execute(read).unwrap();
    assert_eq!(block, [7; BLOCK_BYTES]);
}

#[test]
fn drives_have_models_and_times_their_mean() {
    for name in Model::DRIVES {
        let model = Model::of_drive(name).unwrap();
        assert!(
            model.read > Duration::ZERO && model.channels.is_some(),
            "{name}"
        );
    }
    assert_eq!(Model::of_drive("floppy"), None);
    let mut random = Seeded::new(1);
    let sum: u64 = (0..10_000).map(|_| exponential(1000, &mut random)).sum();
    assert!((950..1050).contains(&(sum / 10_000)), "{}", sum / 10_000);
}

#[test]
fn writes_in_turn_take_their_blocks_one_after_another() {
    let null = share(NullDevice::new("null", 64));
    let slow = DelayDevice::new(null, Duration::from_millis(1), Duration::ZERO);
    let queue = Queue::new(
        share(slow.in_turn(Duration::from_millis(2))),
        QueueConfig::default(),
    );
    let start = clock::monotonic_ns();
    let bios = (0..3).map(|index| Bio::write(Lba::new(8 * index), BlockBuf::zeroed(4)));
    for ticket in queue.submit_all(bios).unwrap() {
        queue.wait(ticket).into_segments().unwrap();
    }
    assert!(clock::monotonic_ns() - start >= 3 * 9_000_000);
    // A read takes no time, and does not wait for its turn.
    let mut block = [0; BLOCK_BYTES];
    queue.read(Lba::new(0), &mut block).unwrap();
    assert!(queue.info().volatile_cache, "flushes reach it");
}
