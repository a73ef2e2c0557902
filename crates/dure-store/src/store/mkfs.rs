//! Making a volume. The superblock is written last: until then the device holds no volume, so a
//! crash or an error half way leaves nothing that looks like one.

use dure_block::{BlockBuf, Device, Lba};
use dure_journal::recovery::write_fresh_headers;
use dure_journal::{JournalId, RingStart};
use dure_sync::{Arc, CoreId};
use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromZeros, IntoBytes};

use crate::checkpoint::{CheckpointState, Target, Writer};
use crate::error::{Error, Result};
use crate::format::inode::{AttributesRecord, Time};
use crate::format::node::{NodeImage, NodeKind};
use crate::format::stamp::Turn;
use crate::format::volume::{STATE_CLEAN, VolumeHeader};
use crate::layout::{FormatOptions, Layout, Owner};
use crate::media::Region;
use crate::members::{self, stamps};
use crate::node::nat::Nat;
use crate::packs::Packs;
use crate::rules::StoreRules;
use crate::snapshot::Snapshots;
use crate::space::{OpClass, Space};
use crate::units::{BlockNo, Ino, Nid, nth_core, to_u64, to_usize};

/// Log segments each journal begins with.
pub const RING_SEGMENTS: u32 = 2;

/// Makes a volume on `device`, and on the regions of persistent memory in `options`, destroying what
/// they hold.
///
/// # Errors
/// `TooSmall`, `BadOption`, `Medium`, or a failed write.
pub fn make_volume(device: Arc<dyn Device>, options: &FormatOptions) -> Result<Layout> {
    let cores = u32::try_from(dure_sync::core_count()).unwrap_or(u32::MAX);
    let layout = Layout::plan(device.info().blocks, options, cores)?;
    let devices = options.nvm.iter().map(|region| region.device.clone());
    let devices: Vec<_> = devices.chain([device]).collect();
    let media = layout.superblock.media();
    let region = match &devices[..] {
        [only] => Region::open(only.clone()),
        several => Region::open(members::compose(&media, several.iter().cloned())),
    };
    region.write_twice(layout.copied());
    end_what_was_here(&devices, &region, &layout)?;
    // The tables are made on first use: only the header says which pairs were ever written.
    zero(
        &region,
        layout.volume_header,
        layout.pack - layout.volume_header,
    )?;
    let packs = Arc::new(Packs::new(&layout));
    let space = Space::new_empty(region.clone(), &layout, packs.clone());
    let space = Arc::new(space.on(&options.numa));
    let rings = rings(&layout, &space)?;
    if options.written_logs {
        let of_cores = &rings[..rings.len().min(to_usize(cores.into()))];
        for segment in of_cores.iter().flat_map(|ring| &ring.segments) {
            zero(&region, segment.number(), layout.segment_blocks.into())?;
        }
    }
    let seed = layout.crc_seed;
    write_fresh_headers(&region.log_medium(), seed, layout.segment_blocks, &rings)?;
    let nat = Nat::new(region.clone(), &layout, packs);
    let writer = Writer {
        region: &region,
        layout: &layout,
        nat: &nat,
        space: &space,
        snapshots: &Snapshots::default(),
        checkpoint: 1,
        rules: &StoreRules::default(),
        journal: None,
    };
    let targets = first_nodes(&layout, options.owner);
    let blocks = u32::try_from(targets.len()).expect("the first nodes are counted by 32 bits");
    let core = CoreId::new(0);
    if !space.reserve(core, blocks, OpClass::Delete) {
        return Err(Error::NoSpace {
            what: "blocks for the first nodes",
        });
    }
    let mut state = CheckpointState::new(first_header(), 0);
    if layout.superblock.is_stamped() {
        state.header.mount.set(dure_sync::random::u64().max(1));
    }
    writer.write(core, &mut state, targets)?;
    assert_eq!(state.header.inodes.get(), 1, "one inode, the root");
    state.write(&region, &layout)?;
    region.flush()?;
    if layout.superblock.is_stamped() {
        stamps::write_all(&region, &layout, [Turn::of(&state.header), Turn::NONE])?;
    }
    // The first copy of the superblock is the head of the first medium.
    for (member, device) in (0..).zip(&devices).skip(1) {
        let region = Region::open(device.clone());
        let block = BlockBuf::from_slice(&layout.superblock.seal_head(member));
        region.write(BlockNo(0), block.as_slice())?;
        region.flush()?;
    }
    for address in [layout.total_blocks - 1, 0] {
        let block = BlockBuf::from_slice(&layout.superblock.seal(address));
        region.write(BlockNo(address), block.as_slice())?;
    }
    region.flush()?;
    Ok(layout)
}

/// Whatever volume was here ends first: a crash in the middle must not leave the old superblock over
/// new tables.
fn end_what_was_here(devices: &[Arc<dyn Device>], region: &Region, layout: &Layout) -> Result<()> {
    for device in devices {
        let region = Region::open(device.clone());
        zero(&region, 0, 2)?;
        region.flush()?;
    }
    zero(region, layout.total_blocks - 1, 1)?;
    region.flush()?;
    Ok(())
}

fn zero(region: &Region, first: u64, blocks: u64) -> Result<()> {
    let zeroes = BlockBuf::zeroed(to_usize(blocks));
    region.write(BlockNo(first), zeroes.as_slice())?;
    Ok(())
}

fn rings(layout: &Layout, space: &Space) -> Result<Vec<RingStart>> {
    let ring = |journal: u32| {
        let partition = nth_core(to_usize(journal.into()), to_usize(layout.journals.into()));
        let segment = |_| {
            let segment = space.alloc_log_segment(partition);
            let segment = segment.ok_or(Error::NoSpace {
                what: "segments for the logs",
            })?;
            Ok(Lba::new(layout.segment_start(segment).0))
        };
        Ok(RingStart {
            header: Lba::new(layout.journal_header(journal)),
            generation: 1,
            segments: (0..RING_SEGMENTS).map(segment).collect::<Result<_>>()?,
        })
    };
    assert!(layout.journals <= u32::from(JournalId::COUNT_MAX));
    (0..layout.journals).map(ring).collect()
}

/// Node 0 with the root directory, and an orphan node for every partition.
fn first_nodes(layout: &Layout, owner: Owner) -> Vec<(Nid, Target)> {
    let mut inodes = NodeImage::fresh(NodeKind::Inode, 1);
    let now = dure_sync::clock::wall();
    let now = Time {
        secs: I64::new(now.secs),
        nanos: U32::new(now.nanos),
    };
    let mut root = AttributesRecord::new_zeroed();
    root.ino = U64::new(Ino::ROOT.0);
    root.generation = U32::new(1);
    root.mode = U32::new(0o040_755);
    (root.uid, root.gid) = (U32::new(owner.uid), U32::new(owner.gid));
    root.nlink = U32::new(1);
    root.parent = U64::new(Ino::ROOT.0);
    (root.ctime, root.btime) = (now, now);
    let place = usize::from(Ino::ROOT.index());
    inodes.payload_mut(place).copy_from_slice(root.as_bytes());
    let orphans = (0..layout.journals).map(|partition| {
        let nid = Nid(1 + u64::from(partition));
        (nid, Target::Image(NodeImage::fresh(NodeKind::Orphan, 1)))
    });
    let mut nodes = vec![(Ino::ROOT.nid(), Target::Image(inodes))];
    nodes.extend(orphans);
    assert!(to_u64(nodes.len()) <= layout.nids());
    assert!(BlockNo::NONE.is_none());
    nodes
}

fn first_header() -> VolumeHeader {
    let mut header = VolumeHeader::new_zeroed();
    header.epoch = U64::new(1);
    header.first_number = U64::new(1);
    header.state = U32::new(STATE_CLEAN);
    header
}
