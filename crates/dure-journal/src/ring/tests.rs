use dure_block::Lba;

use super::Ring;

fn ring() -> Ring {
    Ring::new(vec![Lba::new(100), Lba::new(200), Lba::new(300)], 8)
}

#[test]
fn it_goes_round() {
    let mut ring = ring();
    assert_eq!(ring.head_lba(), Lba::new(100));
    ring.advance(5);
    assert_eq!((ring.head_lba(), ring.blocks_left()), (Lba::new(105), 3));
    ring.enter_next();
    ring.enter_next();
    assert_eq!((ring.head(), ring.free_count()), ((2, 0), 0));
    assert_eq!(ring.used_and_capacity(), (16, 24));
    // A tail in the last segment frees the two before it, in log order.
    assert_eq!(ring.release_before(2), 2);
    ring.enter_next();
    assert_eq!(ring.head(), (0, 0));
    assert_eq!(ring.release_before(2), 0, "the tail's own segment is kept");
}

#[test]
fn a_new_segment_is_used_after_those_that_wait() {
    let mut ring = ring();
    ring.add(Lba::new(400));
    assert_eq!(ring.free_count(), 3);
    assert_eq!(ring.segments().len(), 4);
    (0..3).for_each(|_| ring.enter_next());
    assert_eq!(ring.head_lba(), Lba::new(400));
}

#[test]
fn a_free_segment_leaves_and_the_last_takes_its_index() {
    let mut ring = ring();
    ring.enter_next();
    ring.enter_next();
    assert_eq!(ring.remove_free(), None, "all are in use");
    ring.release_before(2);
    // The head is in the last of the list, which becomes the second.
    assert_eq!(ring.remove_free(), Some((Lba::new(200), 2, 1)));
    assert_eq!(ring.segments(), [Lba::new(100), Lba::new(300)]);
    assert_eq!((ring.head(), ring.head_lba()), ((1, 0), Lba::new(300)));
    assert_eq!(ring.free_count(), 1);
    assert_eq!(ring.remove_free(), None, "two stay");
    ring.enter_next();
    assert_eq!(ring.head_lba(), Lba::new(100));
}

#[test]
#[should_panic(expected = "counted the free segments")]
fn a_full_ring_has_no_next_segment() {
    let mut ring = ring();
    (0..3).for_each(|_| ring.enter_next());
}
