//! The medium of the crash tests' file system: where things are, and how they are written.

use dure_block::ram::Image;
use dure_block::{BLOCK_BYTES, Lba, Media, Queue, WriteFlags, share};
use dure_journal::format::slotted::{self, SlotKind};
use dure_journal::recovery::write_fresh_headers;
use dure_journal::{LogMedium, RingStart};
use dure_sync::Arc;

use super::medium::{device_on, queue_of};
use super::truth::{Payload, SLOTS};

pub(crate) const SEED: u32 = 0x5eed;
pub(crate) const SEGMENT_BLOCKS: u32 = 8;
pub(crate) const GRANULES: usize = 6;
pub(crate) const DEVICE_BLOCKS: u64 = 2048;
const VOLUME: SlotKind = SlotKind(900);
const NAT: SlotKind = SlotKind(901);
const VOLUME_AT: Lba = Lba::new(0);
const NAT_AT: Lba = Lba::new(2);
const IMAGES_AT: u64 = 64;
const LOGS_AT: u64 = 1024;

/// Where the mirrored header pair of journal `index` is.
pub(crate) fn header_at(index: usize) -> Lba {
    Lba::new(4 + 4 * u64::try_from(index).unwrap())
}

/// Segment `number` of the device.
pub(crate) fn segment_at(number: u64) -> Lba {
    Lba::new(LOGS_AT + number * u64::from(SEGMENT_BLOCKS))
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
    let crc = dure_block::crc32c::crc32c(&block[8..]);
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
    if crc != dure_block::crc32c::crc32c(&block[8..]) || words[1..3] != head {
        return Err(format!(
            "the NAT names block {at}, which is no image of granule {granule}"
        ));
    }
    let mut payload = [0; SLOTS];
    payload.copy_from_slice(&words[3..3 + SLOTS]);
    Ok(payload)
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
    let medium = LogMedium::on(Media::behind(Arc::clone(&queue)));
    write_fresh_headers(&medium, SEED, SEGMENT_BLOCKS, &rings).unwrap();
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
