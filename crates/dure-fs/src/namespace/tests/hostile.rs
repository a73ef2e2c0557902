//! Volumes on which structures contradict each other: calls say so; they neither panic nor go on
//! for ever.

use dure_store::OpKind;
use dure_store::format::bucket::BucketHeader;
use dure_store::format::inode::InodeRecord;
use dure_store::format::node::NodeKind;
use dure_store::node::NodeRef;
use dure_store::op::Draft;
use dure_store::space::OpClass;
use dure_store::units::{Ino, Nid};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros};

use super::*;
use crate::directory::bucket;
use crate::{Error, ReadMode, RenameMode, SeekTarget, Stamp, SyncScope, XattrMode};

fn assert_corrupt<T>(result: Result<T>) {
    let error = result.err().expect("it is corrupt");
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
}

fn change_bucket(fs: &FileSystem, node: &NodeRef, index: u8, change: impl FnOnce(&mut Draft)) {
    let mut op = fs.0.store.op(OpKind::Create, OpClass::Normal, 1).unwrap();
    change(op.edit(node, index));
    op.finish();
}

/// Changes the bucket of a name.
fn change_bucket_of(
    fs: &FileSystem,
    directory: &InodeRef,
    name: &[u8],
    change: impl FnOnce(&mut Draft),
) {
    let state = directory.inode().state().read();
    let leaf =
        fs.0.directories
            .leaf(&state, fs.0.directories.hash_of(name))
            .unwrap()
            .unwrap();
    drop(state);
    change_bucket(fs, &leaf.node, leaf.index, change);
}

fn header(draft: &mut Draft) -> &mut BucketHeader {
    BucketHeader::mut_from_prefix(draft.all()).unwrap().0
}

fn change_record(fs: &FileSystem, inode: &InodeRef, change: impl FnOnce(&mut InodeRecord)) {
    let mut op =
        fs.0.store
            .op(OpKind::Attributes, OpClass::Normal, 1)
            .unwrap();
    let mut state = inode.inode().state().write();
    let (attributes, data) = (inode.inode().attributes(), inode.inode().data());
    let mut record = InodeRecord { attributes, data };
    change(&mut record);
    let InodeRecord { attributes, data } = record;
    inode.inode().store_attributes(&mut op, &attributes);
    inode.inode().store_data(&mut op, &data);
    inode.inode().data_stored(&mut state, &data, op.finish());
}

/// All bucket nodes of a directory.
fn nodes(fs: &FileSystem, directory: &InodeRef) -> Vec<NodeRef> {
    let state = directory.inode().state().read();
    let root = state.first_bucket_node(&fs.0.store).unwrap().unwrap();
    let mut nodes = Vec::new();
    fs.0.directories
        .walk_buckets(&root, &mut |node| nodes.push(node.clone()))
        .unwrap();
    nodes
}

#[test]
fn an_entry_of_another_type_than_its_inode_is_refused() {
    let (_disk, fs) = fresh();
    let root = fs.root().unwrap();
    drop(fs.create(&root, b"file", &file()).unwrap());
    change_bucket_of(&fs, &root, b"file", |payload| {
        let entry = bucket::find(payload, b"file").unwrap().unwrap();
        let (at, ino) = (entry.at, entry.ino);
        bucket::retarget(payload, at, ino, bucket::KIND_DIRECTORY).unwrap();
    });
    assert_corrupt(fs.rename(&root, b"file", &root, b"new", RenameMode::Replace));
    assert_corrupt(fs.unlink(&root, b"file"));
    // Until here the dentry cache had the answer from before the damage.
    fs.0.directories
        .dentries
        .forget(root.ino(), fs.0.directories.hash_of(b"file"));
    assert_corrupt(fs.rename(&root, b"file", &root, b"new", RenameMode::Replace));
    assert_corrupt(fs.unlink(&root, b"file"));
    assert_corrupt(fs.lookup(&root, b"file"));
}

#[test]
fn an_inode_with_more_names_than_it_says_is_refused() {
    let (_disk, fs) = fresh();
    let root = fs.root().unwrap();
    let open = fs.create(&root, b"one", &file()).unwrap();
    fs.link(&open, &root, b"two").unwrap();
    change_record(&fs, &open, |record| record.attributes.nlink = U32::new(1));
    fs.unlink(&root, b"one").unwrap();
    drop(fs.create(&root, b"new", &file()).unwrap());
    assert_corrupt(fs.rename(&root, b"new", &root, b"two", RenameMode::Replace));
    assert_corrupt(fs.unlink(&root, b"two"));
}

#[test]
fn a_directory_above_itself_is_noticed() {
    let (_disk, fs) = fresh();
    let root = fs.root().unwrap();
    let above = fs.mkdir(&root, b"above", &directory()).unwrap();
    let middle = fs.mkdir(&above, b"middle", &directory()).unwrap();
    let below = fs.mkdir(&middle, b"below", &directory()).unwrap();
    fs.mkdir(&root, b"moved", &directory()).unwrap();
    change_record(&fs, &above, |record| {
        record.attributes.parent = U64::new(middle.ino().0);
    });
    assert_corrupt(fs.rename(&root, b"moved", &below, b"moved", RenameMode::Replace));
}

#[test]
fn more_subdirectories_than_a_directory_can_have_are_noticed() {
    let (_disk, fs) = fresh();
    let root = fs.root().unwrap();
    let full = fs.mkdir(&root, b"full", &directory()).unwrap();
    drop(fs.mkdir(&full, b"sub", &directory()).unwrap());
    change_bucket_of(&fs, &full, b"sub", |payload| {
        header(payload).subdirectories = U32::new(u32::MAX);
    });
    assert_corrupt(fs.attributes(&full));
}

#[test]
fn bucket_nodes_without_entries_are_noticed() {
    let (_disk, fs) = fresh();
    let root = fs.root().unwrap();
    let empty = fs.mkdir(&root, b"empty", &directory()).unwrap();
    for n in 0..3000 {
        let name = format!("a name of some length {n}");
        drop(fs.create(&empty, name.as_bytes(), &file()).unwrap());
    }
    let nodes = nodes(&fs, &empty);
    assert!(nodes.len() > 50, "more than two paths have");
    for node in nodes {
        for index in 0..node.granule_count() {
            change_bucket(&fs, &node, index, |payload| {
                let header = header(payload);
                (header.entries, header.used) = (U16::ZERO, U16::ZERO);
            });
        }
    }
    assert_corrupt(fs.rmdir(&root, b"empty"));
}

#[test]
fn a_bucket_with_entries_and_a_child_is_refused() {
    let (_disk, fs) = fresh();
    let root = fs.root().unwrap();
    let mut count = 0;
    let names = || (0..).map(|n| format!("a name of some length {n}"));
    while nodes_of(&fs, &root) < 2 {
        let name = names().nth(count).unwrap();
        drop(fs.create(&root, name.as_bytes(), &file()).unwrap());
        count += 1;
    }
    let first = nodes(&fs, &root).remove(0);
    for index in 0..first.granule_count() {
        change_bucket(&fs, &first, index, |payload| {
            let header = header(payload);
            if header.child.get() != 0 {
                header.entries = U16::new(1);
            }
        });
    }
    let results = names()
        .take(count)
        .map(|name| fs.unlink(&root, name.as_bytes()));
    let refused = results.filter(|result| matches!(result, Err(Error::Corrupt { .. })));
    assert!(refused.count() > 0, "those below the child");
}

/// Lets a directory grow until it has so many bucket nodes.
fn grow(fs: &FileSystem, directory: &InodeRef, bucket_nodes: usize) {
    for n in 0.. {
        let name = format!("a name of some length {n}");
        drop(fs.create(directory, name.as_bytes(), &file()).unwrap());
        if nodes_of(fs, directory) >= bucket_nodes {
            return;
        }
    }
}

#[test]
fn bucket_nodes_with_many_parents_are_noticed() {
    let (disk, fs) = fresh();
    let many = fs
        .mkdir(&fs.root().unwrap(), b"many", &directory())
        .unwrap();
    grow(&fs, &many, 18);
    // More paths lead to the last one than can be walked.
    for pair in nodes(&fs, &many)[..18].windows(2) {
        for index in 0..pair[0].granule_count() {
            change_bucket(&fs, &pair[0], index, |payload| {
                *header(payload) = BucketHeader::new_zeroed();
                header(payload).child = U64::new(pair[1].nid.0);
            });
        }
    }
    drop(many);
    fs.close().unwrap();
    drop(fs);
    let fs = disk.mount();
    let many = get(&fs, &fs.root().unwrap(), "many");
    assert_corrupt(fs.attributes(&many));
}

#[test]
fn a_bucket_node_of_another_directory_is_refused() {
    let (disk, fs) = fresh();
    let root = fs.root().unwrap();
    let [own, other] = [b"own", b"two"].map(|name| {
        let made = fs.mkdir(&root, name, &directory()).unwrap();
        grow(&fs, &made, 2);
        made
    });
    let theirs = nodes(&fs, &own)[0].nid;
    change_record(&fs, &other, |record| {
        record.data.map_root = U64::new(theirs.0)
    });
    drop((own, other, root));
    fs.close().unwrap();
    drop(fs);
    let fs = disk.mount();
    let other = get(&fs, &fs.root().unwrap(), "two");
    assert_corrupt(fs.attributes(&other));
    assert_corrupt(fs.create(&other, b"new", &file()));
}

/// A file with a map of so many pages, in which every byte is `fill`.
fn mapped(fs: &FileSystem, name: &[u8], pages: usize, fill: u8) -> InodeRef {
    let made = fs.create(&fs.root().unwrap(), name, &file()).unwrap();
    fs.write(&made, 0, &vec![fill; pages * 4096], Stamp::Set)
        .unwrap();
    fs.fsync(&made, SyncScope::All).unwrap();
    made
}

/// Unmounts, if nothing refuses that, and mounts again: nothing is in memory.
fn again(disk: &Disk, fs: FileSystem) -> FileSystem {
    fs.close().unwrap();
    drop(fs);
    disk.mount()
}

/// A new file would own the blocks that the data names.
#[test]
fn a_free_inode_with_data_is_not_given_out() {
    let disk = Disk::with_journals(1 << 17, 1);
    let fs = disk.mount();
    let damaged = Ino(5);
    let node =
        fs.0.store
            .node(damaged.nid(), NodeKind::Inode.of_none())
            .unwrap();
    change_bucket(&fs, &node, damaged.data_index(), |payload| {
        payload.all()[300] = 1
    });
    drop(node);
    let fs = again(&disk, fs);
    let root = fs.root().unwrap();
    let create = |n| fs.create(&root, format!("{n}").as_bytes(), &file());
    let made: Vec<Ino> = (0..17).map(|n| create(n).unwrap().ino()).collect();
    assert!(made.contains(&Ino(4)) && made.contains(&Ino(6)), "{made:?}");
    assert!(!made.contains(&damaged), "{made:?}");
}

fn bytes_of(fs: &FileSystem, inode: &InodeRef, pages: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; pages * 4096];
    let read = fs.read(inode, 0, &mut bytes, ReadMode::Cached)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Regression: one pointer of a file to the map of another one let it read and change that, and
/// ended in an abort when both were removed.
#[test]
fn the_map_of_another_file_is_refused() {
    let (disk, fs) = fresh();
    let (own, other) = (mapped(&fs, b"own", 60, 1), mapped(&fs, b"two", 60, 2));
    let root = own.inode().data_head().map_root;
    change_record(&fs, &other, |record| record.data.map_root = root);
    drop((own, other));
    let fs = again(&disk, fs);
    let top = fs.root().unwrap();
    let (own, other) = (get(&fs, &top, "own"), get(&fs, &top, "two"));
    assert_corrupt(bytes_of(&fs, &other, 60));
    assert_corrupt(fs.0.files.truncate(&other, 4096 * 30));
    let written = fs.write(&other, 4096 * 40, &[9; 4096], Stamp::Set);
    assert_corrupt(written.and_then(|_| fs.fsync(&other, SyncScope::All)));
    assert_eq!(bytes_of(&fs, &own, 60).unwrap(), vec![1; 60 * 4096]);
    fs.unlink(&top, b"own").unwrap();
}

#[test]
fn attributes_of_another_inode_are_refused() {
    for bytes in [5000, 60_000] {
        let disk = Disk::new(4096);
        let fs = disk.mount();
        let root = fs.root().unwrap();
        let [own, other] = [b"own", b"two"].map(|name| {
            let made = fs.create(&root, name, &file()).unwrap();
            let value = vec![name[0]; bytes];
            fs.set_xattr(&made, b"user.a", &value, XattrMode::Any)
                .unwrap();
            made
        });
        let theirs = own.inode().attributes();
        change_record(&fs, &other, |record| {
            record.attributes.xattr_root = theirs.xattr_root
        });
        drop((own, other, root));
        let fs = again(&disk, fs);
        let root = fs.root().unwrap();
        let (own, other) = (get(&fs, &root, "own"), get(&fs, &root, "two"));
        assert_corrupt(fs.get_xattr(&other, b"user.a"));
        assert_corrupt(fs.set_xattr(&other, b"user.a", b"x", XattrMode::Any));
        let value = fs.get_xattr(&own, b"user.a").unwrap().unwrap();
        assert_eq!(value, vec![b'o'; bytes]);
    }
}

/// Regression: the second pointer to a node of the same file was an assertion that failed.
#[test]
fn two_pointers_to_one_node_of_a_map_are_noticed() {
    let (_disk, fs) = fresh();
    let twice = mapped(&fs, b"twice", 24 + 2 * 320, 7);
    let nid = Nid(twice.inode().data_head().map_root.get());
    let index =
        fs.0.store
            .node(nid, NodeKind::Index.of(twice.ino()))
            .unwrap();
    change_bucket(&fs, &index, 0, |payload| payload.all().copy_within(0..8, 8));
    assert_corrupt(fs.0.files.truncate(&twice, 0));
}

#[test]
fn an_index_that_leads_nowhere_is_noticed() {
    let (disk, fs) = fresh();
    let file = mapped(&fs, b"empty", 24 + 2 * 320, 7);
    let nid = Nid(file.inode().data_head().map_root.get());
    let index =
        fs.0.store
            .node(nid, NodeKind::Index.of(file.ino()))
            .unwrap();
    for granule in 0..index.granule_count() {
        change_bucket(&fs, &index, granule, |payload| payload.all().fill(0));
    }
    drop((index, file));
    let fs = again(&disk, fs);
    let file = get(&fs, &fs.root().unwrap(), "empty");
    assert_corrupt(fs.seek(&file, 24 * 4096, SeekTarget::Data));
    assert_corrupt(fs.0.files.truncate(&file, 0));
}

/// Regression: a chain that leads back was freed twice.
#[test]
fn a_chain_of_attributes_that_leads_back_is_refused() {
    let (disk, fs) = fresh();
    let root = fs.root().unwrap();
    let loops = fs.create(&root, b"loops", &file()).unwrap();
    fs.set_xattr(&loops, b"user.a", &[1; 9000], XattrMode::Any)
        .unwrap();
    let nid = Nid(loops.inode().attributes().xattr_root.get());
    let blob =
        fs.0.store
            .node(nid, NodeKind::Blob.of(loops.ino()))
            .unwrap();
    change_bucket(&fs, &blob, 0, |payload| {
        payload.all()[..8].copy_from_slice(&nid.0.to_le_bytes());
    });
    drop((blob, loops, root));
    let fs = again(&disk, fs);
    let root = fs.root().unwrap();
    let loops = get(&fs, &root, "loops");
    assert_corrupt(fs.get_xattr(&loops, b"user.a"));
    assert_corrupt(fs.set_xattr(&loops, b"user.b", b"x", XattrMode::Any));
    drop(loops);
    fs.unlink(&root, b"loops").unwrap();
}

/// Regression: a loop of orphan nodes filled the memory with places before it was noticed.
#[test]
fn orphan_nodes_that_lead_to_each_other_are_refused() {
    for to in [1, 2] {
        let (disk, fs) = fresh();
        let node = fs.0.store.node(Nid(2), NodeKind::Orphan.of_none()).unwrap();
        change_bucket(&fs, &node, 6, |payload| payload.part(0..1)[0] = to);
        drop(node);
        fs.close().unwrap();
        drop(fs);
        assert_corrupt(FileSystem::open(disk.device.clone(), options()));
    }
}

fn nodes_of(fs: &FileSystem, directory: &InodeRef) -> usize {
    let root = directory.inode().data_head().map_root;
    match root.get() {
        0 => 0,
        _ => nodes(fs, directory).len(),
    }
}
