//! Quotas: what is counted is what inodes have, at every quiet moment, after an unmount and after a
//! crash; and no user has more than the limit.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use dure_block::crash::{CrashImages, Selection};
use dure_block::ram::RamDevice;
use dure_block::record::RecordDevice;
use dure_block::{Device, share};
use dure_check::{CheckOptions, Repair, check};
use dure_store::format::quota;
use dure_sync::random::Seeded;
use dure_sync::{Arc, CoreId, thread};

use super::{World, fsck, shared};
use crate::inode::InodeRef;
use crate::volume::{FileSystem, RangeRule, quotas};
use crate::{
    AllocateMode, Bounds, Error, FileKind, Limits, NewInode, QuotaKind, RenameMode, Result,
    SetAttributes, SetGid, Stamp, Subject, SyncScope, Usage, XattrMode,
};

const PAGE: u64 = 4096;
/// Pages of a file of the random scripts: some are behind the direct slots.
const PAGES: u64 = 60;

pub(super) fn user(id: u32) -> Subject {
    let kind = QuotaKind::User;
    Subject { kind, id }
}

pub(super) fn project(id: u32) -> Subject {
    let kind = QuotaKind::Project;
    Subject { kind, id }
}

pub(super) fn hard(blocks: u64, inodes: u64) -> Limits {
    let bounds = |hard| Bounds {
        soft: 0,
        hard,
        since: 0,
    };
    Limits {
        blocks: bounds(blocks),
        inodes: bounds(inodes),
        grace: 60,
    }
}

/// A volume with quotas.
pub(super) fn counted(world: &World) -> FileSystem {
    let fs = world.mount();
    assert!(fs.quotas().is_none(), "quotas are off");
    fs.switch_quotas_on().unwrap();
    fs.close().unwrap();
    world.mount()
}

pub(super) fn new(uid: u32, gid: u32) -> NewInode {
    NewInode {
        mode: 0o100_644,
        uid,
        gid,
        ..NewInode::default()
    }
}

fn create(fs: &FileSystem, name: &str, uid: u32, gid: u32) -> Result<InodeRef> {
    fs.create(&fs.root().unwrap(), name.as_bytes(), &new(uid, gid))
}

/// What is counted, as the volume says.
pub(super) fn told(fs: &FileSystem) -> BTreeMap<Subject, Usage> {
    let all = fs.quotas().expect("quotas are on").into_iter();
    let used = all.filter(|one| one.usage != Usage::default());
    used.map(|one| (one.subject, one.usage)).collect()
}

/// What the root directory and all below it have.
pub(super) fn found(fs: &FileSystem) -> BTreeMap<Subject, Usage> {
    let mut left = vec![fs.root().unwrap()];
    let mut inodes = BTreeMap::new();
    while let Some(inode) = left.pop() {
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
        inodes.insert(inode.ino(), inode);
    }
    let mut used: BTreeMap<Subject, Usage> = BTreeMap::new();
    for inode in inodes.values() {
        let shown = fs.attributes(inode).unwrap();
        let owners = [
            (QuotaKind::User, shown.uid),
            (QuotaKind::Group, shown.gid),
            (QuotaKind::Project, fs.project(inode)),
        ];
        let owners = owners.into_iter().map(|(kind, id)| Subject { kind, id });
        let is_none = |one: &Subject| one.kind == QuotaKind::Project && one.id == 0;
        for subject in owners.filter(|one| !is_none(one)) {
            let usage = used.entry(subject).or_default();
            usage.blocks += shown.blocks / 8;
            usage.inodes += 1;
        }
    }
    used
}

pub(super) fn of(fs: &FileSystem, subject: Subject) -> Usage {
    told(fs).get(&subject).copied().unwrap_or_default()
}

pub(super) fn write(fs: &FileSystem, inode: &InodeRef, page: u64, pages: u64) -> Result<usize> {
    let bytes = vec![7; usize::try_from(pages * PAGE).unwrap()];
    fs.write_whole(inode, page * PAGE, &bytes, Stamp::Set)
}

/// The volume as a crash leaves it, mounted.
pub(super) fn crashed(world: &World) -> FileSystem {
    let image = world.ram.snapshot();
    let ram = Arc::new(RamDevice::from_image("crashed", &image));
    FileSystem::open(share(ram), world.options.clone()).unwrap()
}

pub(super) fn is_refused<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::Quota { .. }))
}

#[test]
fn a_user_has_as_many_blocks_as_the_limit_allows() {
    let world = World::new(4096, 4 << 20);
    let fs = counted(&world);
    fs.set_quota(user(7), &hard(100, 3)).unwrap();
    let file = create(&fs, "a", 7, 7).unwrap();
    for page in 0..100 {
        write(&fs, &file, 2 * page, 1).unwrap();
        if page % 7 == 0 {
            fs.fsync(&file, SyncScope::All).unwrap();
        }
    }
    assert_eq!(of(&fs, user(7)).blocks, 100);
    let size = fs.size(&file).unwrap();
    let refused = write(&fs, &file, 300, 1).unwrap_err();
    assert_eq!(refused.errno(), libc::EDQUOT);
    assert_eq!(
        refused.to_string(),
        "the quota of user 7 is used up (blocks)"
    );
    assert!(is_refused(&fs.append(&file, b"x")), "a page of its own");
    assert!(is_refused(&fs.allocate(
        &file,
        AllocateMode::KeepSize,
        0,
        2 * PAGE
    )));
    assert_eq!(
        (fs.size(&file).unwrap(), of(&fs, user(7)).blocks),
        (size, 100)
    );
    // Pages that have blocks are written again and again.
    let again = |page: u64| assert_eq!(write(&fs, &file, 2 * page, 1).unwrap(), 4096);
    (0..100).for_each(again);
    fs.sync().unwrap();
    (0..100).for_each(again);
    assert!(
        is_refused(&write(&fs, &file, 0, 2)),
        "half of it has a block"
    );
    fs.allocate(&file, AllocateMode::Punch, 0, PAGE).unwrap();
    write(&fs, &file, 1, 1).unwrap();
    assert!(is_refused(&write(&fs, &file, 3, 1)));
    // Others are not concerned.
    let other = create(&fs, "b", 8, 7).unwrap();
    write(&fs, &other, 0, 200).unwrap();
    create(&fs, "c", 7, 7).unwrap();
    create(&fs, "d", 7, 7).unwrap();
    assert!(is_refused(&create(&fs, "e", 7, 7)), "three inodes");
    let root = fs.root().unwrap();
    assert!(
        fs.lookup(&root, b"e").unwrap().is_none(),
        "nothing was changed"
    );
    fs.unlink(&root, b"c").unwrap();
    create(&fs, "e", 7, 7).unwrap();
    fs.sync().unwrap();
    assert_eq!(told(&fs), found(&fs));
    fs.close().unwrap();
    fsck(world.device(), "quotas");
}

#[test]
fn a_chown_takes_along_what_the_file_has() {
    let world = World::new(4096, 4 << 20);
    let fs = counted(&world);
    let group = Subject {
        kind: QuotaKind::Group,
        id: 50,
    };
    fs.set_quota(group, &hard(10, 0)).unwrap();
    fs.set_quota(user(9), &hard(10, 0)).unwrap();
    let file = create(&fs, "a", 7, 7).unwrap();
    write(&fs, &file, 0, 8).unwrap();
    fs.sync().unwrap();
    write(&fs, &file, 8, 8).unwrap();
    let give = |uid: Option<u32>, gid: Option<u32>| SetAttributes {
        uid,
        gid,
        ..SetAttributes::default()
    };
    let refused = fs.set_attributes(&file, &give(None, Some(50)));
    assert!(is_refused(&refused), "a member of a group is limited");
    assert_eq!(fs.attributes(&file).unwrap().gid, 7);
    fs.set_attributes(&file, &give(Some(9), None)).unwrap();
    assert_eq!(of(&fs, user(7)), Usage::default());
    assert_eq!(of(&fs, user(9)).blocks, 16, "root is not");
    assert!(is_refused(&write(&fs, &file, 16, 1)));
    fs.set_attributes(&file, &give(Some(7), None)).unwrap();
    write(&fs, &file, 16, 1).unwrap();
    fs.sync().unwrap();
    assert_eq!(told(&fs), found(&fs));
    fs.close().unwrap();
    fsck(world.device(), "quotas");
}

#[test]
fn limits_and_usage_are_there_after_an_unmount_and_after_a_crash() {
    let world = World::new(4096, 4 << 20);
    let fs = counted(&world);
    fs.set_quota(user(7), &hard(100, 0)).unwrap();
    let file = create(&fs, "a", 7, 7).unwrap();
    write(&fs, &file, 0, 60).unwrap();
    fs.sync().unwrap();
    let (now, before) = (told(&fs), fs.quotas());
    let after_crash = crashed(&world);
    assert_eq!(
        (told(&after_crash), after_crash.quotas()),
        (now.clone(), before)
    );
    let file = after_crash.root().unwrap();
    let file = after_crash.lookup(&file, b"a").unwrap().unwrap();
    assert!(is_refused(&write(&after_crash, &file, 60, 41)));
    write(&after_crash, &file, 60, 40).unwrap();
    drop(after_crash);
    fs.close().unwrap();
    drop(fs);
    fsck(world.device(), "quotas");
    let fs = world.mount();
    assert_eq!(told(&fs), now);
    let names = fs.list_xattr(&fs.root().unwrap()).unwrap();
    assert!(names.is_empty(), "no call shows what keeps them: {names:?}");
    fs.switch_quotas_off().unwrap();
    assert!(fs.quotas().is_none(), "nothing is listed");
    let off = fs.set_quota(user(7), &hard(1, 1)).unwrap_err();
    assert_eq!(off.errno(), libc::EINVAL);
    fs.switch_quotas_on().unwrap();
    assert_eq!(told(&fs), now, "all was counted meanwhile");
    fs.switch_quotas_off().unwrap();
    let file = fs.lookup(&fs.root().unwrap(), b"a").unwrap().unwrap();
    write(&fs, &file, 60, 200).unwrap();
    fs.close().unwrap();
    drop(fs);
    fsck(world.device(), "quotas");
    assert!(world.mount().quotas().is_none());
}

pub(super) fn set_project(fs: &FileSystem, directory: &InodeRef, project: u32) -> Result<()> {
    let goes_on = &mut |_| ControlFlow::Continue(());
    fs.set_project(directory, project, goes_on).map(drop)
}

/// A script of random calls of three users, two of which have limits.
fn random_script(fs: &FileSystem, rng: &mut Seeded, calls: u32) {
    let root = fs.root().unwrap();
    let below = |rng: &mut Seeded, n: u32| u32::try_from(rng.below(n.into())).unwrap();
    let name = |rng: &mut Seeded| format!("f{}", rng.below(7));
    for call in 0..calls {
        let (name, other) = (name(rng), name(rng));
        let inode = fs.lookup(&root, name.as_bytes()).unwrap();
        let (page, pages) = (rng.below(PAGES), 1 + rng.below(12));
        let done = match (rng.below(18), inode) {
            (16, _) => set_project(fs, &root, below(rng, 3)),
            (0..3, None) => create(fs, &name, 1 + below(rng, 3), 1 + below(rng, 2)).map(drop),
            (_, None) => {
                let made = fs.temporary(&root, &new(1 + below(rng, 3), 1));
                made.and_then(|file| write(fs, &file, page, pages).map(drop))
            }
            (0..6, Some(file)) => write(fs, &file, page, pages).map(drop),
            (6, Some(file)) => fs.append(&file, &[1; 5000]).map(drop),
            (7, Some(file)) => {
                let set = SetAttributes {
                    size: Some(rng.below(PAGES * PAGE)),
                    ..SetAttributes::default()
                };
                fs.set_attributes(&file, &set).map(drop)
            }
            (8, Some(file)) => {
                let mode = [
                    AllocateMode::Extend,
                    AllocateMode::KeepSize,
                    AllocateMode::Punch,
                    AllocateMode::Zero,
                ][usize::try_from(rng.below(4)).unwrap()];
                fs.allocate(&file, mode, page * PAGE + 100, pages * PAGE)
            }
            (9, Some(file)) => {
                let set = SetAttributes {
                    uid: (rng.below(2) == 0).then(|| 1 + below(rng, 3)),
                    gid: (rng.below(2) == 0).then(|| 1 + below(rng, 2)),
                    ..SetAttributes::default()
                };
                fs.set_attributes(&file, &set).map(drop)
            }
            (10, Some(_)) => fs.unlink(&root, name.as_bytes()),
            (11, Some(file)) => match fs.link(&file, &root, other.as_bytes()) {
                Err(Error::Exists) => Ok(()),
                linked => linked,
            },
            (12, Some(_)) => fs.rename(
                &root,
                name.as_bytes(),
                &root,
                other.as_bytes(),
                RenameMode::Replace,
            ),
            (13, Some(file)) => fs.fsync(&file, SyncScope::All).map(drop),
            (14, Some(_)) => fs.checkpoint_now(),
            (_, Some(file)) => {
                // Written after its last name is gone, and deleted at the end of this arm.
                fs.unlink(&root, name.as_bytes())
                    .and_then(|()| write(fs, &file, page, pages).map(drop))
            }
        };
        match done {
            Ok(()) | Err(Error::Quota { .. }) => {}
            Err(error) => panic!("call {call}: {error}"),
        }
        if rng.below(8) == 0 {
            fs.sync().unwrap();
            assert_eq!(told(fs), found(fs), "call {call}");
        }
    }
    fs.sync().unwrap();
    assert_eq!(told(fs), found(fs));
}

/// Counts at quiet moments, after each unmount and each crash, are what the inodes have.
fn random(world: &World, seed: u64) {
    let mut rng = Seeded::new(seed);
    let mut fs = counted(world);
    fs.set_quota(user(1), &hard(70, 4)).unwrap();
    fs.set_quota(user(2), &hard(200, 0)).unwrap();
    fs.set_quota(project(1), &hard(150, 7)).unwrap();
    for _ in 0..4 {
        random_script(&fs, &mut rng, 120);
        let before = told(&fs);
        if world.options.page_cache.is_none() {
            let after = crashed(world);
            assert_eq!((told(&after), found(&after)), (before.clone(), before));
        }
        fs.close().unwrap();
        drop(fs);
        fsck(world.device(), "quotas");
        fs = world.mount();
        assert_eq!(told(&fs), found(&fs), "seed {seed}");
    }
}

#[test]
fn random_calls_are_counted() {
    for seed in 0..6 {
        let mut world = World::new(8192, 4 << 20);
        world.options.log_data_pages = if seed % 2 == 0 { 4 } else { 0 };
        random(&world, seed);
    }
}

#[test]
fn random_calls_are_counted_of_contended_files() {
    for (seed, words) in (10..).zip(["range_lock=segment", "range_lock=tree"]) {
        let rule = RangeRule::AtOnce;
        random(&shared::with(World::new(8192, 4 << 20), words, rule), seed);
    }
}

#[test]
fn random_calls_are_counted_without_a_page_cache() {
    for seed in 20..23 {
        random(&World::in_nvm(8192), seed);
    }
}

/// Threads write files of one user: exactly the blocks of the limit are had, whoever comes first.
#[test]
fn threads_of_one_user_share_the_limit() {
    for words in ["range_lock=inode", "range_lock=segment"] {
        let world = shared::with(World::new(8192, 8 << 20), words, RangeRule::WhenContended);
        let fs = counted(&world);
        fs.set_quota(user(7), &hard(1000, 0)).unwrap();
        let common = create(&fs, "common", 7, 7).unwrap();
        let taken: u64 = thread::scope(|scope| {
            let tasks: Vec<_> = (0..4)
                .map(|n: u16| {
                    let (fs, common) = (&fs, common.clone());
                    scope.spawn_on(CoreId::new(n), move || {
                        let own = create(fs, &format!("own {n}"), 7, 7).unwrap();
                        let mut taken = 0_u64;
                        for page in 0..400_u64 {
                            let (file, page) = match page % 2 {
                                0 => (&own, page),
                                _ => (&common, page * 4 + u64::from(n)),
                            };
                            match write(fs, file, page, 1) {
                                Ok(_) => taken += 1,
                                Err(Error::Quota { .. }) => {}
                                Err(error) => panic!("{error}"),
                            }
                        }
                        taken
                    })
                })
                .collect();
            tasks.into_iter().map(|task| task.join().unwrap()).sum()
        });
        assert_eq!(taken, 1000, "{words}");
        fs.sync().unwrap();
        assert_eq!(told(&fs), found(&fs));
        fs.close().unwrap();
        drop((common, fs));
        fsck(world.device(), "quotas");
    }
}

pub(super) fn issues(world: &World) -> Vec<&'static str> {
    let report = check(world.device(), &CheckOptions::default()).unwrap();
    report
        .issues()
        .iter()
        .map(|issue| issue.kind.name())
        .collect()
}

/// Unmounts with this attribute in place of what dure would keep there.
pub(super) fn close_with(fs: &FileSystem, name: &[u8], value: &[u8]) {
    fs.sync().unwrap();
    let root = fs.root().unwrap();
    let how = (XattrMode::Any, SetGid::Keep);
    fs.0.xattrs.set(&root, name, value, how).unwrap();
    fs.0.store.close().unwrap();
}

#[test]
fn usage_that_lies_is_found_and_counted_anew() {
    let world = World::new(4096, 4 << 20);
    let fs = counted(&world);
    fs.set_quota(user(7), &hard(100, 0)).unwrap();
    let file = create(&fs, "a", 7, 7).unwrap();
    write(&fs, &file, 0, 10).unwrap();
    fs.sync().unwrap();
    let right = told(&fs);
    let lie = Usage {
        blocks: 1 << 50,
        inodes: 0,
    };
    let value = quota::encode_usage(fs.0.store.mounts(), &[(user(7), lie)]);
    close_with(&fs, quota::USAGE, &value);
    drop((file, fs));
    let all = issues(&world);
    assert_eq!(
        all, ["QuotaUsage"; 4],
        "of user 7, group 7, and root as both"
    );
    // A mount that believes it refuses what there is room for, and does not fail.
    let fs = world.mount();
    let file = fs.lookup(&fs.root().unwrap(), b"a").unwrap().unwrap();
    assert!(is_refused(&write(&fs, &file, 10, 1)));
    fs.unlink(&fs.root().unwrap(), b"a").unwrap();
    drop(file);
    let file = create(&fs, "a", 7, 7);
    let file = file.unwrap();
    fs.0.store.close().unwrap();
    drop((file, fs));
    // What was stored for a mount does not count for the one after it.
    let fs = world.mount();
    assert_eq!(told(&fs), found(&fs));
    let value = quota::encode_usage(fs.0.store.mounts(), &[(user(7), lie)]);
    close_with(&fs, quota::USAGE, &value);
    drop(fs);
    let options = CheckOptions {
        repair: Repair::Safe,
        ..CheckOptions::default()
    };
    check(world.device(), &options).unwrap();
    assert_eq!(issues(&world), [""; 0]);
    let fs = world.mount();
    assert_eq!(told(&fs), found(&fs));
    assert_ne!(told(&fs), right, "the file was written anew");
}

#[test]
fn limits_that_cannot_be_read_do_not_keep_a_volume_from_being_mounted() {
    let world = World::new(4096, 4 << 20);
    let fs = counted(&world);
    fs.set_quota(user(7), &hard(1, 1)).unwrap();
    close_with(&fs, quota::LIMITS, &[0xff; 100]);
    drop(fs);
    assert_eq!(issues(&world), ["QuotaLimits"]);
    let fs = world.mount();
    assert!(fs.unreadable_limits().unwrap().contains("version"));
    let file = create(&fs, "a", 7, 7).unwrap();
    write(&fs, &file, 0, 10).unwrap();
    drop(file);
    fs.close().unwrap();
    drop(fs);
    assert_eq!(
        issues(&world),
        ["QuotaLimits"],
        "an unmount keeps what it cannot read"
    );
    let fs = world.mount();
    fs.set_quota(user(8), &hard(1, 1)).unwrap();
    assert!(fs.unreadable_limits().is_none());
    fs.close().unwrap();
    drop(fs);
    assert_eq!(issues(&world), [""; 0]);
}

#[test]
fn usage_counts_for_the_mount_it_was_stored_for() {
    let world = World::new(4096, 4 << 20);
    let fs = counted(&world);
    let file = create(&fs, "a", 7, 7).unwrap();
    write(&fs, &file, 0, 10).unwrap();
    // As if a dure that does not know quotas had mounted the volume since.
    let lie = Usage {
        blocks: 5,
        inodes: 5,
    };
    let mounts = fs.0.store.mounts();
    close_with(
        &fs,
        quota::USAGE,
        &quota::encode_usage(mounts - 1, &[(user(7), lie)]),
    );
    drop((file, fs));
    assert_eq!(issues(&world), [""; 0]);
    let fs = world.mount();
    assert_eq!(told(&fs), found(&fs));
    // What changes while the volume is being unmounted.
    fs.sync().unwrap();
    let kept = quotas::keep(&fs.0).unwrap();
    assert!(kept.is_some());
    let file = fs.lookup(&fs.root().unwrap(), b"a").unwrap().unwrap();
    write(&fs, &file, 50, 1).unwrap();
    fs.sync().unwrap();
    let close = |kept| {
        fs.0.store
            .close_keeping(|| quotas::still_holds(&fs.0, kept))
    };
    close(kept).unwrap();
    drop((file, fs));
    assert_eq!(issues(&world), [""; 0]);
    let fs = world.mount();
    assert_eq!((told(&fs), of(&fs, user(7)).blocks), (found(&fs), 11));
}

/// The power fails anywhere: the mount counts what the inodes have, a limit is there from the return of
/// the call on that set it, and what the unmount stores is what the check finds.
#[test]
fn after_a_crash_anywhere_what_inodes_have_is_counted() {
    let world = World::new(2048, 1 << 20);
    let fs = counted(&world);
    fs.set_quota(user(1), &hard(70, 4)).unwrap();
    fs.close().unwrap();
    drop(fs);
    let base = world.ram.snapshot();
    let record = Arc::new(RecordDevice::new(world.device()));
    let log = record.log();
    let mut rng = Seeded::new(3);
    let fs = FileSystem::open(share(record.clone()), world.options.clone()).unwrap();
    random_script(&fs, &mut rng, 40);
    let begun = log.step();
    fs.set_quota(user(1), &hard(60, 3)).unwrap();
    let is_set = log.step();
    random_script(&fs, &mut rng, 40);
    fs.close().unwrap();
    let images = CrashImages::new(base, &log);
    let mut seen = 0;
    for step in images.frontiers().into_iter().step_by(3) {
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
            let limits = fs.quotas().unwrap().into_iter();
            let of_first = limits.filter(|one| one.subject == user(1));
            let limit = of_first.map(|one| one.limits.blocks.hard).next();
            assert!(step < is_set || limit == Some(60), "{what}: {limit:?}");
            assert!(step >= begun || limit == Some(70), "{what}: {limit:?}");
            fs.close().expect(&what);
            drop(fs);
            fsck(device, &what);
            seen += 1;
        }
    }
    assert!(seen > 50, "{seen} states");
}

#[test]
fn what_snapshots_keep_counts_for_nobody() {
    let world = World::new(8192, 4 << 20);
    let fs = counted(&world);
    fs.set_quota(user(7), &hard(100, 0)).unwrap();
    let file = create(&fs, "a", 7, 7).unwrap();
    write(&fs, &file, 0, 100).unwrap();
    drop(file);
    fs.create_snapshot("then").unwrap();
    let root = fs.root().unwrap();
    fs.unlink(&root, b"a").unwrap();
    assert_eq!(of(&fs, user(7)), Usage::default());
    let file = create(&fs, "b", 7, 7).unwrap();
    write(&fs, &file, 0, 100).unwrap();
    assert!(is_refused(&write(&fs, &file, 100, 1)));
    let then = fs.open_snapshot("then", world.options.clone()).unwrap();
    assert!(then.quotas().is_none(), "it is read-only");
    let old = then.lookup(&then.root().unwrap(), b"a").unwrap().unwrap();
    assert_eq!(then.attributes(&old).unwrap().blocks, 800);
    drop((file, old, then, root));
    assert_eq!(told(&crashed(&world)).get(&user(7)).unwrap().inodes, 1);
    fs.close().unwrap();
    drop(fs);
    fsck(world.device(), "quotas");
    let fs = world.mount();
    assert_eq!(told(&fs), found(&fs));
    fs.delete_snapshot("then").unwrap();
    fs.close().unwrap();
    drop(fs);
    fsck(world.device(), "quotas");
}

/// What finds no room is not counted; and an unmount that finds none for the counts leaves them to the
/// next mount.
#[test]
fn a_full_volume_counts_right() {
    let world = World::new(1024, 2 << 20);
    let fs = counted(&world);
    let file = create(&fs, "a", 7, 7).unwrap();
    let mut page = 0;
    for pages in [64, 8, 1] {
        loop {
            match write(&fs, &file, page, pages) {
                Ok(done) => page += u64::try_from(done).unwrap() / PAGE,
                Err(Error::NoSpace { .. }) => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
    let refused = fs.allocate(&file, AllocateMode::KeepSize, page * PAGE, 9000 * PAGE);
    assert!(matches!(refused, Err(Error::NoSpace { .. })));
    fs.sync().unwrap();
    assert_eq!((told(&fs), of(&fs, user(7)).blocks), (found(&fs), page));
    drop(file);
    fs.close().unwrap();
    drop(fs);
    fsck(world.device(), "quotas");
    let fs = world.mount();
    assert_eq!((told(&fs), of(&fs, user(7)).blocks), (found(&fs), page));
    fs.unlink(&fs.root().unwrap(), b"a").unwrap();
    assert_eq!(of(&fs, user(7)), Usage::default());
}

/// Pages that wait for write-back are charged: a preallocation of the same range is not refused for them.
#[test]
fn a_preallocation_counts_dirty_pages_once() {
    let world = World::new(4096, 4 << 20);
    let fs = counted(&world);
    fs.set_quota(user(7), &hard(100, 0)).unwrap();
    let file = create(&fs, "a", 7, 7).unwrap();
    write(&fs, &file, 0, 80).unwrap();
    let allocate = |pages| fs.allocate(&file, AllocateMode::Extend, 0, pages * PAGE);
    allocate(80).unwrap();
    assert_eq!(of(&fs, user(7)).blocks, 80);
    assert!(is_refused(&allocate(101)));
    allocate(100).unwrap();
    assert_eq!(told(&fs), found(&fs));
}

/// What carries a large attribute until it is complete belongs to root, and to no one who is limited.
#[test]
fn the_limit_of_group_0_refuses_no_attribute() {
    let world = World::new(16384, 4 << 20);
    let fs = counted(&world);
    let file = create(&fs, "a", 7, 7).unwrap();
    let kind = QuotaKind::Group;
    let group = Subject { kind, id: 0 };
    fs.set_quota(group, &hard(0, 1)).unwrap();
    assert!(is_refused(&create(&fs, "b", 7, 0)));
    let before = told(&fs);
    let value = vec![1; 60_000];
    fs.set_xattr(&file, b"user.large", &value, XattrMode::Any)
        .unwrap();
    fs.sync().unwrap();
    assert_eq!(told(&fs), before);
    drop(file);
    fs.close().unwrap();
    drop(fs);
    fsck(world.device(), "quotas");
}

#[test]
fn a_volume_has_so_many_limits_and_no_more() {
    let world = World::new(16384, 4 << 20);
    let fs = counted(&world);
    let most = u32::try_from(quota::LIMITS_MAX).unwrap();
    (1..=most).for_each(|id| fs.set_quota(user(id), &hard(id.into(), 0)).unwrap());
    let refused = fs.set_quota(user(most + 1), &hard(1, 1)).unwrap_err();
    assert_eq!(refused.errno(), libc::ENOSPC);
    let of_root = fs.set_quota(user(0), &hard(1, 1)).unwrap_err();
    assert_eq!(of_root.errno(), libc::EINVAL);
    let limited = |fs: &FileSystem| {
        let all = fs.quotas().unwrap().into_iter();
        let hard = all
            .filter(crate::Quota::is_limited)
            .map(|one| one.limits.blocks.hard);
        hard.collect::<Vec<_>>()
    };
    assert_eq!(limited(&fs), (1..=u64::from(most)).collect::<Vec<_>>());
    fs.set_quota(user(1), &hard(0, 0)).unwrap();
    fs.set_quota(user(most + 1), &hard(u64::from(most) + 1, 0))
        .unwrap();
    fs.close().unwrap();
    drop(fs);
    fsck(world.device(), "quotas");
    assert_eq!(
        limited(&world.mount()),
        (2..=u64::from(most) + 1).collect::<Vec<_>>()
    );
}
