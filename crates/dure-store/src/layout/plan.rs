//! What mkfs decides, and the places that follow from it.

use zerocopy::little_endian::{I64, U32, U64};

use super::{JOURNALS_MAX, Layout, MIRRORED, VOLUME_BLOCKS_MIN};
use crate::alloc::Numa;
use crate::error::{Error, Result, size_of};
use crate::format::feature::COPIES;
use crate::format::superblock::{MAGIC, SuperBlock, VERSION};
use crate::format::{nat, sit, summary, volume};
use crate::offer::{NodeLog, NvmRegion, Offer};

/// Longest label.
const LABEL_BYTES: usize = 64;

/// What mkfs decides.
#[derive(Debug, Clone, Default)]
pub struct FormatOptions {
    /// Journals and allocation partitions, 1..=1000; `None`: the larger of 16 and the cores, less
    /// on a small volume.
    pub journals: Option<u32>,
    /// UTF-8 label, at most 64 bytes.
    pub label: String,
    /// Blocks in a segment, a power of two in 32..=512; `None`: by the volume's size.
    pub segment_blocks: Option<u32>,
    /// Identity; `None`: random.
    pub uuid: Option<[u8; 16]>,
    /// The owner of the root directory.
    pub owner: Owner,
    /// Regions of persistent memory that the volume lies on besides its device, and before it.
    pub nvm: Vec<NvmRegion>,
    /// Where the device of the volume is, for the table of media: a hint.
    pub path: String,
    /// With regions of persistent memory: where logs and nodes go.
    pub node_log: NodeLog,
    /// The NUMA node of the device, if that is persistent memory, too.
    pub device_node: Option<u32>,
    /// Where the first segments of the logs go.
    pub numa: Numa,
    /// The logs of the cores that this machine has are written once. In an image file a commit would
    /// otherwise make the file system below allocate blocks, and log that, before its flush is done.
    pub written_logs: bool,
    /// Copies of NAT and SIT.
    pub table_copies: TableCopies,
}

/// How often NAT and SIT are on the media.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TableCopies {
    /// Once.
    #[default]
    One,
    /// Twice.
    Two,
}

impl FormatOptions {
    /// The media, of which the device has so many blocks.
    fn offer(&self, device_blocks: u64) -> Offer<'_> {
        Offer {
            device_blocks,
            path: &self.path,
            device_node: self.device_node,
            regions: &self.nvm,
            node_log: self.node_log,
        }
    }
}

/// User and group of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Owner {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

impl Layout {
    /// Plans a volume on a device of `blocks` blocks, and on the regions of persistent memory in
    /// `options`, on a machine with `cores` cores.
    ///
    /// # Errors
    /// `TooSmall`, `BadOption`; `Medium` for persistent memory that is too small for its part.
    pub fn plan(blocks: u64, options: &FormatOptions, cores: u32) -> Result<Layout> {
        check_options(blocks, options)?;
        let offer = options.offer(blocks);
        let segment_blocks = segment_blocks_for(&offer, options.segment_blocks)?;
        let spans = offer.spans(segment_blocks)?;
        let blocks = spans.iter().map(|span| span.blocks).sum();
        let room = blocks / u64::from(segment_blocks);
        let journals = journals_for(room, options.journals, cores)?;
        let copies = options.table_copies;
        let mut places = Places::of(blocks, segment_blocks, journals, copies)?;
        let mut journals = journals;
        if options.journals.is_none() {
            let fit = offer.journals_max(places.main, segment_blocks);
            journals = journals.min(fit);
            places = Places::of(blocks, segment_blocks, journals, copies)?;
        }
        offer.check(places.main, segment_blocks, journals)?;
        let segments = (blocks - 1).saturating_sub(places.main) / u64::from(segment_blocks);
        let need = u64::from(journals) * 4 + 4;
        if segments < need {
            let need = places.main + need * u64::from(segment_blocks) + 1;
            return Err(Error::TooSmall {
                what: "a volume with that many journals",
                have: blocks,
                need,
            });
        }
        let small = |value: u64| u32::try_from(value).map_err(|_| too_large(blocks));
        let uuid = options.uuid.unwrap_or_else(random_uuid);
        let table = offer.table(uuid, &spans);
        let mut superblock = SuperBlock {
            magic: MAGIC,
            crc: U32::ZERO,
            version: U32::new(VERSION),
            address: U64::ZERO,
            uuid,
            label: padded(&options.label),
            created: I64::new(dure_sync::clock::wall().secs),
            compat: U64::ZERO,
            ro_compat: U64::new(table.ro_compat),
            incompat: U64::new(table.incompat),
            block_bytes: U32::new(4096),
            segment_blocks: U32::new(segment_blocks),
            total_blocks: U64::new(blocks),
            journals: U32::new(journals),
            device_count: U32::new(table.count),
            volume_header: U64::new(places.volume_header),
            pack: U64::new(places.pack),
            journal_headers: U64::new(places.journal_headers),
            nat: U64::new(places.nat),
            sit: U64::new(places.sit),
            summary: U64::new(places.summary),
            main: U64::new(places.main),
            pack_pairs: U32::new(small(places.pack_pairs)?),
            nat_pairs: U32::new(small(places.nat_pairs)?),
            sit_pairs: U32::new(small(places.sit_pairs)?),
            summary_pairs: U32::new(small(places.summary_pairs)?),
            segments: U32::new(small(segments)?),
            crc_seed: U32::new(dure_block::crc32c::crc32c(&uuid)),
            hash_seed: U64::new(xxhash_rust::xxh3::xxh3_64(&uuid)),
            devices: table.devices,
            member: U32::ZERO,
            node_log: U32::new(table.node_log),
            paths: table.paths,
            reserved: [0; 248],
            copies: U64::new(places.copies),
        };
        if copies == TableCopies::Two {
            superblock = superblock.with(COPIES);
        }
        Layout::from_superblock(superblock)
    }
}

fn check_options(blocks: u64, options: &FormatOptions) -> Result<()> {
    if blocks < VOLUME_BLOCKS_MIN {
        let need = VOLUME_BLOCKS_MIN;
        return Err(Error::TooSmall {
            what: "a volume",
            have: blocks,
            need,
        });
    }
    if options.label.len() > LABEL_BYTES {
        return Err(Error::BadOption {
            option: "label",
            why: "longer than 64 bytes".into(),
        });
    }
    Ok(())
}

fn padded(label: &str) -> [u8; LABEL_BYTES] {
    let mut bytes = [0; LABEL_BYTES];
    bytes[..label.len()].copy_from_slice(label.as_bytes());
    bytes
}

/// Where the structures of a volume lie.
struct Places {
    volume_header: u64,
    pack: u64,
    pack_pairs: u64,
    journal_headers: u64,
    nat: u64,
    nat_pairs: u64,
    sit: u64,
    sit_pairs: u64,
    summary: u64,
    summary_pairs: u64,
    /// 0: there are none.
    copies: u64,
    main: u64,
}

impl Places {
    fn of(
        blocks: u64,
        segment_blocks: u32,
        journals: u32,
        table_copies: TableCopies,
    ) -> Result<Places> {
        let room = blocks / u64::from(segment_blocks);
        let nat_pairs = blocks
            .div_ceil(4)
            .div_ceil(nat::ENTRIES)
            .max(u64::from(journals));
        let summary_pairs = u64::from(segment_blocks.div_ceil(summary::ENTRIES));
        let sit_pairs = room.div_ceil(u64::from(sit::ENTRIES));
        let pack_pairs =
            nat_pairs.div_ceil(volume::PACK_PAIRS) + sit_pairs.div_ceil(volume::PACK_PAIRS);
        if pack_pairs > volume::PACKS_MAX {
            return Err(too_large(blocks));
        }
        let volume_header = 2;
        let pack = volume_header + MIRRORED;
        let journal_headers = pack + MIRRORED * pack_pairs;
        let nat = journal_headers + MIRRORED * u64::from(journals);
        let sit = nat + 2 * nat_pairs;
        let summary = sit + 2 * sit_pairs;
        // The summaries lie between a table and its copy.
        let end = summary + 2 * summary_pairs * room;
        let (copies, end) = match table_copies {
            TableCopies::One => (0, end),
            TableCopies::Two => (end, end + 2 * (nat_pairs + sit_pairs)),
        };
        let main = end.next_multiple_of(u64::from(segment_blocks));
        Ok(Places {
            volume_header,
            pack,
            pack_pairs,
            journal_headers,
            nat,
            nat_pairs,
            sit,
            sit_pairs,
            summary,
            summary_pairs,
            copies,
            main,
        })
    }
}

fn too_large(blocks: u64) -> Error {
    Error::BadOption {
        option: "size",
        why: format!("{} is more than a volume can have", size_of(blocks)),
    }
}

/// 2 MiB segments where the volume has room for 256 of them, and persistent memory besides it for 32,
/// smaller ones down to 128 KiB below.
fn segment_blocks_for(offer: &Offer<'_>, wish: Option<u32>) -> Result<u32> {
    if let Some(wish) = wish {
        if wish.is_power_of_two() && (32..=512).contains(&wish) {
            return Ok(wish);
        }
        let why = format!("{wish} is not a power of two from 32 to 512");
        return Err(Error::BadOption {
            option: "segment_blocks",
            why,
        });
    }
    let mut segment = 512_u32;
    let nvm = offer.nvm_blocks();
    let few =
        |segment: u64| offer.blocks() / segment < 256 || nvm.is_some_and(|nvm| nvm / segment < 32);
    while segment > 32 && few(u64::from(segment)) {
        segment /= 2;
    }
    Ok(segment)
}

/// Each journal needs two log segments and its partition two open ones: together at most an eighth
/// of the volume unless the caller insists.
fn journals_for(segments: u64, wish: Option<u32>, cores: u32) -> Result<u32> {
    if let Some(wish) = wish {
        if (1..=JOURNALS_MAX).contains(&wish) {
            return Ok(wish);
        }
        let why = format!("{wish} is not in 1..={JOURNALS_MAX}");
        return Err(Error::BadOption {
            option: "journals",
            why,
        });
    }
    let room = u32::try_from(segments / 8 / 4).unwrap_or(JOURNALS_MAX);
    Ok(cores.max(16).min(room.max(1)).min(JOURNALS_MAX))
}

fn random_uuid() -> [u8; 16] {
    let mut bytes = [0; 16];
    dure_sync::random::fill(&mut bytes);
    uuid::Builder::from_random_bytes(bytes)
        .into_uuid()
        .into_bytes()
}
