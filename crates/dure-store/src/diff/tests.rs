//! Tests of the byte ranges an operation logs.

fn ranges(old: &[u8], new: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut found = Vec::new();
    super::ranges(old, new, |range| found.push(range));
    found
}

#[test]
fn equal_payloads_log_nothing() {
    assert!(ranges(&[7; 496], &[7; 496]).is_empty());
}

#[test]
fn one_byte_is_one_range() {
    let mut new = [0; 496];
    new[100] = 1;
    assert_eq!(
        ranges(&[0; 496], &new),
        std::iter::once(100..101).collect::<Vec<_>>()
    );
}

#[test]
fn close_changes_are_joined_and_distant_ones_are_not() {
    let mut new = [0; 496];
    (new[10], new[30], new[200], new[495]) = (1, 1, 1, 1);
    assert_eq!(ranges(&[0; 496], &new), [10..31, 200..201, 495..496]);
}

proptest::proptest! {
    #[test]
    fn applying_the_ranges_gives_the_new_payload(
        old in proptest::collection::vec(0_u8..3, 96),
        new in proptest::collection::vec(0_u8..3, 96),
    ) {
        let mut built = old.clone();
        let mut end = 0;
        for range in ranges(&old, &new) {
            assert!(range.start >= end, "ranges are ascending and disjoint");
            end = range.end;
            built[range.clone()].copy_from_slice(&new[range]);
        }
        proptest::prop_assert_eq!(built, new);
    }
}
