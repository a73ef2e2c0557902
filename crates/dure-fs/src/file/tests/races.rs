//! Races that were found, replayed step by step.

use super::World;
use crate::SetAttributes;
use crate::namespace::tests::{directory, file};

/// A sync had the file on its list of dirty ones when the file was deleted, and then wrote the
/// record of the dead inode over the one that had got its number.
#[test]
fn race_write_back_of_an_inode_that_was_deleted() {
    let world = World::new(8192, 8 << 20);
    let fs = world.mount();
    let root = fs.root().unwrap();
    let dead = fs.create(&root, b"file", &file()).unwrap();
    let size = SetAttributes {
        size: Some(5000),
        ..SetAttributes::default()
    };
    fs.set_attributes(&dead, &size).unwrap();
    let ino = dead.ino();
    let listed = dead.inode().clone();
    drop(dead);
    fs.unlink(&root, b"file").unwrap();
    let next = fs.mkdir(&root, b"directory", &directory()).unwrap();
    assert_eq!(next.ino(), ino, "the number is used again at once");

    fs.0.files.write_back(&listed).unwrap();

    fs.close().unwrap();
    let report = dure_check::check(world.device(), &dure_check::CheckOptions::default()).unwrap();
    assert!(report.issues().is_empty(), "{:#?}", report.issues());
}
