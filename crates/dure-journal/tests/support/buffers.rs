//! The file system of the crash tests, mounted: granules, operations, commits, checkpoints.

use std::time::Duration;

use dure_block::delay::DelayDevice;
use dure_block::fault::{FaultDevice, Rule};
use dure_block::overlay::OverlayRam;
use dure_block::ram::Image;
use dure_block::record::{LostFlushes, RecordDevice, RecordLog};
use dure_block::{FlushPolicy, Media, Queue, QueueConfig, share};
use dure_journal::{
    BeginError, Buffer, BufferUse, CommitError, Cut, Effects, GranuleId, Hold, ImageJoin, Journal,
    JournalConfig, JournalId, LogMedium, Mark, Nid, Order, Records, RingStart, Rules, Settle,
    TransactionId,
};
use dure_sync::{Arc, CoreId, Mutex, MutexGuard};

use super::disk::{GRANULES, Nat, SEED, SEGMENT_BLOCKS, Volume, read_image, write_image};
use super::medium::{device_on, queue_on};
use super::truth::{Operation, Payload, SLOTS, Truth};

/// What a test leaves out, besides the journal's own rules.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TestRules {
    pub(crate) journal: Rules,
    /// Handles mark what they read.
    pub(crate) read_marks: bool,
    /// What the log holds.
    pub(crate) records: Records,
    /// The device forgets flushes.
    pub(crate) lost_flushes: bool,
    /// The queue lets callers share a flush that is already running.
    pub(crate) early_flush: bool,
    /// How long a flush takes.
    pub(crate) flush_time: Duration,
}

impl Default for TestRules {
    fn default() -> Self {
        Self {
            journal: Rules::default(),
            read_marks: true,
            records: Records::Delta,
            lost_flushes: false,
            early_flush: false,
            flush_time: Duration::ZERO,
        }
    }
}

impl TestRules {
    /// All rules, with whole buffers in the log.
    pub(crate) fn images() -> Self {
        Self {
            records: Records::Image {
                image_bytes_max: to_u32(IMAGE_BYTES),
            },
            ..Self::default()
        }
    }
}

/// Granules of one buffer (policy `image`).
const GRANULES_PER_BUFFER: usize = 2;
/// Bytes of a granule's version and payload.
const GRANULE_BYTES: usize = 8 + 8 * SLOTS;
/// Bytes of an image: versions and payloads of its granules.
const IMAGE_BYTES: usize = GRANULES_PER_BUFFER * GRANULE_BYTES;

fn to_u32(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("small")
}

/// Two granules that are logged together.
#[derive(Debug)]
struct Pair {
    number: usize,
    granules: Arc<Vec<Mutex<100, Granule>>>,
    hold: Hold,
}

fn encode<'g>(granules: impl Iterator<Item = &'g Granule>) -> Vec<u8> {
    let mut out = Vec::new();
    for granule in granules {
        out.extend(granule.version.to_le_bytes());
        granule
            .payload
            .iter()
            .for_each(|word| out.extend(word.to_le_bytes()));
    }
    out
}

/// (granule, version, payload) of what an image holds.
pub(crate) fn decode(buffer: u64, image: &[u8]) -> Vec<(usize, u64, Payload)> {
    assert_eq!(image.len(), IMAGE_BYTES);
    let first = usize::try_from(buffer).unwrap() * GRANULES_PER_BUFFER;
    let word = |at: usize| u64::from_le_bytes(image[at..at + 8].try_into().unwrap());
    let one = |n: usize| {
        let at = n * GRANULE_BYTES;
        let mut payload = [0; SLOTS];
        for (slot, value) in payload.iter_mut().enumerate() {
            *value = word(at + 8 + 8 * slot);
        }
        (first + n, word(at), payload)
    };
    (0..GRANULES_PER_BUFFER).map(one).collect()
}

/// As the journal holds it.
#[derive(Debug)]
struct Filed(Arc<Pair>);

impl Buffer for Filed {
    fn nid(&self) -> Nid {
        Nid(u64::try_from(self.0.number).unwrap())
    }

    fn hold(&self) -> &Hold {
        &self.0.hold
    }

    fn capture(&self, transaction: TransactionId, out: &mut Vec<u8>) {
        let pair = &self.0;
        let first = pair.number * GRANULES_PER_BUFFER;
        let guards: Vec<_> = pair.granules[first..first + GRANULES_PER_BUFFER]
            .iter()
            .map(|granule| granule.lock_ordered())
            .collect();
        match pair.hold.take_frozen(transaction) {
            Some(frozen) => out.extend(frozen),
            None => {
                out.extend(encode(guards.iter().map(|guard| &**guard)));
                pair.hold.captured(transaction);
            }
        }
    }
}

/// Counts effects, and checks their order.
#[derive(Debug)]
pub(crate) struct Settled {
    /// Numbers settled, by journal.
    pub(crate) numbers: Mutex<90, Vec<Vec<u64>>>,
}

impl Settle for Settled {
    type Effect = (JournalId, u64);

    fn settle(&self, effects: Effects<Self::Effect>) {
        let mut numbers = self.numbers.lock();
        for (journal, ticket) in effects {
            numbers[journal.index()].push(ticket);
        }
    }
}

#[derive(Debug, Clone)]
struct Granule {
    version: u64,
    last_writer: Mark,
    payload: Payload,
}

/// A checkpoint between its steps.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    cut: Cut,
    copied: Vec<(usize, u64, Payload)>,
    last_writers: Vec<Mark>,
}

/// What one operation does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Change {
    pub(crate) core: u16,
    /// Bit set of granules.
    pub(crate) writes: u8,
    /// Bit set of granules.
    pub(crate) reads: u8,
    /// Bytes of a note that makes the record long.
    pub(crate) note: u16,
}

/// A mounted volume.
pub(crate) struct Buffers {
    pub(crate) queue: Arc<Queue>,
    pub(crate) log: Arc<RecordLog>,
    pub(crate) faulty: Arc<FaultDevice>,
    medium: Arc<OverlayRam>,
    /// The medium at mount.
    pub(crate) start: Image,
    pub(crate) journal: Journal<Settled>,
    pub(crate) settled: Arc<Settled>,
    pub(crate) truth: Mutex<200, Truth>,
    pub(crate) rules: TestRules,
    granules: Arc<Vec<Mutex<100, Granule>>>,
    pairs: Vec<Arc<Pair>>,
    nat: Mutex<80, Nat>,
    /// Next effect number of each journal; under the journal's order of joins.
    tickets: Mutex<120, Vec<u64>>,
    checkpoints: Mutex<81, u64>,
}

fn pairs_of(granules: &Arc<Vec<Mutex<100, Granule>>>) -> Vec<Arc<Pair>> {
    let pair = |number| {
        Arc::new(Pair {
            number,
            granules: Arc::clone(granules),
            hold: Hold::new(),
        })
    };
    (0..GRANULES / GRANULES_PER_BUFFER).map(pair).collect()
}

/// Keeps the copies of pairs that a join has asked for.
fn freeze(
    joined: &ImageJoin,
    written: &[&Arc<Pair>],
    guards: &[(usize, MutexGuard<'_, 100, Granule>)],
) {
    for (at, transaction) in &joined.freeze {
        let pair = written[*at];
        let of_pair = guards
            .iter()
            .filter(|(granule, _)| granule / GRANULES_PER_BUFFER == pair.number);
        let image = encode(of_pair.map(|(_, guard)| &**guard));
        pair.hold.freeze(*transaction, image);
    }
}

/// The granules that the NAT names.
fn read_granules(reader: &Queue, nat: &Nat) -> Vec<Granule> {
    nat.entries
        .iter()
        .enumerate()
        .map(|(granule, (block, version))| {
            let payload = if *block == 0 {
                [0; SLOTS]
            } else {
                read_image(reader, *block, granule, *version).unwrap()
            };
            Granule {
                version: *version,
                last_writer: Mark::NONE,
                payload,
            }
        })
        .collect()
}

impl Buffers {
    /// Mounts `image`, which is clean: its logs are empty.
    pub(crate) fn mount(image: Image, rings: Vec<RingStart>, rules: TestRules) -> Self {
        Self::mount_faulty(image, rings, rules, Vec::new())
    }

    /// As `mount`, on a device that fails as `faults` say.
    pub(crate) fn mount_faulty(
        image: Image,
        rings: Vec<RingStart>,
        rules: TestRules,
        faults: Vec<Rule>,
    ) -> Self {
        let reader = queue_on(image.clone());
        let volume = Volume::read(&reader).expect("a clean volume has a header");
        let nat = Nat::read(&reader).expect("a clean volume has a NAT");
        let granules = read_granules(&reader, &nat);
        let truth = granules
            .iter()
            .map(|granule| (granule.version, granule.payload))
            .collect();
        let lost = if rules.lost_flushes {
            LostFlushes::All
        } else {
            LostFlushes::None
        };
        let medium = Arc::new(device_on(image.clone()));
        let faulty = Arc::new(FaultDevice::new(share(Arc::clone(&medium))));
        faults.into_iter().for_each(|rule| faulty.add(rule));
        let slow = DelayDevice::new(share(Arc::clone(&faulty)), Duration::ZERO, rules.flush_time);
        let recorder = RecordDevice::with_lost_flushes(share(slow), lost);
        let log = recorder.log();
        let flush = if rules.early_flush {
            FlushPolicy::CanarySharesRunning
        } else {
            FlushPolicy::Compound
        };
        let queue = Queue::new(
            share(recorder),
            QueueConfig {
                nr_requests: 8,
                flush,
                ..QueueConfig::default()
            },
        );
        let log_medium = LogMedium::on(Media::behind(Arc::clone(&queue)));
        let journals = rings.len();
        let numbers = Mutex::new(vec![Vec::new(); journals]);
        let settled = Arc::new(Settled { numbers });
        let config = JournalConfig {
            epoch: volume.epoch,
            first_number: volume.first_number,
            order: if journals == 1 {
                Order::Single
            } else {
                Order::PerCore
            },
            seed: SEED,
            segment_blocks: SEGMENT_BLOCKS,
            journals: rings,
            records: rules.records,
            rules: rules.journal,
        };
        let journal = Journal::start(log_medium, Arc::clone(&settled), config).unwrap();
        let granules: Arc<Vec<_>> = Arc::new(granules.into_iter().map(Mutex::new).collect());
        Self {
            pairs: pairs_of(&granules),
            queue,
            faulty,
            medium,
            log,
            start: image,
            journal,
            settled,
            truth: Mutex::new(Truth::new(truth)),
            rules,
            granules,
            nat: Mutex::new(nat),
            tickets: Mutex::new(vec![0; journals]),
            checkpoints: Mutex::new(0),
        }
    }

    /// One operation; `None` if the log is full.
    pub(crate) fn change(&self, change: Change) -> Option<Mark> {
        match self.try_change(change) {
            Ok(mark) => Some(mark),
            Err(BeginError::LogFull) => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// One operation.
    pub(crate) fn try_change(&self, change: Change) -> Result<Mark, BeginError> {
        if self.rules.records != Records::Delta {
            return self.try_change_images(change);
        }
        let bytes = 400 + usize::from(change.note);
        let mut handle = self.journal.begin(CoreId::new(change.core), bytes)?;
        let touched = |granule: &usize| (change.writes | change.reads) >> granule & 1 == 1;
        let mut guards: Vec<_> = (0..GRANULES)
            .filter(touched)
            .map(|granule| (granule, self.granules[granule].lock_ordered()))
            .collect();
        let mut operation = Operation {
            mark: Mark::NONE,
            writes: Vec::new(),
            wrote_after: Vec::new(),
            read_from: Vec::new(),
        };
        for (granule, guard) in &mut guards {
            if change.writes >> *granule & 1 == 0 {
                operation.read_from.push(guard.last_writer);
                if self.rules.read_marks {
                    handle.mark(guard.last_writer);
                }
                continue;
            }
            operation.wrote_after.push(guard.last_writer);
            handle.mark(guard.last_writer);
            guard.version += 1;
            let slot = usize::try_from(guard.version).unwrap() % SLOTS;
            let value =
                guard.version * 1_000_003 + u64::from(change.core) * 17 + u64::from(change.note);
            guard.payload[slot] = value;
            let id = GranuleId {
                nid: Nid(u64::try_from(*granule).unwrap()),
                index: 3,
            };
            let offset = u16::try_from(slot * 8).unwrap();
            handle.delta(id, guard.version, offset, &value.to_le_bytes());
            operation.writes.push((*granule, guard.version));
        }
        if change.note > 0 {
            handle.note(7, &vec![7; usize::from(change.note) - 5]);
        }
        // Tickets are drawn in join order: the lock is held over the join.
        let mut tickets = self.tickets.lock();
        let id = handle.journal();
        let ticket = &mut tickets[id.index()];
        *ticket += 1;
        handle.effect((id, *ticket));
        let mark = handle.join();
        drop(tickets);
        operation.mark = mark;
        {
            let mut truth = self.truth.lock();
            for (granule, guard) in &guards {
                truth
                    .payloads
                    .insert((*granule, guard.version), guard.payload);
            }
            truth.operations.push(operation);
        }
        for (granule, guard) in &mut guards {
            if change.writes >> *granule & 1 == 1 {
                guard.last_writer = mark;
            }
        }
        Ok(mark)
    }

    /// The same, with whole buffers in the log.
    fn try_change_images(&self, change: Change) -> Result<Mark, BeginError> {
        let pairs = to_u32(self.pairs.len());
        let bytes = 400 + usize::from(change.note);
        let core = CoreId::new(change.core);
        let mut handle = self.journal.begin_images(core, bytes, pairs)?;
        let writes = |granule: usize| change.writes >> granule & 1 == 1;
        let in_pair = |granule: usize| {
            let first = granule / GRANULES_PER_BUFFER * GRANULES_PER_BUFFER;
            (first..first + GRANULES_PER_BUFFER).any(writes)
        };
        let touched = |granule: &usize| in_pair(*granule) || change.reads >> granule & 1 == 1;
        let mut guards: Vec<_> = (0..GRANULES)
            .filter(touched)
            .map(|granule| (granule, self.granules[granule].lock_ordered()))
            .collect();
        let mut operation = Operation {
            mark: Mark::NONE,
            writes: Vec::new(),
            wrote_after: Vec::new(),
            read_from: Vec::new(),
        };
        for (granule, guard) in &guards {
            if writes(*granule) {
                operation.wrote_after.push(guard.last_writer);
                operation.writes.push((*granule, guard.version + 1));
            } else if change.reads >> granule & 1 == 1 {
                operation.read_from.push(guard.last_writer);
            }
            // The image holds the other granule of the pair, too.
            if in_pair(*granule) || self.rules.read_marks {
                handle.mark(guard.last_writer);
            }
        }
        if change.note > 0 {
            handle.note(7, &vec![7; usize::from(change.note) - 5]);
        }
        let written: Vec<&Arc<Pair>> = self
            .pairs
            .iter()
            .filter(|pair| in_pair(pair.number * GRANULES_PER_BUFFER))
            .collect();
        let uses = written.iter().map(|pair| BufferUse {
            buffer: Box::new(Filed(Arc::clone(pair))),
            change: dure_journal::Change::Content,
        });
        let mut tickets = self.tickets.lock();
        let id = handle.journal();
        let ticket = &mut tickets[id.index()];
        *ticket += 1;
        handle.effect((id, *ticket));
        let joined = handle.join_images(uses.collect());
        drop(tickets);
        freeze(&joined, &written, &guards);
        operation.mark = joined.mark;
        let mut truth = self.truth.lock();
        for (granule, guard) in guards.iter_mut().filter(|(granule, _)| writes(*granule)) {
            guard.version += 1;
            let slot = usize::try_from(guard.version).unwrap() % SLOTS;
            guard.payload[slot] =
                guard.version * 1_000_003 + u64::from(change.core) * 17 + u64::from(change.note);
            guard.last_writer = joined.mark;
            truth
                .payloads
                .insert((*granule, guard.version), guard.payload);
        }
        truth.operations.push(operation);
        Ok(joined.mark)
    }

    /// fsync of the granules in `mask`. What it has promised is remembered.
    pub(crate) fn commit(&self, mask: u8) -> Result<(), CommitError> {
        let marks: Vec<Mark> = (0..GRANULES)
            .filter(|granule| mask >> granule & 1 == 1)
            .map(|granule| self.granules[granule].lock().last_writer)
            .collect();
        self.journal.commit(&marks)?;
        self.promise(&marks);
        Ok(())
    }

    /// sync.
    pub(crate) fn commit_all(&self) -> Result<(), CommitError> {
        let cut = self.journal.cut();
        self.journal.commit_all()?;
        let marks: Vec<Mark> = (0..self.journal.journal_count())
            .map(|index| JournalId::new(u16::try_from(index).unwrap()).unwrap())
            .filter(|id| cut.last(*id) > 0)
            .map(|id| Mark::new(id, cut.last(id)))
            .collect();
        self.promise(&marks);
        Ok(())
    }

    /// The handles in `marks` survive from now on.
    pub(crate) fn promise(&self, marks: &[Mark]) {
        let step = self.log.step();
        let mut truth = self.truth.lock();
        for mark in marks.iter().filter(|mark| !mark.is_none()) {
            if self.rules.journal.closure.holds() && self.rules.journal.wait_valid.holds() {
                assert!(
                    self.journal.is_valid(*mark),
                    "a commit returns when its roots are valid"
                );
            }
            truth.promises.push((step, *mark));
        }
    }

    /// Step 1 of a checkpoint: the cut, then the copies.
    pub(crate) fn checkpoint_copy(&self) -> Checkpoint {
        let cut = self.journal.cut();
        let nat = self.nat.lock().clone();
        let mut copied = Vec::new();
        let mut last_writers = Vec::new();
        for (index, granule) in self.granules.iter().enumerate() {
            let granule = granule.lock();
            if granule.version > nat.entries[index].1 {
                copied.push((index, granule.version, granule.payload));
                last_writers.push(granule.last_writer);
            }
        }
        Checkpoint {
            cut,
            copied,
            last_writers,
        }
    }

    /// What is on the medium now.
    pub(crate) fn faulty_image(&self) -> Image {
        self.medium.snapshot()
    }

    fn flush(&self) -> Result<(), String> {
        self.queue.flush().map_err(|error| error.to_string())
    }

    /// Steps 2 to 4: commit, images, NAT, headers. Stops after `steps` of them.
    pub(crate) fn checkpoint_finish(
        &self,
        checkpoint: &Checkpoint,
        steps: u8,
    ) -> Result<(), String> {
        self.journal
            .commit_checkpoint(&checkpoint.cut, &checkpoint.last_writers)
            .map_err(|error| error.to_string())?;
        if steps == 1 {
            return Ok(());
        }
        let mut nat = self.nat.lock();
        let mut next = nat.clone();
        next.generation += 1;
        for (granule, version, payload) in &checkpoint.copied {
            write_image(&self.queue, next.next_image, *granule, *version, payload);
            next.entries[*granule] = (next.next_image, *version);
            next.next_image += 1;
        }
        self.flush()?;
        if steps == 2 {
            return Ok(());
        }
        next.write(&self.queue);
        self.flush()?;
        *nat = next;
        drop(nat);
        if steps == 3 {
            return Ok(());
        }
        let number = {
            let mut checkpoints = self.checkpoints.lock();
            *checkpoints += 1;
            *checkpoints
        };
        self.journal
            .checkpoint_done(&checkpoint.cut, number)
            .map_err(|error| error.to_string())
    }

    /// A whole checkpoint.
    pub(crate) fn checkpoint(&self) {
        let checkpoint = self.checkpoint_copy();
        self.checkpoint_finish(&checkpoint, 4)
            .expect("a checkpoint's commit has its space");
    }

    /// Settled exactly once each, in join order, and only what is valid.
    pub(crate) fn check_settled(&self) {
        for numbers in self.settled.numbers.lock().iter() {
            assert!(
                numbers
                    .iter()
                    .copied()
                    .eq(1..=u64::try_from(numbers.len()).unwrap())
            );
        }
    }
}
