//! Which core has which cache line.
//!
//! **Problem.** Contention is the movement of cache lines; it has to be seen without annotations.
//! **Structure.** A line is `address / 64`, looked up in an open-addressing table. It has an owner,
//! a set of sharers, and a time until which it is being moved. **Invariants.** An exclusive line
//! has its owner as only sharer. Transfers of one line do not overlap. A transfer is counted only
//! when another core had the line before: a first touch is not a transfer. **Crash.** Nothing is
//! kept.

use crate::config::CORES_MAX;
use crate::models::CostModel;

/// log2 of the size of a cache line.
const LINE_SHIFT: u32 = 6;

/// How an operation uses a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// A load.
    Load,
    /// A plain store.
    Store,
    /// A locked read-modify-write.
    Update,
}

/// A set of cores.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Cores([u128; CORES_MAX / 128]);

impl Cores {
    fn only(core: usize) -> Cores {
        let mut cores = Cores::default();
        cores.insert(core);
        cores
    }

    fn contains(&self, core: usize) -> bool {
        self.0[core / 128] >> (core % 128) & 1 == 1
    }

    fn insert(&mut self, core: usize) {
        self.0[core / 128] |= 1 << (core % 128);
    }

    fn without(mut self, core: usize) -> Cores {
        self.0[core / 128] &= !(1 << (core % 128));
        self
    }

    fn is_empty(&self) -> bool {
        *self == Cores::default()
    }

    fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// The lowest one.
    fn first(&self) -> Option<usize> {
        let word = self.0.iter().position(|word| *word != 0)?;
        let bit = usize::try_from(self.0[word].trailing_zeros()).ok()?;
        Some(word * 128 + bit)
    }
}

/// The state and history of a line.
#[derive(Debug, Clone, Default)]
struct Line {
    /// `address / 64`; 0 marks an empty slot, since nothing lives at address 0.
    number: usize,
    sharers: Cores,
    owner: usize,
    exclusive: bool,
    /// The socket whose core touched it first: its memory is there.
    home: usize,
    /// The end of the last transfer.
    free_at: u64,
    accesses: u64,
    transfers: u64,
    waited_ns: u64,
}

impl Line {
    fn hit(&self, access: Access, core: usize) -> bool {
        let has_it = self.sharers.contains(core);
        match access {
            Access::Load => has_it,
            Access::Store | Access::Update => has_it && self.exclusive,
        }
    }
}

/// What an access did to the clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    /// When the line is there.
    pub(crate) ready_at: u64,
    /// Whether the line had to move.
    pub(crate) missed: bool,
}

/// A line in a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HotLine {
    /// The address of its first byte.
    pub address: usize,
    /// Operations on it.
    pub accesses: u64,
    /// Moves between cores.
    pub transfers: u64,
    /// Time operations waited for earlier moves.
    pub waited_ns: u64,
}

/// All lines ever touched in a run.
#[derive(Debug)]
pub(crate) struct LineTable {
    slots: Vec<Line>,
    used: usize,
    transfers: u64,
}

impl LineTable {
    pub(crate) fn new() -> Self {
        Self {
            slots: vec![Line::default(); 256],
            used: 0,
            transfers: 0,
        }
    }

    pub(crate) fn transfers(&self) -> u64 {
        self.transfers
    }

    /// Whether `core` could do `access` without moving the line.
    #[inline]
    pub(crate) fn hits(&self, access: Access, address: usize, core: usize) -> bool {
        self.slots[self.find(address >> LINE_SHIFT)].hit(access, core)
    }

    /// The socket in whose memory a line is that was touched before.
    pub(crate) fn home(&self, address: usize) -> Option<usize> {
        let line = &self.slots[self.find(address >> LINE_SHIFT)];
        (line.number != 0).then_some(line.home)
    }

    /// Does `access` at `now` by `core`.
    #[inline]
    pub(crate) fn access(
        &mut self,
        access: Access,
        address: usize,
        core: usize,
        now: u64,
        model: &CostModel,
    ) -> Cost {
        let index = self.slot_of(address >> LINE_SHIFT);
        let line = &mut self.slots[index];
        line.accesses += 1;
        if line.hit(access, core) {
            return Cost {
                ready_at: now,
                missed: false,
            };
        }
        let start = now.max(line.free_at);
        let others = line.sharers.without(core);
        let alone = others.is_empty();
        if line.sharers.is_empty() {
            line.home = core / model.cores_per_socket;
        }
        let latency = if alone {
            // No other core has it: the first touch, or an upgrade by the only sharer.
            model.hit_ns
        } else {
            line.transfers += 1;
            self.transfers += 1;
            transfer_ns(model, core, line, &others)
        };
        line.waited_ns += start - now;
        let ready_at = start + latency;
        if access == Access::Load {
            line.free_at = start + if alone { 0 } else { model.read_share_ns };
            line.exclusive = alone;
            line.sharers.insert(core);
            if alone {
                line.owner = core;
            }
        } else {
            line.free_at = ready_at + if alone { 0 } else { model.hold_ns };
            line.exclusive = true;
            line.sharers = Cores::only(core);
            line.owner = core;
        }
        debug_assert!(
            !line.exclusive || line.sharers.count() == 1,
            "an exclusive line has one sharer"
        );
        Cost {
            ready_at,
            missed: !alone,
        }
    }

    /// Memory at `address` was freed: its lines are in no core's cache any more.
    pub(crate) fn forget(&mut self, address: usize, bytes: usize) {
        let first = address >> LINE_SHIFT;
        let end = (address + bytes).div_ceil(1 << LINE_SHIFT);
        if end - first > self.slots.len() {
            for line in &mut self.slots {
                if (first..end).contains(&line.number) {
                    Self::reset(line);
                }
            }
        } else {
            for number in first..end {
                let index = self.find(number);
                Self::reset(&mut self.slots[index]);
            }
        }
    }

    fn reset(line: &mut Line) {
        line.sharers = Cores::default();
        line.exclusive = false;
        line.free_at = 0;
    }

    /// The lines with most transfers, hottest first.
    pub(crate) fn hottest(&self, count: usize) -> Vec<HotLine> {
        let mut lines: Vec<&Line> = self
            .slots
            .iter()
            .filter(|line| line.transfers > 0)
            .collect();
        lines.sort_by_key(|line| (u64::MAX - line.transfers, line.number));
        lines.truncate(count);
        let report = |line: &&Line| HotLine {
            address: line.number << LINE_SHIFT,
            accesses: line.accesses,
            transfers: line.transfers,
            waited_ns: line.waited_ns,
        };
        lines.iter().map(report).collect()
    }

    /// The slot of a line, or the empty slot where it belongs.
    #[inline]
    fn find(&self, number: usize) -> usize {
        let mask = self.slots.len() - 1;
        let mut index = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32 & mask;
        while self.slots[index].number != number && self.slots[index].number != 0 {
            index = (index + 1) & mask;
        }
        index
    }

    #[inline]
    fn slot_of(&mut self, number: usize) -> usize {
        let index = self.find(number);
        if self.slots[index].number == number {
            return index;
        }
        self.insert(number)
    }

    #[cold]
    fn insert(&mut self, number: usize) -> usize {
        assert_ne!(number, 0, "nothing lives at address 0");
        if self.used * 2 >= self.slots.len() {
            let bigger = vec![Line::default(); self.slots.len() * 2];
            let old = std::mem::replace(&mut self.slots, bigger);
            for line in old.into_iter().filter(|line| line.number != 0) {
                let index = self.find(line.number);
                self.slots[index] = line;
            }
        }
        self.used += 1;
        let index = self.find(number);
        self.slots[index].number = number;
        index
    }
}

fn transfer_ns(model: &CostModel, core: usize, line: &Line, others: &Cores) -> u64 {
    let socket = core / model.cores_per_socket;
    let owner = line.owner;
    // The owner supplies the line; if it gave it up, the nearest sharer does.
    let source = if others.contains(owner) {
        owner
    } else {
        others.first().expect("another core has the line")
    };
    let from = source / model.cores_per_socket;
    if from == socket {
        model.transfer_ns
    } else if line.home == from || line.home == socket {
        model.transfer_far_ns
    } else {
        model.transfer_far_ns + model.third_node_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::GENERIC;

    const HERE: usize = 0x1000;

    #[test]
    fn first_touch_is_no_transfer_and_ping_pong_is() {
        let mut lines = LineTable::new();
        lines.access(Access::Update, HERE, 0, 0, &GENERIC);
        lines.access(Access::Update, HERE, 0, 10, &GENERIC);
        assert_eq!(lines.transfers(), 0);
        let cost = lines.access(Access::Update, HERE + 8, 1, 1_000, &GENERIC);
        assert_eq!(
            (cost.ready_at, cost.missed),
            (1_000 + GENERIC.transfer_ns, true)
        );
        assert_eq!(lines.transfers(), 1);
        assert!(!lines.hits(Access::Load, HERE, 0));
        assert!(lines.hits(Access::Update, HERE, 1));
    }

    #[test]
    fn readers_share_and_a_writer_takes_it_from_them() {
        let mut lines = LineTable::new();
        lines.access(Access::Store, HERE, 0, 0, &GENERIC);
        for core in 1..4 {
            lines.access(Access::Load, HERE, core, 100, &GENERIC);
        }
        assert_eq!(lines.transfers(), 3);
        assert!((0..4).all(|core| lines.hits(Access::Load, HERE, core)));
        assert!(!lines.hits(Access::Store, HERE, 0));
        lines.access(Access::Store, HERE, 0, 500, &GENERIC);
        assert_eq!(lines.transfers(), 4);
        assert!(!lines.hits(Access::Load, HERE, 3));
    }

    #[test]
    fn transfers_of_one_line_queue_and_far_ones_cost_more() {
        let mut lines = LineTable::new();
        lines.access(Access::Update, HERE, 0, 0, &GENERIC);
        let first = lines.access(Access::Update, HERE, 1, 0, &GENERIC);
        let second = lines.access(Access::Update, HERE, 40, 0, &GENERIC);
        let expected = first.ready_at + GENERIC.hold_ns + GENERIC.transfer_far_ns;
        assert_eq!(second.ready_at, expected);
        assert_eq!(
            lines.hottest(1)[0].waited_ns,
            first.ready_at + GENERIC.hold_ns + 1
        );
    }

    #[test]
    fn a_line_can_be_shared_by_all_cores_there_can_be() {
        let mut lines = LineTable::new();
        for core in 0..CORES_MAX {
            lines.access(Access::Load, HERE, core, 0, &GENERIC);
        }
        assert!((0..CORES_MAX).all(|core| lines.hits(Access::Load, HERE, core)));
        lines.access(Access::Store, HERE, CORES_MAX - 1, 0, &GENERIC);
        let left = (0..CORES_MAX).filter(|core| lines.hits(Access::Load, HERE, *core));
        assert_eq!(left.collect::<Vec<_>>(), [CORES_MAX - 1]);
    }

    #[test]
    fn freed_memory_belongs_to_nobody() {
        let mut lines = LineTable::new();
        lines.access(Access::Update, HERE, 0, 0, &GENERIC);
        lines.forget(HERE, 64);
        assert!(!lines.access(Access::Update, HERE, 1, 9, &GENERIC).missed);
        assert_eq!(lines.transfers(), 0);
    }

    #[test]
    fn the_table_grows() {
        let mut lines = LineTable::new();
        for line in 1..=5_000_usize {
            lines.access(Access::Update, line << LINE_SHIFT, 0, 0, &GENERIC);
        }
        assert!((1..=5_000).all(|line| lines.hits(Access::Update, line << LINE_SHIFT, 0)));
    }
}
