use std::ops::Range;

use dure_store::format::slot::{DIRECT_SLOTS, INDEX_CHILDREN, LEAF_SLOTS};
use proptest::prelude::*;

use super::path::*;

/// The pages of the leaf that covers `page` (not a direct one).
fn leaf_pages(page: u64) -> Range<u64> {
    let start = node_start(page, 1);
    start..start + LEAF_SLOTS
}

/// The tree as a naive model numbers it: digits of the page in base 448, last digit in base 320.
fn digits(page: u64, height: u32) -> Vec<u64> {
    let mut rest = page - DIRECT_SLOTS;
    let mut digits = vec![rest % LEAF_SLOTS];
    rest /= LEAF_SLOTS;
    for _ in 1..height {
        digits.push(rest % INDEX_CHILDREN);
        rest /= INDEX_CHILDREN;
    }
    assert_eq!(rest, 0, "the height was too small");
    digits.reverse();
    digits
}

#[test]
fn heights_change_where_the_levels_end() {
    assert_eq!(height_for(0), 0);
    assert_eq!(height_for(DIRECT_SLOTS - 1), 0);
    assert_eq!(height_for(DIRECT_SLOTS), 1);
    assert_eq!(height_for(DIRECT_SLOTS + LEAF_SLOTS - 1), 1);
    assert_eq!(height_for(DIRECT_SLOTS + LEAF_SLOTS), 2);
    assert_eq!(height_for(FILE_PAGES_MAX - 1), HEIGHT_MAX);
}

#[test]
#[should_panic(expected = "beyond the largest file")]
fn a_page_beyond_the_largest_file_is_a_bug() {
    height_for(FILE_PAGES_MAX);
}

fn pages() -> impl Strategy<Value = u64> {
    prop_oneof![
        DIRECT_SLOTS..DIRECT_SLOTS + 2 * LEAF_SLOTS,
        DIRECT_SLOTS..DIRECT_SLOTS + 2 * LEAF_SLOTS * INDEX_CHILDREN,
        DIRECT_SLOTS..FILE_PAGES_MAX,
    ]
}

proptest! {
    #[test]
    fn places_are_the_digits_of_the_page(page in pages()) {
        let height = height_for(page);
        let digits = digits(page, height);
        for level in (2..=height).rev() {
            let place = ChildPlace::toward(page, level);
            let index = usize::try_from(height - level).expect("small");
            prop_assert_eq!(u64::from(place.granule) * 64 + u64::from(place.child), digits[index]);
            prop_assert!(place.bytes().end <= 512);
        }
        let place = SlotPlace::in_leaf(page);
        let slot = u64::from(place.granule) * 64 + u64::from(place.slot);
        prop_assert_eq!(slot, digits[digits.len() - 1]);
        prop_assert!(place.bytes().end <= 768);
        prop_assert!(leaf_pages(page).contains(&page));
        prop_assert_eq!(leaf_pages(page).start + slot, page);
    }

    #[test]
    fn a_granule_ends_where_the_next_begins(page in prop_oneof![0..DIRECT_SLOTS, pages()]) {
        let rest = granule_rest(page);
        prop_assert!((1..=64).contains(&rest));
        let next = page + rest;
        if page < DIRECT_SLOTS {
            prop_assert_eq!(next, DIRECT_SLOTS);
        } else if next < FILE_PAGES_MAX {
            prop_assert_eq!(SlotPlace::in_leaf(next).slot, 0);
            if rest > 1 {
                prop_assert_eq!(SlotPlace::in_leaf(page + 1).granule, SlotPlace::in_leaf(page).granule);
            }
        }
    }

    #[test]
    fn a_node_covers_its_pages(page in pages(), height in 1..=HEIGHT_MAX) {
        let start = node_start(page, height);
        prop_assert!(start <= page && page < start + subtree_pages(height));
        prop_assert_eq!(node_start(start, height), start);
    }
}
