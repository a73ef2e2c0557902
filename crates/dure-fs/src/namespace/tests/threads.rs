//! Several threads on one tree: nothing is lost, nothing deadlocks, counts stay right.

use super::*;
use crate::RenameMode;
use dure_sync::random::Seeded;

/// Random calls in a few directories that all threads share. Any expected refusal is fine.
fn storm(fs: &FileSystem, seed: u64, steps: usize) {
    let mut dice = Seeded::new(seed);
    let root = fs.root().unwrap();
    for _ in 0..steps {
        let pick = |dice: &mut Seeded| {
            let name = format!("d{}", dice.below(4));
            let found = fs.lookup(&root, name.as_bytes()).unwrap();
            found
                .filter(|dir| dir.kind() == FileKind::Directory)
                .unwrap_or_else(|| root.clone())
        };
        let (dir, other) = (pick(&mut dice), pick(&mut dice));
        let name = format!("n{}", dice.below(12)).into_bytes();
        let new = format!("n{}", dice.below(12)).into_bytes();
        let done = match dice.below(9) {
            0 | 1 => fs.create(&dir, &name, &file()).map(drop),
            2 => fs.mkdir(&dir, &name, &directory()).map(drop),
            3 => fs.unlink(&dir, &name),
            4 => fs.rmdir(&dir, &name),
            5 => fs.rename(&dir, &name, &other, &new, RenameMode::Replace),
            6 => fs.rename(&dir, &name, &other, &new, RenameMode::Exchange),
            7 => match fs.lookup(&dir, &name) {
                Ok(Some(inode)) => fs.link(&inode, &other, &new),
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            },
            _ => fs.read_directory(&dir, 0, &mut |_| ControlFlow::Continue(())),
        };
        use libc::{EEXIST, EINVAL, EISDIR, ENOENT, ENOTDIR, ENOTEMPTY, EPERM};
        let expected = [0, EPERM, ENOENT, EEXIST, ENOTDIR, EISDIR, EINVAL, ENOTEMPTY];
        assert!(expected.contains(&errno(done)), "seed {seed}");
    }
}

#[test]
fn threads_share_directories() {
    for seed in 0..3 {
        let (disk, fs) = fresh();
        let root = fs.root().unwrap();
        for n in 0..4 {
            fs.mkdir(&root, format!("d{n}").as_bytes(), &directory())
                .unwrap();
        }
        dure_sync::thread::scope(|scope| {
            for thread in 0..4 {
                let fs = &fs;
                scope.spawn(move || storm(fs, seed * 100 + thread, 1500));
            }
            let fs = &fs;
            scope.spawn(move || {
                for _ in 0..6 {
                    fs.sync().unwrap();
                    fs.0.store.checkpoint().unwrap();
                }
            });
        });
        drop(root);
        drop(disk.remount(fs));
    }
}

#[test]
fn one_name_is_created_once() {
    let (disk, fs) = fresh();
    let root = fs.root().unwrap();
    let made = dure_sync::atomic::AtomicU32::new(0);
    dure_sync::thread::scope(|scope| {
        for _ in 0..4 {
            let (fs, root, made) = (&fs, &root, &made);
            scope.spawn(move || {
                for n in 0..500 {
                    if fs.create(root, format!("{n}").as_bytes(), &file()).is_ok() {
                        made.fetch_add(1, dure_sync::atomic::Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(made.load(dure_sync::atomic::Ordering::Relaxed), 500);
    drop(root);
    drop(disk.remount(fs));
}
