//! A granule's private copy, which an operation changes.
//!
//! **Problem.** An operation changes some tens of bytes of a granule. To find them at its end by
//! comparing all of the granule costs more than the change.
//!
//! **Structure.** To change a [`Draft`] its user asks for the part to be written, so it is known
//! which bytes to log. Only what was given as a whole is compared with the granule.
//!
//! # Invariants
//! Bytes outside of the parts that were asked for are those of the granule when it was copied. In a
//! granule that several inodes share others may have changed them since: there, no byte outside of
//! the parts is stored.

use std::ops::{Deref, Range};

use smallvec::SmallVec;

use crate::diff;

/// Parts of a payload.
pub(super) type Parts = SmallVec<[Part; 4]>;

/// Some bytes of a payload. Small, since operations carry many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    start: u16,
    end: u16,
}

impl Part {
    fn of(range: &Range<usize>) -> Part {
        let small = |at| u16::try_from(at).expect("a payload is shorter than 64 KiB");
        Part {
            start: small(range.start),
            end: small(range.end),
        }
    }

    /// Where it begins.
    pub(super) fn start(self) -> u16 {
        self.start
    }

    /// As a range of the payload.
    pub(super) fn range(self) -> Range<usize> {
        self.start.into()..self.end.into()
    }

    /// Whether not more than `gap` bytes are between them.
    fn is_near(self, other: Part, gap: u16) -> bool {
        self.start <= other.end + gap && other.start <= self.end + gap
    }

    fn joined(self, other: Part) -> Part {
        Part {
            start: self.start.min(other.start),
            end: self.end.max(other.end),
        }
    }
}

/// A granule's private copy. Reads as its bytes.
#[derive(Debug)]
pub struct Draft {
    bytes: Box<[u8]>,
    written: Written,
    /// Bytes between two parts that are logged and stored with them, because that costs less than
    /// two records.
    gap: u16,
}

/// Which bytes of a draft may differ from the granule.
#[derive(Debug)]
enum Written {
    /// These, in any order. Most that lie close are joined.
    Parts(Parts),
    /// Any: to be compared.
    Whole,
}

impl Draft {
    /// An unchanged copy of a granule that no other task changes as long as the draft lives.
    #[must_use]
    pub fn copy_of(bytes: Box<[u8]>) -> Draft {
        Draft {
            gap: diff::GAP_BYTES,
            ..Draft::of_shared(bytes)
        }
    }

    /// An unchanged copy of a granule that others change.
    pub(super) fn of_shared(bytes: Box<[u8]>) -> Draft {
        Draft {
            bytes,
            written: Written::Parts(Parts::new()),
            gap: 0,
        }
    }

    /// All that the granule is to hold, of which little is in it.
    pub(super) fn new(bytes: Box<[u8]>) -> Draft {
        let mut draft = Draft::copy_of(bytes);
        draft.part(0..draft.len());
        draft
    }

    /// All that the granule is to hold, to be compared with what it holds.
    pub(super) fn whole(bytes: Box<[u8]>) -> Draft {
        Draft {
            bytes,
            written: Written::Whole,
            gap: diff::GAP_BYTES,
        }
    }

    /// These bytes, to be written.
    ///
    /// # Panics
    /// If they reach past the end.
    pub fn part(&mut self, part: Range<usize>) -> &mut [u8] {
        if let Written::Parts(parts) = &mut self.written {
            let part = Part::of(&part);
            match parts.iter_mut().find(|known| known.is_near(part, self.gap)) {
                Some(known) => *known = known.joined(part),
                None => parts.push(part),
            }
        }
        &mut self.bytes[part]
    }

    /// All bytes, to be written.
    ///
    /// # Panics
    /// If others change the granule.
    pub fn all(&mut self) -> &mut [u8] {
        assert!(self.gap > 0, "a shared granule is written in parts");
        self.written = Written::Whole;
        &mut self.bytes
    }

    /// Whether nothing has been written.
    #[must_use]
    pub fn is_unwritten(&self) -> bool {
        matches!(&self.written, Written::Parts(parts) if parts.is_empty())
    }

    /// What to log and to store in a granule that holds `now`: ascending, close parts joined.
    pub(super) fn changes(&self, now: &[u8]) -> Parts {
        match &self.written {
            Written::Whole => {
                let mut changes = Parts::new();
                diff::ranges(now, &self.bytes, |range| changes.push(Part::of(&range)));
                changes
            }
            Written::Parts(parts) => {
                let mut parts = Parts::from_slice(parts);
                if parts.len() > 1 {
                    parts.sort_unstable_by_key(|part| part.start);
                    parts.dedup_by(|next, kept| {
                        let is_near = kept.is_near(*next, self.gap);
                        if is_near {
                            *kept = kept.joined(*next);
                        }
                        is_near
                    });
                }
                parts
            }
        }
    }

    /// These parts, each with its place.
    pub(super) fn bytes_of(&self, parts: &[Part]) -> impl Iterator<Item = (usize, &[u8])> {
        let with_place = |part: &Part| (usize::from(part.start), &self.bytes[part.range()]);
        parts.iter().map(with_place)
    }
}

impl Deref for Draft {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(parts: &[Part]) -> Vec<(u16, u16)> {
        parts.iter().map(|part| (part.start, part.end)).collect()
    }

    /// What a draft logs of which these parts were written, in this order.
    fn changes(mut draft: Draft, parts: &[(usize, usize)]) -> Vec<(u16, u16)> {
        for &(start, end) in parts {
            draft.part(start..end).fill(1);
        }
        ends(&draft.changes(&[0; 496]))
    }

    #[test]
    fn what_is_written_is_logged_in_order_and_close_parts_together() {
        let changes = |parts| changes(Draft::copy_of(vec![0; 496].into()), parts);
        assert!(changes(&[]).is_empty());
        assert_eq!(changes(&[(10, 20)]), [(10, 20)]);
        let far = [(200, 210), (0, 8), (12, 16)];
        assert_eq!(changes(&far), [(0, 16), (200, 210)]);
        // The third joins the other two.
        assert_eq!(changes(&[(0, 8), (64, 72), (30, 42)]), [(0, 72)]);
    }

    #[test]
    fn nothing_between_the_parts_of_a_shared_granule_is_stored() {
        let draft = Draft::of_shared(vec![0; 496].into());
        let parts = [(32, 48), (0, 16), (48, 64)];
        assert_eq!(changes(draft, &parts), [(0, 16), (32, 64)]);
    }

    #[test]
    fn what_is_given_as_a_whole_is_compared() {
        let mut draft = Draft::copy_of(vec![0; 496].into());
        assert!(draft.is_unwritten());
        draft.all()[100] = 1;
        assert!(!draft.is_unwritten());
        assert_eq!(ends(&draft.changes(&[0; 496])), [(100, 101)]);
        let same = Draft::whole(vec![7; 112].into());
        assert!(same.changes(&[7; 112]).is_empty());
        let new = Draft::new(vec![7; 112].into());
        assert_eq!(ends(&new.changes(&[7; 112])), [(0, 112)]);
    }
}
