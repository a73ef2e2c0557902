//! Aging a volume in memory and a directory.

use super::aging::{Aging, Shape};
use crate::tests::targets;

#[test]
fn a_volume_gets_as_full_and_as_changed_as_was_asked_for() {
    let (_directory, targets) = targets();
    let volume = &targets[0];
    let tree = volume.tree().unwrap().unwrap();
    let room = tree.room_bytes().unwrap();
    let shape = Shape {
        fill_percent: 10,
        churn_percent: 6,
        mean_bytes: 256 << 10,
    };
    let mut aging = Aging::new(volume, tree.clone(), shape).unwrap();
    aging.age().unwrap();
    let counts = *aging.counts();
    // Of the room when the aging began, which is a little less than before.
    assert!(counts.churn_bytes >= room / 1000 * 59, "{counts:?}");
    let used = room - tree.room_bytes().unwrap();
    assert!((room / 12..room / 6).contains(&used), "{used} of {room}");
    assert!(
        counts.file_bytes <= used && counts.file_bytes > used / 2,
        "{counts:?}"
    );
    // Most of what was written reached the device: some was removed before.
    let amplification = counts.write_amplification().unwrap();
    assert!((0.4..10.0).contains(&amplification), "{counts:?}");
    let kib = counts.kib_per_extent().unwrap();
    assert!((4.0..4096.0).contains(&kib), "{counts:?}");
}
