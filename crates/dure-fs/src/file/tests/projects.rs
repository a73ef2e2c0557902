//! Projects: all below a directory counts, whatever is made, moved or linked, and after a crash.

use std::ops::ControlFlow;

use dure_block::crash::{CrashImages, Selection};
use dure_block::record::RecordDevice;
use dure_block::{BlockBuf, Device, share};
use dure_check::{CheckOptions, Repair, check};
use dure_store::format::feature::PROJECTS;
use dure_store::format::quota;
use dure_store::media::Region;
use dure_store::read_layout;
use dure_store::units::BlockNo;
use dure_sync::{Arc, thread};

use super::quotas::{
    close_with, counted, crashed, found, hard, is_refused, issues, new, of, project, set_project,
    told, user, write,
};
use super::{World, fsck};
use crate::inode::InodeRef;
use crate::volume::FileSystem;
use crate::{FileKind, NewInode, RenameMode, Subject, Usage};

fn make(fs: &FileSystem, directory: &InodeRef, name: &str) -> InodeRef {
    let (name, new) = (
        name.as_bytes(),
        NewInode {
            mode: 0o755,
            ..new(7, 7)
        },
    );
    fs.mkdir(directory, name, &new).unwrap()
}

fn create(fs: &FileSystem, directory: &InodeRef, name: &str) -> crate::Result<InodeRef> {
    fs.create(directory, name.as_bytes(), &new(7, 7))
}

fn flag(world: &World) -> bool {
    let layout = read_layout(&Region::open(world.device())).unwrap();
    layout.superblock.has_projects()
}

/// Takes the feature away from both superblocks.
fn forget_flag(world: &World) {
    let region = Region::open(world.device());
    let mut superblock = read_layout(&region).unwrap().superblock;
    superblock.incompat = (superblock.incompat.get() & !PROJECTS.flag).into();
    for at in [0, superblock.total_blocks.get() - 1] {
        let block = BlockBuf::from_slice(&superblock.seal(at));
        region.write(BlockNo(at), block.as_slice()).unwrap();
    }
}

/// A tree: so many directories below each other, with files and a link.
fn tree(fs: &FileSystem, name: &str, depth: usize) -> InodeRef {
    let top = make(fs, &fs.root().unwrap(), name);
    let mut directory = top.clone();
    for _ in 0..depth {
        for n in 0..3 {
            let file = create(fs, &directory, &format!("file {n}")).unwrap();
            write(fs, &file, n, 2).unwrap();
        }
        fs.symlink(&directory, b"link", b"file 0", &new(7, 7))
            .unwrap();
        directory = make(fs, &directory, "below");
    }
    top
}

#[test]
fn all_below_a_directory_counts_for_its_project() {
    let world = World::new(8192, 4 << 20);
    let fs = counted(&world);
    assert!(!flag(&world), "an older dure may use the volume");
    let top = tree(&fs, "top", 5);
    set_project(&fs, &top, 5).unwrap();
    assert!(flag(&world));
    let usage = of(&fs, project(5));
    assert_eq!(
        usage,
        Usage {
            blocks: 30,
            inodes: 26
        },
        "pages that wait, too"
    );
    fs.set_quota(project(5), &hard(40, 28)).unwrap();
    let file = create(&fs, &top, "new").unwrap();
    assert_eq!(fs.project(&file), 5);
    write(&fs, &file, 0, 10).unwrap();
    let before = told(&fs);
    assert!(is_refused(&write(&fs, &file, 10, 1)));
    let _held = fs.temporary(&top, &new(7, 7)).unwrap();
    for name in ["a", "b"] {
        assert!(is_refused(&create(&fs, &top, name)));
        assert!(fs.lookup(&top, name.as_bytes()).unwrap().is_none());
    }
    drop(_held);
    assert_eq!(told(&fs), before, "what is refused counts nothing");
    // A mount has the same, after an unmount and after a crash.
    fs.sync().unwrap();
    assert_eq!(
        (told(&crashed(&world)), found(&fs)),
        (before.clone(), before.clone())
    );
    drop((top, file));
    fs.close().unwrap();
    drop(fs);
    fsck(world.device(), "projects");
    let fs = world.mount();
    assert_eq!(told(&fs), before);
    let top = fs.lookup(&fs.root().unwrap(), b"top").unwrap().unwrap();
    set_project(&fs, &top, 0).unwrap();
    assert_eq!(of(&fs, project(5)), Usage::default());
    assert_eq!(told(&fs), found(&fs));
}

#[test]
fn no_name_goes_into_another_project() {
    let world = World::new(8192, 4 << 20);
    let fs = counted(&world);
    let root = fs.root().unwrap();
    let [a, b, none] = ["a", "b", "none"].map(|name| tree(&fs, name, 2));
    set_project(&fs, &a, 1).unwrap();
    set_project(&fs, &b, 2).unwrap();
    let before = told(&fs);
    let name: &[u8] = b"file 0";
    let rename = |from: &InodeRef, to: &InodeRef, mode| {
        let moved = fs.rename(from, name, to, b"file 1", mode);
        moved.map_err(|error| error.errno())
    };
    for (from, to) in [(&a, &b), (&a, &none), (&none, &a), (&a, &root)] {
        assert_eq!(rename(from, to, RenameMode::Replace), Err(libc::EXDEV));
        let file = fs.lookup(from, name).unwrap().unwrap();
        assert_eq!(
            fs.link(&file, to, b"link 2").unwrap_err().errno(),
            libc::EXDEV
        );
        let unnamed = fs.temporary(from, &new(7, 7)).unwrap();
        assert_eq!(
            fs.link(&unnamed, to, b"link 2").unwrap_err().errno(),
            libc::EXDEV
        );
    }
    assert_eq!(rename(&none, &a, RenameMode::Exchange), Err(libc::EXDEV));
    assert_eq!(rename(&a, &none, RenameMode::Exchange), Err(libc::EXDEV));
    let directory = fs.rename(&a, b"below", &b, b"new", RenameMode::NoReplace);
    assert_eq!(directory.unwrap_err().errno(), libc::EXDEV);
    fs.sync().unwrap();
    assert_eq!((told(&fs), found(&fs)), (before.clone(), before));
    // Within a project, and of a project as a whole where none is.
    let below = fs.lookup(&a, b"below").unwrap().unwrap();
    rename(&a, &below, RenameMode::Replace).unwrap();
    fs.rename(&root, b"a", &none, b"a", RenameMode::NoReplace)
        .unwrap();
    // A file that had two names when one directory became a project.
    let file = fs.lookup(&none, name).unwrap().unwrap();
    fs.link(&file, &root, b"second").unwrap();
    set_project(&fs, &none, 3).unwrap();
    assert_eq!(fs.project(&file), 3);
    fs.rename(&root, b"second", &root, b"third", RenameMode::Replace)
        .unwrap();
    fs.sync().unwrap();
    assert_eq!(told(&fs), found(&fs));
    drop((a, b, none, below, file, root));
    fs.close().unwrap();
    drop(fs);
    fsck(world.device(), "projects");
}

#[test]
fn the_room_of_a_directory_is_what_its_project_leaves() {
    let world = World::new(8192, 4 << 20);
    let fs = counted(&world);
    let top = tree(&fs, "top", 2);
    set_project(&fs, &top, 5).unwrap();
    let all = fs.statistics();
    assert_eq!(fs.statistics_of(&top).blocks, all.blocks, "no limit");
    fs.set_quota(project(5), &hard(100, 50)).unwrap();
    let room = fs.statistics_of(&top);
    assert_eq!(
        (room.blocks, room.blocks_free, room.blocks_available),
        (100, 88, 88)
    );
    assert_eq!((room.inodes, room.inodes_free), (50, 50 - 11));
    let root = fs.root().unwrap();
    assert_eq!(fs.statistics_of(&root).blocks, all.blocks);
    fs.set_quota(project(5), &hard(5, 1 << 40)).unwrap();
    let room = fs.statistics_of(&top);
    assert_eq!((room.blocks, room.blocks_available), (5, 0));
    assert_eq!(room.inodes, fs.statistics().inodes, "more than there are");
}

/// The power fails while a directory is made a project: each inode counts for what it says, and the
/// second call does the rest. The superblock says that there are projects before the first one.
#[test]
fn a_project_that_a_crash_cuts_short_is_completed() {
    let world = World::new(4096, 2 << 20);
    let fs = counted(&world);
    drop(tree(&fs, "top", 6));
    fs.close().unwrap();
    drop(fs);
    let base = world.ram.snapshot();
    let record = Arc::new(RecordDevice::new(world.device()));
    let log = record.log();
    let fs = FileSystem::open(share(record.clone()), world.options.clone()).unwrap();
    let root = fs.root().unwrap();
    let top = fs.lookup(&root, b"top").unwrap().unwrap();
    let commits = &mut |count: u64| {
        if count.is_multiple_of(5) {
            fs.sync().unwrap();
        }
        ControlFlow::Continue(())
    };
    let count = fs.set_project(&top, 5, commits).unwrap();
    assert_eq!(count, 31);
    let end = log.step();
    drop((root, top));
    drop(fs);
    let images = CrashImages::new(base, &log);
    let mut partly = 0;
    for step in images.frontiers() {
        let point = images.at(step);
        let selection = Selection {
            exhaustive_max: 1,
            random: 2,
            ..Selection::default()
        };
        for choice in point.choices(selection) {
            let device: Arc<dyn Device> = share(Arc::new(point.image(&choice)));
            let what = format!("crash after step {step}, choice {choice}");
            let fs = FileSystem::open(device.clone(), world.options.clone()).expect(&what);
            assert_eq!(told(&fs), found(&fs), "{what}");
            let have = of(&fs, project(5)).inodes;
            assert!(step < end || have == count, "{what}: {have}");
            partly += u32::from(have > 0 && have < count);
            let top = fs.lookup(&fs.root().unwrap(), b"top").unwrap().unwrap();
            assert_eq!(set_project(&fs, &top, 5).ok(), Some(()), "{what}");
            assert_eq!(of(&fs, project(5)).inodes, count, "{what}");
            assert_eq!(told(&fs), found(&fs), "{what}");
            drop(top);
            fs.close().expect(&what);
            drop(fs);
            fsck(device, &what);
        }
    }
    assert!(partly > 10, "{partly} states");
}

/// What is below has the project, each inode of it.
fn expect_all(fs: &FileSystem, top: InodeRef, project: u32) {
    let mut left = vec![top];
    while let Some(inode) = left.pop() {
        assert_eq!(fs.project(&inode), project);
        let mut names = Vec::new();
        if inode.kind() == FileKind::Directory {
            fs.read_directory(&inode, 0, &mut |entry| {
                names.push(entry.name.to_vec());
                ControlFlow::Continue(())
            })
            .unwrap();
        }
        let below = names.iter().map(|name| fs.lookup(&inode, name).unwrap());
        left.extend(below.flatten());
    }
}

/// A tree whose directories have a directory `side` each, with a file.
fn tree_with_sides(fs: &FileSystem, name: &str) -> Vec<InodeRef> {
    let mut all = vec![tree(fs, name, 6)];
    while let Some(below) = fs.lookup(all.last().unwrap(), b"below").unwrap() {
        let side = make(fs, all.last().unwrap(), "side");
        create(fs, &make(fs, &side, "deeper"), "file").unwrap();
        all.push(below);
    }
    all
}

/// Moves names between the directories, and within them; those moved, and those that were refused.
fn move_names(fs: &FileSystem, all: &[InodeRef], salt: u64) -> (u32, u32) {
    let (mut moved, mut refused) = (0, 0);
    let above = [&all[0]].into_iter().chain(all);
    for (from, to) in all.iter().zip(above) {
        let names = [
            ("file 1", to),
            ("file 2", from),
            ("link", &all[0]),
            ("side", to),
            ("side", from),
        ];
        for (name, to) in names {
            let new = format!("{name} {salt}");
            let mode = RenameMode::NoReplace;
            match fs.rename(from, name.as_bytes(), to, new.as_bytes(), mode) {
                Ok(()) => moved += 1,
                Err(error) => refused += u32::from(error.errno() == libc::EXDEV),
            }
        }
    }
    (moved, refused)
}

/// Names move while their directories become a project, are that in a second call, and are none any
/// more: into directories that the walk has read, and within them. None is missed.
#[test]
fn names_that_move_while_a_directory_becomes_a_project_are_not_missed() {
    let world = World::new(16384, 8 << 20);
    let fs = counted(&world);
    for at in 0..40 {
        let name = format!("top {at}");
        let all = tree_with_sides(&fs, &name);
        let (mut moved, mut refused) = (0, 0);
        for (project, end) in [(5, u64::MAX), (6, at / 2), (6, u64::MAX), (0, u64::MAX)] {
            let mut steps = 0;
            let moves = &mut |_| {
                steps += 1;
                if steps > end {
                    return ControlFlow::Break(());
                }
                if steps == 1 + at / 2 && end == u64::MAX {
                    let done = move_names(&fs, &all, u64::from(project) + end / 2);
                    (moved, refused) = (moved + done.0, refused + done.1);
                }
                ControlFlow::Continue(())
            };
            fs.set_project(&all[0], project, moves).unwrap();
            if end == u64::MAX {
                expect_all(&fs, all[0].clone(), project);
            }
            // Back to the names that are moved.
            for directory in &all {
                for name in ["file 1", "file 2", "link", "side"] {
                    let other = format!("{name} {}", u64::from(project) + end / 2);
                    let mode = RenameMode::NoReplace;
                    drop(fs.rename(
                        directory,
                        other.as_bytes(),
                        directory,
                        name.as_bytes(),
                        mode,
                    ));
                }
            }
        }
        assert!(moved > 10, "{moved} moved, {refused} refused");
        fs.sync().unwrap();
        assert_eq!(told(&fs), found(&fs));
    }
    fs.close().unwrap();
    drop(fs);
    fsck(world.device(), "projects");
}

/// What is moved out while its directory becomes a project is none of it, nor what is in it; and a
/// directory that is removed ends nothing.
#[test]
fn a_directory_that_leaves_meanwhile_is_left_alone() {
    let world = World::new(16384, 8 << 20);
    let fs = counted(&world);
    let root = fs.root().unwrap();
    for at in 1..30 {
        let all = tree_with_sides(&fs, &format!("top {at}"));
        let away = format!("away {at}");
        let mut steps = 0;
        let moves = &mut |_| {
            steps += 1;
            if steps == at {
                let mode = RenameMode::NoReplace;
                drop(fs.rename(&all[2], b"below", &root, away.as_bytes(), mode));
                fs.unlink(
                    &fs.lookup(&fs.lookup(&all[1], b"side").unwrap().unwrap(), b"deeper")
                        .unwrap()
                        .unwrap(),
                    b"file",
                )
                .unwrap();
                fs.rmdir(&fs.lookup(&all[1], b"side").unwrap().unwrap(), b"deeper")
                    .unwrap();
                fs.rmdir(&all[1], b"side").unwrap();
            }
            ControlFlow::Continue(())
        };
        fs.set_project(&all[0], 5, moves).unwrap();
        expect_all(&fs, all[0].clone(), 5);
        if let Some(away) = fs.lookup(&root, away.as_bytes()).unwrap() {
            expect_all(&fs, away, 0);
        }
        assert_eq!(told(&fs), found(&fs));
    }
}

/// Tasks make and move files while their directories become a project: all is counted.
#[test]
fn a_directory_becomes_a_project_while_it_changes() {
    let world = World::new(16384, 8 << 20);
    let fs = counted(&world);
    fs.set_quota(user(7), &hard(4000, 0)).unwrap();
    for round in 1..4 {
        let top = tree(&fs, &format!("top {round}"), 20);
        let below = fs.lookup(&top, b"below").unwrap().unwrap();
        thread::scope(|scope| {
            scope.spawn_on(dure_sync::CoreId::new(1), || {
                for n in 0..200 {
                    let pair = [&top, &below];
                    let (from, to) = (pair[n % 2], pair[1 - n % 2]);
                    let name = format!("new {n}");
                    let file = create(&fs, from, &name).unwrap();
                    write(&fs, &file, 0, 1).unwrap();
                    let name = name.as_bytes();
                    let _ = fs.rename(from, name, to, b"moved", RenameMode::Replace);
                    let _ = fs.rename(from, b"file 1", to, name, RenameMode::Replace);
                }
            });
            set_project(&fs, &top, round).unwrap();
        });
        drop(below);
        expect_all(&fs, top, round);
        fs.sync().unwrap();
        assert_eq!(told(&fs), found(&fs));
    }
    fs.close().unwrap();
    drop(fs);
    fsck(world.device(), "projects");
}

/// Bytes where a project would be, on a volume without: refused by name, found and mended.
#[test]
fn a_project_on_a_volume_without_projects_is_damage() {
    let world = World::new(4096, 2 << 20);
    let fs = world.mount();
    let top = tree(&fs, "top", 1);
    set_project(&fs, &top, u32::MAX).unwrap();
    drop(top);
    fs.close().unwrap();
    drop(fs);
    fsck(world.device(), "any number is a project");
    forget_flag(&world);
    let fs = world.mount();
    let refused = fs.lookup(&fs.root().unwrap(), b"top").unwrap_err();
    assert!(
        refused.to_string().contains("project of inode"),
        "{refused}"
    );
    fs.close().unwrap();
    drop(fs);
    let options = CheckOptions {
        repair: Repair::Full,
        ..CheckOptions::default()
    };
    let report = check(world.device(), &options).unwrap();
    let names: Vec<_> = report
        .issues()
        .iter()
        .map(|issue| issue.kind.name())
        .collect();
    assert_eq!(names, ["InodeProject"; 6]);
    fsck(world.device(), "mended");
    let fs = world.mount();
    let top = fs.lookup(&fs.root().unwrap(), b"top").unwrap().unwrap();
    expect_all(&fs, top, 0);
}

/// Usage of a project that lies is found.
#[test]
fn usage_of_a_project_is_compared() {
    let world = World::new(4096, 2 << 20);
    let fs = counted(&world);
    let top = tree(&fs, "top", 1);
    set_project(&fs, &top, 5).unwrap();
    fs.sync().unwrap();
    let mut lie: Vec<(Subject, Usage)> = told(&fs).into_iter().collect();
    let of_project = lie.iter_mut().find(|(subject, _)| *subject == project(5));
    of_project.unwrap().1.inodes += 1;
    let value = quota::encode_usage(fs.0.store.mounts(), &lie);
    close_with(&fs, quota::USAGE, &value);
    drop((top, fs));
    assert_eq!(issues(&world), ["QuotaUsage"]);
}
