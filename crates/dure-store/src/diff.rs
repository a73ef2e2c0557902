//! The byte ranges in which two payloads differ.

use std::ops::Range;

/// Equal bytes between two changed ranges that are logged with them rather than start a new record:
/// a record's own header is about that long.
const GAP_BYTES: usize = 24;

/// Calls `changed` for each range in which `new` differs from `old`, ascending, close ones joined.
///
/// # Panics
/// If the lengths differ.
pub(crate) fn ranges(old: &[u8], new: &[u8], mut changed: impl FnMut(Range<usize>)) {
    assert_eq!(old.len(), new.len());
    let mut open: Option<Range<usize>> = None;
    // Eight bytes at a time: payload lengths are multiples of eight.
    let ((old, old_rest), (new, new_rest)) = (old.as_chunks::<8>(), new.as_chunks::<8>());
    assert!(
        old_rest.is_empty() && new_rest.is_empty(),
        "payloads are multiples of eight"
    );
    for (n, (a, b)) in old.iter().zip(new).enumerate() {
        let differing = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if differing == 0 {
            continue;
        }
        let bytes = |bits: u32| usize::try_from(bits / 8).expect("at most eight");
        let first = bytes(differing.trailing_zeros());
        let equal_behind = bytes(differing.leading_zeros());
        let (start, end) = (n * 8 + first, n * 8 + 8 - equal_behind);
        open = Some(match open {
            Some(range) if start - range.end <= GAP_BYTES => range.start..end,
            Some(range) => {
                changed(range);
                start..end
            }
            None => start..end,
        });
    }
    if let Some(range) = open {
        changed(range);
    }
}

#[cfg(test)]
mod tests;
