//! Directories: the trie of buckets, its entries, and how often each inode is named.
//!
//! Each directory is walked by itself, in the order of inode numbers; [`super::names`] then puts
//! the tree together from what was found. The same name always has the same hash, so it can be
//! there twice only within one bucket.

use std::collections::BTreeSet;

use dure_store::format::bucket::{
    BucketHeader, ENTRY_BYTES, ENTRY_HEADER_BYTES, EntryHeader, LEVELS_MAX,
};
use dure_store::format::fields::DIRECTORY;
use dure_store::format::inode::InodeRecord;
use dure_store::format::name::check_name;
use dure_store::format::node::{NodeImage, NodeKind};
use dure_store::units::{GranuleId, Ino, Nid};
use zerocopy::FromBytes;

use crate::context::Context;
use crate::issue::IssueKind;
use crate::owner::NodeUse;

/// A node of the trie that is to be walked.
struct Level {
    nid: Nid,
    level: u32,
    /// The hash bits that lead here, at the top.
    prefix: u64,
}

/// An entry of a bucket.
#[derive(Clone, Copy)]
pub(super) struct Entry<'a> {
    pub(super) ino: u64,
    pub(super) kind: u8,
    pub(super) ordinal: u8,
    pub(super) name: &'a [u8],
}

/// A bucket on the way: where it is, and the hashes that belong to it.
struct Bucket {
    directory: Ino,
    id: GranuleId,
    level: u32,
    prefix: u64,
}

/// Walks the trie of directory `ino`.
pub(super) fn check(context: &mut Context<'_>, ino: Ino, record: &InodeRecord) {
    let root = record.data.map_root.get();
    if root == 0 {
        return;
    }
    let mut stack = vec![Level {
        nid: Nid(root),
        level: 0,
        prefix: 0,
    }];
    // Bounded: every node is taken once, and its children are at most eight.
    while let Some(Level { nid, level, prefix }) = stack.pop() {
        let by = NodeUse::Directory(ino);
        let Some(image) = context.take(nid, NodeKind::Bucket, by) else {
            continue;
        };
        for index in 0..8_u8 {
            let prefix = prefix | u64::from(index) << shift(level);
            let id = GranuleId { nid, index };
            let bucket = Bucket {
                directory: ino,
                id,
                level,
                prefix,
            };
            if let Some(child) = check_bucket(context, &bucket, &image) {
                stack.push(Level {
                    nid: child,
                    level: level + 1,
                    prefix,
                });
            }
        }
    }
}

/// Where the three bits of `level` stand in a hash.
fn shift(level: u32) -> u32 {
    assert!(level < LEVELS_MAX, "level {level} of at most {LEVELS_MAX}");
    61 - 3 * level
}

/// Checks one bucket; returns its child.
fn check_bucket(context: &mut Context<'_>, bucket: &Bucket, image: &NodeImage) -> Option<Nid> {
    let payload = image.payload(usize::from(bucket.id.index));
    let (header, area) =
        BucketHeader::ref_from_prefix(payload).expect("a bucket is longer than its header");
    let (directory, id) = (bucket.directory, bucket.id);
    let used = usize::from(header.used.get());
    let child = Some(Nid(header.child.get())).filter(|child| child.0 != 0);
    if header.reserved.get() != 0 {
        let what = format!("bucket {id} of directory {directory}");
        context.issue(IssueKind::ReservedNotZero { what, at: id.nid.0 });
    }
    for time in [header.mtime, header.ctime] {
        let got = time.nanos.get();
        if got >= 1_000_000_000 {
            context.issue(IssueKind::BucketTime {
                directory,
                bucket: id,
                got,
            });
        }
    }
    let most = if child.is_some() { 0 } else { ENTRY_BYTES };
    if used > most {
        let (want, got) = (
            dure_store::units::to_u64(most),
            dure_store::units::to_u64(used),
        );
        let field = "bytes in use";
        context.issue(IssueKind::BucketCount {
            directory,
            bucket: id,
            field,
            want,
            got,
        });
        return None;
    }
    let (entries, broken_at) = parse(&area[..used]);
    if let Some(offset) = broken_at {
        context.issue(IssueKind::BucketLayout {
            directory,
            bucket: id,
            offset,
        });
    } else {
        check_counts(context, bucket, header, &entries);
    }
    let hash = |entry: &Entry<'_>| {
        dure_store::format::trie::name_hash(context.layout.hash_seed, entry.name)
    };
    let hashes: Vec<u64> = entries.iter().map(hash).collect();
    check_names(context, bucket, &entries, &hashes);
    for entry in entries {
        check_target(context, directory, &entry);
    }
    if child.is_some() && bucket.level + 1 >= LEVELS_MAX {
        context.issue(IssueKind::BucketTooDeep {
            directory,
            bucket: id,
        });
        return None;
    }
    child
}

fn check_counts(
    context: &mut Context<'_>,
    bucket: &Bucket,
    header: &BucketHeader,
    entries: &[Entry<'_>],
) {
    let (directory, bucket) = (bucket.directory, bucket.id);
    let subdirectories = entries
        .iter()
        .filter(|entry| entry.kind == DIRECTORY)
        .count();
    for (field, want, got) in [
        (
            "entry count",
            entries.len(),
            u64::from(header.entries.get()),
        ),
        (
            "subdirectory count",
            subdirectories,
            u64::from(header.subdirectories.get()),
        ),
    ] {
        let want = dure_store::units::to_u64(want);
        if want != got {
            context.issue(IssueKind::BucketCount {
                directory,
                bucket,
                field,
                want,
                got,
            });
        }
    }
}

/// The entries that can be read of a bucket's payload.
pub(super) fn entries(payload: &[u8]) -> Vec<Entry<'_>> {
    let (header, area) =
        BucketHeader::ref_from_prefix(payload).expect("a bucket is longer than its header");
    if header.child.get() != 0 {
        return Vec::new();
    }
    let used = usize::from(header.used.get()).min(area.len());
    parse(&area[..used]).0
}

/// The entries up to the first offset that holds no valid entry, and that offset.
fn parse(area: &[u8]) -> (Vec<Entry<'_>>, Option<usize>) {
    let mut entries = Vec::new();
    let mut at = 0;
    while at < area.len() {
        let Ok((head, rest)) = EntryHeader::ref_from_prefix(&area[at..]) else {
            return (entries, Some(at));
        };
        let (space, len) = (usize::from(head.space.get()), usize::from(head.name_len));
        let fits = space >= ENTRY_HEADER_BYTES && space <= area.len() - at;
        let ino = head.ino.get();
        if !fits || (ino != 0 && (len == 0 || len > space - ENTRY_HEADER_BYTES)) {
            return (entries, Some(at));
        }
        if ino != 0 {
            let (kind, ordinal) = (head.kind & 15, head.kind >> 4);
            entries.push(Entry {
                ino,
                kind,
                ordinal,
                name: &rest[..len],
            });
        }
        at += space;
    }
    (entries, None)
}

/// Bytes as text, for messages.
pub(super) fn escaped(name: &[u8]) -> String {
    name.escape_ascii().to_string()
}

fn check_names(context: &mut Context<'_>, bucket: &Bucket, entries: &[Entry<'_>], hashes: &[u64]) {
    let directory = bucket.directory;
    let mut names = BTreeSet::new();
    let mut cookies = BTreeSet::new();
    for (entry, &hash) in entries.iter().zip(hashes) {
        let name = || escaped(entry.name);
        if check_name(entry.name).is_err() {
            context.issue(IssueKind::NameInvalid {
                directory,
                name: name(),
            });
        }
        let shift = shift(bucket.level);
        if hash >> shift != bucket.prefix >> shift {
            let bucket = bucket.id;
            context.issue(IssueKind::NameMisplaced {
                directory,
                bucket,
                name: name(),
            });
        }
        if !names.insert(entry.name) {
            context.issue(IssueKind::NameTwice {
                directory,
                name: name(),
            });
        } else if !cookies.insert(dure_store::format::trie::cookie(hash, entry.ordinal)) {
            context.issue(IssueKind::OrdinalTwice {
                directory,
                name: name(),
            });
        }
    }
}

fn check_target(context: &mut Context<'_>, directory: Ino, entry: &Entry<'_>) {
    let name = || escaped(entry.name);
    let Some(facts) = context.inodes.get(entry.ino) else {
        // An inode in a broken node is lost, and reported there.
        let nid = Ino(entry.ino).nid();
        if nid.0 >= context.layout.nids() || !context.broken.get(nid.0) {
            let ino = entry.ino;
            context.issue(IssueKind::EntryDangling {
                directory,
                name: name(),
                ino,
            });
        }
        return;
    };
    if facts.kind != entry.kind {
        let (want, got) = (facts.kind, entry.kind);
        context.issue(IssueKind::EntryType {
            directory,
            name: name(),
            want,
            got,
        });
    }
    let ino = Ino(entry.ino);
    let facts = context.inodes.get_mut(ino);
    facts.names = facts.names.saturating_add(1);
    if facts.kind != DIRECTORY {
        return;
    }
    let again = facts.names > 1;
    context.inodes.found_in.entry(ino).or_insert(directory);
    if again {
        context.issue(IssueKind::DirectoryTwice { ino, directory });
    }
}

#[cfg(test)]
mod tests;
