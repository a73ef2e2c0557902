//! Crashes at every moment of a run of namespace calls: the check is clean, what was synced is
//! there.

use std::collections::BTreeMap;

use dure_block::crash::{CrashImages, Selection};
use dure_block::ram::RamDevice;
use dure_block::record::RecordDevice;
use dure_block::share;
use dure_check::{CheckOptions, check};

use super::*;
use crate::{FlushRule, RenameMode, XattrMode};

/// Files whose rename leaves another inode under the old name.
const LEAVING: [u32; 2] = [11, 19];

/// What must be there after a crash at `step` or later: paths, as far as they did not change since.
struct Synced {
    step: u64,
    calls: usize,
    paths: BTreeMap<String, bool>,
}

struct World {
    fs: FileSystem,
    log: Arc<dure_block::record::RecordLog>,
    /// Whether each path is there, and the number of the call that last changed it.
    paths: BTreeMap<String, (bool, usize)>,
    calls: usize,
    synced: Vec<Synced>,
}

impl World {
    fn changed(&mut self, path: &str, there: bool) {
        self.paths.insert(path.to_owned(), (there, self.calls));
    }

    fn sync(&mut self) {
        self.fs.sync().unwrap();
        let paths = self
            .paths
            .iter()
            .map(|(path, (there, _))| (path.clone(), *there))
            .collect();
        self.synced.push(Synced {
            step: self.log.step(),
            calls: self.calls,
            paths,
        });
    }

    /// A run that splits buckets, folds them, replaces, exchanges, orphans and reuses.
    fn run(&mut self) {
        let fs = self.fs.clone();
        let root = fs.root().unwrap();
        let dir = fs.mkdir(&root, b"dir", &directory()).unwrap();
        self.changed("dir", true);
        for n in 0..24 {
            self.calls += 1;
            let name = format!("a-longer-name-for-a-file-{n}");
            fs.create(&dir, name.as_bytes(), &file()).unwrap();
            self.changed(&format!("dir/{name}"), true);
            if n % 8 == 7 {
                self.sync();
            }
        }
        let held = get(&fs, &dir, "a-longer-name-for-a-file-3");
        fs.set_xattr(&held, b"user.kept", &[3; 6000], XattrMode::Any)
            .unwrap();
        for n in 0..24 {
            self.calls += 1;
            let name = format!("a-longer-name-for-a-file-{n}");
            match n % 4 {
                0 => {
                    fs.unlink(&dir, name.as_bytes()).unwrap();
                    self.changed(&format!("dir/{name}"), false);
                }
                1 => {
                    let to = format!("moved-{n}");
                    fs.rename(
                        &dir,
                        name.as_bytes(),
                        &root,
                        to.as_bytes(),
                        RenameMode::Replace,
                    )
                    .unwrap();
                    self.changed(&format!("dir/{name}"), false);
                    self.changed(&to, true);
                }
                2 => {
                    let sub = format!("sub-{n}");
                    let sub_dir = fs.mkdir(&root, sub.as_bytes(), &directory()).unwrap();
                    self.changed(&sub, true);
                    fs.rename(&root, sub.as_bytes(), &dir, b"sub", RenameMode::Replace)
                        .unwrap();
                    self.changed(&sub, false);
                    self.changed("dir/sub", true);
                    drop(sub_dir);
                }
                _ if LEAVING.contains(&n) => self.leave(&dir, &name, n),
                _ => {
                    fs.unlink(&dir, name.as_bytes()).unwrap();
                    self.changed(&format!("dir/{name}"), false);
                    drop(fs.temporary(&root, &file()).unwrap());
                }
            }
            if n % 6 == 5 {
                self.sync();
            }
            if n == 13 {
                fs.0.store.checkpoint().unwrap();
            }
        }
        drop(held);
        self.sync();
    }

    /// Moves a name and leaves another inode in its place.
    fn leave(&mut self, dir: &InodeRef, name: &str, n: u32) {
        let root = self.fs.root().unwrap();
        let to = format!("left-{n}");
        let whiteout = NewInode {
            mode: libc::S_IFCHR,
            ..NewInode::default()
        };
        let (from, mode) = ((dir, name.as_bytes()), RenameMode::Replace);
        self.fs
            .rename_leaving(from, (&root, to.as_bytes()), mode, &whiteout)
            .unwrap();
        self.changed(&to, true);
        self.changed(&format!("dir/{name}"), true);
    }

    /// A rename that leaves an inode behind has happened, or has not.
    fn check_left(step: u64, fs: &FileSystem) {
        let root = fs.root().unwrap();
        let Some(dir) = fs.lookup(&root, b"dir").unwrap() else {
            return;
        };
        for n in LEAVING {
            let old = format!("a-longer-name-for-a-file-{n}");
            let old = fs.lookup(&dir, old.as_bytes()).unwrap();
            let new = fs.lookup(&root, format!("left-{n}").as_bytes()).unwrap();
            let kinds = [old, new].map(|inode| inode.map(|inode| inode.kind()));
            let possible = [
                [None, None],
                [Some(FileKind::File), None],
                [Some(FileKind::CharacterDevice), Some(FileKind::File)],
            ];
            assert!(possible.contains(&kinds), "{kinds:?} at step {step}");
        }
    }

    /// What the last sync before `step` promised about paths that no later call changed.
    fn check_promises(&self, step: u64, fs: &FileSystem) {
        let Some(last) = self.synced.iter().rfind(|synced| synced.step <= step) else {
            return;
        };
        for (path, there) in &last.paths {
            if self.paths[path].1 > last.calls {
                continue;
            }
            let mut at = Some(fs.root().unwrap());
            for name in path.split('/') {
                at = at.and_then(|dir| fs.lookup(&dir, name.as_bytes()).unwrap());
            }
            assert_eq!(at.is_some(), *there, "{path} at step {step}");
        }
    }
}

#[test]
fn every_crash_leaves_a_sound_volume_with_what_was_synced() {
    let ram = RamDevice::new("names", 8192);
    let base: Arc<dyn Device> = share(ram);
    let options = FormatOptions {
        journals: Some(2),
        ..FormatOptions::default()
    };
    FileSystem::format(base.clone(), &options).unwrap();
    let copy = RamDevice::new("image", 8192);
    let image = copy_of(&base, copy);
    let record = RecordDevice::new(base);
    let log = record.log();
    let options = MountOptions {
        background: Background::None,
        cache_bytes: 16 << 20,
        recovery_threads: Some(1),
        flush: Some(FlushRule::One),
        ..MountOptions::default()
    };
    let fs = FileSystem::open(share(record), options.clone()).unwrap();
    let mut world = World {
        fs,
        log,
        paths: BTreeMap::new(),
        calls: 0,
        synced: Vec::new(),
    };
    world.run();
    let images = CrashImages::new(image, &world.log);
    let mut states = 0;
    for step in 0..=images.last_step() {
        let point = images.at(step);
        let selection = Selection {
            exhaustive_max: 2,
            ..Selection::default()
        };
        for choice in point.choices(selection).take(6) {
            let image = point.image(&choice).snapshot();
            let device = share(RamDevice::from_image("crash", &image));
            let report = check(device.clone(), &CheckOptions::default()).unwrap();
            assert!(
                report.is_sound(),
                "before recovery, step {step}: {:#?}",
                report.issues()
            );
            let fs = FileSystem::open(device.clone(), options.clone()).unwrap();
            world.check_promises(step, &fs);
            World::check_left(step, &fs);
            fs.close().unwrap();
            drop(fs);
            let report = check(device, &CheckOptions::default()).unwrap();
            assert!(
                report.issues().is_empty(),
                "step {step}: {:#?}",
                report.issues()
            );
            states += 1;
        }
    }
    assert!(states > 100, "only {states} crash states");
}

fn copy_of(device: &Arc<dyn Device>, copy: RamDevice) -> dure_block::ram::Image {
    use dure_block::{Lba, Queue, QueueConfig, WriteFlags};
    let copy = Arc::new(copy);
    let from = Queue::new(device.clone(), QueueConfig::default());
    let to = Queue::new(share(copy.clone()), QueueConfig::default());
    let mut block = [0; 4096];
    for at in 0..from.info().blocks {
        from.read(Lba::new(at), &mut block).unwrap();
        if block.iter().any(|byte| *byte != 0) {
            to.write(Lba::new(at), &block, WriteFlags::NONE).unwrap();
        }
    }
    copy.snapshot()
}
