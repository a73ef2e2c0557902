//! Any input: damage is reported where it matters, and nothing panics or hangs.

use dure_block::Device;
use dure_block::ram::RamDevice;
use dure_block::share;
use dure_store::units::{BLOCK_BYTES, BlockNo, Ino, Nid, SegNo};
use proptest::prelude::*;

use super::disk::Disk;
use super::volume::TestVolume;
use crate::dump::{What, dump};
use crate::{CheckOptions, Data, Repair, check};

/// Blocks of live metadata: what a mount reads and believes.
fn live_blocks(volume: &TestVolume) -> Vec<u64> {
    let layout = &volume.layout;
    let mut blocks = vec![0, layout.total_blocks - 1, layout.volume_header + 1];
    blocks.extend([layout.journal_headers, layout.journal_headers + 1]);
    blocks.extend((0..u64::from(layout.nat_pairs)).map(|index| layout.nat_pair(index) + 1));
    blocks.extend((0..layout.sit_pairs).map(|index| layout.sit_pair(index) + 1));
    blocks.extend(volume.nodes.values().map(|(_, block)| block.0));
    let used = volume
        .nodes
        .values()
        .map(|(_, block)| *block)
        .chain(volume.data.keys().copied());
    let segments: std::collections::BTreeSet<SegNo> = used
        .filter_map(|block: BlockNo| layout.locate(block))
        .map(|(segment, _)| segment)
        .collect();
    blocks.extend(
        segments
            .into_iter()
            .map(|segment| layout.summary_pair(segment, 0) + 1),
    );
    blocks
}

/// An error, or a report that is not spotless.
fn is_reported(disk: &Disk) -> bool {
    check(disk.device(), &CheckOptions::default()).map_or(true, |report| !report.is_spotless())
}

#[test]
fn a_changed_byte_of_live_metadata_is_always_reported() {
    let volume = TestVolume::new();
    let disk = volume.write();
    let mut tried = 0;
    for (n, block) in live_blocks(&volume).into_iter().enumerate() {
        let sound = disk.get(block);
        for at in (n % 61..BLOCK_BYTES).step_by(61) {
            disk.damage(block, |bytes| bytes[at] ^= 1 << (at % 8));
            assert!(is_reported(&disk), "byte {at} of block {block}");
            disk.put(block, &sound);
            tried += 1;
        }
        disk.put(block, &[0xff; BLOCK_BYTES]);
        assert!(is_reported(&disk), "block {block} overwritten");
        disk.put(block, &sound);
    }
    assert!(tried > 1000 && !is_reported(&disk));
}

/// One thing that can happen to an image.
#[derive(Debug, Clone)]
enum Damage {
    Flip {
        block: u64,
        at: usize,
        mask: u8,
    },
    Swap {
        a: u64,
        b: u64,
    },
    Fill {
        block: u64,
        value: u8,
    },
    /// A node image or pair with random bytes in its payload and a right checksum.
    Reseal {
        pick: usize,
        at: usize,
        bytes: Vec<u8>,
    },
}

fn damages() -> impl Strategy<Value = Damage> {
    let block = || 0..1024_u64;
    let bytes = prop::collection::vec(
        prop_oneof![Just(0_u8), Just(1), Just(0xff), any::<u8>()],
        1..24,
    );
    prop_oneof![
        (block(), 0..BLOCK_BYTES, 1_u8..).prop_map(|(block, at, mask)| Damage::Flip {
            block,
            at,
            mask
        }),
        (block(), block()).prop_map(|(a, b)| Damage::Swap { a, b }),
        (block(), any::<u8>()).prop_map(|(block, value)| Damage::Fill { block, value }),
        (any::<usize>(), 0..4064_usize, bytes).prop_map(|(pick, at, bytes)| Damage::Reseal {
            pick,
            at,
            bytes
        }),
        (
            any::<usize>(),
            0..4064_usize,
            prop::collection::vec(any::<u8>(), 1..3)
        )
            .prop_map(|(pick, at, bytes)| Damage::Reseal { pick, at, bytes }),
    ]
}

fn apply(volume: &TestVolume, disk: &Disk, damage: &Damage) {
    match damage {
        Damage::Flip { block, at, mask } => disk.damage(*block, |bytes| bytes[*at] ^= mask),
        Damage::Swap { a, b } => {
            let (first, second) = (disk.get(*a), disk.get(*b));
            disk.put(*a, &second);
            disk.put(*b, &first);
        }
        Damage::Fill { block, value } => disk.put(*block, &[*value; BLOCK_BYTES]),
        Damage::Reseal { pick, at, bytes } => {
            let blocks = live_blocks(volume);
            disk.forge(blocks[pick % blocks.len()], *at, bytes);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(dure_sync::amount::either(64, 256)))]

    #[test]
    fn any_damage_gives_a_report_or_an_error(
        damages in prop::collection::vec(damages(), 1..12),
        blocks in prop_oneof![3 => Just(1024_u64), 1 => 1..1024_u64],
    ) {
        let volume = TestVolume::new();
        let disk = volume.write();
        for damage in &damages {
            apply(&volume, &disk, damage);
        }
        let device = RamDevice::new("hostile", blocks);
        disk.copy_to(&device, blocks);
        let device = share(dure_sync::Arc::new(device));
        let blocks = device.info().blocks;
        let options = CheckOptions { data: Data::Verify, ..Default::default() };
        let _ = check(device.clone(), &options);
        for n in 0..30 {
            let (nid, ino) = (Nid(n), Ino(n * 2));
            for what in [
                What::Superblock,
                What::VolumeHeader,
                What::Journals,
                What::Log(None),
                What::Nat(nid),
                What::Node(nid),
                What::Inode(ino),
                What::Directory(ino),
                What::Map(ino),
                What::Segment(SegNo(u32::try_from(n).unwrap())),
                What::Block(BlockNo(n * 40)),
            ] {
                let _ = dump(device.clone(), what, &mut String::new());
            }
        }
        let repair = CheckOptions { repair: Repair::Safe, ..Default::default() };
        let _ = check(device.clone(), &repair);
        prop_assert_eq!(device.info().blocks, blocks);
    }
}
