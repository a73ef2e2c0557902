//! A device whose requests take a modelled time.
//!
//! **Problem.** Whether commits share flushes, whether tags run out and what depth a device wants
//! shows only on slow devices, and test machines rarely have one. **Structure.** A decorator with a
//! [`Model`]. A synchronous request sleeps, then goes to the device below. A submitted one lies in
//! a lane of its core until its time is over; a task that waits or polls then carries it out.
//! **Invariants.** A request takes at least its time. With [`Model::channels`] no more than that
//! many are served at once, in order of arrival; the rest wait within the device. **Crash.** As
//! the device below; what lies in a lane has not happened.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use dure_sync::atomic::{AtomicU64, Ordering};
use dure_sync::random::Seeded;
use dure_sync::{
    Arc, CachePadded, CoreId, Mutex, PerCore, Waiting, clock, core_count, current_core, thread,
};

use crate::rank::{CHANNELS_RANK, LANE_RANK};
use crate::{BLOCK_BYTES, Device, DeviceInfo, Io, Op, Poll, Request, Result, Slot};

#[cfg(test)]
mod tests;

/// How the times of requests of one kind differ.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// They do not.
    #[default]
    Fixed,
    /// Half of the time is fixed, the other half the mean of an exponential distribution.
    Exponential,
}

/// What time requests take.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Model {
    /// Mean time of a read.
    pub read: Duration,
    /// Mean time of a write, and of a discard.
    pub write: Duration,
    /// What a write takes more for each of its blocks.
    pub write_block: Duration,
    /// Mean time of a flush.
    pub flush: Duration,
    /// How times differ.
    pub spread: Spread,
    /// Requests that are served at once; `None`: any number.
    pub channels: Option<NonZeroU32>,
    /// Bytes that all channels together transfer in a second; `None`: no limit.
    pub bytes_per_second: Option<NonZeroU64>,
}

impl Model {
    /// Names of drives for [`Model::of_drive`].
    pub const DRIVES: [&'static str; 7] = [
        "nvme",
        "960-pro",
        "970-evo",
        "983-zet",
        "sz985",
        "intel-750",
        "disk",
    ];

    /// Named after a drive on which published measurements of file systems were made: time of a
    /// random read and of a cached write, channels, bandwidth. The figures are assumptions of the
    /// order in which such drives are advertised, neither looked up nor measured.
    #[must_use]
    pub fn of_drive(name: &str) -> Option<Self> {
        if name == "disk" {
            return Some(Model::disk());
        }
        if name == "nvme" {
            return Some(Model::nvme());
        }
        let (read_us, write_us, channels, megabytes) = match name {
            "960-pro" => (70, 20, 23, 3500),
            "970-evo" => (66, 20, 13, 3400),
            "983-zet" => (30, 20, 22, 3400),
            "sz985" => (20, 16, 15, 3200),
            "intel-750" => (80, 20, 35, 2400),
            _ => return None,
        };
        Some(Self {
            read: Duration::from_micros(read_us),
            write: Duration::from_micros(write_us),
            write_block: Duration::ZERO,
            flush: Duration::from_millis(1),
            spread: Spread::Exponential,
            channels: NonZeroU32::new(channels),
            bytes_per_second: NonZeroU64::new(megabytes * 1_000_000),
        })
    }

    /// No drive: 128 requests at once, each of which takes as long as the others. Whether so many
    /// are under way then shows in the number of requests per second.
    fn nvme() -> Self {
        let request = Duration::from_micros(80);
        Self {
            read: request,
            write: request,
            channels: NonZeroU32::new(128),
            ..Self::default()
        }
    }

    /// A disk of 7,200 turns a minute: each request is a seek and half a turn, but for writes, which
    /// its cache collects. Assumptions as well.
    fn disk() -> Self {
        Self {
            read: Duration::from_millis(8),
            write: Duration::from_millis(2),
            write_block: Duration::ZERO,
            flush: Duration::from_millis(8),
            spread: Spread::Exponential,
            channels: NonZeroU32::new(1),
            bytes_per_second: NonZeroU64::new(120_000_000),
        }
    }

    fn mean_ns(&self, op: Op, blocks: u64) -> u64 {
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        let time = match op {
            Op::Read => self.read,
            Op::Write => {
                let more = self.write_block.saturating_mul(blocks);
                self.write.saturating_add(more)
            }
            Op::Discard => self.write,
            Op::Flush => self.flush,
        };
        u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Requests of a core that wait for their time.
#[derive(Debug)]
struct Lane {
    /// By the time when they are due, and the order of arrival.
    requests: BTreeMap<(u64, u64), Request>,
    arrived: u64,
    random: Seeded,
}

/// When each channel, and the transfer of all, is free again.
#[derive(Debug, Default)]
struct Channels {
    free_ns: Vec<u64>,
    bus_free_ns: u64,
}

/// Channels of which each request takes as long as any other: the one that began first is free
/// first, so they are used in turn. Many cores share no more than the turn.
#[derive(Debug)]
struct InTurn {
    /// Relaxed: a number.
    turn: CachePadded<AtomicU64>,
    /// When each is free again. Relaxed: times.
    free_ns: Box<[CachePadded<AtomicU64>]>,
}

impl InTurn {
    fn new(channels: u32) -> InTurn {
        InTurn {
            turn: CachePadded::default(),
            free_ns: (0..channels).map(|_| CachePadded::default()).collect(),
        }
    }

    /// When a request is complete that arrives now.
    fn due_ns(&self, now: u64, served_ns: u64) -> u64 {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let channels = u64::try_from(self.free_ns.len()).expect("few channels");
        let channel = usize::try_from(turn % channels).expect("few channels");
        let free = &self.free_ns[channel];
        let due = |free_ns: u64| now.max(free_ns).saturating_add(served_ns);
        let before = free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |ns| Some(due(ns)));
        due(before.unwrap_or_else(|ns| ns))
    }
}

/// A slow device.
#[derive(Debug)]
pub struct DelayDevice {
    below: Arc<dyn Device>,
    info: DeviceInfo,
    model: Model,
    /// [223] Of each core.
    lanes: PerCore<Mutex<LANE_RANK, Lane>>,
    /// [224] Only used if channels or bandwidth are limited, and not `in_turn`.
    channels: Mutex<CHANNELS_RANK, Channels>,
    /// If all that is limited is the number of requests of a fixed time.
    in_turn: Option<InTurn>,
}

impl DelayDevice {
    /// Makes writes to `below` take at least `write` longer, and flushes `flush`. It has a volatile
    /// cache, so flushes reach it.
    #[must_use]
    pub fn new(below: Arc<dyn Device>, write: Duration, flush: Duration) -> Self {
        let model = Model {
            write,
            flush,
            ..Model::default()
        };
        let mut device = Self::with_model(below, model);
        device.info.volatile_cache = true;
        device
    }

    /// Writes and flushes go one after another, and a write takes `block` more for each of its
    /// blocks.
    #[must_use]
    pub fn in_turn(self, block: Duration) -> Self {
        let model = Model {
            write_block: block,
            channels: NonZeroU32::new(1),
            ..self.model
        };
        let mut device = Self::with_model(Arc::clone(&self.below), model);
        device.info = self.info.clone();
        device
    }

    /// Makes requests to `below` take what `model` says. It has a volatile cache if flushes take
    /// time, or the device below has.
    #[must_use]
    pub fn with_model(below: Arc<dyn Device>, model: Model) -> Self {
        let mut info = below.info().clone();
        info.volatile_cache |= !model.flush.is_zero();
        info.in_memory = false;
        let channels = model.channels.map_or(0, NonZeroU32::get);
        let is_fixed = model.spread == Spread::Fixed && model.read == model.write;
        let is_plain = is_fixed && model.write_block.is_zero() && model.bytes_per_second.is_none();
        let in_turn = (channels > 0 && is_plain).then(|| InTurn::new(channels));
        Self {
            in_turn,
            below,
            info,
            model,
            lanes: PerCore::new(core_count(), |core| {
                Mutex::new(Lane {
                    requests: BTreeMap::new(),
                    arrived: 0,
                    random: Seeded::new(u64::from(core.number()) + 1),
                })
            }),
            channels: Mutex::new(Channels {
                free_ns: (0..channels).map(|_| 0).collect(),
                bus_free_ns: 0,
            }),
        }
    }

    /// When a request is complete that arrives now.
    fn due_ns(&self, op: Op, blocks: u64, random: &mut Seeded) -> u64 {
        let mut served_ns = self.model.mean_ns(op, blocks);
        if self.model.spread == Spread::Exponential {
            served_ns = served_ns / 2 + exponential(served_ns / 2, random);
        }
        let now = clock::monotonic_ns();
        if self.model.channels.is_none() && self.model.bytes_per_second.is_none() {
            return now.saturating_add(served_ns);
        }
        if let Some(channels) = &self.in_turn
            && served_ns > 0
        {
            return channels.due_ns(now, served_ns);
        }
        let transfer_ns = self.model.bytes_per_second.map_or(0, |rate| {
            bytes_of(blocks).saturating_mul(1_000_000_000) / rate.get()
        });
        if served_ns == 0 && transfer_ns == 0 {
            return now;
        }
        let mut channels = self.channels.lock();
        let first = channels.free_ns.iter_mut().min();
        let served = match first {
            Some(free_ns) => {
                *free_ns = now.max(*free_ns).saturating_add(served_ns);
                *free_ns
            }
            None => now.saturating_add(served_ns),
        };
        channels.bus_free_ns = now.max(channels.bus_free_ns).saturating_add(transfer_ns);
        served.max(channels.bus_free_ns)
    }

    /// Carries out what is due in a lane; returns how much, and when the next is due.
    fn finish_due(&self, core: CoreId) -> (usize, Option<u64>) {
        let mut count = 0;
        loop {
            let mut lane = self.lanes.get(core).lock();
            let Some(first) = lane.requests.first_entry() else {
                return (count, None);
            };
            let due_ns = first.key().0;
            if due_ns > clock::monotonic_ns() {
                return (count, Some(due_ns));
            }
            let request = first.remove();
            drop(lane);
            request.finish_on(&self.below);
            count += 1;
        }
    }

    /// Carries out what is due in this core's lane, or sleeps until something is.
    fn finish_or_sleep(&self, core: CoreId) -> usize {
        match self.finish_due(core) {
            (0, Some(due_ns)) => {
                sleep_until(due_ns);
                self.finish_due(core).0
            }
            (count, _) => count,
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a random time in ns, far below 2^52"
)]
fn exponential(mean_ns: u64, random: &mut Seeded) -> u64 {
    const PARTS: u64 = 1 << 32;
    let uniform = (random.below(PARTS) + 1) as f64 / PARTS as f64;
    (mean_ns as f64 * -uniform.ln()) as u64
}

fn sleep_until(ns: u64) {
    let left = ns.saturating_sub(clock::monotonic_ns());
    if left > 0 {
        let _waiting = Waiting::on_device();
        thread::sleep(Duration::from_nanos(left));
    }
}

fn bytes_of(blocks: u64) -> u64 {
    let block = u64::try_from(BLOCK_BYTES).expect("a block is small");
    blocks.saturating_mul(block)
}

impl Device for DelayDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn execute(&self, io: Io<'_>) -> Result<()> {
        let (op, blocks) = (io.op(), io.blocks());
        let due_ns = {
            let mut lane = self.lanes.local().lock();
            self.due_ns(op, blocks, &mut lane.random)
        };
        sleep_until(due_ns);
        self.below.execute(io)
    }

    fn execute_polled(&self, io: Io<'_>, sleep_ns: u64) -> Result<()> {
        let due_ns = {
            let mut lane = self.lanes.local().lock();
            self.due_ns(io.op(), io.blocks(), &mut lane.random)
        };
        sleep_until(due_ns.min(clock::monotonic_ns().saturating_add(sleep_ns)));
        while clock::monotonic_ns() < due_ns {
            thread::spin_hint();
        }
        self.below.execute(io)
    }

    fn submit(&self, mut request: Request) {
        request.dispatched();
        let core = current_core();
        request.set_hint(u32::from(core.number()));
        let (op, blocks) = (request.bio().op(), request.bio().blocks());
        let mut lane = self.lanes.get(core).lock();
        let due_ns = self.due_ns(op, blocks, &mut lane.random);
        lane.arrived += 1;
        let key = (due_ns, lane.arrived);
        lane.requests.insert(key, request);
    }

    fn poll(&self, mode: Poll) -> usize {
        let own = current_core();
        match mode {
            Poll::Own => return self.finish_or_sleep(own),
            Poll::OwnReady => return self.finish_due(own).0,
            Poll::Ready | Poll::One => {}
        }
        let cores = (0..core_count()).filter_map(|core| u16::try_from(core).ok());
        let count: usize = cores.map(|core| self.finish_due(CoreId::new(core)).0).sum();
        match mode {
            Poll::One if count == 0 => self.finish_or_sleep(own),
            _ => count,
        }
    }

    fn wait(&self, slot: &Slot) {
        let core = CoreId::new(u16::try_from(slot.hint()).expect("the hint is a core number"));
        while !slot.is_done() {
            match self.finish_due(core) {
                (_, _) if slot.is_done() => {}
                (_, Some(due_ns)) => sleep_until(due_ns),
                // Another task has taken it out, and completes it.
                (_, None) => slot.sleep(),
            }
        }
    }
}

impl Drop for DelayDevice {
    fn drop(&mut self) {
        for lane in self.lanes.iter() {
            let requests = std::mem::take(&mut lane.lock().requests);
            let requests = requests.into_values();
            requests.for_each(|request| request.finish_on(&self.below));
        }
    }
}
