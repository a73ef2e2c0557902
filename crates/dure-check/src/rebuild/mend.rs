//! Takes the findings of the passes one by one and changes the nodes so that they do not come
//! again.
//!
//! **Structure.** A round is all passes over what there is in memory, then a correction for each
//! finding; rounds follow until none is left. **Invariants.** A correction removes references to
//! what is lost, or adds names to what lost its own; nothing that is sound is changed. A finding
//! without a correction ends the rebuild, and nothing is written then. **Crash.** Nothing is
//! written here.

use std::collections::{BTreeMap, BTreeSet};

use dure_store::format::bucket::KIND_DIRECTORY;
use dure_store::format::inode::FLAG_ORPHAN;
use dure_store::format::node::{NodeImage, NodeKind};
use dure_store::units::{Ino, Nid};
use zerocopy::little_endian::{U32, U64};

use super::directories::{self, kind_of};
use super::edit::Edit;
use super::maps;
use crate::issue::{Issue, IssueKind};
use crate::owner::{BlockUse, NodeUse};

/// Rounds before a rebuild gives up.
const ROUNDS_MAX: usize = 64;

/// Where inodes without a name go.
pub(super) const LOST_AND_FOUND: &[u8] = b"lost+found";

/// What a round has to do.
#[derive(Default)]
struct Work {
    directories: BTreeSet<Ino>,
    added: BTreeMap<Ino, Vec<(Vec<u8>, Ino)>>,
    detached: Vec<Ino>,
    maps: BTreeSet<Ino>,
    shared: BTreeSet<u64>,
    xattrs: BTreeSet<Ino>,
    cleared: BTreeSet<Ino>,
    orphans: bool,
}

/// Corrects until the passes find nothing but what writing the tables corrects; else what is left.
pub(super) fn run(edit: &mut Edit<'_, '_>) -> Vec<Issue> {
    adopt_directories(edit);
    let mut left = Vec::new();
    for _ in 0..ROUNDS_MAX {
        edit.context.reset();
        super::examine(edit.context);
        let report = std::mem::take(&mut edit.context.report);
        let issues = report
            .issues()
            .iter()
            .filter(|issue| !by_tables(&issue.kind));
        left = issues.cloned().collect();
        if left.is_empty() {
            edit.context.report = report;
            return left;
        }
        let mut work = Work::default();
        let known = left
            .iter()
            .filter(|issue| correct(edit, &mut work, &issue.kind));
        if known.count() == 0 {
            break;
        }
        finish(edit, work);
    }
    left
}

/// Whether it is gone when all tables are written anew, or is no fault of a structure.
fn by_tables(kind: &IssueKind) -> bool {
    use IssueKind as K;
    matches!(
        kind,
        K::SuperblockCopy { .. }
            | K::MediumHead { .. }
            | K::MediumStamp { .. }
            | K::HeaderCount { .. }
            | K::PairLost { .. }
            | K::PairMisplaced { .. }
            | K::PairSlotBad { .. }
            | K::PairCopyBad { .. }
            | K::JournalHeaderBad { .. }
            | K::JournalEpoch { .. }
            | K::NatFreeInodes { .. }
            | K::SitMissing { .. }
            | K::SitLeak { .. }
            | K::SitCount { .. }
            | K::SitField { .. }
            | K::SummaryWrong { .. }
            | K::SharedLost { .. }
            | K::SharedMissing { .. }
            | K::SharedUnlisted { .. }
            | K::SharedStale { .. }
            | K::NotClean { .. }
            | K::LogHole { .. }
            | K::DataChecksum { .. }
            | K::QuotaLimits { .. }
            | K::QuotaUsage { .. }
            | K::Unreadable { .. }
    )
}

/// Directories whose inodes are lost and whose names are left.
fn adopt_directories(edit: &mut Edit<'_, '_>) {
    let (mut nodes, mut adopted) = (BTreeSet::new(), BTreeSet::new());
    for owner in edit.buckets().into_keys() {
        let nid = owner.nid();
        if owner.0 == 0 || nid.0 >= edit.context.layout.nids() {
            continue;
        }
        let lost = !edit.context.lives(nid) || edit.context.image(nid).is_none();
        if lost || nodes.contains(&nid) {
            nodes.insert(nid);
            adopted.insert(owner);
            edit.make_directory(owner, Ino::ROOT, 0o755);
            edit.lose(
                owner,
                None,
                "owner, permissions and times of this directory are lost",
            );
        }
    }
    if !adopted.is_empty() {
        directories::rebuild(edit, &adopted, &BTreeMap::new());
    }
}

/// Corrects one finding, or notes what is to be done; false if nothing is known to do.
fn correct(edit: &mut Edit<'_, '_>, work: &mut Work, kind: &IssueKind) -> bool {
    use IssueKind as K;
    match kind {
        K::NodeBad { nid, .. } => {
            lose_inodes(edit, *nid);
            edit.forget(*nid);
        }
        // The pass over the NAT has taken them out already.
        K::NatBlockOutside { .. } | K::NatKind { .. } => {}
        K::NodeLeaked { nid, .. } => edit.free(*nid),
        K::RootMissing {} => {
            edit.make_directory(Ino::ROOT, Ino::ROOT, 0o755);
            edit.lose(
                Ino::ROOT,
                None,
                "owner, permissions and times of this directory are lost",
            );
        }
        K::NodeMissing { by, .. }
        | K::NodeWrongKind { by, .. }
        | K::NodeShared { by, .. }
        | K::NodeOwner { by, .. }
        | K::BlobLength { by, .. } => note(work, by),
        K::BucketLayout { directory, .. }
        | K::BucketCount { directory, .. }
        | K::BucketTooDeep { directory, .. }
        | K::BucketTime { directory, .. }
        | K::NameInvalid { directory, .. }
        | K::NameTwice { directory, .. }
        | K::NameMisplaced { directory, .. }
        | K::OrdinalTwice { directory, .. }
        | K::EntryDangling { directory, .. }
        | K::EntryType { directory, .. }
        | K::DirectoryTwice { directory, .. } => {
            work.directories.insert(*directory);
        }
        K::SlotBad { ino, .. } | K::SlotOutside { ino, .. } | K::SlotBeyondEnd { ino, .. } => {
            work.maps.insert(*ino);
        }
        K::BlockShared { block, by } => match by {
            BlockUse::Image(nid) if !work.shared.contains(block) => {
                lose_inodes(edit, *nid);
                edit.forget(*nid);
            }
            _ => drop(work.shared.insert(*block)),
        },
        K::InodeBlocks { ino, want, .. } => {
            edit.data(*ino, |data| data.head.blocks = U64::new(*want));
        }
        K::InodeProject { ino, .. } => {
            edit.attributes(*ino, |record| record.project = U32::ZERO);
        }
        K::LinkCount { ino, want, .. } => {
            let want = if *ino == Ino::ROOT { 1 } else { *want };
            edit.attributes(*ino, |record| record.nlink = U32::new(want));
        }
        K::InodeDetached { ino } => work.detached.push(*ino),
        K::ParentPointer { ino, want, .. } => {
            edit.attributes(*ino, |record| record.parent = U64::new(want.0));
        }
        K::XattrStream { ino, .. } => drop(work.xattrs.insert(*ino)),
        K::LinkTarget { ino } | K::InodeNumber { ino, .. } | K::InodeField { ino, .. } => {
            work.cleared.insert(*ino);
        }
        K::OrphanVanished { .. } | K::OrphanMismatch { .. } | K::OrphanUnlisted { .. } => {
            work.orphans = true;
        }
        _ => return false,
    }
    true
}

fn note(work: &mut Work, by: &NodeUse) {
    match by {
        NodeUse::Inodes => {}
        NodeUse::Directory(ino) => drop(work.directories.insert(*ino)),
        NodeUse::Map(ino) => drop(work.maps.insert(*ino)),
        NodeUse::Xattr(ino) => drop(work.xattrs.insert(*ino)),
        NodeUse::Link(ino) => drop(work.cleared.insert(*ino)),
        NodeUse::Orphans(_) => work.orphans = true,
    }
}

fn lose_inodes(edit: &mut Edit<'_, '_>, nid: Nid) {
    if edit.context.is_inode_node(nid) {
        let first = nid.0 * Ino::PER_NODE;
        let what = format!("inodes {first} to {} are lost", first + Ino::PER_NODE - 1);
        edit.lose(Ino(first), None, what);
    }
}

fn finish(edit: &mut Edit<'_, '_>, mut work: Work) {
    for ino in &work.maps {
        maps::mend(edit, *ino);
    }
    if !work.shared.is_empty() {
        maps::settle(edit, &work.shared);
    }
    for ino in &work.xattrs {
        edit.attributes(*ino, |record| {
            record.xattr_root = U64::ZERO;
            record.xattr_bytes = U32::ZERO;
        });
        edit.lose(*ino, None, "its extended attributes are lost");
    }
    for ino in &work.cleared {
        edit.clear(*ino);
        edit.lose(*ino, None, "the inode is damaged, and is removed");
    }
    if work.orphans {
        reset_orphans(edit);
    }
    // The root comes first: what lost its name needs a place.
    if !work.directories.is_empty() {
        directories::rebuild(edit, &work.directories, &work.added);
    } else if !work.detached.is_empty() {
        let detached = std::mem::take(&mut work.detached);
        attach(edit, detached);
    }
}

/// Gives inodes without a name one in `lost+found`.
fn attach(edit: &mut Edit<'_, '_>, mut detached: Vec<Ino>) {
    let place = match lost_and_found(edit) {
        Place::Is(ino) => ino,
        // It is there in the next round.
        Place::Made => return,
        Place::NoRoom => return,
    };
    // Below a directory without a name are inodes that have theirs.
    detached.retain(|ino| *ino != place);
    let mut names = Vec::new();
    for ino in detached {
        let kind = kind_of(edit, ino);
        if kind == Some(KIND_DIRECTORY) {
            edit.attributes(ino, |record| record.parent = U64::new(place.0));
        }
        edit.attributes(ino, |record| record.nlink = U32::new(1));
        edit.lose(
            ino,
            None,
            format!("its name is lost; it is lost+found/#{ino} now"),
        );
        names.push((format!("#{ino}").into_bytes(), ino));
    }
    let added = BTreeMap::from([(place, names)]);
    directories::rebuild(edit, &BTreeSet::from([place]), &added);
}

enum Place {
    Is(Ino),
    Made,
    NoRoom,
}

/// The directory `lost+found` of the root, made if it is not there.
fn lost_and_found(edit: &mut Edit<'_, '_>) -> Place {
    let buckets = edit.buckets().remove(&Ino::ROOT).unwrap_or_default();
    let mut taken = BTreeSet::new();
    for nid in buckets {
        let image = edit.context.image(nid);
        for name in image.iter().flat_map(directories::names_of) {
            if name.name == LOST_AND_FOUND && name.kind == KIND_DIRECTORY {
                return Place::Is(name.ino);
            }
            taken.insert(name.name);
        }
    }
    let mut name = LOST_AND_FOUND.to_vec();
    while taken.contains(&name) {
        name.push(b'_');
    }
    let Some(ino) = edit.free_inode() else {
        return Place::NoRoom;
    };
    edit.make_directory(ino, Ino::ROOT, 0o700);
    let added = BTreeMap::from([(Ino::ROOT, vec![(name, ino)])]);
    directories::rebuild(edit, &BTreeSet::from([Ino::ROOT]), &added);
    Place::Made
}

/// Orphan nodes anew and empty: their inodes had no names, and would have been deleted.
fn reset_orphans(edit: &mut Edit<'_, '_>) {
    for partition in 0..u64::from(edit.context.layout.journals) {
        let image = NodeImage::fresh(NodeKind::Orphan, edit.version);
        edit.put(Nid(1 + partition), image);
    }
    let flagged = edit.context.inodes.all().filter(|(_, facts)| facts.flagged);
    let flagged: Vec<_> = flagged.collect();
    for (ino, facts) in flagged {
        if facts.names == 0 {
            edit.clear(ino);
        } else {
            edit.attributes(ino, |record| {
                record.flags = U32::new(record.flags.get() & !FLAG_ORPHAN);
            });
        }
    }
}
