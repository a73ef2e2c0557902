//! The file system of the crash tests: granules, their images, a NAT, a volume header.

use dure_block::ram::Image;
use dure_block::record::{LostFlushes, RecordDevice, RecordLog};
use dure_block::{BLOCK_BYTES, Lba, Queue, WriteFlags, share};
use dure_journal::format::slotted::{self, SlotKind};
use dure_journal::recovery::write_fresh_headers;
use dure_journal::{
    BeginError, CommitError, Cut, GranuleId, Journal, JournalConfig, JournalId, Mark, Nid, Order,
    RingStart, Rules, Settle,
};
use dure_sync::{Arc, CoreId, Mutex};

use super::medium::{device_on, queue_of, queue_on};
use super::truth::{Operation, Payload, SLOTS, Truth};

pub(crate) const SEED: u32 = 0x5eed;
pub(crate) const SEGMENT_BLOCKS: u32 = 8;
pub(crate) const GRANULES: usize = 4;
pub(crate) const DEVICE_BLOCKS: u64 = 2048;
const VOLUME: SlotKind = SlotKind(900);
const NAT: SlotKind = SlotKind(901);
const VOLUME_AT: Lba = Lba::new(0);
const NAT_AT: Lba = Lba::new(2);
const IMAGES_AT: u64 = 64;
const LOGS_AT: u64 = 1024;

/// Where the header pair of journal `index` is.
pub(crate) fn header_at(index: usize) -> Lba {
    Lba::new(4 + 2 * u64::try_from(index).unwrap())
}

/// Segment `number` of the device.
pub(crate) fn segment_at(number: u64) -> Lba {
    Lba::new(LOGS_AT + number * u64::from(SEGMENT_BLOCKS))
}

/// What a test leaves out, besides the journal's own rules.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TestRules {
    pub(crate) journal: Rules,
    /// Handles mark what they read.
    pub(crate) read_marks: bool,
    /// The device forgets flushes.
    pub(crate) lost_flushes: bool,
}

impl Default for TestRules {
    fn default() -> Self {
        Self {
            journal: Rules::default(),
            read_marks: true,
            lost_flushes: false,
        }
    }
}

/// The volume header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Volume {
    pub(crate) generation: u64,
    pub(crate) epoch: u64,
    pub(crate) first_number: u64,
    pub(crate) journals: u64,
}

/// The NAT: image block and version by granule, and the next free image block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Nat {
    pub(crate) generation: u64,
    pub(crate) next_image: u64,
    pub(crate) entries: Vec<(u64, u64)>,
}

fn words(body: &[u8]) -> Vec<u64> {
    body.as_chunks::<8>()
        .0
        .iter()
        .map(|bytes| u64::from_le_bytes(*bytes))
        .collect()
}

fn write_pair(queue: &Queue, kind: SlotKind, pair: Lba, generation: u64, content: &[u64]) {
    let mut block = vec![0; BLOCK_BYTES];
    for (place, word) in block[slotted::SLOT_HEADER_BYTES..]
        .chunks_exact_mut(8)
        .zip(content)
    {
        place.copy_from_slice(&word.to_le_bytes());
    }
    let at = slotted::seal(&mut block, kind, pair, generation, SEED);
    queue.write(at, &block, WriteFlags::NONE).unwrap();
}

fn read_pair(queue: &Queue, kind: SlotKind, pair: Lba) -> Option<(u64, Vec<u64>)> {
    let mut blocks = vec![0; 2 * BLOCK_BYTES];
    queue.read(pair, &mut blocks).unwrap();
    let (first, second) = blocks.split_at(BLOCK_BYTES);
    let newest = slotted::open(first, second, kind, pair, SEED)?;
    Some((newest.generation, words(newest.body)))
}

impl Volume {
    pub(crate) fn write(self, queue: &Queue) {
        let content = [self.epoch, self.first_number, self.journals];
        write_pair(queue, VOLUME, VOLUME_AT, self.generation, &content);
    }

    pub(crate) fn read(queue: &Queue) -> Option<Self> {
        let (generation, words) = read_pair(queue, VOLUME, VOLUME_AT)?;
        Some(Self {
            generation,
            epoch: words[0],
            first_number: words[1],
            journals: words[2],
        })
    }
}

impl Nat {
    pub(crate) fn write(&self, queue: &Queue) {
        let entries = self
            .entries
            .iter()
            .flat_map(|(block, version)| [*block, *version]);
        let content: Vec<u64> = std::iter::once(self.next_image).chain(entries).collect();
        write_pair(queue, NAT, NAT_AT, self.generation, &content);
    }

    pub(crate) fn read(queue: &Queue) -> Option<Self> {
        let (generation, words) = read_pair(queue, NAT, NAT_AT)?;
        let entries = (0..GRANULES).map(|granule| (words[1 + 2 * granule], words[2 + 2 * granule]));
        Some(Self {
            generation,
            next_image: words[0],
            entries: entries.collect(),
        })
    }
}

/// Writes the image of a granule; block 0 is never an image.
pub(crate) fn write_image(queue: &Queue, at: u64, granule: usize, version: u64, payload: &Payload) {
    let mut block = vec![0; BLOCK_BYTES];
    let head = [u64::try_from(granule).unwrap(), version];
    for (place, word) in block[8..]
        .chunks_exact_mut(8)
        .zip(head.iter().chain(payload))
    {
        place.copy_from_slice(&word.to_le_bytes());
    }
    let crc = crc32c::crc32c(&block[8..]);
    block[..4].copy_from_slice(&crc.to_le_bytes());
    queue.write(Lba::new(at), &block, WriteFlags::NONE).unwrap();
}

/// Reads the image of a granule that must have `version`.
pub(crate) fn read_image(
    queue: &Queue,
    at: u64,
    granule: usize,
    version: u64,
) -> Result<Payload, String> {
    let mut block = vec![0; BLOCK_BYTES];
    queue.read(Lba::new(at), &mut block).unwrap();
    let crc = u32::from_le_bytes([block[0], block[1], block[2], block[3]]);
    let words = words(&block);
    let head = [u64::try_from(granule).unwrap(), version];
    if crc != crc32c::crc32c(&block[8..]) || words[1..3] != head {
        return Err(format!(
            "the NAT names block {at}, which is no image of granule {granule}"
        ));
    }
    let mut payload = [0; SLOTS];
    payload.copy_from_slice(&words[3..3 + SLOTS]);
    Ok(payload)
}

/// Counts effects, and checks their order.
#[derive(Debug)]
pub(crate) struct Settled {
    /// Numbers settled, by journal.
    pub(crate) numbers: Mutex<90, Vec<Vec<u64>>>,
}

impl Settle for Settled {
    type Effect = (JournalId, u64);

    fn settle(&self, effects: Vec<Self::Effect>) {
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
    /// The medium at mount.
    pub(crate) start: Image,
    pub(crate) journal: Journal<Settled>,
    pub(crate) settled: Arc<Settled>,
    pub(crate) truth: Mutex<200, Truth>,
    pub(crate) rules: TestRules,
    granules: Vec<Mutex<100, Granule>>,
    nat: Mutex<80, Nat>,
    /// Next effect number of each journal; under the journal's order of joins.
    tickets: Mutex<120, Vec<u64>>,
    checkpoints: Mutex<81, u64>,
}

/// A fresh volume with `journals` journals of `segments` segments each.
pub(crate) fn format(journals: usize, segments: u64) -> Image {
    let device = Arc::new(device_on(Image::zeroed(DEVICE_BLOCKS)));
    let queue = queue_of(share(Arc::clone(&device)));
    let rings: Vec<RingStart> = (0..journals)
        .map(|index| {
            let base = u64::try_from(index).unwrap() * 16;
            let segments = (base..base + segments).map(segment_at).collect();
            RingStart {
                header: header_at(index),
                generation: 1,
                segments,
            }
        })
        .collect();
    write_fresh_headers(&queue, SEED, SEGMENT_BLOCKS, &rings).unwrap();
    Nat {
        generation: 1,
        next_image: IMAGES_AT,
        entries: vec![(0, 0); GRANULES],
    }
    .write(&queue);
    let journals = u64::try_from(journals).unwrap();
    Volume {
        generation: 1,
        epoch: 1,
        first_number: 1,
        journals,
    }
    .write(&queue);
    device.snapshot()
}

impl Buffers {
    /// Mounts `image`, which is clean: its logs are empty.
    pub(crate) fn mount(image: Image, rings: Vec<RingStart>, rules: TestRules) -> Self {
        let reader = queue_on(image.clone());
        let volume = Volume::read(&reader).expect("a clean volume has a header");
        let nat = Nat::read(&reader).expect("a clean volume has a NAT");
        let granules: Vec<Granule> = nat
            .entries
            .iter()
            .enumerate()
            .map(|(granule, (block, version))| {
                let payload = if *block == 0 {
                    [0; SLOTS]
                } else {
                    read_image(&reader, *block, granule, *version).unwrap()
                };
                Granule {
                    version: *version,
                    last_writer: Mark::NONE,
                    payload,
                }
            })
            .collect();
        let truth = granules
            .iter()
            .map(|granule| (granule.version, granule.payload))
            .collect();
        let lost = if rules.lost_flushes {
            LostFlushes::All
        } else {
            LostFlushes::None
        };
        let recorder = RecordDevice::with_lost_flushes(share(device_on(image.clone())), lost);
        let log = recorder.log();
        let queue = queue_of(share(recorder));
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
            rules: rules.journal,
        };
        let journal = Journal::start(Arc::clone(&queue), Arc::clone(&settled), config).unwrap();
        Self {
            queue,
            log,
            start: image,
            journal,
            settled,
            truth: Mutex::new(Truth::new(truth)),
            rules,
            granules: granules.into_iter().map(Mutex::new).collect(),
            nat: Mutex::new(nat),
            tickets: Mutex::new(vec![0; journals]),
            checkpoints: Mutex::new(0),
        }
    }

    /// One operation; `None` if the log is full.
    pub(crate) fn change(&self, change: Change) -> Option<Mark> {
        let mut handle = match self
            .journal
            .begin(CoreId::new(change.core), 400 + usize::from(change.note))
        {
            Ok(handle) => handle,
            Err(BeginError::LogFull) => return None,
            Err(error) => panic!("{error}"),
        };
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
        Some(mark)
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
            if self.rules.journal.closure {
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

    /// Steps 2 to 4: commit, images, NAT, headers. Stops after `steps` of them.
    pub(crate) fn checkpoint_finish(
        &self,
        checkpoint: &Checkpoint,
        steps: u8,
    ) -> Result<(), CommitError> {
        self.journal
            .commit_checkpoint(&checkpoint.cut, &checkpoint.last_writers)?;
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
        self.queue.flush().unwrap();
        if steps == 2 {
            return Ok(());
        }
        next.write(&self.queue);
        self.queue.flush().unwrap();
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
            .unwrap();
        Ok(())
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
