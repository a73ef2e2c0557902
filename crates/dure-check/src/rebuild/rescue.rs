//! Reads out what is left of a volume that cannot be mounted, or must not be written.
//!
//! **Problem.** A rebuild needs free blocks and a medium that takes writes; a dying disk has
//! neither. **Structure.** [`Rescue::open`] reads what is left and corrects it in memory as a
//! rebuild does, then makes one tree of all names; the caller walks it and reads inode by inode.
//! **Invariants.** Nothing is written, and a rescue goes on where a rebuild gives up. Every inode
//! in use has a place in the tree, every directory one: what has no name is in `lost+found`, whose
//! inode is [`NAMELESS`] if the volume has none. Pages are handed out only if they have their
//! checksums. **Crash.** Nothing is kept.

use std::collections::{BTreeMap, BTreeSet};

use dure_block::Device;
use dure_block::count::Count;
use dure_store::error::Result;
use dure_store::format::blob::{BLOB_BYTES, BlobHeader};
use dure_store::format::bucket::{BucketHeader, KIND_DIRECTORY};
use dure_store::format::fields;
use dure_store::format::inode::{
    AttributesRecord, FLAG_LONG_LINK, FLAG_ORPHAN, InodeData, InodeRecord, Time,
};
use dure_store::format::name::check_name;
use dure_store::format::node::NodeKind;
use dure_store::format::slot::Slot;
use dure_store::media::Region;
use dure_store::units::{BLOCK_BYTES, Ino, Nid, to_u64, to_usize};
use dure_sync::Arc;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, FromZeros};

use super::directories::names_of;
use super::edit::Edit;
use super::maps::{Found, Walk};
use super::mend::LOST_AND_FOUND;
use super::{mend, names, salvage};
use crate::blob;
use crate::context::Context;
use crate::loss::Loss;
use crate::options::CheckOptions;
use crate::report::Report;
use crate::superblock;

/// Number of the directory for inodes without a name, if the volume has none: no inode has it.
pub const NAMELESS: Ino = Ino(0);

/// Pages read at once.
const RUN_PAGES: usize = 256;

/// Takes the bytes of a file that begin at an offset.
pub type Each<'e, E> = &'e mut dyn FnMut(u64, &[u8]) -> std::result::Result<(), E>;

/// The names of a directory.
type Entries = BTreeMap<Vec<u8>, Ino>;

/// The names that are left of all directories.
type Names = BTreeMap<Ino, Vec<(Vec<u8>, Ino)>>;

/// What is left of a volume, to be read.
#[derive(Debug)]
pub struct Rescue<'o> {
    context: Context<'o>,
    directories: BTreeMap<Ino, Entries>,
    /// How many names of each inode are in `directories`.
    names: BTreeMap<Ino, u32>,
}

impl<'o> Rescue<'o> {
    /// Reads the structures of the volume on `device`.
    ///
    /// # Errors
    /// Those of a check: there is no superblock to start from. Everything else is a loss.
    pub fn open(device: Arc<dyn Device>, options: &'o CheckOptions<'o>) -> Result<Rescue<'o>> {
        let region = Region::open(device);
        let layout = superblock::find(&region, &mut Report::default())?;
        let missing = layout.total_blocks.saturating_sub(region.blocks());
        let mut context = Context::new(options, region, layout, Report::default());
        let salvage = salvage::load(&mut context);
        let mut lost = salvage.lost;
        if missing > 0 {
            let blocks = Count::of(missing, "block");
            lost.push(format!(
                "at the end of the volume: {blocks} of 4 KiB are missing"
            ));
        }
        let mut edit = Edit::new(&mut context, salvage.version_max);
        let left = mend::run(&mut edit);
        lost.extend(left.iter().map(|issue| format!("not understood: {issue}")));
        let losses = names::losses(&mut edit);
        let found = all_names(&mut edit);
        (context.report.losses, context.report.lost) = (losses, lost);
        Ok(Rescue::of(context, found))
    }

    fn of(context: Context<'o>, mut found: Names) -> Rescue<'o> {
        let mut rescue = Rescue {
            context,
            directories: BTreeMap::new(),
            names: BTreeMap::new(),
        };
        rescue.plant(&mut found);
        rescue
    }

    /// What is lost, as far as the structures tell; [`Rescue::content`] finds more.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.context.report
    }

    /// Names to be read.
    #[must_use]
    pub fn names(&self) -> u64 {
        let names = self.directories.values().map(BTreeMap::len);
        to_u64(names.sum::<usize>())
    }

    /// Names in directory `ino` and their inodes, all of which exist.
    pub fn entries(&self, ino: Ino) -> impl Iterator<Item = (&[u8], Ino)> {
        let entries = self.directories.get(&ino).into_iter().flatten();
        entries.map(|(name, ino)| (&name[..], *ino))
    }

    /// The inode; `None` for one that is not in use or lost. Its link count is how many names it has
    /// here; a directory was last changed when its latest bucket was.
    pub fn inode(&mut self, ino: Ino) -> Option<InodeRecord> {
        if ino == NAMELESS {
            return Some(nameless());
        }
        if ino.nid().0 >= self.context.layout.nids() || !self.context.is_inode_node(ino.nid()) {
            return None;
        }
        let mut record = self.context.image(ino.nid())?.inode(ino.index());
        let named = record.attributes.flags.get() & FLAG_ORPHAN == 0;
        if record.attributes.is_free() || !named || ino.0 == 0 {
            return None;
        }
        if let Some(names) = self.names.get(&ino) {
            record.attributes.nlink.set(*names);
        }
        if fields::kind(&record) == KIND_DIRECTORY {
            let stamp = self.stamp(&record);
            let known = record.data.mtime;
            record.data.head.mtime = if key(stamp) > key(known) {
                stamp
            } else {
                known
            };
        }
        Some(record)
    }

    /// The latest change of an entry that counts.
    fn stamp(&mut self, record: &InodeRecord) -> Time {
        let mut latest = Time::default();
        let (mut stack, mut seen) = (vec![record.data.map_root.get()], BTreeSet::new());
        // Bounded: every node is walked once.
        while let Some(nid) = stack.pop() {
            if nid == 0 || !seen.insert(nid) {
                continue;
            }
            let Some(image) = self.node(Nid(nid), NodeKind::Bucket) else {
                continue;
            };
            for payload in image.payloads() {
                let (header, _) = BucketHeader::ref_from_prefix(payload)
                    .expect("a bucket is longer than its header");
                let counts = header.set_number == record.data.set_number;
                if counts && key(header.mtime) > key(latest) {
                    latest = header.mtime;
                }
                stack.push(header.child.get());
            }
        }
        latest
    }

    fn node(&mut self, nid: Nid, kind: NodeKind) -> Option<dure_store::format::node::NodeImage> {
        if nid.0 >= self.context.layout.nids() || !self.context.lives(nid) {
            return None;
        }
        self.context.image(nid).filter(|image| image.kind == kind)
    }

    /// The target of symlink `ino`, if it is left.
    pub fn target(&mut self, ino: Ino) -> Option<Vec<u8>> {
        let record = self.inode(ino)?;
        let len = to_usize(record.data.size.get());
        if record.attributes.flags.get() & FLAG_LONG_LINK != 0 {
            return self.stream(record.data.map_root.get(), len);
        }
        record.data.body.get(..len).map(<[u8]>::to_vec)
    }

    /// The extended attributes of `ino`.
    pub fn attributes(&mut self, ino: Ino) -> Vec<(Vec<u8>, Vec<u8>)> {
        let Some(record) = self.inode(ino) else {
            return Vec::new();
        };
        let len = to_usize(u64::from(record.attributes.xattr_bytes.get()));
        let stream = self.stream(record.attributes.xattr_root.get(), len);
        let stream = stream.unwrap_or_default();
        let attributes = blob::attributes(&stream).0.into_iter();
        attributes
            .map(|(name, value)| (name.to_vec(), value.to_vec()))
            .collect()
    }

    /// The first `len` bytes of a chain of blobs.
    fn stream(&mut self, root: u64, len: usize) -> Option<Vec<u8>> {
        let (mut stream, mut nid) = (Vec::new(), root);
        for _ in 0..len.div_ceil(BLOB_BYTES) {
            let image = self.node(Nid(nid), NodeKind::Blob)?;
            let (head, piece) = BlobHeader::ref_from_prefix(image.payload(0))
                .expect("a blob node is longer than its header");
            stream.extend_from_slice(piece);
            nid = head.next.get();
        }
        stream.truncate(len);
        Some(stream)
    }

    /// Brings what is left of the content of file `ino` to `each`, with the byte it begins at: runs
    /// of whole pages, the last one up to the file's end; all else reads as zeroes. Returns the
    /// runs of pages that are destroyed, first and last.
    ///
    /// # Errors
    /// Those of `each`, which end it.
    pub fn content<E>(
        &mut self,
        ino: Ino,
        each: Each<'_, E>,
    ) -> std::result::Result<Vec<(u64, u64)>, E> {
        let mut destroyed = Vec::new();
        let size = self.inode(ino).map_or(0, |record| record.data.size.get());
        let Some(mut walk) = Walk::new(&mut self.context, ino) else {
            return Ok(destroyed);
        };
        while let Some(found) = walk.next(&mut self.context) {
            let mut pages = Vec::new();
            for found in found {
                match found {
                    Found::Slot(place, slot) => pages.push((place.page, slot)),
                    Found::Lost(place) => {
                        let end = size.div_ceil(to_u64(BLOCK_BYTES)).max(place.page + 1);
                        let last = (place.page + place.pages).min(end) - 1;
                        destroyed.push((place.page, last));
                    }
                }
            }
            pages.retain(|(_, slot)| slot.is_written());
            for run in pages.chunk_by(follows) {
                for run in run.chunks(RUN_PAGES) {
                    self.run(run, size, &mut destroyed, each)?;
                }
            }
        }
        Ok(destroyed)
    }

    /// Reads pages whose blocks follow each other.
    fn run<E>(
        &self,
        run: &[(u64, Slot)],
        size: u64,
        destroyed: &mut Vec<(u64, u64)>,
        each: Each<'_, E>,
    ) -> std::result::Result<(), E> {
        let mut bytes = vec![0; run.len() * BLOCK_BYTES];
        let first = run[0].1.block();
        let inside = |slot: &Slot| self.context.layout.locate(slot.block()).is_some();
        if run.iter().all(|(_, slot)| inside(slot)) {
            salvage::read_run(&self.context, first.0, &mut bytes);
        }
        for ((_, slot), bytes) in run.iter().zip(bytes.chunks_exact_mut(BLOCK_BYTES)) {
            if let Some(page) = self.context.logged.get(&slot.block()) {
                bytes.copy_from_slice(&page.bytes);
            }
        }
        let good = |n: usize| {
            let page = &bytes[n * BLOCK_BYTES..][..BLOCK_BYTES];
            dure_block::crc32c::crc32c(page) == run[n].1.crc.get()
        };
        let good: Vec<(usize, bool)> = (0..run.len()).map(|n| (n, good(n))).collect();
        for part in good.chunk_by(|a, b| a.1 == b.1) {
            let (from, good) = part[0];
            let page = run[from].0;
            if !good {
                destroyed.push((page, page + to_u64(part.len()) - 1));
                continue;
            }
            let start = page * to_u64(BLOCK_BYTES);
            let room = to_usize(
                size.saturating_sub(start)
                    .min(to_u64(part.len() * BLOCK_BYTES)),
            );
            if room > 0 {
                each(start, &bytes[from * BLOCK_BYTES..][..room])?;
            }
        }
        Ok(())
    }

    /// Makes a tree of all names: each inode is there, each directory once.
    fn plant(&mut self, found: &mut Names) {
        self.names.insert(Ino::ROOT, 1);
        self.grow(Ino::ROOT, found);
        let nodes = self.context.pairs_in_use().into_iter();
        let nodes: Vec<Nid> = nodes.flat_map(|p| self.context.live_in_pair(p)).collect();
        let inodes = nodes.into_iter().flat_map(Ino::all_of);
        let nameless: Vec<Ino> = inodes
            .filter(|ino| *ino != NAMELESS)
            .filter(|ino| !self.names.contains_key(ino) && self.inode(*ino).is_some())
            .collect();
        if nameless.is_empty() {
            return;
        }
        let root = self.directories.entry(Ino::ROOT).or_default();
        let mut name = LOST_AND_FOUND.to_vec();
        while root.contains_key(&name) {
            name.push(b'_');
        }
        root.insert(name.clone(), NAMELESS);
        let mut place = Entries::new();
        // Those that have a name in another one of these come with it; but for circles.
        let below = found.values().flatten().map(|(_, ino)| *ino);
        let below: BTreeSet<Ino> = below.collect();
        let (inner, tops): (Vec<Ino>, Vec<Ino>) =
            nameless.into_iter().partition(|ino| below.contains(ino));
        for ino in tops.into_iter().chain(inner) {
            if self.names.contains_key(&ino) {
                continue;
            }
            self.names.insert(ino, 1);
            self.grow(ino, found);
            let own = format!("#{ino}").into_bytes();
            let path = [b"/", &name[..], b"/", &own[..]].concat();
            let what = "its name is lost".to_owned();
            let path = Some(path);
            self.context.report.losses.push(Loss { ino, path, what });
            place.insert(own, ino);
        }
        self.directories.insert(NAMELESS, place);
    }

    /// Takes the names below a directory into the tree.
    fn grow(&mut self, top: Ino, found: &mut Names) {
        let mut stack = vec![top];
        while let Some(directory) = stack.pop() {
            let mut entries = Entries::new();
            for (name, ino) in found.remove(&directory).unwrap_or_default() {
                let record = self.inode(ino).filter(|_| check_name(&name).is_ok());
                let Some(record) = record else {
                    let what = format!("inode {ino} is lost");
                    let (ino, path) = (directory, Some(name));
                    self.context.report.losses.push(Loss { ino, path, what });
                    continue;
                };
                let names = self.names.entry(ino).or_insert(0);
                if fields::kind(&record) == KIND_DIRECTORY {
                    if *names > 0 {
                        continue;
                    }
                    stack.push(ino);
                }
                *names += 1;
                entries.insert(name, ino);
            }
            self.directories.insert(directory, entries);
        }
    }
}

/// Whether page and block of `b` are next to those of `a`.
fn follows(a: &(u64, Slot), b: &(u64, Slot)) -> bool {
    a.0 + 1 == b.0 && a.1.block().0 + 1 == b.1.block().0
}

fn key(time: Time) -> (i64, u32) {
    (time.secs.get(), time.nanos.get())
}

/// A directory for root only.
fn nameless() -> InodeRecord {
    let mut attributes = AttributesRecord::new_zeroed();
    attributes.mode = U32::new(u32::from(KIND_DIRECTORY) << 12 | 0o700);
    attributes.nlink = U32::new(1);
    let data = InodeData::of_birth(NAMELESS, Time::default());
    InodeRecord { attributes, data }
}

/// The names of every directory, wherever in it they are.
fn all_names(edit: &mut Edit<'_, '_>) -> Names {
    let mut all = Names::new();
    for (directory, nodes) in edit.buckets() {
        let entries = all.entry(directory).or_default();
        for nid in nodes {
            let image = edit.context.image(nid);
            let names = image.iter().flat_map(names_of);
            entries.extend(names.map(|name| (name.name, name.ino)));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::volume::TestVolume;
    use crate::tests::volume::place::{SMALL, SUB};

    /// Where a rebuild gives up, for want of room or of an idea, names may be missing.
    #[test]
    fn what_has_no_name_stands_in_a_place_of_its_own() {
        let disk = TestVolume::new().write();
        let options = CheckOptions::default();
        let region = Region::open(disk.device());
        let layout = superblock::find(&region, &mut Report::default()).unwrap();
        let mut context = Context::new(&options, region, layout, Report::default());
        let salvage = salvage::load(&mut context);
        let mut edit = Edit::new(&mut context, salvage.version_max);
        let mut found = all_names(&mut edit);
        let whole = found.clone();
        found.remove(&Ino::ROOT);
        let rescue = Rescue::of(context, found);
        let root: Vec<_> = rescue.entries(Ino::ROOT).collect();
        assert_eq!(root, [(&b"lost+found"[..], NAMELESS)]);
        let nameless: BTreeSet<Ino> = rescue.entries(NAMELESS).map(|(_, ino)| ino).collect();
        let below: Vec<Ino> = rescue.entries(Ino(SUB)).map(|(_, ino)| ino).collect();
        let want = whole[&Ino::ROOT].iter().map(|(_, ino)| *ino);
        let want = want.filter(|ino| !below.contains(ino));
        assert_eq!(nameless, want.collect());
        assert_eq!(below, [Ino(SMALL)]);
        let own = format!("#{SUB}").into_bytes();
        let named = rescue.entries(NAMELESS).any(|(name, _)| name == own);
        assert!(
            named
                && rescue
                    .report()
                    .losses()
                    .iter()
                    .any(|loss| loss.ino == Ino(SUB))
        );
    }
}
