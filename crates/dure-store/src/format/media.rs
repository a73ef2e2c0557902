//! The table of media in the superblock.
//!
//! **Structure.** The media in the order of the linear space of blocks: persistent memory first, so
//! that the tables at its beginning lie there, then the block device. A medium gives the space a run
//! of its blocks; before that run, all but the first have a head (`superblock`). **Invariants.** The
//! runs follow each other without a gap and end with the volume; each but the last is whole
//! segments. **Crash.** Written by mkfs only.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::feature::{MEDIA, STAMPS};
use super::superblock::SuperBlock;

/// Entries of the device table.
pub const DEVICES_MAX: usize = 16;
/// Bytes of the path of a medium.
pub const PATH_BYTES: usize = 160;

/// One medium of the volume.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct DeviceEntryV1 {
    /// Identity of the medium; the volume's own uuid if it is the only one.
    pub uuid: [u8; 16],
    /// See [`MediumKind`].
    pub kind: U32,
    /// NUMA node it is attached to.
    pub numa_node: U32,
    /// First block in the volume's linear space.
    pub first_block: U64,
    /// Its length in blocks.
    pub blocks: U64,
    /// The block of the medium that is `first_block`.
    pub start: U64,
    /// Written zero, checked zero.
    pub reserved: [u8; 16],
}
const _: () = assert!(size_of::<DeviceEntryV1>() == 64);

/// The kind of a medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MediumKind {
    /// Persistent memory.
    Nvm,
    /// A block device, or an image file.
    Block,
}

impl MediumKind {
    /// Its number in the table.
    #[must_use]
    pub fn code(self) -> u32 {
        match self {
            MediumKind::Block => 1,
            MediumKind::Nvm => 2,
        }
    }

    fn from_code(code: u32) -> Option<MediumKind> {
        match code {
            1 => Some(MediumKind::Block),
            2 => Some(MediumKind::Nvm),
            _ => None,
        }
    }

    /// Its name in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            MediumKind::Nvm => "persistent memory",
            MediumKind::Block => "block device",
        }
    }
}

/// A medium in plain numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Medium {
    /// Its identity.
    pub uuid: [u8; 16],
    /// Its kind.
    pub kind: MediumKind,
    /// The NUMA node it is on.
    pub node: u32,
    /// First block of its run in the linear space.
    pub first: u64,
    /// Length of the run.
    pub blocks: u64,
    /// Where the run begins on the medium.
    pub start: u64,
    /// Where the medium was when the volume was made; empty if that was too long to keep.
    pub path: String,
}

impl SuperBlock {
    /// The media, in the order of the space. What `SuperBlock::media_fault` finds wrong with the
    /// table is left out.
    #[must_use]
    pub fn media(&self) -> Vec<Medium> {
        let count = usize::try_from(self.device_count.get()).unwrap_or(usize::MAX);
        let entries = self.devices.iter().zip(&self.paths).take(count);
        let media = entries.filter_map(|(entry, path)| {
            let len = path
                .iter()
                .position(|byte| *byte == 0)
                .unwrap_or(PATH_BYTES);
            Some(Medium {
                uuid: entry.uuid,
                kind: MediumKind::from_code(entry.kind.get())?,
                node: entry.numa_node.get(),
                first: entry.first_block.get(),
                blocks: entry.blocks.get(),
                start: entry.start.get(),
                path: String::from_utf8_lossy(&path[..len]).into_owned(),
            })
        });
        media.collect()
    }

    /// Whether each medium but the first has a stamp.
    #[must_use]
    pub fn is_stamped(&self) -> bool {
        self.has(STAMPS)
    }

    /// The medium of a block.
    pub(super) fn member_at(&self, block: u64) -> u32 {
        let count = usize::try_from(self.device_count.get()).unwrap_or(usize::MAX);
        let behind = |entry: &&DeviceEntryV1| entry.first_block.get() <= block;
        let reached = self.devices.iter().take(count).skip(1).filter(behind);
        u32::try_from(reached.count()).expect("the table has few entries")
    }

    /// What is impossible in the table, if something is.
    pub(crate) fn media_fault(&self) -> Option<&'static str> {
        let media = self.media();
        let several = self.has(MEDIA);
        let segment = u64::from(self.segment_blocks.get()).max(1);
        let ends = media.iter().scan(0_u64, |end, medium| {
            let at = *end;
            *end = end.saturating_add(medium.blocks);
            Some((at, medium))
        });
        let (mut follow, mut whole) = (true, true);
        for (at, medium) in ends {
            let room = medium.start.checked_add(medium.blocks).is_some();
            follow &= medium.first == at && medium.blocks > 0 && room;
            follow &= (medium.start > 0) == (at > 0);
            whole &= at.is_multiple_of(segment);
        }
        let last = media
            .last()
            .map(|last| last.first.saturating_add(last.blocks));
        let count = media.len();
        let again = |n: usize| media[..n].iter().any(|m| m.uuid == media[n].uuid);
        [
            (
                count == 0 || u32::try_from(count) != Ok(self.device_count.get()),
                "count, or a kind",
            ),
            (
                several != (count > 1),
                "count, which its feature flag denies",
            ),
            (self.is_stamped() && !several, "stamps of the only medium"),
            (
                count == 1 && media[0].start != 0,
                "start of the only medium",
            ),
            (!follow, "order, start or length of a medium"),
            (!whole, "border within a segment"),
            (last != Some(self.total_blocks.get()), "sum of lengths"),
            (
                !media.is_sorted_by_key(|medium| medium.kind),
                "persistent memory behind a block device",
            ),
            ((1..count).any(again), "two media with one identity"),
            (
                several != (1..=2).contains(&self.node_log.get()),
                "place of the node log",
            ),
        ]
        .into_iter()
        .find_map(|(wrong, what)| wrong.then_some(what))
    }
}
