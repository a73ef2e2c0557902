use rustix::io::Errno;

use super::*;

fn root(operation: Operation) -> Step {
    Step {
        who: Who::Root,
        operation,
    }
}

fn open(slot: usize, path: &str) -> Step {
    let flags = Flags {
        read: true,
        write: true,
        create: true,
        ..Flags::default()
    };
    root(Operation::Open {
        slot,
        path: path.into(),
        flags,
        mode: 0o644,
    })
}

#[test]
fn data_keeps_what_was_written_and_shows_holes() {
    let mut data = Data::default();
    data.write(PAGE - 1, &[1, 2]);
    assert_eq!(data.size(), PAGE + 1);
    assert_eq!(data.read(PAGE - 2, 9), [0, 1, 2]);
    data.write(5 * PAGE, &[9]);
    assert_eq!(data.seek_hole(0), Some(2 * PAGE));
    assert_eq!(data.seek_data(2 * PAGE), Some(5 * PAGE));
    assert_eq!(data.seek_hole(5 * PAGE), Some(5 * PAGE + 1));
    data.truncate(PAGE);
    data.extend(PAGE + 1);
    assert_eq!(data.read(PAGE - 1, 9), [1, 0]);
    assert_eq!(data.seek_data(PAGE), None);
}

#[test]
fn an_unlinked_file_lives_until_it_is_closed() {
    let mut model = ModelFs::new();
    model.apply(&open(0, "a")).unwrap();
    model
        .apply(&root(Operation::Write {
            slot: 0,
            offset: 0,
            len: 3,
            fill: 7,
        }))
        .unwrap();
    model
        .apply(&root(Operation::Unlink { path: "a".into() }))
        .unwrap();
    let read = model.apply(&root(Operation::Read {
        slot: 0,
        offset: 0,
        len: 9,
    }));
    assert_eq!(read, Ok(Answer::Bytes(pattern(7, 3))));
    let link = model.apply(&root(Operation::LinkSlot {
        slot: 0,
        path: "b".into(),
    }));
    assert_eq!(link, Err(Errno::NOENT));
    model.apply(&root(Operation::Close { slot: 0 })).unwrap();
    assert!(model.store().find(2).is_none());
}

#[test]
fn a_directory_cannot_move_below_itself() {
    let mut model = ModelFs::new();
    for path in ["a", "a/b"] {
        model
            .apply(&root(Operation::Mkdir {
                path: path.into(),
                mode: 0o755,
            }))
            .unwrap();
    }
    let kind = RenameKind::Replace;
    let rename = Operation::Rename {
        from: "a".into(),
        to: "a/b/c".into(),
        kind,
    };
    assert_eq!(model.apply(&root(rename)), Err(Errno::INVAL));
    let Ok(Answer::Stat(stat)) = model.apply(&root(Operation::Stat {
        path: "a".into(),
        follow: true,
    })) else {
        panic!("a is there");
    };
    assert_eq!(stat.nlink, 3);
}

#[test]
fn forty_links_are_followed_and_not_one_more() {
    let mut model = ModelFs::new();
    model.apply(&open(0, "l0")).unwrap();
    for n in 1..=41 {
        let (target, path) = (format!("l{}", n - 1), format!("l{n}"));
        model
            .apply(&root(Operation::Symlink { target, path }))
            .unwrap();
    }
    let mut stat = |path: &str| {
        model.apply(&root(Operation::Stat {
            path: path.into(),
            follow: true,
        }))
    };
    assert!(stat("l40").is_ok());
    assert_eq!(stat("l41"), Err(Errno::LOOP));
}

#[test]
fn a_sticky_directory_protects_names() {
    let mut model = ModelFs::new();
    let chmod = Operation::Chmod {
        path: "/".into(),
        mode: 0o1777,
    };
    model.apply(&root(chmod)).unwrap();
    let Step { operation, .. } = open(0, "a");
    model
        .apply(&Step {
            who: Who::Alice,
            operation,
        })
        .unwrap();
    let unlink = Operation::Unlink { path: "a".into() };
    let by = |who| Step {
        who,
        operation: unlink.clone(),
    };
    assert_eq!(model.apply(&by(Who::Bob)), Err(Errno::PERM));
    assert_eq!(model.apply(&by(Who::Alice)), Ok(Answer::Done));
}
