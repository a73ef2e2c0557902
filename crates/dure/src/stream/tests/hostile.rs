//! Streams that are cut, damaged, or made to do harm.

use dure_sync::random::Seeded;

use super::super::check;
use super::super::format::{self, START_BYTES};
use super::super::frames::{HEAD_BYTES, checksum};
use super::*;

/// A small stream, with a base.
fn small() -> (Disk, Vec<u8>, Vec<u8>) {
    let disk = Disk::new(4096);
    let session = disk.volume.root();
    session.create_dir("d").unwrap();
    session.write("d/f", b"content").unwrap();
    session.symlink("f", "d/l").unwrap();
    disk.take("one");
    let full = disk.stream("one", None);
    session.rename("d/f", "g").unwrap();
    session.remove_file("d/l").unwrap();
    session.write("g", b"more").unwrap();
    session.hard_link("g", "h").unwrap();
    let mode = crate::XattrMode::Any;
    session.set_xattr("g", b"user.a", b"b", mode).unwrap();
    disk.take("two");
    let increment = disk.stream("two", Some("one"));
    (disk, full, increment)
}

/// Records with their kinds; the start is left out.
fn records(stream: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let (mut records, mut at) = (Vec::new(), START_BYTES);
    while at < stream.len() {
        let len = u32::from_le_bytes(stream[at..at + 4].try_into().unwrap());
        let kind = u16::from_le_bytes(stream[at + 4..at + 6].try_into().unwrap());
        let end = at + HEAD_BYTES + usize::try_from(len).unwrap();
        records.push((kind, stream[at + HEAD_BYTES..end].to_vec()));
        at = end;
    }
    records
}

/// A stream of these, with sound checksums.
fn stream_of(start: &[u8], records: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut stream = start[..START_BYTES].to_vec();
    for (kind, payload) in records {
        let mut head = Vec::from(u32::try_from(payload.len()).unwrap().to_le_bytes());
        head.extend(kind.to_le_bytes());
        head.extend([0; 2]);
        let crc = checksum(stream.len() as u64, &head, [payload, &[]]);
        head.extend(crc.to_le_bytes());
        stream.extend(head);
        stream.extend(payload);
    }
    stream
}

fn why(stream: &[u8]) -> Option<String> {
    let checked = check(&mut &stream[..], &mut go);
    checked.err().map(|error| error.to_string())
}

#[test]
fn a_stream_that_ends_early_is_told_so_at_each_byte() {
    let (_, full, increment) = small();
    for stream in [&full, &increment] {
        assert_eq!(why(stream), None);
        for end in 0..stream.len() {
            let told = why(&stream[..end]).unwrap();
            assert!(told.contains("ends early"), "{end}: {told}");
            assert!(
                end < START_BYTES || told.contains("at byte "),
                "{end}: {told}"
            );
        }
    }
}

#[test]
fn every_bit_counts() {
    let (_, full, increment) = small();
    for stream in [full, increment] {
        for bit in 0..stream.len() * 8 {
            let mut flipped = stream.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let told = why(&flipped);
            assert!(told.is_some(), "bit {bit}");
        }
    }
}

#[test]
fn a_record_that_is_left_out_twice_or_elsewhere_is_noticed() {
    let (_, full, _) = small();
    let all = records(&full);
    let whole = |records: &[(u16, Vec<u8>)]| stream_of(&full, records);
    assert_eq!(whole(&all), full);
    for at in 0..all.len() {
        let mut fewer = all.clone();
        fewer.remove(at);
        assert!(why(&whole(&fewer)).is_some(), "without {at}");
        // As it came, with its checksum.
        let before = whole(&all[..at]);
        let behind = &full[whole(&all[..at + 1]).len()..];
        assert!(why(&[&before, behind].concat()).is_some(), "cut out {at}");
    }
}

#[test]
fn bytes_that_are_no_stream_are_refused() {
    let (disk, full, _) = small();
    for bytes in [
        &b""[..],
        b"duresend",
        &[0; 4096],
        b"#!/bin/sh\necho hello\n",
    ] {
        assert!(why(bytes).is_some());
        disk.receive(bytes).unwrap_err();
    }
    let mut later = full;
    later[8] = 2;
    let told = why(&later).unwrap();
    assert!(told.contains("version 2"), "{told}");
}

/// Whatever a stream says, it ends in bounded time, the volume is sound, and its snapshots are as before.
#[test]
fn mutated_streams_do_no_more_than_change_the_tree() {
    let (disk, full, increment) = small();
    let base = disk.past("one");
    let mut failed = 0;
    for seed in 0..300 {
        let mut random = Seeded::new(seed);
        let stream = if random.below(3) == 0 {
            &full
        } else {
            &increment
        };
        let mut all = records(stream);
        for _ in 0..1 + random.below(4) {
            let mut below = |end: usize| usize::try_from(random.below(end as u64)).unwrap();
            // The first says of what it is.
            let at = 1 + below(all.len() - 1);
            match below(6) {
                0 => drop(all.remove(at)),
                1 => {
                    let to = 1 + below(all.len() - 1);
                    all.swap(at, to);
                }
                2 => all[at].0 = u16::try_from(below(16)).unwrap(),
                3 => {
                    let again = all[at].clone();
                    all.push(again);
                }
                _ => {
                    let payload = &mut all[at].1;
                    if !payload.is_empty() {
                        let place = below(payload.len());
                        payload[place] = u8::try_from(below(256)).unwrap();
                    }
                }
            }
            if all.len() < 3 {
                break;
            }
        }
        let copy = Disk::new(4096);
        if stream == &increment {
            copy.receive(&full).unwrap();
        }
        let mutated = stream_of(stream, &all);
        let received = receive(&copy.volume, None, &mut &mutated[..], &mut go);
        failed += u32::from(received.is_err());
        if stream == &increment {
            expect_same(&base, &copy.past("one"));
        }
        copy.expect_sound();
    }
    assert!(failed > 100, "only {failed} were refused");
}

#[test]
fn huge_lengths_take_neither_memory_nor_time() {
    let (_, full, _) = small();
    let mut all = records(&full);
    let long = [
        (7, b"d/f".to_vec()),
        (8, [&u64::MAX.to_le_bytes()[..], b"x"].concat()),
    ];
    all.splice(1..1, long);
    let told = why(&stream_of(&full, &all)).unwrap();
    assert!(told.contains("a range that no file has"), "{told}");
    let copy = Disk::new(4096);
    copy.receive(&full).unwrap();
    // A hole as long as a file can be, of a file that is.
    let mut all = vec![records(&full)[0].clone()];
    let mut payload = Vec::new();
    let mut add = |record: &format::Record<'_>| {
        let kind = format::encode(record, &mut payload);
        all.push((kind, payload.clone()));
    };
    let most = dure_fs::FILE_BYTES_MAX;
    let path = b"big";
    let make = format::Make {
        kind: FileKind::File,
        mode: 0o600,
        uid: 0,
        gid: 0,
        rdev: 0,
        path,
        target: b"",
    };
    add(&format::Record::Make(make));
    let time = crate::Timestamp { secs: 0, nanos: 0 };
    let attributes = format::Attributes {
        mode: 0o600,
        uid: 0,
        gid: 0,
        size: most,
        accessed: time,
        modified: time,
    };
    add(&format::Record::Attributes(attributes));
    add(&format::Record::Select { path });
    add(&format::Record::Hole {
        offset: 0,
        len: most,
    });
    add(&format::Record::End { records: 5 });
    let copy = Disk::new(4096);
    copy.receive(&stream_of(&full, &all)).unwrap();
    let big = copy.fs().lookup(&copy.fs().root().unwrap(), path);
    let big = big.unwrap().unwrap();
    assert_eq!(copy.fs().size(&big).unwrap(), most);
    assert_eq!(copy.fs().seek(&big, 0, SeekTarget::Data).unwrap(), None);
    // A length that is not there is not reserved.
    let mut cut = full[..START_BYTES].to_vec();
    cut.extend(u32::MAX.to_le_bytes());
    cut.extend([0; 8]);
    assert!(why(&cut).unwrap().contains("too long"));
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    let (_, full, _) = small();
    for path in [
        &b"../x"[..],
        b"/x",
        b"x//y",
        b"x/.",
        b"a\0b",
        b"x/",
        &[b'n'; 256],
    ] {
        let mut all = records(&full);
        all.insert(1, (7, path.to_vec()));
        let told = why(&stream_of(&full, &all)).unwrap();
        assert!(told.contains("a name that cannot be"), "{path:?}: {told}");
        assert!(told.contains("record 1 select, at byte"), "{told}");
    }
}

/// What a record cannot do fails, and leaves no snapshot.
#[test]
fn records_that_cannot_be_done_leave_no_snapshot() {
    let (_, full, _) = small();
    let begin = records(&full)[0].clone();
    let time = crate::Timestamp { secs: 0, nanos: 0 };
    let make = |kind, path, target| {
        format::Record::Make(format::Make {
            kind,
            mode: 0o755,
            uid: 0,
            gid: 0,
            rdev: 0,
            path,
            target,
        })
    };
    let sized = format::Record::Attributes(format::Attributes {
        mode: 0o644,
        uid: 0,
        gid: 0,
        size: 9,
        accessed: time,
        modified: time,
    });
    let pipe = make(FileKind::Fifo, b"p", b"");
    let file = make(FileKind::File, b"f", b"");
    let xattrs = |name, value| format::Record::Xattrs(vec![(name, value)]);
    let data = format::Record::Data {
        offset: 0,
        bytes: b"x",
    };
    let large = vec![0; 70 << 10];
    let bad: Vec<Vec<format::Record<'_>>> = vec![
        vec![pipe.clone(), data.clone()],
        vec![data],
        vec![make(FileKind::File, b".dure-receive", b"")],
        vec![make(FileKind::File, b".dure-receive/17", b"")],
        vec![make(FileKind::File, b"none/f", b"")],
        vec![make(FileKind::Symlink, b"l", b"a\0b")],
        vec![make(FileKind::Symlink, b"l", &large)],
        vec![file.clone(), xattrs(b"", b"x")],
        vec![file.clone(), xattrs(b"noprefix", b"x")],
        vec![file.clone(), xattrs(b"user.a\0b", b"x")],
        vec![file.clone(), xattrs(b"user.a", &large)],
        vec![file.clone(), xattrs(b"system.posix_acl_access", b"x")],
        vec![format::Record::Select { path: b"" }, xattrs(STATE, b"x")],
        vec![format::Record::Away { path: b"f" }],
        vec![format::Record::Place {
            of: b"f",
            path: b"g",
        }],
        vec![format::Record::Link {
            of: b"f",
            path: b"g",
        }],
        vec![file.clone(), sized.clone(), sized],
        vec![
            file.clone(),
            file,
            pipe,
            make(FileKind::Directory, b"f", b""),
        ],
    ];
    for (number, list) in bad.into_iter().enumerate() {
        let stream = stream_of(&full, &ended(&begin, list));
        let copy = Disk::new(4096);
        let error = copy.receive(&stream).unwrap_err();
        let told = error.to_string();
        assert!(!told.contains("ends early"), "{number}: {told}");
        assert!(copy.volume.snapshots().is_empty(), "{number}");
        copy.expect_sound();
    }
}

/// These records between a begin and an end.
fn ended(begin: &(u16, Vec<u8>), list: Vec<format::Record<'_>>) -> Vec<(u16, Vec<u8>)> {
    let mut all = vec![begin.clone()];
    for record in list {
        let mut payload = Vec::new();
        let kind = format::encode(&record, &mut payload);
        if let format::Record::Data { bytes, .. } = record {
            payload.extend(bytes);
        }
        all.push((kind, payload));
    }
    let end = u64::try_from(all.len()).unwrap();
    all.push((12, end.to_le_bytes().to_vec()));
    all
}
