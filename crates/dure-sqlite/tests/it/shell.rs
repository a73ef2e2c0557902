//! The shell: journal modes, messages, a full volume, the page.

use std::fs;

use dure_check::{CheckOptions, check};

use crate::program::{extension, installed, make, opening, run, said, volume};

/// The content of `db` agrees with itself, and the volume with its structure.
fn assert_whole(image: &std::path::Path) {
    let device = dure_block::file::open_file(image, dure_block::file::OpenOptions::default());
    let report = check(dure_block::share(device.unwrap()), &CheckOptions::default()).unwrap();
    assert!(report.issues().is_empty(), "{:?}", report.issues());
}

#[test]
fn all_journal_modes_work() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("v.img");
    make(&image, 64 << 20);
    for mode in ["delete", "truncate", "persist", "memory", "wal", "off"] {
        let open = opening(&image, mode);
        let script = format!(
            "{open}PRAGMA journal_mode={mode};
             CREATE TABLE t(n INTEGER PRIMARY KEY, payload BLOB);
             INSERT INTO t SELECT value, randomblob(3000) FROM generate_series(1, 500);
             UPDATE t SET payload = zeroblob(5000) WHERE n % 3 = 0;
             DELETE FROM t WHERE n > 400;
             VACUUM;
             PRAGMA integrity_check;
             SELECT count(*), sum(length(payload)) FROM t;\n"
        );
        let Some(first) = said(&script) else { return };
        // Of 400 rows 133 have 5000 bytes, the others 3000.
        assert_eq!(first, format!("{mode}\nok\n400|1466000\n"));
        let again = said(&format!(
            "{open}SELECT count(*), sum(length(payload)) FROM t;\n"
        ));
        assert_eq!(again.unwrap(), "400|1466000\n", "{mode}");
    }
    let names = volume(&image).root().read_dir("/").unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().to_owned());
    let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort_unstable();
    let kept = ["persist-journal", "truncate-journal"];
    names.retain(|name| !kept.contains(&name.as_str()));
    let databases = ["delete", "memory", "off", "persist", "truncate", "wal"];
    assert_eq!(names, databases, "journals and WALs are gone");
    assert_whole(&image);
}

#[test]
fn a_transaction_is_rolled_back() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("v.img");
    make(&image, 64 << 20);
    for mode in ["delete", "truncate", "persist", "memory", "wal"] {
        let script = format!(
            "{}PRAGMA journal_mode={mode}; PRAGMA cache_size=5;
             CREATE TABLE t(a); INSERT INTO t VALUES(1);
             BEGIN; INSERT INTO t SELECT randomblob(2000) FROM generate_series(1, 200);
             DELETE FROM t WHERE a = 1; ROLLBACK;
             SELECT a FROM t; PRAGMA integrity_check;\n",
            opening(&image, mode)
        );
        match said(&script) {
            Some(said) => assert_eq!(said, format!("{mode}\n1\nok\n")),
            None => return,
        }
    }
    assert_whole(&image);
}

/// A transaction on databases of two volumes, with the journal that names both.
#[test]
fn two_volumes_take_part_in_one_transaction() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (folder.path().join("1.img"), folder.path().join("2.img"));
    make(&one, 32 << 20);
    make(&two, 32 << 20);
    let script = format!(
        "{}ATTACH 'file:{}/db?vfs=dure' AS other;
         CREATE TABLE main.t(a); CREATE TABLE other.u(a);
         BEGIN; INSERT INTO t VALUES(1); INSERT INTO u VALUES(2); COMMIT;
         SELECT a FROM t; SELECT a FROM u;\n",
        opening(&one, "db"),
        two.display()
    );
    if let Some(said) = said(&script) {
        assert_eq!(said, "1\n2\n");
        for image in [one, two] {
            let names = volume(&image).root().read_dir("/").unwrap().count();
            assert_eq!(names, 1, "no journal is left in {}", image.display());
        }
    }
}

/// What opening `name` of `image` says: SQLite, and `dure_last_error()`.
fn refusal(image: &std::path::Path, name: &str) -> Option<String> {
    let output = run(&format!(
        "{}SELECT dure_last_error();\n",
        opening(image, name)
    ))?;
    let (out, error) = (output.stdout, output.stderr);
    Some(String::from_utf8([error, out].concat()).unwrap())
}

#[test]
fn what_cannot_be_opened_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("v.img");
    make(&image, 32 << 20);
    let cases = |image: &std::path::Path, name: &str, words: &[&str]| {
        if let Some(said) = refusal(image, name) {
            for words in words {
                assert!(said.contains(words), "{words}: {said}");
            }
        }
    };
    cases(
        &image,
        "no/db",
        &["unable to open", "open /no/db: no such file"],
    );
    let missing = folder.path().join("missing");
    cases(
        &missing,
        "db",
        &["unable to open", "`VOLUME/NAME` is meant"],
    );
    let other = folder.path().join("other");
    fs::write(&other, vec![0; 1 << 20]).unwrap();
    cases(&other, "db", &["not a database", "not a dure volume"]);
    cases(&image, "db?options=cache=1", &[]);
    let session = volume(&image).root();
    session.create_dir("/dir").unwrap();
    session.symlink("dir", "/link").unwrap();
    cases(&image, "db", &["is locked", "in use by"]);
    drop(session);
    cases(&image, "dir", &["unable to open", "directory"]);
    cases(&image, "link", &["unable to open", "link"]);
}

#[test]
fn options_are_those_of_the_mount() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("v.img");
    make(&image, 32 << 20);
    let open = |options: &str| {
        let open = opening(&image, "db").trim_end().to_owned();
        run(&format!(
            "{open}&options={options}\nCREATE TABLE IF NOT EXISTS t(a);\n\
                      SELECT dure_last_error();\n"
        ))
    };
    let Some(good) = open("cache=16M,commit=1") else {
        return;
    };
    assert!(good.status.success(), "{good:?}");
    for (options, words) in [
        ("data=writeback", "a database relies on"),
        ("page_cache=none", "a database relies on"),
        ("journal=none,no-crash-guarantee", "a database relies on"),
        ("cache=1", "at least 1M"),
    ] {
        let output = open(options).unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains(words), "{output:?}");
    }
    let output = open("ro").unwrap();
    assert!(output.status.success(), "the table is there: {output:?}");
    let open = opening(&image, "db").trim_end().to_owned();
    let output = run(&format!("{open}&options=ro\nINSERT INTO t VALUES(1);\n")).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("readonly"), "{output:?}");
}

#[test]
fn a_full_volume_is_said_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for mode in ["delete", "wal"] {
        let image = folder.path().join(format!("{mode}.img"));
        make(&image, 16 << 20);
        let open = opening(&image, "db");
        let insert = "INSERT INTO t SELECT randomblob(4000) FROM generate_series(1, 100);\n";
        let script = format!(
            "{open}PRAGMA journal_mode={mode};\nCREATE TABLE t(a);\n{}",
            insert.repeat(100)
        );
        let Some(output) = run(&script) else { return };
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains("database or disk is full"), "{error}");
        let script = format!("{open}PRAGMA integrity_check; SELECT count(*) % 100 FROM t;\n");
        assert_eq!(said(&script).unwrap(), "ok\n0\n", "{mode}");
        // A journal of all that is deleted finds no room, and a WAL that is full cannot be given up.
        if mode == "delete" {
            let script = format!(
                "{open}PRAGMA journal_mode=memory; DELETE FROM t; VACUUM; SELECT count(*) FROM t;\n"
            );
            assert_eq!(said(&script).unwrap(), "memory\n0\n");
        }
        assert_whole(&image);
    }
}

/// The block of the page that begins with the shell.
#[test]
fn the_first_lines_of_the_page_work() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/user/sqlite.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, lines) = page.split_once("```sql\n").unwrap();
    let (lines, _) = lines.split_once("```").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("v.img");
    make(&image, 32 << 20);
    let (load, lines) = lines.split_once('\n').unwrap();
    assert_eq!(load, ".load libdure_sqlite");
    let lines = lines.replace("/srv/v.img", image.to_str().unwrap());
    if let Some(said) = said(&lines) {
        assert_eq!(said, "wal\nsown together\n");
    }
}

/// The block of the page in Python, and a child of fork.
#[test]
fn python_opens_databases_and_its_children_are_refused() {
    let Some(mut python) = installed("/usr/bin/python3") else {
        return;
    };
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/user/sqlite.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, lines) = page.split_once("```py\n").unwrap();
    let (lines, _) = lines.split_once("```").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("v.img");
    make(&image, 32 << 20);
    let lines = lines.replace("/srv/v.img", image.to_str().unwrap());
    let lines = lines.replace("libdure_sqlite", extension().to_str().unwrap());
    let more = "\nimport os\nchild = os.fork()\nif child == 0:\n    try:\n        \
                database.execute('insert into notes values(1)')\n    except sqlite3.Error as error:\n        \
                words = loader.execute('select dure_last_error()').fetchone()[0]\n        \
                os._exit(0 if 'before fork()' in words else 2)\n    os._exit(1)\n\
                assert os.waitpid(child, 0)[1] == 0\n\
                database.execute('insert into notes values(2)')\ndatabase.commit()\ndatabase.close()\n";
    let guard = "import sqlite3\nif not hasattr(sqlite3.Connection, 'enable_load_extension'):\n    \
                 print('skipped'); raise SystemExit\n";
    let output = python
        .arg("-c")
        .arg(format!("{guard}{lines}{more}"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}
