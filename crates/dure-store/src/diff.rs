//! The byte ranges in which two payloads differ.

use std::ops::Range;

/// Equal bytes between two changed ranges that are logged with them rather than start a new record:
/// a record's own header is about that long.
pub(crate) const GAP_BYTES: u16 = 24;

/// Compared at once. Most of a payload is as it was.
const CHUNK_BYTES: usize = 64;

type Chunk = [u8; CHUNK_BYTES];

/// Calls `changed` for each range in which `new` differs from `old`, ascending, close ones joined.
///
/// # Panics
/// If the lengths differ.
pub(crate) fn ranges(old: &[u8], new: &[u8], mut changed: impl FnMut(Range<usize>)) {
    assert_eq!(old.len(), new.len());
    let mut open = 0..0;
    let mut add = |range: Range<usize>| {
        if open.is_empty() {
            open = range;
        } else if range.start - open.end <= usize::from(GAP_BYTES) {
            open.end = range.end;
        } else {
            changed(std::mem::replace(&mut open, range));
        }
    };
    let (old_chunks, old_rest) = old.as_chunks();
    let (new_chunks, new_rest) = new.as_chunks();
    for (n, (old, new)) in old_chunks.iter().zip(new_chunks).enumerate() {
        if old != new {
            runs(n * CHUNK_BYTES, (old, new), &mut add);
        }
    }
    if old_rest != new_rest {
        // Both end with the same bytes.
        let first = old.len() - old_rest.len();
        runs(first, (&padded(old_rest), &padded(new_rest)), &mut add);
    }
    if !open.is_empty() {
        changed(open);
    }
}

fn padded(rest: &[u8]) -> Chunk {
    let mut chunk = [0; CHUNK_BYTES];
    chunk[..rest.len()].copy_from_slice(rest);
    chunk
}

/// The runs of words that differ in two chunks, without the bytes at their ends that do not.
#[inline]
fn runs(at: usize, (old, new): (&Chunk, &Chunk), add: &mut impl FnMut(Range<usize>)) {
    let (old, new) = (old.as_chunks::<8>().0, new.as_chunks::<8>().0);
    let mut differing = 0_u32;
    for (word, (old, new)) in old.iter().zip(new).enumerate() {
        differing |= u32::from(old != new) << word;
    }
    let mut word = 0;
    while differing >> word != 0 {
        word += (differing >> word).trailing_zeros();
        let first = small(word);
        word += (differing >> word).trailing_ones();
        let last = small(word) - 1;
        let start = at + first * 8 + equal_before(&old[first], &new[first]);
        let end = at + last * 8 + 8 - equal_behind(&old[last], &new[last]);
        add(start..end);
    }
}

/// A number of words or bytes of a chunk.
#[inline]
fn small(count: u32) -> usize {
    usize::try_from(count).expect("a count within a chunk is at most eight")
}

/// Bytes that are equal before the first one of two words that is not.
fn equal_before(old: &[u8; 8], new: &[u8; 8]) -> usize {
    let differing = u64::from_le_bytes(*old) ^ u64::from_le_bytes(*new);
    small(differing.trailing_zeros() / 8)
}

/// Bytes that are equal behind the last one of two words that is not.
fn equal_behind(old: &[u8; 8], new: &[u8; 8]) -> usize {
    let differing = u64::from_le_bytes(*old) ^ u64::from_le_bytes(*new);
    small(differing.leading_zeros() / 8)
}

#[cfg(test)]
mod tests;
