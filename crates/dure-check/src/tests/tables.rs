//! Superblocks, headers, NAT, SIT and summaries.

use dure_store::format::nat::{NatBlock, NatEntry};
use dure_store::format::node::NodeKind;
use dure_store::format::pair_kind;
use dure_store::format::volume::VolumeHeader;
use dure_store::layout::TableCopies;
use dure_store::units::{BLOCK_BYTES, BlockNo, SegNo};
use zerocopy::FromBytes;

use super::cases::Case;
use super::disk::Disk;
use super::volume::{TestVolume, place::*};

fn sound() -> Disk {
    TestVolume::new().write()
}

fn copied(change: impl FnOnce(&Disk)) -> Disk {
    let disk = TestVolume::with(TableCopies::Two).write();
    change(&disk);
    disk
}

fn changed(change: impl FnOnce(&Disk)) -> Disk {
    let disk = sound();
    change(&disk);
    disk
}

pub(super) const CASES: &[Case] = &[
    Case {
        kind: "SuperblockCopy",
        make: || changed(|disk| disk.damage(0, |block| block[200] ^= 1)),
        expect: &[
            "error: superblock at block 0 is bad, the other copy counts: corrupt: superblock \
                   checksum at block 0: expected 0x163fe822, found 0xe54f5b5d; run `dure check`",
        ],
    },
    Case {
        kind: "SuperblockCopiesDiffer",
        make: || {
            changed(|disk| {
                let mut superblock = disk.layout.superblock;
                superblock.label[0] = b'x';
                disk.put(1023, &superblock.seal(1023));
            })
        },
        expect: &["error: the two superblocks differ from byte 40 on; the first one counts"],
    },
    Case {
        kind: "ReservedNotZero",
        make: || {
            changed(|disk| {
                let mut superblock = disk.layout.superblock;
                superblock.devices[3].kind.set(1);
                disk.put(0, &superblock.seal(0));
                disk.put(1023, &superblock.seal(1023));
            })
        },
        expect: &["error: device table at block 0: reserved bytes must be zero"],
    },
    Case {
        kind: "VolumeHeaderLost",
        make: || {
            changed(|disk| {
                for at in [1, 3] {
                    disk.damage(disk.layout.volume_header + at, |block| block[99] ^= 8);
                }
            })
        },
        expect: &[
            "error: volume header at block 2: what counts is damaged; its content is lost",
            "fatal: volume header at block 2: neither slot is valid; epoch and state of the volume \
             are lost",
        ],
    },
    Case {
        kind: "VolumeHeaderField",
        make: || {
            changed(|disk| {
                disk.reseal(pair_kind::VOLUME, 2, |payload| {
                    VolumeHeader::mut_from_prefix(payload)
                        .unwrap()
                        .0
                        .state
                        .set(7);
                });
            })
        },
        expect: &["fatal: volume header: state is 7, must be 1 to 3"],
    },
    Case {
        kind: "HeaderCount",
        make: || {
            changed(|disk| {
                disk.reseal(pair_kind::VOLUME, 2, |payload| {
                    let (header, _) = VolumeHeader::mut_from_prefix(payload).unwrap();
                    header.nodes.set(11);
                    header.inodes.set(0);
                });
            })
        },
        expect: &[
            "warning: volume header: it counts 11 nodes, the NAT has 10",
            "warning: volume header: it counts 0 inodes, the NAT has 9",
        ],
    },
    Case {
        kind: "PairSlotBad",
        make: || changed(|disk| disk.put(disk.layout.volume_header, &[1; BLOCK_BYTES])),
        expect: &[
            "warning: volume header: the slot at block 2 is not valid (torn by a crash, or \
                   damaged); the other one counts",
        ],
    },
    Case {
        kind: "PairLost",
        make: || changed(|disk| disk.damage(disk.layout.nat_pair(1) + 1, |block| block[77] ^= 8)),
        expect: &["error: NAT pair 1 at block 21: what counts is damaged; its content is lost"],
    },
    Case {
        kind: "PairCopyBad",
        make: || {
            copied(|disk| {
                disk.damage(disk.layout.nat_pair(0) + 1, |block| block[77] ^= 8);
                disk.damage(disk.layout.copies + 3, |block| block[77] ^= 8);
            })
        },
        expect: &[
            "error: NAT pair 0: the copy at block 19 is damaged; the other one counts",
            "error: NAT pair 1: the copy at block 91 is damaged; the other one counts",
        ],
    },
    Case {
        kind: "PairMisplaced",
        make: || {
            changed(|disk| {
                disk.reseal(pair_kind::NAT, disk.layout.nat_pair(1), |payload| {
                    NatBlock::mut_from_bytes(payload).unwrap().index.set(0);
                });
            })
        },
        expect: &["error: NAT pair 1 at block 20 says it has number 0"],
    },
    Case {
        kind: "PackBad",
        make: || {
            changed(|disk| {
                for at in [1, 3] {
                    disk.damage(disk.layout.pack + at, |block| block[99] ^= 8);
                }
            })
        },
        expect: &[
            "fatal: which slots of the tables count cannot be read: corrupt: pack: the slot that \
             counts is damaged at block 7: expected 0x1, found 0x0; run `dure check`",
        ],
    },
    Case {
        kind: "PackBad",
        make: || {
            changed(|disk| {
                disk.reseal(pair_kind::PACK, disk.layout.pack, |payload| {
                    payload[32] = 0b10_1010
                });
            })
        },
        expect: &[
            "fatal: which slots of the tables count cannot be read: corrupt: pack 0: slot of pair \
             2 at block 7: expected 0x0, found 0x3; run `dure check`",
        ],
    },
    Case {
        kind: "NatBlockOutside",
        make: || {
            changed(|disk| {
                disk.nat(300, |entry| {
                    *entry = NatEntry::live(BlockNo(3), NodeKind::Blob, 0, 1)
                });
            })
        },
        expect: &[
            "warning: volume header: it counts 10 nodes, the NAT has 11",
            "error: NAT entry of node 300: block 3 is outside the main area",
        ],
    },
    Case {
        kind: "NatKind",
        make: || changed(|disk| disk.nat(300, |entry| entry.place.set(5 << 48))),
        expect: &["error: NAT entry of node 300: kind 5 is impossible"],
    },
    Case {
        kind: "NatFreeInodes",
        make: || {
            changed(|disk| {
                disk.nat(MORE_INODES, |entry| {
                    let (block, version) = (entry.block(), entry.version.get());
                    *entry = NatEntry::live(block, NodeKind::Inode, 8, version);
                });
            })
        },
        expect: &[
            "warning: volume header: it counts 9 inodes, the NAT has 7",
            "warning: NAT entry of node 7: 8 free inodes, its image has 6",
        ],
    },
    Case {
        kind: "NodeVersion",
        make: || changed(|disk| disk.nat(LEAF, |entry| entry.version.set(9))),
        expect: &["error: node 4: the NAT is at version 9, the image at 2; one of them is stale"],
    },
    Case {
        kind: "NodeKindMismatch",
        make: || {
            changed(|disk| {
                disk.nat(LEAF, |entry| {
                    *entry = NatEntry::live(entry.block(), NodeKind::Index, 0, 2)
                });
            })
        },
        expect: &["error: node 4: the NAT says Index, the image says Leaf"],
    },
    Case {
        kind: "SitMissing",
        make: || {
            changed(|disk| {
                disk.sit(|sit| {
                    sit.entries[2].live[0] &= !0b11;
                    sit.entries[2].valid -= 2;
                });
            })
        },
        expect: &["error: segment 2: 2 used blocks from 160 on, free in the SIT"],
    },
    Case {
        kind: "SitLeak",
        make: || {
            changed(|disk| {
                disk.sit(|sit| {
                    sit.entries[9].live[1] = 0b101;
                    sit.entries[9].valid.set(2);
                });
            })
        },
        expect: &["warning: segment 9: 2 blocks from 392 on, live in the SIT without an owner"],
    },
    Case {
        kind: "SitCount",
        make: || changed(|disk| disk.sit(|sit| sit.entries[9].valid.set(3))),
        expect: &["error: SIT entry of segment 9: 0 bits are set but it counts 3"],
    },
    Case {
        kind: "SitField",
        make: || changed(|disk| disk.sit(|sit| sit.entries[9].usage = 4)),
        expect: &["error: SIT entry of segment 9: use is 0x4"],
    },
    // Of a segment without a live block.
    Case {
        kind: "PairMisplaced",
        make: || {
            changed(|disk| {
                let first = disk.layout.summary_pair(SegNo(9), 0);
                disk.reseal(pair_kind::SUMMARY, first, |payload| payload[8] = 200);
            })
        },
        expect: &["error: summary pair of segment 9 at block 42 says it has number 200"],
    },
    Case {
        kind: "SummaryWrong",
        make: || {
            changed(|disk| {
                let first = disk.layout.summary_pair(SegNo(2), 0);
                disk.reseal(pair_kind::SUMMARY, first, |payload| payload[16] = 200);
            })
        },
        expect: &["warning: segment 2: the summary names the wrong owner of 1 block from 160 on"],
    },
];
