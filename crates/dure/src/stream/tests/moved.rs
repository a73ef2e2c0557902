//! Names that go in circles, and kinds that change.

use super::*;
use crate::{RenameMode, Session};

/// Sends what `change` does to a tree, and compares.
fn expect_moved(before: impl Fn(&Session), change: impl Fn(&Session)) {
    let (disk, copy) = (Disk::new(8192), Disk::new(8192));
    let session = disk.volume.root();
    before(&session);
    let then = disk.take("before");
    copy.receive(&disk.stream("before", None)).unwrap();
    expect_same(&then, &content(copy.fs()));
    change(&session);
    let then = disk.take("after");
    let stream = disk.stream("after", Some("before"));
    copy.receive(&stream).unwrap();
    expect_same(&then, &content(copy.fs()));
    expect_same(&then, &copy.past("after"));
    copy.expect_sound();
    // And back.
    let back = Disk::new(8192);
    back.receive(&copy.stream("before", None)).unwrap();
    back.receive(&copy.stream("after", Some("before"))).unwrap();
    expect_same(&then, &content(back.fs()));
}

fn tree(session: &Session) {
    session.create_dir_all("a/b/c").unwrap();
    session.create_dir_all("x/y").unwrap();
    for path in ["a/1", "a/b/2", "a/b/c/3", "x/4", "x/y/5"] {
        session.write(path, path.as_bytes()).unwrap();
    }
    session.hard_link("a/1", "x/one").unwrap();
}

#[test]
fn names_are_exchanged() {
    expect_moved(tree, |session| {
        let swap = |from, to| session.rename_with(from, to, RenameMode::Exchange).unwrap();
        swap("a/1", "x/4");
        swap("a/b", "x/y");
        swap("a", "x");
    });
}

#[test]
fn three_names_go_in_a_circle() {
    expect_moved(tree, |session| {
        session.rename("a/b/2", "free").unwrap();
        session.rename("x/4", "a/b/2").unwrap();
        session.rename("a/b/c/3", "x/4").unwrap();
        session.rename("free", "a/b/c/3").unwrap();
    });
}

#[test]
fn a_directory_moves_into_its_child() {
    expect_moved(tree, |session| {
        session.rename("a/b", "b").unwrap();
        session.rename("a", "b/a").unwrap();
        session.rename("b/c", "b/a/b").unwrap();
        session.rename("x", "b/a/x").unwrap();
        session.remove_file("b/a/x/y/5").unwrap();
        session.write("b/a/x/y/6", b"new").unwrap();
        session.write("b/2", b"changed").unwrap();
    });
}

#[test]
fn a_name_is_taken_by_another_kind() {
    expect_moved(tree, |session| {
        session.remove_dir_all("a/b").unwrap();
        session.write("a/b", b"a file now").unwrap();
        session.remove_file("x/4").unwrap();
        session.create_dir_all("x/4/below").unwrap();
        session.rename("x/y/5", "x/4/below/5").unwrap();
        session.remove_dir("x/y").unwrap();
        session.symlink("a", "x/y").unwrap();
        session.rename("a/1", "x/4/1").unwrap();
        session.mknod("a/1", crate::Special::Fifo, 0o600).unwrap();
    });
}

#[test]
fn hard_links_come_and_go() {
    expect_moved(tree, |session| {
        session.hard_link("x/y/5", "a/five").unwrap();
        session.rename("a", "z").unwrap();
        session.hard_link("z/b/2", "x/two").unwrap();
        session.remove_file("z/b/2").unwrap();
        session.remove_file("x/one").unwrap();
        session.hard_link("z/1", "x/uno").unwrap();
        session.write("new", b"n").unwrap();
        session.hard_link("new", "x/new").unwrap();
        session.create_dir("a").unwrap();
        session.rename("z/five", "a/five").unwrap();
    });
}

#[test]
fn content_changes_in_place_and_holes_are_made() {
    let patterned = |at: usize, len: usize| -> Vec<u8> {
        (at..at + len)
            .map(|n| u8::try_from(n % 251).unwrap())
            .collect()
    };
    let before = |session: &Session| {
        for name in ["shrunk", "grown", "holed", "same", "again"] {
            session.write(name, &patterned(3, 400_000)).unwrap();
        }
    };
    expect_moved(before, |session| {
        let open = |name| {
            let how = crate::OpenOptions::new().write(true);
            how.open(session, name).unwrap()
        };
        open("shrunk").set_len(70_001).unwrap();
        open("grown")
            .write_all_at(&patterned(0, 9), 900_000)
            .unwrap();
        let holed = open("holed");
        let punch = dure_fs::AllocateMode::Punch;
        holed.allocate(punch, 8192, 40_960).unwrap();
        holed.allocate(punch, 380_000, 40_000).unwrap();
        holed.write_all_at(b"x", 100).unwrap();
        let again = open("again");
        again.set_len(5000).unwrap();
        again.set_len(300_000).unwrap();
    });
}

#[test]
fn little_is_sent_of_a_large_file_that_changed_little() {
    let disk = Disk::new(16384);
    let session = disk.volume.root();
    session.write("large", &vec![1; 20 << 20]).unwrap();
    disk.take("one");
    let file = crate::OpenOptions::new()
        .write(true)
        .open(&session, "large");
    file.unwrap().write_all_at(b"x", 10 << 20).unwrap();
    disk.take("two");
    let stream = disk.stream("two", Some("one"));
    assert!(stream.len() < 10_000, "{}", stream.len());
    disk.take("three");
    let nothing = disk.stream("three", Some("two"));
    assert!(nothing.len() < 1000, "{}", nothing.len());
}

#[test]
fn what_a_directory_lets_inherit_is_not_added() {
    let before = |session: &Session| {
        session.create_dir("listed").unwrap();
        let (name, list) = (crate::acl::DEFAULT, super::whole::list());
        let any = crate::XattrMode::Any;
        session.set_xattr("listed", name, &list, any).unwrap();
        session.set_permissions("listed", 0o2775).unwrap();
        session.chown("listed", None, Some(7)).unwrap();
    };
    expect_moved(before, |session| {
        session.write("new", b"made elsewhere").unwrap();
        session.rename("new", "listed/moved").unwrap();
        session.create_dir("directory").unwrap();
        session.rename("directory", "listed/directory").unwrap();
        session.write("listed/made", b"with a list").unwrap();
        session.create_dir("listed/below").unwrap();
    });
}
