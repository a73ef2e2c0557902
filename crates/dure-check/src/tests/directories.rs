//! Directories, names and links.

use dure_store::format::node::NodeKind;

use super::cases::Case;
use super::disk::Disk;
use super::volume::{TestVolume, place::*};

fn changed(change: impl FnOnce(&mut TestVolume)) -> Disk {
    let mut volume = TestVolume::new();
    change(&mut volume);
    volume.write()
}

/// Changes the bytes of an entry of the root directory.
fn entry(name: &'static str, change: impl FnOnce(&mut [u8])) -> Disk {
    changed(|volume| {
        let (bucket, at) = (volume.bucket_of(name), volume.find(ROOT_BUCKETS, name));
        change(&mut volume.payload(ROOT_BUCKETS, bucket)[at..]);
    })
}

/// A chain of bucket nodes below an empty bucket, whose last node has a child too.
fn too_deep() -> Disk {
    const LAST: u64 = 100;
    changed(|volume| {
        let (mut nid, mut index) = (SUB_BUCKETS, volume.bucket_of("again") ^ 1);
        for left in (0..dure_store::format::bucket::LEVELS_MAX).rev() {
            let child = LAST + u64::from(left);
            volume.bucket(nid, index).child.set(child);
            if left > 0 {
                volume.add_of(child, NodeKind::Bucket, SUB);
                (nid, index) = (child, 3);
            }
        }
    })
}

pub(super) const CASES: &[Case] = &[
    Case {
        kind: "BucketLayout",
        make: || entry("big", |entry| entry[8] = 5),
        expect: &[
            "error: directory 1, bucket 2.4: no sound entry at byte 0",
            // "big" itself, and "deep" behind it.
            "error: inode 5 has no name and is in no orphan slot",
            "error: inode 57 has no name and is in no orphan slot",
        ],
    },
    Case {
        kind: "BucketTime",
        make: || {
            changed(|volume| {
                let bucket = volume.bucket_of("sub");
                volume
                    .bucket(ROOT_BUCKETS, bucket)
                    .mtime
                    .nanos
                    .set(1_000_000_000);
            })
        },
        expect: &[
            "error: directory 1, bucket 2.7: 1000000000 nanoseconds, must be below 1000000000",
        ],
    },
    Case {
        kind: "BucketCount",
        make: || {
            changed(|volume| {
                let bucket = volume.bucket_of("sub");
                volume.bucket(ROOT_BUCKETS, bucket).subdirectories.set(4);
            })
        },
        expect: &["error: directory 1, bucket 2.7: subdirectory count is 4, should be 1"],
    },
    Case {
        kind: "BucketTooDeep",
        make: too_deep,
        expect: &["error: directory 3, bucket 101.3: has a child below the last level"],
    },
    Case {
        kind: "NameInvalid",
        make: || {
            changed(|volume| {
                volume.entry(SUB_BUCKETS, SMALL, "a/b", 8);
                volume.edit(SMALL, |small| small.attributes.nlink.set(3));
            })
        },
        expect: &["error: directory 3: \"a/b\" cannot be a name"],
    },
    Case {
        kind: "NameTwice",
        make: || {
            changed(|volume| {
                volume.entry(SUB_BUCKETS, SMALL, "again", 8);
                volume.edit(SMALL, |small| small.attributes.nlink.set(3));
            })
        },
        expect: &["error: directory 3: \"again\" is there twice"],
    },
    Case {
        kind: "NameMisplaced",
        make: || {
            changed(|volume| {
                let bucket = volume.bucket_of("other") ^ 1;
                volume.entry_at(SUB_BUCKETS, bucket, SMALL, "other", 8);
                volume.edit(SMALL, |small| small.attributes.nlink.set(3));
            })
        },
        expect: &["error: directory 3, bucket 3.7: the hash of \"other\" leads elsewhere"],
    },
    Case {
        kind: "EntryDangling",
        make: || changed(|volume| volume.entry(SUB_BUCKETS, 60, "ghost", 8)),
        expect: &["error: directory 3: \"ghost\" leads to inode 60, which does not exist"],
    },
    Case {
        kind: "EntryType",
        make: || entry("fifo", |entry| entry[10] = 8),
        expect: &["error: directory 1: \"fifo\" has type 8, its inode type 1"],
    },
    Case {
        kind: "DirectoryTwice",
        make: || changed(|volume| volume.entry(SUB_BUCKETS, SUB, "self", 4)),
        expect: &["error: directory 3 has a second name, in directory 3"],
    },
    Case {
        kind: "ParentPointer",
        make: || changed(|volume| volume.edit(SUB, |sub| sub.attributes.parent.set(56))),
        expect: &["error: directory 3: its name is in directory 1 but its parent says 56"],
    },
    Case {
        kind: "DirectoryCycle",
        make: || {
            changed(|volume| {
                // Two directories that contain each other and are named nowhere else.
                for (ino, parent, buckets) in [(58, 59, 200), (59, 58, 201)] {
                    volume.add_of(buckets, NodeKind::Bucket, ino);
                    volume.inode(ino, 0o040_755, |directory| {
                        directory.attributes.parent.set(parent);
                        directory.data.map_root.set(buckets);
                    });
                    volume.entry(buckets, parent, "loop", 4);
                }
            })
        },
        expect: &["error: directory 58 is its own ancestor and cannot be reached from the root"],
    },
    Case {
        kind: "LinkCount",
        make: || changed(|volume| volume.edit(SMALL, |small| small.attributes.nlink.set(5))),
        expect: &["error: inode 2: has 2 names but a link count of 5"],
    },
    Case {
        kind: "InodeDetached",
        make: || changed(|volume| volume.inode(60, 0o100_644, |_| {})),
        expect: &["error: inode 60 has no name and is in no orphan slot"],
    },
    Case {
        kind: "RootMissing",
        make: || changed(|volume| volume.edit(1, |root| root.attributes.mode.set(0o140_755))),
        expect: &[
            "error: inode 1: map root is 0x2, must be set exactly if its type needs it",
            "error: inode 1: parent is 0x1, must be a directory's parent (0 for others)",
            "error: inode 1 is not a directory: the volume has no root",
            "error: inode 2: has 1 names but a link count of 2",
            "error: inode 3 has no name and is in no orphan slot",
            "error: inode 4 has no name and is in no orphan slot",
            "error: inode 5 has no name and is in no orphan slot",
            "error: inode 6 has no name and is in no orphan slot",
            "error: inode 7 has no name and is in no orphan slot",
            "error: inode 57 has no name and is in no orphan slot",
            "warning: node 2 (Bucket) belongs to nothing; its space is lost",
        ],
    },
];
