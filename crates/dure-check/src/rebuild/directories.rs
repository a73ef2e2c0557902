//! Directories made anew from the names that are left in their bucket nodes.
//!
//! **Structure.** Every bucket node names its directory, so all its names are found whatever the
//! trie has lost; a new trie is made of them, in the nodes of the old one. **Invariants.** An entry
//! leads to an inode that exists, and has its type; a directory has one name. **Crash.** Nothing is
//! written here.

use std::collections::{BTreeMap, BTreeSet};

use dure_store::format::bucket::{
    BucketHeader, ENTRY_BYTES, ENTRY_HEADER_BYTES, EntryHeader, HEADER_BYTES, KIND_DIRECTORY,
};
use dure_store::format::name::check_name;
use dure_store::format::node::{NodeImage, NodeKind};
use dure_store::format::trie;
use dure_store::units::{Ino, Nid};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromZeros, IntoBytes};

use super::edit::Edit;
use crate::directory;

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) name: Vec<u8>,
    pub(super) ino: Ino,
    pub(super) kind: u8,
    pub(super) ordinal: u8,
}

/// All names in one bucket node.
pub(super) fn names_of(image: &NodeImage) -> Vec<Name> {
    let payloads = image.payloads();
    payloads
        .flat_map(directory::entries)
        .map(Name::from)
        .collect()
}

impl From<directory::Entry<'_>> for Name {
    fn from(entry: directory::Entry<'_>) -> Name {
        Name {
            name: entry.name.to_vec(),
            ino: Ino(entry.ino),
            kind: entry.kind,
            ordinal: entry.ordinal,
        }
    }
}

/// Makes the tries of `wrong` anew, without the names that lead nowhere and with those in `added`.
pub(super) fn rebuild(
    edit: &mut Edit<'_, '_>,
    wrong: &BTreeSet<Ino>,
    added: &BTreeMap<Ino, Vec<(Vec<u8>, Ino)>>,
) {
    let mut buckets = edit.buckets();
    let mut named: BTreeSet<Ino> = directories_named_elsewhere(edit, &buckets, wrong);
    for &directory in wrong {
        let nodes = buckets.remove(&directory).unwrap_or_default();
        let mut names = Vec::new();
        for nid in &nodes {
            if let Some(image) = edit.context.image(*nid) {
                names.extend(names_of(&image));
            }
        }
        let more = added.get(&directory).cloned().unwrap_or_default();
        names.extend(more.into_iter().map(|(name, ino)| Name {
            name,
            ino,
            kind: 0,
            ordinal: 0,
        }));
        let names = keep(edit, directory, names, &mut named);
        plant(edit, directory, names, nodes);
    }
}

/// Directories that have a name in a directory that is not made anew.
fn directories_named_elsewhere(
    edit: &mut Edit<'_, '_>,
    buckets: &BTreeMap<Ino, Vec<Nid>>,
    wrong: &BTreeSet<Ino>,
) -> BTreeSet<Ino> {
    let mut named = BTreeSet::from([Ino::ROOT]);
    for (directory, nodes) in buckets {
        let living = edit.context.inodes.get(directory.0);
        if wrong.contains(directory) || living.is_none_or(|facts| facts.kind != KIND_DIRECTORY) {
            continue;
        }
        for nid in nodes {
            let image = edit.context.image(*nid);
            let names = image.map(|image| names_of(&image)).unwrap_or_default();
            let directories = names.into_iter().filter(|name| name.kind == KIND_DIRECTORY);
            named.extend(directories.map(|name| name.ino));
        }
    }
    named
}

/// The names that can stay, with the types of their inodes.
fn keep(
    edit: &mut Edit<'_, '_>,
    directory: Ino,
    names: Vec<Name>,
    named: &mut BTreeSet<Ino>,
) -> Vec<Name> {
    let mut kept: BTreeMap<Vec<u8>, Name> = BTreeMap::new();
    for mut name in names {
        let kind = kind_of(edit, name.ino);
        let Some(kind) = kind.filter(|_| check_name(&name.name).is_ok()) else {
            let text = Some(name.name.clone());
            edit.lose(directory, text, format!("inode {} is lost", name.ino));
            continue;
        };
        name.kind = kind;
        if kept.contains_key(&name.name) {
            continue;
        }
        if kind == KIND_DIRECTORY && !named.insert(name.ino) {
            continue;
        }
        kept.insert(name.name.clone(), name);
    }
    kept.into_values().collect()
}

/// The type of an inode in use.
pub(super) fn kind_of(edit: &mut Edit<'_, '_>, ino: Ino) -> Option<u8> {
    if ino.0 == 0 || ino.nid().0 >= edit.context.layout.nids() {
        return None;
    }
    if !edit.context.lives(ino.nid()) || !edit.context.is_inode_node(ino.nid()) {
        return None;
    }
    let image = edit.context.image(ino.nid())?;
    let record = image.inode(ino.index());
    let kind = dure_store::format::fields::kind(&record);
    (kind != 0).then_some(kind)
}

/// Makes a trie of `names` in the nodes `old`, and new ones if they do not suffice.
fn plant(edit: &mut Edit<'_, '_>, directory: Ino, names: Vec<Name>, old: Vec<Nid>) {
    let seed = edit.context.layout.hash_seed;
    let mut hashed: Vec<(u64, Name)> = names
        .into_iter()
        .map(|name| (trie::name_hash(seed, &name.name), name))
        .collect();
    hashed.sort_by(|a, b| (a.0, &a.1.name).cmp(&(b.0, &b.1.name)));
    let mut spare = old;
    let mut made = Vec::new();
    let root = (!hashed.is_empty()).then(|| grow(edit, directory, &hashed, &mut spare, &mut made));
    for (nid, image) in made {
        edit.put(nid, image);
    }
    for nid in spare {
        edit.free(nid);
    }
    let root = root.flatten().unwrap_or(Nid(0));
    edit.data(directory, |data| {
        data.head.ino = U64::new(directory.0);
        data.head.map_root = U64::new(root.0);
        (data.head.size, data.head.blocks) = (U64::ZERO, U64::ZERO);
        data.head.map_height = U32::ZERO;
        data.body.fill(0);
    });
}

/// Makes the nodes of a trie, the root's first. Bounded: each level takes three more bits of the
/// hash, and names whose hashes agree in all levels fit into one bucket but by intent.
fn grow(
    edit: &mut Edit<'_, '_>,
    directory: Ino,
    names: &[(u64, Name)],
    spare: &mut Vec<Nid>,
    made: &mut Vec<(Nid, NodeImage)>,
) -> Option<Nid> {
    let root = spare.pop().or_else(|| edit.free_nid())?;
    let mut stack = vec![(root, 0_u32, names)];
    while let Some((nid, level, names)) = stack.pop() {
        let mut image = NodeImage::fresh_of(NodeKind::Bucket, edit.version, directory);
        for bucket in 0..8_u8 {
            let from = names.partition_point(|(hash, _)| trie::slot(*hash, level) < bucket);
            let to = names.partition_point(|(hash, _)| trie::slot(*hash, level) <= bucket);
            let part = &names[from..to];
            let bytes = part
                .iter()
                .map(|(_, name)| ENTRY_HEADER_BYTES + name.name.len());
            if bytes.sum::<usize>() <= ENTRY_BYTES {
                fill(image.payload_mut(usize::from(bucket)), part);
            } else {
                let child = spare.pop().or_else(|| edit.free_nid())?;
                let mut header = BucketHeader::new_zeroed();
                header.child = U64::new(child.0);
                image.payload_mut(usize::from(bucket))[..HEADER_BYTES]
                    .copy_from_slice(header.as_bytes());
                stack.push((child, level + 1, part));
            }
        }
        made.push((nid, image));
    }
    Some(root)
}

/// Fills a bucket.
fn fill(payload: &mut [u8], names: &[(u64, Name)]) {
    let mut header = BucketHeader::new_zeroed();
    let mut at = HEADER_BYTES;
    let mut cookies = BTreeSet::new();
    for (hash, name) in names {
        let free = (0..16).find(|ordinal| !cookies.contains(&trie::cookie(*hash, *ordinal)));
        let wanted =
            (!cookies.contains(&trie::cookie(*hash, name.ordinal))).then_some(name.ordinal);
        let Some(ordinal) = wanted.or(free) else {
            continue;
        };
        cookies.insert(trie::cookie(*hash, ordinal));
        let space = ENTRY_HEADER_BYTES + name.name.len();
        let entry = EntryHeader {
            ino: U64::new(name.ino.0),
            space: U16::new(u16::try_from(space).expect("a name has at most 255 bytes")),
            kind: name.kind | ordinal << 4,
            name_len: u8::try_from(name.name.len()).expect("a name has at most 255 bytes"),
        };
        payload[at..at + ENTRY_HEADER_BYTES].copy_from_slice(entry.as_bytes());
        payload[at + ENTRY_HEADER_BYTES..at + space].copy_from_slice(&name.name);
        at += space;
        header.entries += U16::new(1);
        header.subdirectories += U32::new(u32::from(name.kind == KIND_DIRECTORY));
    }
    header.used = U16::new(u16::try_from(at - HEADER_BYTES).expect("a bucket is 496 bytes"));
    payload[..HEADER_BYTES].copy_from_slice(header.as_bytes());
}
