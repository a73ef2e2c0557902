//! The bodies of the fuzz targets on bounded random input, so that every test run exercises them.

#[path = "../../../../fuzz/src/bodies.rs"]
mod bodies;

use proptest::prelude::*;

fn bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(0_u8), Just(1), Just(2), Just(0xff), any::<u8>()];
    prop::collection::vec(byte, 0..max)
}

/// Patches, most of them resealed; half of them set whole fields of blocks that are in use.
fn patches() -> impl Strategy<Value = Vec<u8>> {
    // Blocks of the tables and of the first used segments are what most is read from.
    let block = prop_oneof![0_u16..1024, 0_u16..260];
    let one = (
        block,
        prop_oneof![any::<u16>(), 0_u16..700],
        prop_oneof![0_u8..4, any::<u8>()],
        prop_oneof![2 => Just(1_u8), 2 => Just(3), 1 => Just(0), 6 => Just(13), 3 => Just(11)],
        (any::<u8>(), any::<u8>()),
    );
    let one = one.prop_map(|(block, at, value, flags, (more, how))| {
        let (block, at) = (block.to_le_bytes(), (at % 4096).to_le_bytes());
        [block[0], block[1], at[0], at[1], value, flags, more, how]
    });
    (any::<u8>(), prop::collection::vec(one, 0..10))
        .prop_map(|(which, patches)| [vec![which], patches.concat()].concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(dure_sync::amount::either(128, 512)))]

    #[test]
    fn superblock(data in bytes(300)) {
        bodies::superblock(&data);
    }

    #[test]
    fn node(data in bytes(4096)) {
        bodies::node(&data);
    }

    #[test]
    fn log(data in bytes(2000)) {
        bodies::log(&data);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(dure_sync::amount::either(50, 200)))]

    #[test]
    fn volume(data in patches()) {
        bodies::volume(&data);
    }
}

/// Found by fuzzing: the size of the summaries overflowed before it was compared with the volume's.
#[test]
fn a_superblock_with_more_summaries_than_fit_a_number_is_refused() {
    // Fields from byte 12 on: summary pairs per segment, and segments.
    let mut data = vec![0; 228 - 12];
    data.extend([0xff; 8]);
    bodies::superblock(&data);
}
