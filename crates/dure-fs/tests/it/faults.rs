//! Injected failures under a workload of all namespace calls: an I/O error at every request, and a
//! disk that is full at every step.
//!
//! Whatever fails, nothing durable is lost, what is there stays readable, a failed write or flush
//! of what must be durable stops the volume, and the volume is sound after the next mount.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use dure_block::fault::{Fault, FaultDevice, Rule, When};
use dure_block::ram::{Image, RamDevice};
use dure_block::{Lba, Op, OsError, share};
use dure_check::{CheckOptions, IssueKind, check};
use dure_fs::{
    AllocateMode, Background, Error, FileKind, FileSystem, FormatOptions, InodeRef, MountOptions,
    NewInode, ReadMode, RenameMode, SetAttributes, Stamp, XattrMode,
};
use dure_sync::Arc;
use dure_sync::amount;
use dure_sync::atomic::AtomicUsize;

/// What users see of a tree, by path; times are left out.
type Tree = BTreeMap<Vec<u8>, String>;

/// The defaults.
const USUAL: &str = "";

/// What fails at every place with the usual policies fails at every place with these, too.
const POLICIES: &[&str] = &[
    "journal=zjournal",
    "data=journal,fsync=all",
    "journal=jbd2,data=journal",
    "flush=two,alloc=global,log-data=0",
];

fn mounted(device: Arc<dyn dure_block::Device>, policies: &str) -> Result<FileSystem, Error> {
    let mut options = MountOptions {
        background: Background::None,
        cache_bytes: 64 << 10,
        recovery_threads: Some(1),
        ..MountOptions::default()
    };
    for policy in policies.split(',').filter(|policy| !policy.is_empty()) {
        let (key, value) = policy.split_once('=').expect("key=value");
        assert_eq!(options.set_policy(key, value), Ok(true), "{policy}");
    }
    // One journal: what survives is a prefix of the calls.
    options.core = Some(Arc::new(AtomicUsize::new(0)));
    FileSystem::open(device, options)
}

fn file() -> NewInode {
    NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    }
}

fn walk(fs: &FileSystem, directory: &InodeRef, path: &[u8], tree: &mut Tree) -> Result<(), Error> {
    let mut names = Vec::new();
    fs.read_directory(directory, 0, &mut |entry| {
        names.push(entry.name.to_vec());
        ControlFlow::Continue(())
    })?;
    for name in names {
        let inode = fs.lookup(directory, &name)?.ok_or(Error::NotFound)?;
        let path = [path, b"/", &name].concat();
        let attributes = fs.attributes(&inode)?;
        let mut content = Vec::new();
        match inode.kind() {
            FileKind::File => {
                content = vec![0; usize::try_from(attributes.size).expect("small")];
                fs.read(&inode, 0, &mut content, ReadMode::Cached)?;
            }
            FileKind::Symlink => content = fs.read_link(&inode)?,
            FileKind::Directory => walk(fs, &inode, &path, tree)?,
            _ => {}
        }
        let mut attached = Vec::new();
        for name in fs.list_xattr(&inode)? {
            let value = fs.get_xattr(&inode, &name)?.unwrap_or_default();
            attached.push((name, dure_block::crc32c::crc32c(&value)));
        }
        let (mode, nlink, size) = (attributes.mode, attributes.nlink, attributes.size);
        let sum = dure_block::crc32c::crc32c(&content);
        tree.insert(
            path,
            format!("{mode:o} {nlink} {size} {sum:x} {attached:x?}"),
        );
    }
    Ok(())
}

fn tree(fs: &FileSystem) -> Result<Tree, Error> {
    let mut tree = Tree::new();
    walk(fs, &fs.root()?, b"", &mut tree)?;
    Ok(tree)
}

fn at(fs: &FileSystem, path: &str) -> Result<InodeRef, Error> {
    let mut inode = fs.root()?;
    for name in path.split('/').filter(|name| !name.is_empty()) {
        inode = fs.lookup(&inode, name.as_bytes())?.ok_or(Error::NotFound)?;
    }
    Ok(inode)
}

/// What is there before.
fn prepare(fs: &FileSystem) -> Result<(), Error> {
    let root = fs.root()?;
    let directory = NewInode {
        mode: 0o755,
        ..NewInode::default()
    };
    for name in ["a", "b", "a/sub"] {
        let (parent, name) = name.rsplit_once('/').unwrap_or(("", name));
        fs.mkdir(&at(fs, parent)?, name.as_bytes(), &directory)?;
    }
    for name in ["one", "two", "three", "four"] {
        let inode = fs.create(&root, name.as_bytes(), &file())?;
        fs.write(&inode, 0, &[b'o'; 9000], Stamp::Set)?;
    }
    fs.sync()
}

type Call = (&'static str, fn(&FileSystem) -> Result<(), Error>);

fn rename(
    fs: &FileSystem,
    from: (&str, &str),
    to: (&str, &str),
    mode: RenameMode,
) -> Result<(), Error> {
    let (old, new) = (at(fs, from.0)?, at(fs, to.0)?);
    fs.rename(&old, from.1.as_bytes(), &new, to.1.as_bytes(), mode)
}

/// Every call that changes names and attributes; each is one operation, or changes nothing.
const CALLS: &[Call] = &[
    ("create", |fs| {
        fs.create(&at(fs, "a")?, b"new", &file()).map(drop)
    }),
    ("mkdir", |fs| {
        let new = NewInode {
            mode: 0o700,
            ..file()
        };
        fs.mkdir(&at(fs, "b")?, b"dir", &new).map(drop)
    }),
    ("symlink", |fs| {
        fs.symlink(&fs.root()?, b"short", b"to", &file()).map(drop)
    }),
    ("long symlink", |fs| {
        fs.symlink(&fs.root()?, b"long", &[b'l'; 3000], &file())
            .map(drop)
    }),
    ("fifo", |fs| {
        let new = NewInode {
            mode: 0o010_600,
            ..file()
        };
        fs.create(&fs.root()?, b"fifo", &new).map(drop)
    }),
    ("link", |fs| {
        fs.link(&at(fs, "one")?, &at(fs, "b")?, b"again")
    }),
    ("rename", |fs| {
        rename(fs, ("", "two"), ("", "deux"), RenameMode::Replace)
    }),
    ("rename elsewhere", |fs| {
        rename(fs, ("", "deux"), ("b/dir", "two"), RenameMode::Replace)
    }),
    ("rename over", |fs| {
        rename(fs, ("", "three"), ("a", "new"), RenameMode::Replace)
    }),
    ("rename directory", |fs| {
        rename(fs, ("a", "sub"), ("b", "sub"), RenameMode::NoReplace)
    }),
    ("rename leaving a whiteout", |fs| {
        let (root, b) = (fs.root()?, at(fs, "b")?);
        let whiteout = NewInode {
            mode: 0o020_000,
            ..NewInode::default()
        };
        let (from, to) = ((&root, &b"short"[..]), (&b, &b"moved"[..]));
        fs.rename_leaving(from, to, RenameMode::NoReplace, &whiteout)
            .map(drop)
    }),
    ("exchange", |fs| {
        rename(fs, ("", "a"), ("", "four"), RenameMode::Exchange)
    }),
    ("chmod", |fs| {
        let set = SetAttributes {
            mode: Some(0o4711),
            uid: Some(7),
            ..SetAttributes::default()
        };
        fs.set_attributes(&at(fs, "one")?, &set).map(drop)
    }),
    ("truncate", |fs| {
        let set = SetAttributes {
            size: Some(5000),
            ..SetAttributes::default()
        };
        fs.set_attributes(&at(fs, "one")?, &set).map(drop)
    }),
    ("xattr", |fs| {
        fs.set_xattr(&at(fs, "one")?, b"user.a", &[1; 100], XattrMode::Create)
    }),
    ("large xattr", |fs| {
        fs.set_xattr(&at(fs, "one")?, b"user.b", &[2; 40_000], XattrMode::Any)
    }),
    ("remove xattr", |fs| {
        fs.remove_xattr(&at(fs, "one")?, b"user.a")
    }),
    ("allocate", |fs| {
        fs.allocate(&at(fs, "b/again")?, AllocateMode::KeepSize, 8192, 20_000)
    }),
    ("name a temporary", |fs| {
        let inode = fs.temporary(&fs.root()?, &file())?;
        fs.link(&inode, &fs.root()?, b"named")
    }),
    ("unlink", |fs| fs.unlink(&fs.root()?, b"one")),
    ("unlink the last", |fs| fs.unlink(&at(fs, "b")?, b"again")),
    ("rmdir", |fs| fs.rmdir(&at(fs, "b")?, b"sub")),
];

fn prepared(blocks: u64) -> Image {
    let device = Arc::new(RamDevice::new("prepared", blocks));
    let format = FormatOptions {
        journals: Some(2),
        ..FormatOptions::default()
    };
    FileSystem::format(share(Arc::clone(&device)), &format).expect("room");
    let fs = mounted(share(Arc::clone(&device)), USUAL).expect("a good device");
    prepare(&fs).expect("a good device");
    fs.close().expect("a good device");
    device.snapshot()
}

/// The trees before the first call and after each.
fn expected(image: &Image) -> Vec<Tree> {
    let fs = mounted(share(RamDevice::from_image("good", image)), USUAL).expect("a good device");
    let mut trees = vec![tree(&fs).expect("a good device")];
    for (name, call) in CALLS {
        call(&fs).unwrap_or_else(|error| panic!("{name}: {error}"));
        trees.push(tree(&fs).expect("a good device"));
    }
    trees
}

/// Issues that no crash explains.
fn unexplained(device: &Arc<RamDevice>) -> Vec<String> {
    let report = check(share(Arc::clone(device)), &CheckOptions::default()).expect("a superblock");
    let explained = |kind: &IssueKind| {
        matches!(
            kind,
            IssueKind::NotClean { .. } | IssueKind::PairSlotBad { .. }
        )
    };
    let issues = report.issues().iter().filter(|i| !explained(&i.kind));
    issues.map(ToString::to_string).collect()
}

/// The calls, each made durable, until one fails: how many were begun, and how many are durable.
fn run(fs: &FileSystem) -> (usize, usize, Option<Error>) {
    let mut done = 0;
    for (_, call) in CALLS {
        if let Err(error) = call(fs).and_then(|()| fs.sync()) {
            return (done + 1, done, Some(error));
        }
        done += 1;
    }
    // What is in the log goes to its place.
    let failed = fs.checkpoint_now().err();
    (done, done, failed)
}

/// Runs the workload with the n-th request failing, for every n. Gives how many runs met the
/// failure.
fn every_request(op: Op, when: fn(u64) -> When, policies: &str) -> u64 {
    let image = prepared(2048);
    let trees = expected(&image);
    for n in 1.. {
        let why = format!("{policies} {op:?} {:?}", when(n));
        let ram = Arc::new(RamDevice::from_image("faulty", &image));
        let faulty = Arc::new(FaultDevice::new(share(Arc::clone(&ram))));
        let Ok(fs) = mounted(share(Arc::clone(&faulty)), policies) else {
            panic!("the mount meets no fault");
        };
        faulty.add(Rule::new(when(n), Fault::Error(OsError::EIO)).on(op));
        let (begun, durable, failed) = run(&fs);
        let Some(error) = failed else {
            // A failed write of data goes elsewhere; then all is as without it.
            let met = faulty.seen().hits > 0;
            faulty.clear();
            assert_eq!(tree(&fs).expect("readable"), trees[CALLS.len()], "{why}");
            fs.close().unwrap_or_else(|error| panic!("{why}: {error}"));
            assert_eq!(unexplained(&ram), Vec::<String>::new(), "{why}");
            if !met {
                return n;
            }
            continue;
        };
        if op != Op::Read {
            // Only data that finds no block that can be written leaves the volume as it is.
            let data = matches!(error, Error::Block(_)) && when(n) == When::From(n);
            assert!(
                data || fs.stopped().is_some(),
                "{why}: {error} and it goes on"
            );
            if fs.stopped().is_some() {
                let refused = fs.create(&fs.root().expect("readable"), b"more", &file());
                let refused = refused.err().map(|error| error.errno());
                assert_eq!(refused, Some(libc::EROFS), "{why}");
            }
            let seen = tree(&fs).unwrap_or_else(|error| panic!("{why}: unreadable: {error}"));
            assert!(trees[durable..=begun].contains(&seen), "{why}: {seen:?}");
        }
        drop(fs);
        assert_eq!(unexplained(&ram), Vec::<String>::new(), "{why}");
        let fs =
            mounted(share(Arc::clone(&ram)), policies).unwrap_or_else(|e| panic!("{why}: {e}"));
        let found = tree(&fs).expect("a good device");
        assert!(
            trees[durable..=begun].contains(&found),
            "{why}: after call {begun} of {durable} durable: {found:?}"
        );
        fs.close().expect("a good device");
        assert_eq!(
            unexplained(&ram),
            Vec::<String>::new(),
            "{why}, mounted again"
        );
    }
    unreachable!("the workload has an end")
}

#[test]
fn a_write_that_fails_once_at_every_place() {
    let runs = every_request(Op::Write, When::Nth, USUAL);
    assert!(runs > 25, "{runs} runs");
}

#[test]
fn writes_that_fail_from_every_place_on() {
    let runs = every_request(Op::Write, When::From, USUAL);
    assert!(runs > 25, "{runs} runs");
}

#[test]
fn a_flush_that_fails_once_at_every_place() {
    let runs = every_request(Op::Flush, When::Nth, USUAL);
    assert!(runs > 15, "{runs} runs");
}

#[test]
fn writes_and_flushes_that_fail_with_other_policies() {
    for policies in POLICIES {
        let writes = every_request(Op::Write, When::Nth, policies);
        let flushes = every_request(Op::Flush, When::Nth, policies);
        assert!(writes > 25, "{policies}: {writes} runs");
        assert!(flushes > 15, "{policies}: {flushes} runs");
    }
}

#[test]
fn a_read_that_fails_at_every_place_changes_nothing_durable() {
    every_request(Op::Read, When::Nth, USUAL);
}

#[test]
fn a_disk_that_is_full_at_every_step() {
    let image = prepared(2048);
    let mut refused = 0;
    // Every third, and in CI each.
    for left in (0..48).step_by(amount::either(3, 1)) {
        let ram = Arc::new(RamDevice::from_image("full", &image));
        let fs = mounted(share(Arc::clone(&ram)), USUAL).expect("a good device");
        let ballast = fs.create(&fs.root().expect("a root"), b"ballast", &file());
        let ballast = ballast.expect("room");
        fs.sync().expect("room");
        let mut end = 0;
        for bytes in [64 * 4096, 4096] {
            while fs
                .allocate(&ballast, AllocateMode::Extend, end, bytes)
                .is_ok()
            {
                end += bytes;
            }
        }
        if left > 0 {
            let freed = fs.allocate(&ballast, AllocateMode::Punch, 0, left * 4096);
            freed.expect("what is freed needs no room");
        }
        fs.sync().expect("nothing waits that needs room");
        for (name, call) in CALLS {
            let before = tree(&fs).expect("readable");
            match call(&fs) {
                Ok(()) | Err(Error::NotFound | Error::NoAttribute) => {}
                Err(Error::Exists | Error::NotDirectory) => {}
                Err(Error::NoSpace { .. }) => {
                    refused += 1;
                    let after = tree(&fs).expect("readable");
                    assert_eq!(after, before, "{name}, {left} blocks left");
                }
                Err(error) => panic!("{name}, {left} blocks left: {error}"),
            }
        }
        drop(ballast);
        assert_eq!(fs.stopped(), None, "{left} blocks left");
        let seen = tree(&fs).expect("readable");
        fs.close().expect("a good device");
        assert_eq!(
            unexplained(&ram),
            Vec::<String>::new(),
            "{left} blocks left"
        );
        let fs = mounted(share(Arc::clone(&ram)), USUAL).expect("a good device");
        assert_eq!(tree(&fs).expect("readable"), seen, "{left} blocks left");
    }
    assert!(refused > 20, "{refused} calls refused");
}

/// The last block has a copy of the superblock for this.
#[test]
fn a_volume_whose_first_block_cannot_be_read_is_mounted() {
    let ram = Arc::new(RamDevice::from_image("faulty", &prepared(2048)));
    let whole = mounted(share(Arc::clone(&ram)), USUAL).expect("a sound volume");
    let before = tree(&whole).expect("readable");
    whole.close().expect("a good device");
    let faulty = Arc::new(FaultDevice::new(share(ram)));
    let first = Lba::new(0)..Lba::new(1);
    let unreadable = Rule::new(When::From(1), Fault::Error(OsError::EIO));
    faulty.add(unreadable.on(Op::Read).within(first));
    let fs = mounted(share(Arc::clone(&faulty)), USUAL).expect("it has two superblocks");
    assert_eq!(tree(&fs).expect("readable"), before);
    assert!(faulty.seen().hits > 0, "the first block was not asked for");
    fs.close().expect("writes go on");
    // Where nothing can be read it is the device's error that is said, not that this is no volume.
    faulty.clear();
    faulty.add(Rule::new(When::From(1), Fault::Error(OsError::EIO)).on(Op::Read));
    let refused = mounted(share(faulty), USUAL).map(drop);
    assert!(matches!(refused, Err(Error::Block(_))), "{refused:?}");
}
