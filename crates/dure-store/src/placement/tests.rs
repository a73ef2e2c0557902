//! Runs.

use super::contiguous;
use crate::units::BlockNo;

#[test]
fn a_contiguous_prefix_ends_at_a_jump_or_a_hole() {
    let blocks = |numbers: &[u64]| numbers.iter().map(|&n| BlockNo(n)).collect::<Vec<_>>();
    assert_eq!(contiguous(blocks(&[7, 8, 9, 20]), 10), 3);
    assert_eq!(contiguous(blocks(&[7, 8, 9]), 2), 2);
    assert_eq!(contiguous(blocks(&[0, 1]), 2), 0);
    assert_eq!(contiguous(blocks(&[7, 7]), 2), 1);
}
