//! Node images: every granule by its kind.

use dure_store::error::{Error, Result};
use dure_store::format::bucket::{BucketHeader, ENTRY_HEADER_BYTES, EntryHeader};
use dure_store::format::inode::{AttributesRecord, FLAG_LONG_LINK, FLAG_ORPHAN, InodeRecord, Time};
use dure_store::format::node::{NodeImage, NodeKind};
use dure_store::format::orphan::{INTENT_DELETE, LINK_GRANULE, OrphanSlot};
use dure_store::format::slot::{SLOT_BYTES, Slot};
use dure_store::units::{Ino, Nid, to_usize};
use zerocopy::FromBytes;

use super::source::Source;
use super::{Out, line};

/// A node with all its granules.
pub(super) fn image(source: &Source, out: &mut Out<'_>, nid: Nid) -> Result<()> {
    let Some((block, image)) = source.image(nid)? else {
        return line!(out, "node {nid}: no image");
    };
    line!(
        out,
        "node {nid}: {:?}, image at block {}",
        image.kind,
        block.0
    )?;
    if image.owner.0 != 0 {
        line!(out, "  owner: inode {}", image.owner)?;
    }
    for index in 0..image.kind.granules() {
        line!(
            out,
            "granule {nid}.{index}, version {}",
            image.version(index)
        )?;
        granule(out, nid, index, &image)?;
    }
    Ok(())
}

fn granule(out: &mut Out<'_>, nid: Nid, index: usize, image: &NodeImage) -> Result<()> {
    let payload = image.payload(index);
    match image.kind {
        NodeKind::Inode => inode_granule(out, nid, index, image),
        NodeKind::Bucket => bucket(out, payload),
        NodeKind::Leaf => slots(out, payload, "slot", 0),
        NodeKind::Index => {
            for (n, child) in children(payload) {
                line!(out, "  child {n}: node {child}")?;
            }
            Ok(())
        }
        NodeKind::Blob => {
            let (next, piece) = payload.split_at(8);
            line!(out, "  next: node {}", word(next))?;
            let end = piece
                .iter()
                .rposition(|byte| *byte != 0)
                .map_or(0, |last| last + 1);
            line!(out, "  bytes: \"{}\"", piece[..end].escape_ascii())
        }
        NodeKind::Orphan if index == usize::from(LINK_GRANULE) => {
            line!(out, "  next: node {}", word(&payload[..8]))
        }
        NodeKind::Orphan => orphans(out, nid, payload),
    }
}

/// A little-endian number.
pub(super) fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("the caller passes eight bytes"))
}

/// The children a granule of an index node names, with their numbers.
pub(super) fn children(payload: &[u8]) -> impl Iterator<Item = (u64, Nid)> {
    let nids = payload.chunks_exact(8).map(|bytes| Nid(word(bytes)));
    (0..).zip(nids).filter(|(_, nid)| nid.0 != 0)
}

fn orphans(out: &mut Out<'_>, nid: Nid, payload: &[u8]) -> Result<()> {
    for (slot, bytes) in payload.chunks_exact(size_of::<OrphanSlot>()).enumerate() {
        let orphan =
            OrphanSlot::read_from_bytes(bytes).expect("a chunk has the size of an orphan slot");
        match (orphan.ino.get(), orphan.intent.get()) {
            (0, _) => {}
            (ino, INTENT_DELETE) => line!(out, "  slot {slot}: inode {ino}, to be deleted")?,
            (ino, size) => line!(out, "  slot {slot}: inode {ino}, to be cut to {size} bytes")?,
        }
    }
    assert!(nid.0 > 0, "node 0 holds inodes");
    Ok(())
}

fn inode_granule(out: &mut Out<'_>, nid: Nid, granule: usize, image: &NodeImage) -> Result<()> {
    let granule = u8::try_from(granule).expect("a node has at most 16 granules");
    let of_data = Ino::of_data(nid, granule);
    let ino = of_data.unwrap_or_else(|| Ino::new(nid, granule));
    let record = image.inode(ino.index());
    if record.attributes.is_free() {
        return line!(out, "  free");
    }
    match of_data {
        Some(_) => inode_data(out, &record),
        None => inode_attributes(out, &record.attributes),
    }
}

/// The inode record in the image of its node; `None` when there is no image, or a free granule.
pub(super) fn find(source: &Source, ino: Ino) -> Result<Option<InodeRecord>> {
    let Some((_, image)) = source.image(ino.nid())? else {
        return Ok(None);
    };
    if image.kind != NodeKind::Inode {
        let why = format!("{ino} lies in node {}, which holds no inodes", ino.nid());
        return Err(Error::BadOption {
            option: "inode",
            why,
        });
    }
    let record = image.inode(ino.index());
    Ok((!record.attributes.is_free()).then_some(record))
}

/// An inode.
pub(super) fn inode(source: &Source, out: &mut Out<'_>, ino: Ino) -> Result<()> {
    let granule = ino.granule();
    let Some(record) = find(source, ino)? else {
        return line!(out, "inode {ino}: granule {granule}, free");
    };
    line!(out, "inode {ino}: granule {granule}")?;
    inode_attributes(out, &record.attributes)?;
    inode_data(out, &record)
}

fn time(time: Time) -> String {
    format!("{}.{:09}", time.secs.get(), time.nanos.get())
}

fn inode_attributes(out: &mut Out<'_>, record: &AttributesRecord) -> Result<()> {
    let mut flags = Vec::new();
    for (bit, name) in [(FLAG_ORPHAN, "orphan"), (FLAG_LONG_LINK, "long-link")] {
        if record.flags.get() & bit != 0 {
            flags.push(name);
        }
    }
    line!(out, "  ino: {}", record.ino.get())?;
    line!(out, "  generation: {}", record.generation.get())?;
    line!(out, "  mode: {:07o}", record.mode.get())?;
    line!(out, "  uid: {}", record.uid.get())?;
    line!(out, "  gid: {}", record.gid.get())?;
    line!(out, "  project: {}", record.project.get())?;
    line!(out, "  links: {}", record.nlink.get())?;
    line!(
        out,
        "  flags: {:#x} {}",
        record.flags.get(),
        flags.join(" ")
    )?;
    line!(out, "  ctime of attributes: {}", time(record.ctime))?;
    line!(out, "  btime: {}", time(record.btime))?;
    line!(out, "  rdev: {:#x}", record.rdev.get())?;
    line!(out, "  parent: {}", record.parent.get())?;
    line!(
        out,
        "  attributes: {} bytes, node {}",
        record.xattr_bytes.get(),
        record.xattr_root.get()
    )
}

fn inode_data(out: &mut Out<'_>, record: &InodeRecord) -> Result<()> {
    let data = &record.data;
    line!(out, "  data of: {}", data.ino.get())?;
    line!(out, "  size: {}", data.size.get())?;
    line!(out, "  blocks: {}", data.blocks.get())?;
    line!(out, "  atime: {}", time(data.atime))?;
    line!(out, "  mtime: {}", time(data.mtime))?;
    line!(out, "  ctime of data: {}", time(data.ctime))?;
    line!(out, "  set number: {}", data.set_number.get())?;
    line!(
        out,
        "  map: height {}, node {}",
        data.map_height.get(),
        data.map_root.get()
    )?;
    match record.attributes.mode.get() >> 12 {
        8 => slots(out, &record.data.body, "page", 0),
        10 if record.attributes.flags.get() & FLAG_LONG_LINK == 0 => {
            let len = to_usize(record.data.size.get()).min(record.data.body.len());
            line!(
                out,
                "  target: \"{}\"",
                record.data.body[..len].escape_ascii()
            )
        }
        _ => Ok(()),
    }
}

/// Slots that are not holes; the first is number `first`.
pub(super) fn slots(out: &mut Out<'_>, bytes: &[u8], name: &str, first: u64) -> Result<()> {
    for (n, bytes) in (first..).zip(bytes.chunks_exact(SLOT_BYTES)) {
        let slot = Slot::read_from_bytes(bytes).expect("a chunk has the size of a slot");
        if slot == Slot::HOLE {
            continue;
        }
        let block = slot.block().0;
        if !slot.is_sane() {
            line!(
                out,
                "  {name} {n}: impossible flags {:#x}",
                slot.place.get()
            )?;
        } else if slot.is_unwritten() {
            line!(out, "  {name} {n}: block {block}, unwritten")?;
        } else {
            line!(
                out,
                "  {name} {n}: block {block}, crc {:#010x}",
                slot.crc.get()
            )?;
        }
    }
    Ok(())
}

/// A bucket: its header and its entries.
pub(super) fn bucket(out: &mut Out<'_>, payload: &[u8]) -> Result<()> {
    let (header, area) =
        BucketHeader::ref_from_prefix(payload).expect("a bucket is longer than its header");
    let used = usize::from(header.used.get());
    line!(
        out,
        "  entries {}, directories {}, bytes {used}, child node {}, set number {}, mtime {}, ctime {}",
        header.entries.get(),
        header.subdirectories.get(),
        header.child.get(),
        header.set_number.get(),
        time(header.mtime),
        time(header.ctime)
    )?;
    let area = &area[..used.min(area.len())];
    let mut at = 0;
    while at < area.len() {
        let Ok((head, rest)) = EntryHeader::ref_from_prefix(&area[at..]) else {
            return line!(out, "  at {at}: no entry");
        };
        let (space, len) = (usize::from(head.space.get()), usize::from(head.name_len));
        if space < ENTRY_HEADER_BYTES || len > rest.len() {
            return line!(out, "  at {at}: no entry");
        }
        let (kind, ordinal) = (head.kind & 15, head.kind >> 4);
        match head.ino.get() {
            0 => line!(out, "  at {at}: hole of {space} bytes")?,
            ino => line!(
                out,
                "  at {at}: inode {ino}, type {kind}, ordinal {ordinal}, \"{}\"",
                rest[..len].escape_ascii()
            )?,
        }
        at += space;
    }
    Ok(())
}
