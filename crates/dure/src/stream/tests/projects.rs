//! Projects of what is sent and restored.

use dure_fs::{Bounds, Limits, QuotaKind, Subject};
use dure_sync::clock::{Timestamp, pretend_wall};

use super::super::restore;
use super::*;

fn at(secs: i64) {
    pretend_wall(Some(Timestamp { secs, nanos: 0 }));
}

fn all(_: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Nothing else changes, and long after the files were made.
#[test]
fn a_change_of_project_is_sent_and_restored() {
    at(1_000_000);
    let disk = Disk::new(16_384);
    let session = disk.volume.root();
    session.create_dir_all("a/b").unwrap();
    session.write("a/b/file", b"content").unwrap();
    session.write("a/other", b"content").unwrap();
    at(2_000_000);
    let before = disk.take("before");
    at(3_000_000);
    disk.volume.set_project("a", 7, &mut all).unwrap();
    at(4_000_000);
    let after = disk.take("after");
    let copy = Disk::new(16_384);
    copy.receive(&disk.stream("before", None)).unwrap();
    copy.receive(&disk.stream("after", Some("before"))).unwrap();
    expect_same(&after, &content(copy.fs()));
    assert_eq!(copy.volume.project("a/b/file").unwrap(), 7);
    restore(&disk.volume, "before", &mut go).unwrap();
    expect_same(&before, &content(disk.fs()));
    assert_eq!(disk.volume.project("a/other").unwrap(), 0);
    pretend_wall(None);
    copy.expect_sound();
    disk.expect_sound();
}

/// New files are made with the project that their directory has before it gets its own.
#[test]
fn a_limit_of_a_project_refuses_no_restore() {
    let disk = Disk::new(16_384);
    disk.volume.switch_quotas_on().unwrap();
    let disk = disk.remounted();
    let session = disk.volume.root();
    session.create_dir_all("a").unwrap();
    for n in 0..20 {
        let path = format!("a/{n}");
        session.write(path, &vec![1; 20_000]).unwrap();
    }
    let then = disk.take("then");
    for n in 0..20 {
        session.remove_file(format!("a/{n}")).unwrap();
    }
    disk.volume.set_project("a", 7, &mut all).unwrap();
    let kind = QuotaKind::Project;
    let few = Bounds {
        soft: 0,
        hard: 2,
        since: 0,
    };
    let limits = Limits {
        blocks: few,
        inodes: few,
        grace: 0,
    };
    let subject = Subject { kind, id: 7 };
    disk.volume.set_quota(subject, &limits).unwrap();
    session.write("a/one", &vec![1; 8192]).unwrap();
    session.write("a/two", b"").unwrap_err();
    restore(&disk.volume, "then", &mut go).unwrap();
    expect_same(&then, &content(disk.fs()));
    let quotas = disk.volume.quotas().unwrap();
    let used = quotas.iter().find(|quota| quota.subject == subject);
    assert_eq!(used.unwrap().usage, dure_fs::Usage::default());
    // The limit counts again.
    disk.volume.set_project("a", 7, &mut all).unwrap();
    session.write("a/two", b"").unwrap_err();
    drop(session);
    disk.expect_sound();
}
