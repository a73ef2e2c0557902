//! Connections of one process, and volumes that come and go with them.

use std::path::Path;

use dure::Volume;
use dure_sync::thread;

use crate::library::open;
use crate::program::{make, volume};

fn uri(image: &Path, name: &str) -> String {
    format!("file:{}/{name}?vfs=dure", image.display())
}

#[test]
fn the_last_connection_closes_the_volume() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("v.img");
    make(&image, 32 << 20);
    let Some(one) = open(&uri(&image, "one")) else {
        return;
    };
    let two = open(&uri(&image, "two")).unwrap().unwrap();
    let one = one.unwrap();
    one.exec("PRAGMA journal_mode=wal; CREATE TABLE t(a)");
    two.exec("CREATE TABLE t(a)");
    let in_use = || Volume::open(&image, dure::MountOptions::default()).unwrap_err();
    assert_eq!(in_use().errno(), libc::EBUSY);
    drop(one);
    assert_eq!(in_use().errno(), libc::EBUSY);
    two.exec("INSERT INTO t VALUES(1)");
    drop(two);
    assert!(
        volume(&image).file_system().recovered().is_none(),
        "it was closed"
    );
}

#[test]
fn threads_with_connections_of_their_own_lose_no_increment() {
    const THREADS: usize = 4;
    const TIMES: usize = 40;
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("v.img");
    make(&image, 64 << 20);
    for mode in ["wal", "delete", "persist"] {
        let uri = uri(&image, mode);
        let Some(first) = open(&uri) else { return };
        let first = first.unwrap();
        first.exec(&format!(
            "PRAGMA journal_mode={mode}; CREATE TABLE t(n); INSERT INTO t VALUES(0);
             CREATE TABLE log(who, n)"
        ));
        thread::scope(|scope| {
            for who in 0..THREADS {
                let uri = uri.as_str();
                scope.spawn(move || {
                    let own = open(uri).unwrap().unwrap();
                    for _ in 0..TIMES {
                        own.exec("BEGIN IMMEDIATE; UPDATE t SET n = n + 1");
                        own.exec(&format!("INSERT INTO log SELECT {who}, n FROM t; COMMIT"));
                        assert_eq!(own.one("SELECT max(n) = (SELECT n FROM t) FROM log"), "1");
                    }
                });
            }
        });
        let all = (THREADS * TIMES).to_string();
        assert_eq!(first.one("SELECT n FROM t"), all, "{mode}");
        assert_eq!(
            first.one("SELECT count(DISTINCT n) FROM log"),
            all,
            "{mode}"
        );
        assert_eq!(first.one("PRAGMA integrity_check"), "ok", "{mode}");
    }
}

#[test]
fn a_writer_that_waits_is_told_that_the_database_is_locked() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("v.img");
    make(&image, 32 << 20);
    let Some(one) = open(&uri(&image, "db")) else {
        return;
    };
    let one = one.unwrap();
    let two = open(&uri(&image, "db")).unwrap().unwrap();
    one.exec("CREATE TABLE t(a); BEGIN IMMEDIATE; INSERT INTO t VALUES(1)");
    two.exec("PRAGMA busy_timeout=0");
    assert_eq!(two.try_exec("BEGIN IMMEDIATE").unwrap_err().code, 5);
    assert_eq!(two.one("SELECT count(*) FROM t"), "0", "readers may read");
    one.exec("COMMIT");
    assert_eq!(two.one("SELECT count(*) FROM t"), "1");
}

#[test]
fn a_database_that_was_removed_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("v.img");
    make(&image, 32 << 20);
    let lent = volume(&image);
    let _lent = dure_sqlite::lend(&image, &lent).unwrap();
    let Some(one) = open(&uri(&image, "db")) else {
        return;
    };
    let one = one.unwrap();
    one.exec("CREATE TABLE t(a)");
    lent.root().rename("/db", "/other").unwrap();
    let moved = one.try_exec("INSERT INTO t VALUES(1)").unwrap_err();
    assert_eq!(moved.code, 8 | 4 << 8, "SQLITE_READONLY_DBMOVED: {moved:?}");
}

#[test]
fn a_program_lends_its_volume() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("v.img");
    make(&image, 32 << 20);
    let own = volume(&image);
    own.root().create_dir("/data").unwrap();
    let lent = dure_sqlite::lend(&image, &own).unwrap();
    assert_eq!(
        dure_sqlite::lend(&image, &own).unwrap_err().errno(),
        libc::EEXIST
    );
    let Some(database) = open(&uri(&image, "data/db")) else {
        return;
    };
    database.unwrap().exec("CREATE TABLE t(a)");
    assert!(own.root().metadata("/data/db").unwrap().len() >= 8192);
    drop(lent);
    own.root().write("/file", b"still open").unwrap();
}
