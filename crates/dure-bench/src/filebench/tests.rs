//! Every personality, on a volume in memory and on a directory.

use dure_sync::random::Seeded;

use super::oltp::Role;
use super::personality::{Personality, SetShape, Size};
use super::{FileSet, Servers};
use crate::tests::{targets, works};

#[test]
fn personalities_do_what_they_claim() {
    let servers = Servers {
        workers: Some(4),
        files: Some(60),
        width: Some(7),
    };
    works(&servers, "filebench", &Personality::ALL);
}

#[test]
fn oltp_has_the_roles_of_the_original() {
    let count = Personality::Oltp.workers();
    let with = |role| (0..count).filter(|n| Role::of(*n, count) == role).count();
    assert_eq!(with(Role::Shadow), 200);
    assert_eq!(with(Role::DatabaseWriter), 10);
    assert_eq!(with(Role::LogWriter), 1);
    assert_eq!(Role::of(1, 3), Role::DatabaseWriter);
    assert_eq!(Role::of(2, 3), Role::Shadow);
}

#[test]
fn a_set_notices_a_file_that_should_not_be_there() {
    let (_directory, targets) = targets();
    let tree = targets[0].tree().unwrap().unwrap();
    let shape = SetShape {
        files: 50,
        width: 5,
        size: Size::Fixed(5000),
        present_percent: 80,
    };
    let set = FileSet::make(&tree, "set", shape, &[7; 4096]).unwrap();
    set.check().unwrap();
    let mut random = Seeded::new(3);
    let gone = set.pick_present(&mut random).unwrap();
    set.tree.remove_file(gone.path()).unwrap();
    gone.put_back();
    assert!(set.check().is_err(), "the canary");
}
