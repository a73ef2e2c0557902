//! Changes to an image: fields, names, blocks, generations; with corrected checksums, or not.
//!
//! **Structure.** A change picks a kind of structure first, so that the few blocks of a table are
//! hit as often as the many of data; then a place in it; then a value that is likely to mean
//! something: a small number, one near what is there, a block in use, what another structure of
//! the kind has at that place. **Invariants.** The same numbers make the same image.

use std::mem::offset_of;
use std::path::Path;

use dure_block::ram::{Image, SharedBlock};
use dure_block::{BLOCK_BYTES, Lba};
use dure_fs::Layout;
use dure_fs::format::bucket::ENTRY_HEADER_BYTES;
use dure_fs::format::inode::{AttributesRecord, InodeData};
use dure_fs::format::node::{self, NodeHeader, NodeKind, VERSION_BYTES};
use dure_fs::format::superblock::SuperBlock;
use dure_journal::format::TransactionHeader;
use dure_journal::format::slotted::{SLOT_HEADER_BYTES, SLOT_MAGIC, SlotHeader};
use dure_sync::random::Seeded;
use zerocopy::FromBytes;

use super::base::{Base, LONG_NAME};

/// The draws of one case.
#[derive(Debug)]
pub(super) struct Random(Seeded);

impl Random {
    pub(super) fn new(seed: u64, number: u64) -> Random {
        let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Random(Seeded::new(
            seed ^ number.wrapping_mul(0xd6e8_feb8_6659_fd93),
        ))
    }

    fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0.index(end)
    }

    fn choose<'t, T>(&mut self, all: &'t [T]) -> &'t T {
        &all[self.below(all.len())]
    }
}

/// An image after its changes.
#[derive(Debug)]
pub(super) struct Damaged {
    pub(super) image: Image,
    /// What was done, a phrase each.
    pub(super) how: Vec<String>,
    /// Whether a checksum was corrected: without that, everything wrong must be detected.
    pub(super) crafted: bool,
    /// Whether an orphan node was crafted: a mount may rightly remove what it names.
    pub(super) orphans: bool,
}

/// What a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Superblock,
    /// A slot of a pair, of this kind.
    Pair(u32),
    Node(NodeKind),
    Transaction,
    Data,
}

/// The used blocks of an image by class.
struct Map {
    seed: u32,
    total: u64,
    classes: Vec<(Class, Vec<u64>)>,
}

/// One to three changes; a quarter of the images only rot.
pub(super) fn damage(base: &Base, random: &mut Random, scratch: &Path) -> Damaged {
    let map = Map::of(&base.image);
    let mut damaged = Damaged {
        image: base.image.clone(),
        how: Vec::new(),
        crafted: random.below(4) > 0,
        orphans: false,
    };
    for _ in 0..[1, 1, 1, 2, 3][random.below(5)] {
        let (class, blocks) = random.choose(&map.classes);
        let block = *random.choose(blocks);
        let mut content = read(&damaged.image, block);
        let how = if damaged.crafted {
            craft(
                &map,
                *class,
                blocks,
                &base.image,
                &mut content,
                random,
                scratch,
            )
        } else {
            rot(&mut content, random)
        };
        damaged
            .how
            .push(format!("block {block} ({class:?}): {how}"));
        write(&mut damaged.image, block, &content);
        if damaged.crafted {
            damaged.orphans |= *class == Class::Node(NodeKind::Orphan);
            map.seal(&mut damaged.image, *class, block);
        }
    }
    damaged
}

fn read(image: &Image, block: u64) -> Vec<u8> {
    let block = image.get(Lba::new(block));
    block.map_or_else(|| vec![0; BLOCK_BYTES], |block| block.bytes().to_vec())
}

fn write(image: &mut Image, block: u64, content: &[u8]) {
    image.set(Lba::new(block), SharedBlock::new(content));
}

/// Random damage, as by a medium.
fn rot(content: &mut [u8], random: &mut Random) -> String {
    match random.below(4) {
        0 => {
            content.fill(0);
            "zeroed".to_owned()
        }
        1 => {
            let sector = random.below(8) * 512;
            for byte in &mut content[sector..sector + 512] {
                *byte = random.next().to_le_bytes()[0];
            }
            format!("sector at {sector} scrambled")
        }
        _ => {
            let (at, bit) = (random.below(BLOCK_BYTES), random.below(8));
            content[at] ^= 1 << bit;
            format!("bit {bit} of byte {at} flipped")
        }
    }
}

/// Damage as by an attacker.
fn craft(
    map: &Map,
    class: Class,
    others: &[u64],
    image: &Image,
    content: &mut [u8],
    random: &mut Random,
    scratch: &Path,
) -> String {
    if class == Class::Node(NodeKind::Bucket)
        && random.below(2) == 0
        && let Some(how) = rename(content, random, scratch)
    {
        return how;
    }
    let (at, width) = place(class, content, random);
    let other = read(image, *random.choose(others));
    let mut old = [0; 8];
    old[..width].copy_from_slice(&content[at..at + width]);
    let old = u64::from_le_bytes(old);
    let value = match random.below(8) {
        0 => random.next() % 20,
        1 => old.wrapping_add(random.next() % 9).wrapping_sub(4),
        2 => u64::MAX - random.next() % 3,
        3 => old ^ 1 << random.below(width * 8),
        4 => random.next() % map.total,
        5 => random.next(),
        6 => {
            let (_, blocks) = random.choose(&map.classes);
            *random.choose(blocks)
        }
        _ => {
            let mut bytes = [0; 8];
            bytes[..width].copy_from_slice(&other[at..at + width]);
            u64::from_le_bytes(bytes)
        }
    };
    let value = value & u64::MAX >> (64 - 8 * width);
    content[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
    format!("{width} bytes at {at}: {old:#x} -> {value:#x}")
}

/// A field that means something, more often than chance would have it.
fn place(class: Class, content: &[u8], random: &mut Random) -> (usize, usize) {
    let width = 1 << random.below(4);
    let anywhere = |from: usize, to: usize, random: &mut Random| {
        let at = from + random.below(to - from) / width * width;
        (at.min(to - width), width)
    };
    match class {
        Class::Node(kind) if random.below(8) > 0 => {
            let index = random.below(kind.granules());
            let granule = kind.offset(index);
            if kind == NodeKind::Inode && random.below(3) > 0 {
                let (field, width) = match index < kind.granules() / 2 {
                    true => *random.choose(&ATTRIBUTES),
                    false => *random.choose(&DATA),
                };
                return (granule + VERSION_BYTES + field, width);
            }
            // The beginnings of granules are headers and first slots.
            let len = VERSION_BYTES + kind.payload(index);
            let len = if random.below(2) == 0 { 80 } else { len };
            anywhere(granule, granule + len, random)
        }
        Class::Transaction => {
            let header = size_of::<TransactionHeader>();
            let used = content
                .iter()
                .rposition(|byte| *byte != 0)
                .unwrap_or(header);
            let from = [0, header][random.below(2)];
            anywhere(from, used.max(from + 8), random)
        }
        Class::Pair(_) if random.below(8) > 0 => {
            let used = content.iter().rposition(|byte| *byte != 0).unwrap_or(0);
            anywhere(SLOT_HEADER_BYTES, used.max(SLOT_HEADER_BYTES + 8), random)
        }
        Class::Superblock => anywhere(0, 320, random),
        _ => anywhere(0, BLOCK_BYTES, random),
    }
}

/// Fields of an inode's attributes: where and how wide.
const ATTRIBUTES: [(usize, usize); 8] = [
    (offset_of!(AttributesRecord, ino), 8),
    (offset_of!(AttributesRecord, generation), 4),
    (offset_of!(AttributesRecord, mode), 4),
    (offset_of!(AttributesRecord, nlink), 4),
    (offset_of!(AttributesRecord, flags), 4),
    (offset_of!(AttributesRecord, parent), 8),
    (offset_of!(AttributesRecord, xattr_bytes), 4),
    (offset_of!(AttributesRecord, xattr_root), 8),
];

/// Fields of an inode's data.
const DATA: [(usize, usize); 9] = [
    (offset_of!(InodeData, head.ino), 8),
    (offset_of!(InodeData, head.size), 8),
    (offset_of!(InodeData, head.blocks), 8),
    (offset_of!(InodeData, head.set_number), 4),
    (offset_of!(InodeData, head.map_root), 8),
    (offset_of!(InodeData, head.map_root), 8),
    (offset_of!(InodeData, head.map_height), 4),
    (offset_of!(InodeData, body), 8),
    (offset_of!(InodeData, body), 4),
];

/// Another name of the same length in an entry: one that leads elsewhere.
fn rename(content: &mut [u8], random: &mut Random, scratch: &Path) -> Option<String> {
    let known = [
        "entry-", "file-", "linked", "short", "ghij", "def", "bc", "LLLL",
    ];
    let mark = *random.choose(&known);
    let at = (0..content.len() - 256).find(|at| content[*at..].starts_with(mark.as_bytes()))?;
    assert!(at > ENTRY_HEADER_BYTES, "entries have headers");
    let len = usize::from(content[at - 1]);
    let mut name = match random.below(6) {
        0 => b"../..".to_vec(),
        1 => b"../x".to_vec(),
        2 => b"..".to_vec(),
        3 => b"a/b".to_vec(),
        4 => b"a\0b".to_vec(),
        _ => format!("{}/escaped-", scratch.display()).into_bytes(),
    };
    if len == LONG_NAME && name.len() < 9 {
        name = format!("{}/escaped-", scratch.display()).into_bytes();
    }
    // What is behind the mark decides the hash: one in eight stays in its bucket.
    while name.len() < len {
        name.push(*random.choose(b"abcdefgh/"));
    }
    name.truncate(len);
    content.get_mut(at..at + len)?.copy_from_slice(&name);
    Some(format!("name {:?}", String::from_utf8_lossy(&name)))
}

impl Map {
    fn of(image: &Image) -> Map {
        let first = SuperBlock::open(&read(image, 0), 0).expect("bases are sound");
        let layout = Layout::from_superblock(first).expect("bases are sound");
        let mut classes: Vec<(Class, Vec<u64>)> = Vec::new();
        for block in 0..image.blocks() {
            let content = read(image, block);
            let Some(class) = class(&layout, block, &content) else {
                continue;
            };
            match classes.iter_mut().find(|(known, _)| *known == class) {
                Some((_, blocks)) => blocks.push(block),
                None => classes.push((class, vec![block])),
            }
        }
        Map {
            seed: layout.superblock.crc_seed.get(),
            total: layout.total_blocks,
            classes,
        }
    }

    /// Makes the checksum of the structure at `block` right.
    fn seal(&self, image: &mut Image, class: Class, block: u64) {
        let mut content = read(image, block);
        let (field, seed) = match class {
            Class::Data => return,
            Class::Superblock => (offset_of!(SuperBlock, crc), 0),
            Class::Pair(_) => (offset_of!(SlotHeader, crc), self.seed),
            Class::Node(_) => (offset_of!(NodeHeader, crc), self.seed),
            Class::Transaction => {
                let header = TransactionHeader::read_from_prefix(&content)
                    .expect("a whole block")
                    .0;
                let count = u64::from(header.block_count.get()).clamp(1, 64);
                for next in block + 1..(block + count).min(self.total) {
                    content.extend(read(image, next));
                }
                (offset_of!(TransactionHeader, crc), self.seed)
            }
        };
        content[field..field + 4].fill(0);
        let crc = dure_block::crc32c::crc32c_append(seed, &content);
        content[field..field + 4].copy_from_slice(&crc.to_le_bytes());
        write(image, block, &content[..BLOCK_BYTES]);
    }
}

/// What the block is; `None`: nothing was written there.
fn class(layout: &Layout, block: u64, content: &[u8]) -> Option<Class> {
    let magic = u32::from_le_bytes([content[0], content[1], content[2], content[3]]);
    if block == 0 || block == layout.total_blocks - 1 {
        return Some(Class::Superblock);
    }
    if content.iter().all(|byte| *byte == 0) {
        return None;
    }
    if magic == SLOT_MAGIC {
        let header = SlotHeader::read_from_prefix(content).ok()?.0;
        return Some(Class::Pair(header.kind.get()));
    }
    if magic == node::MAGIC {
        let header = NodeHeader::read_from_prefix(content).ok()?.0;
        return NodeKind::from_code(header.kind).map(Class::Node);
    }
    let header = TransactionHeader::read_from_prefix(content).ok()?.0;
    if header.address.get() == block && header.magic.get().to_le_bytes().starts_with(b"DRtx") {
        return Some(Class::Transaction);
    }
    (block >= layout.main).then_some(Class::Data)
}
