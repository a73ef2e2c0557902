use dure_sync::{Arc, thread};

use super::*;
use crate::{BLOCK_BYTES, Bio, BlockBuf, Lba, Queue, QueueConfig, WriteFlags, share};

fn queue(irq: Irq, nr_requests: u32) -> Arc<Queue> {
    let config = QueueConfig {
        nr_requests,
        ..QueueConfig::default()
    };
    Queue::new(share(NullDevice::with_irq("null", 64, irq)), config)
}

fn read() -> Bio {
    let mut block = BlockBuf::zeroed(1);
    block.as_mut_slice().fill(7);
    Bio::read(Lba::new(1), block)
}

/// Requests of every kind are complete once, and a read returns zeroes.
#[test]
fn each_way_to_complete_completes_all_requests() {
    for irq in [
        Irq::None,
        Irq::Softirq,
        Irq::Timer(Duration::from_micros(50)),
    ] {
        let queue = queue(irq, 4);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let mut block = [7; BLOCK_BYTES];
                        queue.read(Lba::new(0), &mut block).unwrap();
                        assert_eq!(block, [0; BLOCK_BYTES]);
                        queue.write(Lba::new(0), &block, WriteFlags::NONE).unwrap();
                        let bios = [read(), Bio::flush(), Bio::discard(Lba::new(0), 2), read()];
                        for ticket in queue.submit_all(bios).unwrap() {
                            for segment in queue.wait(ticket).into_segments().unwrap() {
                                assert_eq!(segment.as_slice(), [0; BLOCK_BYTES], "{irq:?}");
                            }
                        }
                    }
                });
            }
        });
        let counters = queue.counters();
        assert_eq!((counters.reads, counters.writes), (180, 60), "{irq:?}");
        assert_eq!(queue.in_flight(), 0);
    }
}

/// What another thread completes is under way when its submitter goes on.
#[test]
fn requests_that_another_thread_completes_hold_their_tags() {
    let hour = Duration::from_secs(3600);
    let device = Arc::new(NullDevice::with_irq("null", 64, Irq::Timer(hour)));
    let queue = Queue::new(share(Arc::clone(&device)), QueueConfig::default());
    let tickets = queue.submit_all((0..4).map(|_| read())).unwrap();
    assert_eq!(queue.in_flight(), 4);
    assert!(tickets.iter().all(|ticket| !ticket.is_done()));
    // A device that goes does not keep them for an hour.
    drop((queue, device));
    assert!(tickets.iter().all(|ticket| ticket.is_done()));
}

#[test]
fn tags_run_out_unless_the_submitter_completes() {
    let waits = |irq| {
        let queue = queue(irq, 4);
        for ticket in queue.submit_all((0..64).map(|_| read())).unwrap() {
            queue.wait(ticket).into_segments().unwrap();
        }
        queue.counters().tag_waits
    };
    assert_eq!(waits(Irq::None), 0);
    assert!(waits(Irq::Timer(Duration::from_millis(2))) > 0);
}
