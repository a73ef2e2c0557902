use dure_sync::atomic::{AtomicU64, Ordering};
use dure_sync::{Mutex, core_count, thread};

use super::super::{Phases, QueueConfig, TagSet, Trace};
use super::*;
use crate::ram::RamDevice;
use crate::{BLOCK_BYTES, BlockBuf, Device, DeviceInfo, Error, Io, Lba, OsError, share};

fn pattern(byte: u8, blocks: usize) -> Vec<u8> {
    vec![byte; blocks * BLOCK_BYTES]
}

#[test]
fn merged_bios_complete_each_with_its_own_memory() {
    let trace = Trace::Ring {
        records_per_core: 64,
    };
    let config = QueueConfig {
        trace,
        ..QueueConfig::default()
    };
    let queue = Queue::new(share(RamDevice::new("ram0", 64)), config);
    // 5, 6 and 4 become one request, in this order; 20 is another.
    let lbas = [5, 6, 4, 20_u64];
    let write = |lba: &u64| {
        let byte = u8::try_from(*lba).unwrap();
        let memory = BlockBuf::from_slice(&pattern(byte, 1));
        Bio::write(Lba::new(*lba), memory).with_cookie(*lba)
    };
    let tickets = queue.submit_all(lbas.iter().map(write)).unwrap();
    for (lba, ticket) in lbas.iter().zip(tickets) {
        let completion = queue.wait(ticket);
        assert_eq!(completion.cookie, *lba);
        assert_eq!(completion.stamps.merged_ns > 0, [6, 4].contains(lba));
        let segments = completion.into_segments().unwrap();
        assert_eq!(segments.len(), 1);
        assert_eq!(segments[0].as_slice()[0], u8::try_from(*lba).unwrap());
    }
    let counters = queue.counters();
    let counted = (counters.writes, counters.blocks_written, counters.merges);
    assert_eq!(counted, (2, 4, 2));
    let reads = lbas.map(|lba| Bio::read(Lba::new(lba), BlockBuf::zeroed(1)));
    for (lba, ticket) in lbas.iter().zip(queue.submit_all(reads).unwrap()) {
        let segments = queue.wait(ticket).into_segments().unwrap();
        assert_eq!(segments[0].as_slice()[4095], u8::try_from(*lba).unwrap());
    }
    let phases = Phases::of(&queue.take_trace());
    let counts = (phases.q2c.n, phases.q2m.n, phases.d2c.n, phases.q2q.n);
    assert_eq!(counts, (8, 4, 4, 7));
}

#[test]
fn each_bio_of_a_merged_request_learns_of_its_failure() {
    #[derive(Debug)]
    struct Failing(RamDevice);
    impl Device for Failing {
        fn info(&self) -> &DeviceInfo {
            self.0.info()
        }
        fn execute(&self, io: Io<'_>) -> Result<()> {
            Err(Error::Io {
                device: "ram0".to_owned(),
                op: io.op(),
                lba: io.lba(),
                blocks: io.blocks(),
                os: OsError::EIO,
            })
        }
    }
    let device = share(Failing(RamDevice::new("ram0", 8)));
    let queue = Queue::new(device, QueueConfig::default());
    let bios = [1, 2].map(|lba| Bio::write(Lba::new(lba), BlockBuf::zeroed(1)));
    for ticket in queue.submit_all(bios).unwrap() {
        let error = queue.wait(ticket).result.unwrap_err();
        assert!(matches!(error, Error::Io { blocks: 2, .. }), "{error}");
    }
    assert_eq!(queue.counters().errors, 1);
}

#[test]
fn hardware_queues_have_tags_and_counters_of_their_own() {
    for hw_queues in [1, 2, 1000] {
        let config = QueueConfig {
            hw_queues,
            nr_requests: 3,
            ..QueueConfig::default()
        };
        let queue = Queue::new(share(RamDevice::new("ram0", 8)), config);
        queue
            .write(Lba::new(0), &pattern(1, 2), WriteFlags::NONE)
            .unwrap();
        let queues = queue.hw_queues();
        assert_eq!(queues.len(), usize::try_from(hw_queues).unwrap());
        let cores: usize = queues.iter().map(|queue| queue.cores.len()).sum();
        assert_eq!(cores, core_count().max(queues.len()));
        let writes: u64 = queues.iter().map(|queue| queue.counters.writes).sum();
        assert_eq!(writes, 1);
        assert_eq!(
            queue.nr_requests(),
            3 * u32::try_from(queues.len()).unwrap()
        );
        assert_eq!(queue.in_flight(), 0);
    }
}

/// Keeps requests until it is told to complete them.
#[derive(Debug)]
struct Late {
    ram: RamDevice,
    held: Mutex<220, Vec<Request>>,
}

impl Late {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            ram: RamDevice::new("late", 8),
            held: Mutex::new(Vec::new()),
        })
    }

    fn complete(&self) {
        let held = std::mem::take(&mut *self.held.lock());
        held.into_iter()
            .for_each(|request| request.run_on(&self.ram));
    }
}

impl Device for Late {
    fn info(&self) -> &DeviceInfo {
        self.ram.info()
    }
    fn execute(&self, io: Io<'_>) -> Result<()> {
        self.ram.execute(io)
    }
    fn submit(&self, request: Request) {
        self.held.lock().push(request);
    }
}

#[test]
fn a_late_request_is_reported_and_not_lost() {
    let device = Late::new();
    let queue = Queue::new(share(Arc::clone(&device)), QueueConfig::default());
    let bio = Bio::read(Lba::new(1), BlockBuf::zeroed(1));
    let ticket = queue.submit(bio).unwrap();
    let most = Duration::from_millis(2);
    let ticket = queue.wait_timeout(ticket, most).unwrap_err();
    assert_eq!((queue.counters().timeouts, queue.in_flight()), (1, 1));
    device.complete();
    let completion = queue.wait_timeout(ticket, most).unwrap();
    assert_eq!(completion.into_segments().unwrap().len(), 1);
    assert_eq!((queue.counters().timeouts, queue.in_flight()), (1, 0));
}

/// Waiters get tags in the order in which they came, and none is kept back.
#[test]
fn as_many_waiters_go_on_as_tags_are_released() {
    let tags = TagSet::new(2, 2);
    let mut taken: Vec<_> = std::iter::from_fn(|| tags.take_now(0)).collect();
    let order = Mutex::<220, _>::new(Vec::new());
    let given = Mutex::<220, _>::new(Vec::new());
    let waiting = AtomicU64::new(0);
    thread::scope(|scope| {
        for number in 0..3_u64 {
            let (tags, order, given, waiting) = (&tags, &order, &given, &waiting);
            scope.spawn(move || {
                let mut told = false;
                let tag = tags.wait(0, || {
                    if !std::mem::replace(&mut told, true) {
                        waiting.fetch_add(1, Ordering::AcqRel);
                    }
                    0
                });
                given.lock().push(tag);
                order.lock().push(number);
            });
            while waiting.load(Ordering::Acquire) <= number {
                thread::yield_now();
            }
        }
        let went_on = |count: usize| {
            while order.lock().len() < count {
                thread::yield_now();
            }
            thread::sleep(Duration::from_millis(2));
            assert_eq!(order.lock().len(), count);
        };
        for count in 1..=2 {
            tags.release(taken.pop().unwrap());
            assert_eq!(tags.take_now(0), None, "a newcomer waits behind the others");
            went_on(count);
        }
        tags.release(given.lock().pop().unwrap());
        went_on(3);
    });
    assert_eq!(*order.lock(), [0, 1, 2]);
}
