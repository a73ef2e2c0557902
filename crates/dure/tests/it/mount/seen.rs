//! Each kind of change, on either side.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::time::Duration;

use dure::XattrMode;
use dure_sync::atomic::{AtomicBool, Ordering};
use dure_sync::thread;

use super::{Both, Mapping};

/// Set when it is dropped.
struct AtTheEnd<'a>(&'a AtomicBool);

impl Drop for AtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn open(path: std::path::PathBuf) -> fs::File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap()
}

fn opened_here(both: &Both, name: &str) -> dure::File {
    let options = dure::OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .posix();
    options.open(&both.library, name).unwrap()
}

#[test]
fn content_and_sizes_are_seen_on_both_sides() {
    let Some(both) = Both::new() else { return };
    both.library.write("f", b"sown by the library").unwrap();
    assert_eq!(fs::read(both.path("f")).unwrap(), b"sown by the library");
    let mine = opened_here(&both, "g");
    let theirs = open(both.path("g"));
    for round in 0..50_u64 {
        mine.write_all_at(&round.to_le_bytes(), round * 1000)
            .unwrap();
        let mut got = [0; 8];
        theirs.read_exact_at(&mut got, round * 1000).unwrap();
        assert_eq!(u64::from_le_bytes(got), round);
        assert_eq!(theirs.metadata().unwrap().len(), round * 1000 + 8);
        theirs.write_all_at(&[7; 100], round * 1000).unwrap();
        mine.read_exact_at(&mut got, round * 1000).unwrap();
        assert_eq!(got, [7; 8]);
        assert_eq!(mine.metadata().unwrap().len(), round * 1000 + 100);
    }
    mine.set_len(10).unwrap();
    assert_eq!(theirs.metadata().unwrap().len(), 10);
    let mut rest = Vec::new();
    (&theirs).read_to_end(&mut rest).unwrap();
    assert_eq!(rest.len(), 10);
    theirs.set_len(5).unwrap();
    assert_eq!(both.library.read("g").unwrap().len(), 5);
    drop(theirs);
    both.end();
}

#[test]
fn appends_of_both_sides_go_to_the_end() {
    let Some(both) = Both::new() else { return };
    let mine = dure::OpenOptions::new().append(true).create(true);
    let mine = mine.open(&both.library, "log").unwrap();
    let theirs = OpenOptions::new().append(true).open(both.path("log"));
    let mut theirs = theirs.unwrap();
    let mut all = Vec::new();
    for round in 0..100_u8 {
        let line = vec![round; usize::from(round) * 37 + 1];
        match round % 3 {
            0 => theirs.write_all(&line).unwrap(),
            _ => mine.write_all_at(&line, 0).unwrap(),
        }
        all.extend(line);
    }
    assert_eq!(fs::read(both.path("log")).unwrap(), all);
    assert_eq!(both.library.read("log").unwrap(), all);
    assert_eq!(theirs.seek(SeekFrom::End(0)).unwrap(), all.len() as u64);
    drop(theirs);
    both.end();
}

#[test]
fn names_are_seen_on_both_sides() {
    let Some(both) = Both::new() else { return };
    let missing = |name: &str| fs::metadata(both.path(name)).unwrap_err().kind();
    let names = || {
        let listed = fs::read_dir(both.path("d")).unwrap();
        let mut names: Vec<_> = listed.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    both.library.create_dir("d").unwrap();
    // What the kernel has looked for, it keeps: that it is not there.
    assert_eq!(missing("d/a"), ErrorKind::NotFound);
    assert!(names().is_empty());
    both.library.write("d/a", b"a").unwrap();
    assert_eq!(fs::read(both.path("d/a")).unwrap(), b"a");
    assert_eq!(names(), ["a"]);
    both.library.rename("d/a", "d/b").unwrap();
    assert_eq!(missing("d/a"), ErrorKind::NotFound);
    assert_eq!(names(), ["b"]);
    both.library.write("d/c", b"c").unwrap();
    assert_eq!(fs::read(both.path("d/c")).unwrap(), b"c");
    both.library.rename("d/c", "d/b").unwrap();
    assert_eq!(fs::read(both.path("d/b")).unwrap(), b"c");
    both.library.hard_link("d/b", "d/l").unwrap();
    assert_eq!(fs::metadata(both.path("d/b")).unwrap().nlink(), 2);
    fs::remove_file(both.path("d/b")).unwrap();
    assert!(!both.library.exists("d/b").unwrap());
    assert_eq!(both.library.metadata("d/l").unwrap().nlink(), 1);
    both.library.symlink("d/l", "s").unwrap();
    assert_eq!(fs::read(both.path("s")).unwrap(), b"c");
    both.library.remove_file("s").unwrap();
    both.library.symlink("nowhere", "s").unwrap();
    assert_eq!(
        fs::read_link(both.path("s")).unwrap().as_os_str(),
        "nowhere"
    );
    fs::rename(both.path("d"), both.path("e")).unwrap();
    assert_eq!(both.library.read("e/l").unwrap(), b"c");
    both.library.rename("e", "d").unwrap();
    assert_eq!(names(), ["l"]);
    both.library.remove_file("d/l").unwrap();
    fs::remove_dir(both.path("d")).unwrap();
    both.library.create_dir("d").unwrap();
    assert_eq!(fs::metadata(both.path("d")).unwrap().nlink(), 2);
    both.library.create_dir("d/sub").unwrap();
    assert_eq!(fs::metadata(both.path("d")).unwrap().nlink(), 3);
    both.end();
}

/// The kernel locks directories while it looks names up; here it does so all the time.
#[test]
fn a_name_is_never_believed_after_the_call_that_changed_it() {
    let Some(both) = Both::new() else { return };
    both.library.create_dir("d").unwrap();
    while_others_look(&both, || {
        for round in 0..500_u32 {
            both.library.write("d/name", &round.to_le_bytes()).unwrap();
            assert_eq!(fs::read(both.path("d/name")).unwrap(), round.to_le_bytes());
            both.library.remove_file("d/name").unwrap();
            assert!(fs::metadata(both.path("d/name")).is_err(), "round {round}");
            assert_eq!(fs::read_dir(both.path("d")).unwrap().count(), 0);
        }
    });
    both.end();
}

/// A name that is replaced leads to the new file at once, whatever lookups are under way.
#[test]
fn a_replaced_name_is_never_believed_after_the_call() {
    let Some(both) = Both::new() else { return };
    both.library.create_dir("d").unwrap();
    both.library.write("d/name", b"").unwrap();
    while_others_look(&both, || {
        for round in 0..1500_u32 {
            for new in ["new", "newer"] {
                both.library.write(format!("d/{new}"), b"").unwrap();
                // The one that is replaced has another name, or not.
                let _ = both.library.remove_file(new);
                if round % 2 == 0 {
                    both.library.hard_link(format!("d/{new}"), new).unwrap();
                }
            }
            // Lookups after the first are under way at the second.
            both.library.rename("d/new", "d/name").unwrap();
            thread::sleep(Duration::from_micros(u64::from(round % 32)));
            both.library.rename("d/newer", "d/name").unwrap();
            // An answer that was under way is believed now, if ever.
            thread::sleep(Duration::from_micros(200));
            let (mine, theirs) = (
                both.library.metadata("d/name"),
                fs::metadata(both.path("d/name")),
            );
            assert_eq!(mine.unwrap().ino(), theirs.unwrap().ino(), "round {round}");
        }
    });
    both.end();
}

/// Has two threads look up names, and list, while `body` runs.
fn while_others_look(both: &Both, body: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let _ = fs::metadata(both.path("d/name"));
                    let _ = fs::read_dir(both.path("d")).unwrap().count();
                }
            });
        }
        // Also when an assertion fails: the threads are waited for.
        let _stop = AtTheEnd(&stop);
        body();
    });
}

#[test]
fn attributes_are_seen_on_both_sides() {
    let Some(both) = Both::new() else { return };
    both.library.write("f", b"f").unwrap();
    both.library.create_dir("d").unwrap();
    for (name, mode) in [("f", 0o640), ("d", 0o700), ("f", 0o604), ("d", 0o755)] {
        let theirs = || fs::metadata(both.path(name)).unwrap();
        theirs();
        both.library.set_permissions(name, mode).unwrap();
        assert_eq!(theirs().permissions().mode() & 0o7777, mode);
        fs::set_permissions(both.path(name), PermissionsExt::from_mode(mode | 0o11)).unwrap();
        assert_eq!(both.library.metadata(name).unwrap().mode(), mode | 0o11);
    }
    let (name, file) = (b"user.colour", open(both.path("f")));
    both.library
        .set_xattr("f", name, b"green", XattrMode::Any)
        .unwrap();
    let mut value = [0; 16];
    let mut theirs = || {
        let len = rustix::fs::fgetxattr(&file, "user.colour", &mut value).unwrap();
        value[..len].to_vec()
    };
    assert_eq!(theirs(), b"green");
    both.library
        .set_xattr("f", name, b"red", XattrMode::Any)
        .unwrap();
    assert_eq!(theirs(), b"red");
    drop(file);
    both.end();
}

#[test]
fn an_open_file_lives_when_the_library_removes_its_name() {
    let Some(both) = Both::new() else { return };
    both.library.write("f", b"kept").unwrap();
    let theirs = open(both.path("f"));
    both.library.remove_file("f").unwrap();
    assert!(fs::metadata(both.path("f")).is_err());
    let mut got = [0; 4];
    theirs.read_exact_at(&mut got, 0).unwrap();
    assert_eq!(&got, b"kept");
    assert_eq!(theirs.metadata().unwrap().nlink(), 0);
    theirs.write_all_at(b"more", 4).unwrap();
    drop(theirs);
    // And the other way round.
    let mine = both.library.create("g").unwrap();
    fs::remove_file(both.path("g")).unwrap();
    mine.write_all_at(b"kept", 0).unwrap();
    assert_eq!(mine.metadata().unwrap().nlink(), 0);
    both.end();
}

#[test]
fn a_mapping_sees_the_library_and_is_seen() {
    let Some(both) = Both::new() else { return };
    both.library.write("f", &[1; 3 * 4096]).unwrap();
    let (mine, theirs) = (opened_here(&both, "f"), open(both.path("f")));
    let map = Mapping::new(&theirs, 3 * 4096);
    let reader = Mapping::new(&theirs, 3 * 4096);
    for round in 2..60_u8 {
        let place = usize::from(round) * 150;
        // A store, which only the kernel has; then the library changes other bytes of the page.
        map.set(place, round);
        mine.write_all_at(&[round + 100], place as u64 + 1).unwrap();
        assert_eq!((map.get(place), map.get(place + 1)), (round, round + 100));
        assert_eq!(reader.get(place + 1), round + 100);
        let mut got = [0; 2];
        mine.read_exact_at(&mut got, place as u64).unwrap();
        assert_eq!(got, [round, round + 100]);
        map.set(place + 2, 9);
        mine.read_exact_at(&mut got, place as u64 + 1).unwrap();
        assert_eq!(got, [round + 100, 9]);
        // read(2) and write(2) of the mount agree with both.
        theirs.write_all_at(&[round + 1], place as u64 + 3).unwrap();
        assert_eq!(map.get(place + 3), round + 1);
        theirs.read_exact_at(&mut got, place as u64 + 2).unwrap();
        assert_eq!(got, [9, round + 1]);
    }
    drop((map, reader, theirs));
    both.end();
}

/// The pages of such a buffer are read by requests, which need the lock of the file.
#[test]
fn a_mapping_of_the_mount_may_be_the_buffer_of_a_call() {
    let Some(both) = Both::new() else { return };
    let content: Vec<u8> = (0..1 << 20).map(|n: u32| n.to_le_bytes()[1]).collect();
    both.library.write("f", &content).unwrap();
    both.library.write("g", &vec![0; 1 << 20]).unwrap();
    let mapped = |name| Mapping::new(&open(both.path(name)), 1 << 20);
    let (f, mut g) = (mapped("f"), mapped("g"));
    let file = opened_here(&both, "f");
    file.write_all_at(f.bytes(), 1 << 20).unwrap();
    file.write_all_at(f.bytes(), 0).unwrap();
    file.read_exact_at(g.bytes_mut(), 1 << 20).unwrap();
    assert!(g.bytes() == content);
    assert!(both.library.read("g").unwrap() == content);
    drop((f, g));
    both.end();
}

/// A page that is mapped for reading only: nothing of it has to be sent before the change.
#[test]
fn a_mapping_for_reading_sees_what_the_library_writes() {
    let Some(both) = Both::new() else { return };
    both.library.write("f", &[0; 8192]).unwrap();
    let mine = opened_here(&both, "f");
    let map = Mapping::of_reader(&fs::File::open(both.path("f")).unwrap(), 8192);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        // Has the page asked for at all times.
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                assert!(map.get(4096) == map.get(4096) || map.get(0) == 0);
            }
        });
        let _stop = AtTheEnd(&stop);
        for round in 0..2000_u32 {
            let byte = round.to_le_bytes()[0];
            mine.write_all_at(&[byte], 4096).unwrap();
            assert_eq!(map.get(4096), byte, "round {round}");
        }
        mine.set_len(5000).unwrap();
        mine.allocate(dure::AllocateMode::Zero, 4096, 100).unwrap();
        assert_eq!(map.get(4096), 0);
    });
    drop(map);
    both.end();
}

/// A program has them without an open(2): by a working directory, or `O_PATH`.
#[test]
fn what_the_kernel_has_lives_when_the_library_removes_its_name() {
    let Some(both) = Both::new() else { return };
    both.library.write("f", b"kept").unwrap();
    both.library.create_dir("d").unwrap();
    both.library.write("g", b"new").unwrap();
    let path_only = |name: &str| {
        let flags = rustix::fs::OFlags::PATH;
        rustix::fs::open(both.path(name), flags, rustix::fs::Mode::empty()).unwrap()
    };
    let (file, directory) = (path_only("f"), path_only("d"));
    both.library.rename("g", "f").unwrap();
    both.library.remove_dir("d").unwrap();
    assert_eq!(rustix::fs::fstat(&file).unwrap().st_nlink, 0);
    assert_eq!(rustix::fs::fstat(&file).unwrap().st_size, 4);
    assert_eq!(rustix::fs::fstat(&directory).unwrap().st_nlink, 0);
    assert_eq!(fs::read(both.path("f")).unwrap(), b"new");
    drop((file, directory));
    both.end();
}

#[test]
fn a_program_of_the_volume_runs() {
    let Some(both) = Both::new() else { return };
    both.library
        .write("true", &fs::read("/bin/true").unwrap())
        .unwrap();
    both.library.set_permissions("true", 0o755).unwrap();
    let ended = std::process::Command::new(both.path("true")).status();
    assert!(ended.unwrap().success());
    both.library
        .write("true", &fs::read("/bin/false").unwrap())
        .unwrap();
    let ended = std::process::Command::new(both.path("true")).status();
    assert!(!ended.unwrap().success());
    both.end();
}
