//! Requests that do not return.
//!
//! **Problem.** A caller whose system call hangs in the kernel cannot report it. **Structure.**
//! [`Running`] has a place for each tag, where its holder writes what it asks for before it asks:
//! two stores into a line of its own, and no look at the clock. A [`LateWatch`] looks now and then
//! ([`Queue::late`]): what is in a place at one look and still there, unchanged, a time later is
//! late. **Invariants.** Each late request is told once. **Crash.** Nothing is kept.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use dure_sync::atomic::{AtomicU64, Ordering};
use dure_sync::{CachePadded, clock};

use super::tag::WORD_STEP;
use super::{Queue, Tag};
use crate::count::Count;
use crate::{Lba, Op};

const OPS: [Op; 4] = [Op::Read, Op::Write, Op::Flush, Op::Discard];
/// Bits of the word: the operation, the block, and how often the place was used.
const OP_BITS: u32 = 2;
const LBA_BITS: u32 = 48;
const USE: u64 = 1 << (OP_BITS + LBA_BITS);

/// What the holder of a tag asks for. Written by it, read by a [`LateWatch`]. Relaxed: two words of
/// different requests are a wrong line of a log at worst, and only if the request is replaced
/// between two loads.
#[derive(Debug)]
struct Place {
    what: AtomicU64,
    blocks: AtomicU64,
}

/// The requests of a hardware queue, by tag.
#[derive(Debug)]
pub(super) struct Running {
    /// Those of a word of tags, which one core uses most.
    words: Box<[CachePadded<[Place; WORD_STEP as usize]>]>,
}

impl Running {
    pub(super) fn new(words: usize) -> Running {
        let place = |_| Place {
            what: AtomicU64::new(0),
            blocks: AtomicU64::new(0),
        };
        Running {
            words: (0..words)
                .map(|_| CachePadded::new(std::array::from_fn(place)))
                .collect(),
        }
    }

    fn place(&self, tag: Tag) -> &Place {
        let index = |number: u32| usize::try_from(number).expect("32 bits fit in a usize");
        &self.words[index(tag.number() / WORD_STEP)][index(tag.number() % WORD_STEP)]
    }

    /// The holder of `tag` is about to ask for that.
    #[inline]
    pub(super) fn begin(&self, tag: Tag, op: Op, lba: Lba, blocks: u64) {
        let place = self.place(tag);
        let uses = place.what.load(Ordering::Relaxed) & !(USE - 1);
        let op = match op {
            Op::Read => 0,
            Op::Write => 1,
            Op::Flush => 2,
            Op::Discard => 3,
        };
        let lba = (lba.number() << OP_BITS) & (USE - 1);
        place.blocks.store(blocks, Ordering::Relaxed);
        place
            .what
            .store(uses.wrapping_add(USE) | lba | op, Ordering::Relaxed);
    }

    fn load(&self, tag: Tag) -> (u64, u64) {
        let place = self.place(tag);
        let what = place.what.load(Ordering::Relaxed);
        (what, place.blocks.load(Ordering::Relaxed))
    }
}

/// A request that has not returned for a long time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LateRequest {
    /// Name of the device.
    pub device: String,
    /// The operation.
    pub op: Op,
    /// First block.
    pub lba: Lba,
    /// Number of blocks.
    pub blocks: u64,
    /// How long it was seen to be under way.
    pub waited: Duration,
}

impl fmt::Display for LateRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            device,
            op,
            lba,
            blocks,
            waited,
        } = self;
        let seconds = waited.as_secs_f64();
        match op {
            Op::Flush => write!(f, "{device}: a flush")?,
            _ => {
                let blocks = Count::of(*blocks, "block");
                write!(f, "{device}: {op} of {blocks} at block {lba}")?;
            }
        }
        write!(f, " has not returned for {seconds:.1} s")
    }
}

/// What was under way at the last look.
#[derive(Debug, Clone, Copy)]
struct Seen {
    what: u64,
    since_ns: u64,
    told: bool,
}

/// Looks for late requests of any number of queues.
#[derive(Debug)]
pub struct LateWatch {
    after: Duration,
    /// By queue; then by hardware queue and tag.
    queues: BTreeMap<usize, BTreeMap<(u16, u32), Seen>>,
}

impl LateWatch {
    /// A request is late when it has been under way for `after` and up to two looks.
    #[must_use]
    pub fn new(after: Duration) -> LateWatch {
        LateWatch {
            after,
            queues: BTreeMap::new(),
        }
    }
}

impl Queue {
    /// Looks at the requests under way, synchronous ones too, and returns those that have become
    /// late since the last look of `watch`. Takes no lock, and waits for nothing.
    #[must_use]
    pub fn late(&self, watch: &mut LateWatch) -> Vec<LateRequest> {
        let (now, own) = (clock::monotonic_ns(), std::ptr::from_ref(self).addr());
        let mut before = watch.queues.remove(&own).unwrap_or_default();
        let (mut under_way, mut late) = (BTreeMap::new(), Vec::new());
        for (number, hardware) in (0_u16..).zip(&self.hardware) {
            for tag in hardware.tags.taken() {
                let (what, blocks) = hardware.running.load(tag);
                let key = (number, tag.number());
                let known = before.remove(&key).filter(|seen| seen.what == what);
                let mut seen = known.unwrap_or(Seen {
                    what,
                    since_ns: now,
                    told: false,
                });
                let waited = Duration::from_nanos(now.saturating_sub(seen.since_ns));
                if known.is_some() && !seen.told && waited >= watch.after {
                    seen.told = true;
                    let op = usize::try_from(what % (1 << OP_BITS)).expect("two bits");
                    late.push(LateRequest {
                        device: self.info().name.clone(),
                        op: OPS[op],
                        lba: Lba::new((what & (USE - 1)) >> OP_BITS),
                        blocks,
                        waited,
                    });
                }
                under_way.insert(key, seen);
            }
        }
        watch.queues.insert(own, under_way);
        late
    }
}

#[cfg(test)]
mod tests {
    use dure_sync::{Arc, Condvar, Mutex, thread};

    use super::*;
    use crate::ram::RamDevice;
    use crate::{
        BLOCK_BYTES, Bio, BlockBuf, Device, DeviceInfo, Io, QueueConfig, Result, WriteFlags, share,
    };

    /// Its requests do not return before it is let go.
    #[derive(Debug)]
    struct Stuck {
        ram: RamDevice,
        goes: Mutex<220, bool>,
        changed: Condvar,
    }

    impl Device for Stuck {
        fn info(&self) -> &DeviceInfo {
            self.ram.info()
        }
        fn execute(&self, io: Io<'_>) -> Result<()> {
            let mut goes = self.goes.lock();
            while !*goes {
                goes = self.changed.wait(goes);
            }
            drop(goes);
            self.ram.execute(io)
        }
    }

    fn stuck() -> Arc<Stuck> {
        Arc::new(Stuck {
            ram: RamDevice::new("stuck", 64),
            goes: Mutex::new(false),
            changed: Condvar::new(),
        })
    }

    fn free(stuck: &Stuck) {
        *stuck.goes.lock() = true;
        stuck.changed.notify_all();
    }

    fn told(late: &[LateRequest]) -> Vec<String> {
        let line = |request: &LateRequest| {
            let line = request.to_string();
            line.split(" has not").next().unwrap().to_owned()
        };
        late.iter().map(line).collect()
    }

    #[test]
    fn a_synchronous_request_that_hangs_is_told_by_name_once() {
        let device = stuck();
        let config = QueueConfig {
            hw_queues: 2,
            ..QueueConfig::default()
        };
        let queue = Queue::new(share(Arc::clone(&device)), config);
        let mut watch = LateWatch::new(Duration::from_millis(5));
        thread::scope(|scope| {
            scope.spawn(|| queue.write(Lba::new(7), &[1; 3 * BLOCK_BYTES], WriteFlags::NONE));
            while queue.in_flight() == 0 {
                thread::yield_now();
            }
            // Taken, and perhaps not written yet.
            thread::sleep(Duration::from_millis(20));
            assert_eq!(queue.late(&mut watch), [], "it may have begun just now");
            thread::sleep(Duration::from_millis(6));
            let late = queue.late(&mut watch);
            assert_eq!(told(&late), ["stuck: write of 3 blocks at block 7"]);
            assert!(late[0].waited >= Duration::from_millis(5));
            thread::sleep(Duration::from_millis(6));
            assert_eq!(queue.late(&mut watch), [], "once");
            free(&device);
        });
        assert_eq!(queue.in_flight(), 0);
        assert_eq!(queue.late(&mut watch), []);
    }

    #[test]
    fn the_same_request_again_is_another_one() {
        let queue = Queue::new(share(RamDevice::new("ram", 8)), QueueConfig::default());
        let mut watch = LateWatch::new(Duration::ZERO);
        let hardware = &queue.hardware[0];
        let tag = hardware.tags.take_now(0).unwrap();
        for _ in 0..3 {
            hardware.running.begin(tag, Op::Flush, Lba::new(0), 0);
            assert_eq!(queue.late(&mut watch), []);
        }
        assert_eq!(told(&queue.late(&mut watch)), ["ram: a flush"]);
        hardware.tags.release(tag);
        assert_eq!(queue.late(&mut watch), []);
    }

    #[test]
    fn a_submitted_request_is_told_too() {
        let device = stuck();
        let queue = Queue::new(share(Arc::clone(&device)), QueueConfig::default());
        let mut watch = LateWatch::new(Duration::ZERO);
        thread::scope(|scope| {
            scope.spawn(|| {
                let bio = Bio::read(Lba::new(63), BlockBuf::zeroed(1));
                queue.wait(queue.submit(bio).unwrap()).result.unwrap();
            });
            let mut late = Vec::new();
            while late.is_empty() {
                late = queue.late(&mut watch);
                thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(told(&late), ["stuck: read of 1 block at block 63"]);
            free(&device);
        });
    }
}
