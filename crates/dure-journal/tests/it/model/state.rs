//! The machine: what is in memory, what was written, what is durable.

use super::rules::{Records, Rules};

/// Most that a case has; [`Rules::cores`] of them do something.
pub(crate) const CORES: usize = 3;
/// With `Records::Delta` a buffer is what has a version; with `Records::Image` it is a granule of a
/// node.
pub(crate) const BUFFERS: usize = 4;
pub(crate) const NODES: usize = 3;
/// The buffers of each node, as bit sets.
pub(crate) const NODE: [u8; NODES] = [0b0011, 0b0100, 0b1000];
/// Transactions a core may have.
pub(crate) const TIDS: usize = 4;
pub(crate) const DATA_BLOCKS: usize = 3;
/// Versions a buffer may reach, and 0.
pub(crate) const VERSIONS: usize = 6;
/// A torn block.
pub(crate) const TORN: u8 = 255;

/// A transaction, as an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct TxId(u8);

impl TxId {
    pub(crate) fn new(core: usize, tid: usize) -> Self {
        Self(u8::try_from(core * TIDS + tid).unwrap())
    }

    pub(crate) fn core(self) -> usize {
        usize::from(self.0) / TIDS
    }

    pub(crate) fn tid(self) -> usize {
        usize::from(self.0) % TIDS
    }

    /// All of them.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..CORES * TIDS).map(|index| Self(u8::try_from(index).unwrap()))
    }
}

/// A set of transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct TxSet(pub(crate) u16);

impl TxSet {
    pub(crate) fn has(self, tx: TxId) -> bool {
        self.0 >> tx.0 & 1 == 1
    }

    pub(crate) fn add(&mut self, tx: TxId) {
        self.0 |= 1 << tx.0;
    }

    pub(crate) fn remove(&mut self, tx: TxId) {
        self.0 &= !(1 << tx.0);
    }

    pub(crate) fn within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Write,
    /// Free and allocate again.
    Recreate,
    Free,
}

/// One operation: it writes one or two buffers. Zero for buffers it does not write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Operation {
    pub(crate) tx: TxId,
    /// Bit set of buffers.
    pub(crate) writes: u8,
    pub(crate) kind: Kind,
    /// How often the buffer had been written: the truth.
    pub(crate) version: [u8; BUFFERS],
    /// The version the record carries.
    pub(crate) stored: [u8; BUFFERS],
    /// The data block its slot names.
    pub(crate) block: [u8; BUFFERS],
}

impl Operation {
    pub(crate) fn writes(&self, buffer: usize) -> bool {
        self.writes >> buffer & 1 == 1
    }

    /// Every buffer it writes.
    pub(crate) fn buffers(&self) -> impl Iterator<Item = usize> + '_ {
        (0..BUFFERS).filter(|buffer| self.writes(*buffer))
    }
}

/// Where a write is on its way to the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) enum Reached {
    #[default]
    Memory,
    Written,
    Durable,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Transaction {
    pub(crate) marks: TxSet,
    pub(crate) reached: Reached,
    /// Order of commits over all cores.
    pub(crate) sequence: u8,
    pub(crate) used: bool,
    // Images: two-way marks, given by other cores while it runs; nodes it is to log, as a bit set;
    // those of which it has a copy; the versions in the copies.
    pub(crate) shared: TxSet,
    pub(crate) filed: u8,
    pub(crate) copied: u8,
    pub(crate) copy: [u8; BUFFERS],
}

impl Transaction {
    /// What it needs to be valid.
    pub(crate) fn needs(&self) -> TxSet {
        TxSet(self.marks.0 | self.shared.0)
    }
}

/// What a commit has promised: once the closure is durable, its root is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Promise {
    pub(crate) root: TxId,
    pub(crate) closure: TxSet,
}

/// One slot of the NAT: the version of each buffer's image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Nat {
    pub(crate) generation: u8,
    pub(crate) version: [u8; BUFFERS],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) enum Phase {
    #[default]
    Idle,
    Copied,
    ImageWritten,
}

/// The checkpoint of one buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Checkpoint {
    pub(crate) phase: Phase,
    pub(crate) version: u8,
    pub(crate) last_writer: Option<TxId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct State {
    pub(crate) operations: Vec<Operation>,
    // Buffers in memory.
    pub(crate) version: [u8; BUFFERS],
    pub(crate) stored: [u8; BUFFERS],
    pub(crate) last_writer: [Option<TxId>; BUFFERS],
    pub(crate) freed: [bool; BUFFERS],
    // Logs.
    pub(crate) transactions: [[Transaction; TIDS]; CORES],
    /// Which transaction of the core is running.
    pub(crate) running: [u8; CORES],
    pub(crate) sequence: u8,
    /// With images: the transaction in which a node was filed last.
    pub(crate) owner: [Option<TxId>; NODES],
    /// With images: what walks have found to be valid.
    pub(crate) found: TxSet,
    /// With images: the last promise to each core.
    pub(crate) promises: [Option<Promise>; CORES],
    // Images, by buffer and version, and the NAT.
    pub(crate) images: [[Reached; VERSIONS]; BUFFERS],
    pub(crate) nat_durable: [Option<Nat>; 2],
    pub(crate) nat_written: [Option<Nat>; 2],
    pub(crate) nat_memory: [u8; BUFFERS],
    pub(crate) nat_generation: u8,
    pub(crate) checkpoints: [Checkpoint; BUFFERS],
    pub(crate) checkpoints_begun: u8,
    // Journal headers: the first transaction that is not behind the tail.
    pub(crate) tail_durable: [u8; CORES],
    pub(crate) tail_written: [Option<u8>; CORES],
    /// Log space below this was used again.
    pub(crate) reused: [u8; CORES],
    // Homes of buffers that are written in place: the version there.
    pub(crate) home_durable: [u8; BUFFERS],
    pub(crate) home_written: [Option<u8>; BUFFERS],
    // Data blocks: a code of the operation and buffer that wrote them.
    pub(crate) data_durable: [u8; DATA_BLOCKS],
    pub(crate) data_written: [Option<u8>; DATA_BLOCKS],
}

impl State {
    pub(crate) fn start() -> Self {
        Self {
            nat_durable: [Some(Nat::default()), None],
            ..Self::default()
        }
    }

    pub(crate) fn tx(&self, id: TxId) -> &Transaction {
        &self.transactions[id.core()][id.tid()]
    }

    pub(crate) fn tx_mut(&mut self, id: TxId) -> &mut Transaction {
        &mut self.transactions[id.core()][id.tid()]
    }

    /// Whether a transaction may gain operations.
    pub(crate) fn is_running(&self, id: TxId) -> bool {
        id.tid() == usize::from(self.running[id.core()])
    }

    pub(crate) fn behind_tail(&self, id: TxId) -> bool {
        id.tid() < usize::from(self.tail_durable[id.core()])
    }

    /// What the rule of the case takes for valid.
    pub(crate) fn valid_by(&self, rules: &Rules) -> TxSet {
        match rules.records {
            Records::Image => self.found,
            Records::Delta => self.search_valid(rules),
        }
    }

    /// What a search finds to be valid, as the rule of the case has it.
    pub(crate) fn search_valid(&self, rules: &Rules) -> TxSet {
        if !rules.greatest {
            return self.valid_inductively();
        }
        let done = |id: TxId| {
            let reached = self.tx(id).reached;
            reached == Reached::Durable || (!rules.walk_durable && reached == Reached::Written)
        };
        let mut valid = self.closed_set(done);
        if !rules.walk_transitive {
            // What is marked need only be there.
            valid = TxSet::default();
            let there = |id: TxId| done(id) || self.behind_tail(id);
            for id in TxId::all().filter(|id| self.tx(*id).used && there(*id)) {
                let marks = self.tx(id).needs();
                if TxId::all().filter(|mark| marks.has(*mark)).all(there) {
                    valid.add(id);
                }
            }
        }
        valid
    }

    /// The least set: a transaction joins when all it names have joined.
    fn valid_inductively(&self) -> TxSet {
        let mut valid = TxSet::default();
        TxId::all()
            .filter(|id| self.behind_tail(*id))
            .for_each(|id| valid.add(id));
        loop {
            let before = valid;
            for id in TxId::all() {
                let tx = self.tx(id);
                if tx.used && tx.reached == Reached::Durable && tx.needs().within(before) {
                    valid.add(id);
                }
            }
            if valid == before {
                return valid;
            }
        }
    }

    /// Whether everything that was done is on the medium.
    pub(crate) fn is_all_durable(&self) -> bool {
        let mut used = TxId::all().filter(|id| self.tx(*id).used);
        used.all(|id| self.tx(id).reached == Reached::Durable || self.behind_tail(id))
    }

    /// The greatest set of durable transactions that is closed under marks.
    pub(crate) fn valid(&self) -> TxSet {
        self.closed_set(|id| self.tx(id).reached == Reached::Durable)
    }

    /// The greatest set of used transactions that `may` be in it, and of those behind tails, that is
    /// closed under marks.
    fn closed_set(&self, may: impl Fn(TxId) -> bool) -> TxSet {
        let mut valid = TxSet::default();
        for id in TxId::all() {
            if (self.tx(id).used && may(id)) || self.behind_tail(id) {
                valid.add(id);
            }
        }
        loop {
            let mut next = valid;
            for id in TxId::all().filter(|id| valid.has(*id) && !self.behind_tail(*id)) {
                if !self.tx(id).needs().within(next) {
                    next.remove(id);
                }
            }
            if next == valid {
                return valid;
            }
            valid = next;
        }
    }
}

/// What operation `operation` writes to the data block of `buffer`.
pub(crate) fn data_code(operation: usize, buffer: usize) -> u8 {
    u8::try_from(operation * BUFFERS + buffer + 1).unwrap()
}
