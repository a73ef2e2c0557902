use dure_sync::random::Seeded;

use super::*;

fn ends(sizes: &[(u32, u32)]) -> Vec<HandleEnd> {
    let mut end = HandleEnd::START;
    sizes
        .iter()
        .map(|(bytes, marks)| {
            end = HandleEnd {
                bytes: end.bytes + bytes,
                marks: end.marks + marks,
            };
            end
        })
        .collect()
}

fn below(random: &mut Seeded, bound: u32) -> u32 {
    u32::try_from(random.below(u64::from(bound))).unwrap()
}

#[test]
fn a_plan_covers_all_handles_in_order_and_every_piece_fits() {
    let mut random = Seeded::new(7);
    for _ in 0..500 {
        let segment_blocks = 8 + below(&mut random, 8);
        let largest = handle_bytes_max(segment_blocks) - HANDLE_BYTES;
        let count = 1 + below(&mut random, 60);
        let sizes: Vec<_> = (0..count)
            .map(|_| {
                let marks = below(&mut random, 4);
                (below(&mut random, largest - marks * MARK_BYTES + 1), marks)
            })
            .collect();
        let ends = ends(&sizes);
        let left = below(&mut random, segment_blocks + 1);
        let mut pieces = Vec::new();
        plan(&ends, left, segment_blocks, &mut pieces);
        let mut next = 0;
        for (index, piece) in pieces.iter().enumerate() {
            assert_eq!(piece.handles.start, next);
            next = piece.handles.end;
            assert!(
                index == 0 || piece.new_segment,
                "only the first piece may share a segment"
            );
            let start = if piece.handles.start == 0 {
                HandleEnd::START
            } else {
                ends[piece.handles.start - 1]
            };
            let bytes = ends[next - 1].charge(start, 0) + u64::from(HEADER_BYTES);
            let blocks = if piece.new_segment {
                segment_blocks
            } else {
                left
            };
            assert!(bytes <= u64::from(blocks * BLOCK_BYTES_U32));
        }
        assert_eq!(next, ends.len());
    }
}

/// What `usable` promises: so many bytes of handles never need more segments, whatever their
/// sizes, even if the current segment has no room at all and commits of a cut have padded.
#[test]
fn a_free_segment_takes_what_it_promises() {
    let mut random = Seeded::new(99);
    for _ in 0..500 {
        let segment_blocks = 8 + below(&mut random, 24);
        let segments = 1 + below(&mut random, 4);
        let budget = u64::from(segments) * u64::from(segment_bytes_usable(segment_blocks));
        let largest = handle_bytes_max(segment_blocks) - HANDLE_BYTES;
        let mut sizes = Vec::new();
        let mut used = 0;
        loop {
            let size = if below(&mut random, 2) == 0 {
                largest
            } else {
                below(&mut random, largest + 1)
            };
            used += u64::from(size + HANDLE_BYTES);
            if used > budget {
                break;
            }
            sizes.push((size, 0));
        }
        if sizes.is_empty() {
            continue;
        }
        // Two commits of a cut, each of which leaves its last block half empty.
        let first = sizes.len() / 2;
        let mut left = 0;
        let mut entered = 0;
        for part in [&sizes[..first], &sizes[first..]] {
            if part.is_empty() {
                continue;
            }
            let ends = ends(part);
            let mut pieces = Vec::new();
            plan(&ends, left, segment_blocks, &mut pieces);
            entered += pieces.iter().filter(|piece| piece.new_segment).count();
            let last = pieces.last().unwrap();
            let start = if last.handles.start == 0 {
                HandleEnd::START
            } else {
                ends[last.handles.start - 1]
            };
            let bytes = ends[last.handles.end - 1].charge(start, 0) + u64::from(HEADER_BYTES);
            let blocks = u32::try_from(bytes.div_ceil(u64::from(BLOCK_BYTES_U32))).unwrap();
            left = if last.new_segment {
                segment_blocks - blocks
            } else {
                left - blocks
            };
        }
        assert!(
            entered <= crate::units::to_usize(segments),
            "{entered} of {segments}"
        );
    }
}
