//! Inodes, block maps, attributes, orphans and the nodes they are made of.

use dure_store::format::feature::PROJECTS;
use dure_store::format::node::NodeKind;
use dure_store::format::orphan::INTENT_DELETE;
use dure_store::format::slot::Slot;
use dure_store::units::{BlockNo, Ino, Nid};

use super::cases::Case;
use super::disk::Disk;
use super::volume::{TestVolume, place::*};

fn changed(change: impl FnOnce(&mut TestVolume)) -> Disk {
    let mut volume = TestVolume::new();
    change(&mut volume);
    volume.write()
}

/// Block of the image of node `nid`.
fn block(volume: &TestVolume, nid: u64) -> u64 {
    volume.nodes[&Nid(nid)].1.0
}

pub(super) const CASES: &[Case] = &[
    Case {
        kind: "NodeBad",
        make: || {
            let volume = TestVolume::new();
            let disk = volume.write();
            disk.damage(block(&volume, LINK_BLOB), |block| block[0] ^= 1);
            disk
        },
        expect: &[
            "error: image of node 5 at block 165: corrupt: node magic at block 165: expected \
                   0x45444f4e, found 0x45444f4f; run `dure check`",
        ],
    },
    Case {
        kind: "NodeMissing",
        make: || changed(|volume| volume.edit(SMALL, |small| small.attributes.xattr_root.set(90))),
        expect: &[
            "error: node 90, named by the extended attributes of inode 2, does not exist",
            "warning: node 6 (Blob) belongs to nothing; its space is lost",
        ],
    },
    Case {
        kind: "NodeWrongKind",
        make: || {
            changed(|volume| volume.edit(SMALL, |small| small.attributes.xattr_root.set(LEAF)))
        },
        expect: &[
            "error: node 4, named by the extended attributes of inode 2, is of kind Leaf",
            "warning: node 6 (Blob) belongs to nothing; its space is lost",
        ],
    },
    Case {
        kind: "NodeShared",
        make: || {
            changed(|volume| {
                volume.edit(SMALL, |small| {
                    small.attributes.xattr_root.set(LINK_BLOB);
                    small.attributes.xattr_bytes.set(300);
                })
            })
        },
        expect: &[
            "error: node 5, named by the extended attributes of inode 2, says it belongs to inode 6",
            "error: inode 2: no sound extended attribute at byte 0 of the stream",
            "error: node 5 is used by the target of symlink 6 and by something else",
            "warning: node 6 (Blob) belongs to nothing; its space is lost",
        ],
    },
    Case {
        kind: "NodeOwner",
        make: || {
            changed(|volume| {
                volume.nodes.get_mut(&Nid(LEAF)).unwrap().0.owner = Ino(DEEP);
            })
        },
        expect: &["error: node 4, named by the block map of file 5, says it belongs to inode 57"],
    },
    Case {
        kind: "NodeLeaked",
        make: || changed(|volume| volume.add(99, NodeKind::Blob)),
        expect: &["warning: node 99 (Blob) belongs to nothing; its space is lost"],
    },
    Case {
        kind: "InodeNumber",
        make: || changed(|volume| volume.edit(FIFO, |fifo| fifo.attributes.ino.set(8))),
        expect: &["error: inode 7 says it has number 8"],
    },
    Case {
        kind: "InodeField",
        make: || {
            changed(|volume| {
                volume.edit(FIFO, |fifo| fifo.attributes.ctime.nanos.set(1_000_000_000))
            })
        },
        expect: &[
            "error: inode 7: ctime nanoseconds of attributes is 0x3b9aca00, must be below 1000000000",
        ],
    },
    Case {
        kind: "InodeField",
        make: || {
            changed(|volume| {
                volume.edit(FIFO, |fifo| fifo.data.ino.set(8));
                let free = Ino(63);
                volume.payload(free.nid().0, usize::from(free.data_index()))[7] = 1;
            })
        },
        expect: &[
            "error: inode 7: number in the data is 0x8, must be its own",
            "error: inode 63: data of a free inode is 0x1, must be zero",
        ],
    },
    Case {
        kind: "InodeProject",
        make: || {
            let mut of_projects = TestVolume::new();
            let superblock = of_projects.layout.superblock;
            of_projects.layout.superblock = superblock.with(PROJECTS);
            of_projects.edit(FIFO, |fifo| fifo.attributes.project.set(9));
            assert_eq!(of_projects.write().issues(), Vec::<String>::new());
            changed(|volume| volume.edit(FIFO, |fifo| fifo.attributes.project.set(9)))
        },
        expect: &["error: inode 7 is of project 9, but the volume has no projects"],
    },
    Case {
        kind: "InodeBlocks",
        make: || changed(|volume| volume.edit(BIG, |big| big.data.blocks.set(3))),
        expect: &["error: inode 5: has 2 blocks but counts 3"],
    },
    Case {
        kind: "SlotBad",
        make: || {
            changed(|volume| {
                volume.set_slot(
                    BIG,
                    LEAF,
                    3,
                    Slot {
                        place: (1 << 50).into(),
                        crc: 0.into(),
                    },
                );
                volume.edit(BIG, |big| big.data.blocks -= 1);
            })
        },
        expect: &["error: file 5, page 27: its slot has impossible flags"],
    },
    Case {
        kind: "SlotOutside",
        make: || {
            changed(|volume| {
                volume.set_slot(BIG, LEAF, 3, Slot::written(BlockNo(1023), 0));
            })
        },
        expect: &["error: file 5, page 27: block 1023 is outside the main area"],
    },
    Case {
        kind: "BlockShared",
        make: || {
            changed(|volume| {
                let leaf = BlockNo(block(volume, LEAF));
                volume.set_slot(BIG, LEAF, 3, Slot::written(leaf, 0));
            })
        },
        expect: &["error: block 164 is used by page 27 of file 5 and by something else"],
    },
    Case {
        kind: "SlotBeyondEnd",
        make: || changed(|volume| volume.edit(BIG, |big| big.data.size.set(26 * 4096))),
        expect: &["error: file 5: page 26 is written but lies behind the end of the file"],
    },
    Case {
        kind: "BlobLength",
        make: || {
            changed(|volume| {
                volume.add_of(99, NodeKind::Blob, LONG_LINK);
                volume.payload(LINK_BLOB, 0)[0] = 99;
            })
        },
        expect: &["error: the target of symlink 6: its length needs 1 nodes, the chain has 2"],
    },
    Case {
        kind: "XattrStream",
        make: || changed(|volume| volume.payload(XATTR_BLOB, 0)[8] = 4),
        expect: &["error: inode 2: no sound extended attribute at byte 0 of the stream"],
    },
    Case {
        kind: "LinkTarget",
        make: || changed(|volume| volume.payload(LINK_BLOB, 0)[8 + 7] = 0),
        expect: &["error: symlink 6: its target holds NUL"],
    },
    Case {
        kind: "XattrStream",
        make: || {
            changed(|volume| {
                let stream = volume.payload(XATTR_BLOB, 0);
                stream[8 + 8..][..5].copy_from_slice(b"other");
            })
        },
        expect: &["error: inode 2: no sound extended attribute at byte 0 of the stream"],
    },
    Case {
        kind: "OrphanVanished",
        make: || changed(|volume| volume.orphan(3, 60, INTENT_DELETE)),
        expect: &["error: orphan slot 3 of 1.0: inode 60 does not exist"],
    },
    Case {
        kind: "OrphanMismatch",
        make: || changed(|volume| volume.orphan(3, DEEP, INTENT_DELETE)),
        expect: &[
            "error: orphan inode 57: is to be deleted but lacks the orphan flag",
            "error: orphan inode 57: is to be deleted but has a link count",
        ],
    },
    Case {
        kind: "OrphanUnlisted",
        make: || changed(|volume| volume.orphan(0, 0, 0)),
        expect: &[
            "error: inode 56 is flagged as orphan but in no orphan slot: nobody will free it",
        ],
    },
];

#[test]
fn a_file_that_is_being_truncated_may_have_pages_behind_its_end() {
    let mut volume = TestVolume::new();
    volume.edit(BIG, |big| big.data.size.set(4096));
    volume.orphan(1, BIG, 4096);
    assert_eq!(volume.issues(), Vec::<String>::new());
}

#[test]
fn a_preallocated_page_may_lie_behind_the_end() {
    let mut volume = TestVolume::new();
    let block = volume.take();
    volume.set_slot(BIG, LEAF, 64, Slot::unwritten(BlockNo(block)));
    volume.own(block, LEAF, 1, 0, vec![0; 4096]);
    assert_eq!(volume.issues(), Vec::<String>::new());
}
