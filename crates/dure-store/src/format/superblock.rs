//! The superblock: what mkfs decided and nothing ever changes. Two copies, in the first and the
//! last block of the volume; each is valid by itself (magic, checksum, own address). If the volume
//! lies on several media, another copy is the *head* of each medium: its first block, which says
//! which medium of which volume it is (`media`). The head of the first is the first copy.

use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::feature::{self, CLONES, COPIES, PROJECTS};
use super::foreign;
pub use super::media::{DEVICES_MAX, DeviceEntryV1, PATH_BYTES};
use crate::error::{Error, Result};
use crate::units::BLOCK_BYTES;

/// "DUREVOL" and the format's major version in the last byte.
pub const MAGIC: [u8; 8] = *b"DUREVOL4";
/// Format version written by this code.
pub const VERSION: u32 = 4;
/// The superblock. All block numbers are absolute; "pairs" are slotted pairs of two blocks.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct SuperBlockV1 {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// CRC32C of the block with this field zero.
    pub crc: U32,
    /// [`VERSION`].
    pub version: U32,
    /// Own block number (0, or the last block).
    pub address: U64,
    /// Identity of the volume.
    pub uuid: [u8; 16],
    /// UTF-8, zero padded.
    pub label: [u8; 64],
    /// Seconds since 1970.
    pub created: I64,
    /// May be ignored.
    pub compat: U64,
    /// Unknown bits: read only.
    pub ro_compat: U64,
    /// Unknown bits: refuse.
    pub incompat: U64,
    /// 4096.
    pub block_bytes: U32,
    /// Blocks in a segment, a power of two, 32..=512.
    pub segment_blocks: U32,
    /// Blocks of the volume, this copy and the last included.
    pub total_blocks: U64,
    /// Journals, and allocation partitions.
    pub journals: U32,
    /// Used entries of `devices`.
    pub device_count: U32,
    /// First block of the volume header's pair.
    pub volume_header: U64,
    /// First block of the checkpoint pack pairs.
    pub pack: U64,
    /// First block of the journal header pairs.
    pub journal_headers: U64,
    /// First block of the NAT pairs.
    pub nat: U64,
    /// First block of the SIT pairs.
    pub sit: U64,
    /// First block of the segment summary pairs.
    pub summary: U64,
    /// First block of the main area; segments lie from here.
    pub main: U64,
    /// Number of checkpoint pack pairs.
    pub pack_pairs: U32,
    /// Number of NAT pairs.
    pub nat_pairs: U32,
    /// Number of SIT pairs.
    pub sit_pairs: U32,
    /// Summary pairs per segment.
    pub summary_pairs: U32,
    /// Number of segments.
    pub segments: U32,
    /// Seed of every other checksum of the volume.
    pub crc_seed: U32,
    /// Seed of the directory hash.
    pub hash_seed: U64,
    /// The media.
    pub devices: [DeviceEntryV1; DEVICES_MAX],
    /// The entry of `devices` on whose medium this copy lies.
    pub member: U32,
    /// With several media, where log rings and node images go: 1 = persistent memory, 2 = the block
    /// device.
    pub node_log: U32,
    /// With several media, where each was when the volume was made: a hint. Zero padded.
    pub paths: [[u8; PATH_BYTES]; DEVICES_MAX],
    /// Written zero, checked zero.
    pub reserved: [u8; 248],
    /// With the feature `COPIES`, the first block of the second copies of NAT and SIT; else zero.
    pub copies: U64,
}
const _: () = assert!(size_of::<SuperBlockV1>() == BLOCK_BYTES);

/// The current version.
pub type SuperBlock = SuperBlockV1;

impl SuperBlock {
    /// The bytes of the copy that lives in block `address`, checksum included.
    #[must_use]
    pub fn seal(self, address: u64) -> [u8; BLOCK_BYTES] {
        let member = self.member_at(address);
        self.seal_as(address, member)
    }

    /// The bytes of the head of a medium.
    #[must_use]
    pub fn seal_head(self, member: u32) -> [u8; BLOCK_BYTES] {
        self.seal_as(0, member)
    }

    fn seal_as(mut self, address: u64, member: u32) -> [u8; BLOCK_BYTES] {
        self.address = U64::new(address);
        self.member = U32::new(member);
        self.crc = U32::new(0);
        self.crc = U32::new(dure_block::crc32c::crc32c(self.as_bytes()));
        let mut block = [0; BLOCK_BYTES];
        block.copy_from_slice(self.as_bytes());
        block
    }

    /// Reads a copy found at block `address`.
    ///
    /// # Errors
    /// `NotDure` when the magic is not there, `Corrupt` when checksum, address or reserved bytes
    /// are wrong, `Unsupported` for another version or unknown incompatible features, `Medium` when
    /// it is the head of a medium, and the others are missing.
    pub fn open(block: &[u8], address: u64) -> Result<SuperBlock> {
        let sb = SuperBlock::open_copy(block, address)?;
        if sb.member.get() == sb.member_at(address) {
            return Ok(sb);
        }
        Err(sb.alone())
    }

    /// That a medium of several was opened without the others.
    #[must_use]
    pub fn alone(&self) -> Error {
        let this = self.member.get().saturating_add(1);
        Error::Medium {
            name: format!("volume {}", uuid::Uuid::from_bytes(self.uuid)),
            why: format!(
                "this is medium {this} of the {} it lies on; it cannot be used without the others",
                self.device_count
            ),
        }
    }

    /// Reads the head of a medium.
    ///
    /// # Errors
    /// Those of [`SuperBlock::open`], whichever medium it is.
    pub fn open_head(block: &[u8]) -> Result<SuperBlock> {
        SuperBlock::open_copy(block, 0)
    }

    /// Reads the copy in the last block of a volume of whatever length.
    ///
    /// # Errors
    /// Those of [`SuperBlock::open`].
    pub fn open_last(block: &[u8]) -> Result<SuperBlock> {
        let (sb, _) = SuperBlock::read_from_prefix(block).map_err(|_| Error::NotDure)?;
        SuperBlock::open(block, sb.total_blocks.get().saturating_sub(1))
    }

    fn open_copy(block: &[u8], address: u64) -> Result<SuperBlock> {
        let (sb, _) = SuperBlock::read_from_prefix(block).map_err(|_| Error::NotDure)?;
        if sb.magic[..7] != MAGIC[..7] {
            return Err(not_dure(block, address));
        }
        feature::expect_version(sb.version.get(), sb.magic == MAGIC)?;
        let mut zeroed = sb;
        zeroed.crc = U32::new(0);
        let got = dure_block::crc32c::crc32c(zeroed.as_bytes());
        Error::expect_eq(
            "superblock checksum",
            address,
            u64::from(sb.crc.get()),
            u64::from(got),
        )?;
        Error::expect_eq("superblock address", address, address, sb.address.get())?;
        sb.expect_readable()?;
        let mut dirt = sb.reserved.iter().filter(|&&byte| byte != 0).count();
        dirt += usize::from(!sb.has(COPIES) && sb.copies.get() != 0);
        Error::expect_eq(
            "superblock reserved bytes",
            address,
            0,
            crate::units::to_u64(dirt),
        )?;
        Ok(sb)
    }

    /// Whether several slots may name one block.
    #[must_use]
    pub fn has_clones(&self) -> bool {
        self.has(CLONES)
    }

    /// Whether inodes may have a project.
    #[must_use]
    pub fn has_projects(&self) -> bool {
        self.has(PROJECTS)
    }
}

/// A block without a superblock's magic. In front, the beginning of something else is not damage:
/// the copy at the end must not be believed instead.
fn not_dure(block: &[u8], address: u64) -> Error {
    match foreign::name(block).filter(|_| address == 0) {
        None => Error::NotDure,
        Some(name) => Error::Unsupported {
            what: format!(
                "block 0 is the beginning of {name}; only if that is not wanted any more, clear the block to \
                 get back what is left of a volume that was here before"
            ),
        },
    }
}
