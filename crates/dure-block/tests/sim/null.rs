//! A null device whose requests other threads complete: none is lost, and tags run out.

use std::time::Duration;

use dure_block::null::{Irq, NullDevice};
use dure_block::{BLOCK_BYTES, Bio, BlockBuf, Lba, Merge, Queue, QueueConfig, share};
use dure_sync::sim::{Config, run, seeds};
use dure_sync::{Arc, CoreId, thread};

const BLOCKS: u64 = 64;

/// Tasks of four cores on eight hardware queues of one tag each, and a null device whose requests
/// others complete; it goes while some are under way.
fn interrupted(irq: Irq) {
    let config = QueueConfig {
        hw_queues: 8,
        nr_requests: 1,
        ..QueueConfig::default()
    };
    let device = share(NullDevice::with_irq("null", BLOCKS, irq));
    let queue = Queue::new(device, config);
    let tasks: Vec<_> = (0..4_u16)
        .map(|core| {
            let queue = Arc::clone(&queue);
            thread::spawn_on("submitter", CoreId::new(core), move || {
                let bio = |block| Bio::write(Lba::new(block), BlockBuf::zeroed(1));
                let mut tickets = queue.submit_all([0, 2, 4].map(bio)).unwrap();
                let last = tickets.pop().unwrap();
                queue.read(Lba::new(9), &mut [0; BLOCK_BYTES]).unwrap();
                for ticket in tickets {
                    queue.wait(ticket).result.unwrap();
                }
                last
            })
        })
        .collect();
    let last: Vec<_> = tasks.into_iter().map(|task| task.join().unwrap()).collect();
    drop(queue);
    assert!(last.iter().all(dure_block::Ticket::is_done));
}

#[test]
fn sim_null_completes_all_that_others_complete() {
    for seed in seeds(100) {
        for irq in [Irq::Softirq, Irq::Timer(Duration::from_micros(3))] {
            run(Config::random(4, seed), move || interrupted(irq));
            run(Config::stall(4, seed), move || interrupted(irq));
        }
    }
}

/// 16 cores that each have 32 requests of 25 us under way, on hardware queues of 64 tags: how many
/// requests waited for a tag, and the virtual time of all.
fn starved(hw_queues: u32) -> (u64, u64) {
    let done = run(Config::min_clock(16), move || {
        let config = QueueConfig {
            hw_queues,
            nr_requests: 64,
            merge: Merge::Off,
            ..QueueConfig::default()
        };
        let irq = Irq::Timer(Duration::from_micros(25));
        let queue = Queue::new(share(NullDevice::with_irq("null", BLOCKS, irq)), config);
        let tasks: Vec<_> = (0..16_u16)
            .map(|core| {
                let queue = Arc::clone(&queue);
                thread::spawn_on("job", CoreId::new(core), move || {
                    for _ in 0..4 {
                        let read = |block| Bio::read(Lba::new(block), BlockBuf::zeroed(1));
                        for ticket in queue.submit_all((0..32).map(read)).unwrap() {
                            queue.wait(ticket).result.unwrap();
                        }
                    }
                })
            })
            .collect();
        tasks.into_iter().for_each(|task| task.join().unwrap());
        queue.counters().tag_waits
    });
    (done.value, done.report.virtual_ns)
}

/// As documents 000 and 001 measure it: 64 tags starve many cores, and more device queues help.
#[test]
fn sim_64_tags_starve_16_cores_and_more_queues_feed_them() {
    let [one, two, sixteen] = [1, 2, 16].map(starved);
    eprintln!("tag waits and virtual ns of 1, 2, 16 queues: {one:?} {two:?} {sixteen:?}");
    assert!(one.0 > 300 && two.0 > 200, "{one:?} {two:?}");
    assert_eq!(sixteen.0, 0);
    assert!(
        one.1 > two.1 && two.1 > 2 * sixteen.1,
        "{one:?} {two:?} {sixteen:?}"
    );
}
