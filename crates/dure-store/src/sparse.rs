//! A long array whose memory is made piece by piece, on first use.
//!
//! **Problem.** The tables of a volume of 100 TiB have millions of pairs, nearly all of them never
//! touched: neither mkfs nor mount may walk them or hold them. **Structure.** A short directory of
//! pieces; a piece is made, with every element in its initial state, when one of its elements is
//! first changed. A reader of an element without memory finds nothing, and knows the initial state.
//! **Invariants.** A piece is never freed, so references stay valid. **Crash.** Memory only.

use dure_sync::OnceLock;

use crate::units::to_usize;

/// `len` elements, of which those in pieces that were touched have memory.
#[derive(Debug)]
pub(crate) struct Sparse<T> {
    len: u64,
    piece: u64,
    pieces: Box<[OnceLock<Box<[T]>>]>,
}

impl<T> Sparse<T> {
    /// `len` untouched elements, in pieces of `piece`.
    pub(crate) fn new(len: u64, piece: u64) -> Sparse<T> {
        assert!(piece > 0, "a piece has at least one element");
        let pieces = 0..len.div_ceil(piece);
        Sparse {
            len,
            piece,
            pieces: pieces.map(|_| OnceLock::new()).collect(),
        }
    }

    /// Element `index`; `None` when it is in its initial state, for all its piece is.
    pub(crate) fn get(&self, index: u64) -> Option<&T> {
        assert!(index < self.len, "element {index} of {}", self.len);
        let piece = self.pieces[to_usize(index / self.piece)].get()?;
        Some(&piece[to_usize(index % self.piece)])
    }

    /// Element `index`, with memory of its own from now on. `make` returns the initial state.
    pub(crate) fn touch(&self, index: u64, make: impl Fn() -> T) -> &T {
        assert!(index < self.len, "element {index} of {}", self.len);
        let first = index - index % self.piece;
        let count = self.piece.min(self.len - first);
        let piece = self.pieces[to_usize(index / self.piece)]
            .get_or_init(|| (0..count).map(|_| make()).collect());
        &piece[to_usize(index - first)]
    }

    /// The elements that have memory, with their numbers, ascending.
    pub(crate) fn touched(&self) -> impl Iterator<Item = (u64, &T)> {
        (0_u64..).zip(&self.pieces).flat_map(|(n, piece)| {
            let elements = piece.get().into_iter().flatten();
            (n * self.piece..).zip(elements)
        })
    }

    /// How many pieces have memory.
    #[cfg(test)]
    pub(crate) fn pieces_made(&self) -> u64 {
        crate::units::to_u64(
            self.pieces
                .iter()
                .filter(|piece| piece.get().is_some())
                .count(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Sparse;

    #[test]
    fn memory_is_made_where_something_is_touched() {
        let sparse = Sparse::<std::cell::Cell<u8>>::new(1 << 40, 1 << 20);
        assert_eq!((sparse.pieces_made(), sparse.touched().count()), (0, 0));
        assert!(sparse.get(1 << 39).is_none());
        sparse.touch((1 << 40) - 1, Default::default).set(7);
        assert_eq!(sparse.pieces_made(), 1);
        assert_eq!(sparse.get((1 << 40) - 1).map(std::cell::Cell::get), Some(7));
        assert_eq!(sparse.get((1 << 40) - 2).map(std::cell::Cell::get), Some(0));
        assert_eq!(
            sparse.touched().filter(|(_, cell)| cell.get() == 7).count(),
            1
        );
    }
}
