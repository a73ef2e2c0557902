//! Random calls against a model that is a map, with mounts in between.

use std::collections::BTreeMap;

use dure_store::units::Ino;
use dure_sync::random::Seeded;

use super::*;
use crate::RenameMode;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Thing {
    File {
        links: u32,
    },
    Directory {
        entries: BTreeMap<Vec<u8>, usize>,
        parent: usize,
    },
}

/// Inodes by an index of their own; index 0 is the root.
struct Model {
    things: Vec<Option<Thing>>,
    inos: Vec<Ino>,
}

impl Model {
    fn directories(&self) -> Vec<usize> {
        let is = |n: &usize| matches!(self.things[*n], Some(Thing::Directory { .. }));
        (0..self.things.len()).filter(is).collect()
    }

    fn entries(&mut self, directory: usize) -> &mut BTreeMap<Vec<u8>, usize> {
        match self.things[directory].as_mut() {
            Some(Thing::Directory { entries, .. }) => entries,
            other => panic!("{other:?} is no directory"),
        }
    }

    fn get(&mut self, directory: usize, name: &[u8]) -> Option<usize> {
        self.entries(directory).get(name).copied()
    }

    fn is_directory(&self, n: usize) -> bool {
        matches!(self.things[n], Some(Thing::Directory { .. }))
    }

    fn is_empty(&mut self, n: usize) -> bool {
        self.entries(n).is_empty()
    }

    fn is_below(&self, mut n: usize, above: usize) -> bool {
        loop {
            if n == above {
                return true;
            }
            match self.things[n] {
                Some(Thing::Directory { parent, .. }) if n != 0 => n = parent,
                _ => return false,
            }
        }
    }

    fn add(&mut self, thing: Thing, ino: Ino) -> usize {
        self.things.push(Some(thing));
        self.inos.push(ino);
        self.things.len() - 1
    }

    fn lose(&mut self, n: usize) {
        match self.things[n].as_mut() {
            Some(Thing::File { links }) if *links > 1 => *links -= 1,
            _ => self.things[n] = None,
        }
    }

    fn set_parent(&mut self, n: usize, to: usize) {
        if let Some(Thing::Directory { parent, .. }) = self.things[n].as_mut() {
            *parent = to;
        }
    }

    fn rename(&mut self, from: (usize, &[u8]), to: (usize, &[u8]), mode: RenameMode) -> i32 {
        let Some(source) = self.get(from.0, from.1) else {
            return 2;
        };
        let target = self.get(to.0, to.1);
        match (target, mode) {
            (None, RenameMode::Exchange) => return 2,
            (Some(_), RenameMode::NoReplace) => return 17,
            _ => {}
        }
        if let Some(target) =
            target.filter(|_| mode == RenameMode::Replace && target != Some(source))
        {
            match (self.is_directory(source), self.is_directory(target)) {
                (true, false) => return 20,
                (false, true) => return 21,
                _ => {}
            }
        }
        if target == Some(source) {
            return 0;
        }
        let exchanged = target.filter(|_| mode == RenameMode::Exchange);
        let crosses = from.0 != to.0;
        let below =
            |moved: usize, directory| self.is_directory(moved) && self.is_below(directory, moved);
        if crosses && (below(source, to.0) || exchanged.is_some_and(|target| below(target, from.0)))
        {
            return 22;
        }
        if let Some(target) = target.filter(|_| exchanged.is_none()) {
            if self.is_directory(target) && !self.is_empty(target) {
                return 39;
            }
            self.lose(target);
        }
        self.entries(from.0).remove(from.1);
        self.entries(to.0).insert(to.1.to_vec(), source);
        self.set_parent(source, to.0);
        if let Some(target) = exchanged {
            self.entries(from.0).insert(from.1.to_vec(), target);
            self.set_parent(target, from.0);
        }
        0
    }
}

struct Run {
    fs: FileSystem,
    model: Model,
    dice: Seeded,
    long: bool,
}

impl Run {
    fn inode(&self, n: usize) -> InodeRef {
        self.fs.inode(self.model.inos[n]).unwrap()
    }

    fn name(&mut self) -> Vec<u8> {
        let n = self.dice.below(60);
        if self.long && n.is_multiple_of(3) {
            return format!("{n:x>200}").into_bytes();
        }
        format!("n{n}").into_bytes()
    }

    fn directory(&mut self) -> usize {
        let all = self.model.directories();
        let at = self.dice.below(u64::try_from(all.len()).unwrap());
        all[usize::try_from(at).unwrap()]
    }

    fn step(&mut self) {
        let at = self.directory();
        let (dir, name) = (self.inode(at), self.name());
        let there = self.model.get(at, &name);
        match self.dice.below(10) {
            0..=2 => {
                let made = self.fs.create(&dir, &name, &file());
                assert_eq!(made.is_ok(), there.is_none());
                if let Ok(made) = made {
                    let n = self.model.add(Thing::File { links: 1 }, made.ino());
                    self.model.entries(at).insert(name, n);
                }
            }
            3 => {
                let made = self.fs.mkdir(&dir, &name, &directory());
                assert_eq!(made.is_ok(), there.is_none());
                if let Ok(made) = made {
                    let thing = Thing::Directory {
                        entries: BTreeMap::new(),
                        parent: at,
                    };
                    let n = self.model.add(thing, made.ino());
                    self.model.entries(at).insert(name, n);
                }
            }
            4 | 5 => {
                let want = match there {
                    None => libc::ENOENT,
                    Some(n) if self.model.is_directory(n) => libc::EISDIR,
                    Some(_) => 0,
                };
                assert_eq!(errno(self.fs.unlink(&dir, &name)), want);
                if let (0, Some(n)) = (want, there) {
                    self.model.entries(at).remove(&name);
                    self.model.lose(n);
                }
            }
            6 => {
                let want = match there {
                    None => libc::ENOENT,
                    Some(n) if !self.model.is_directory(n) => libc::ENOTDIR,
                    Some(n) if !self.model.is_empty(n) => libc::ENOTEMPTY,
                    Some(_) => 0,
                };
                assert_eq!(errno(self.fs.rmdir(&dir, &name)), want);
                if let (0, Some(n)) = (want, there) {
                    self.model.entries(at).remove(&name);
                    self.model.lose(n);
                }
            }
            7 => self.link(&dir, at, name, there),
            _ => self.rename(&dir, at, &name),
        }
    }

    fn link(&mut self, dir: &InodeRef, at: usize, name: Vec<u8>, there: Option<usize>) {
        let other = self.directory();
        let files: Vec<usize> = self.model.entries(other).values().copied().collect();
        let Some(&n) = files.iter().find(|n| !self.model.is_directory(**n)) else {
            return;
        };
        let linked = self.fs.link(&self.inode(n), dir, &name);
        assert_eq!(linked.is_ok(), there.is_none());
        if linked.is_ok() {
            self.model.entries(at).insert(name, n);
            if let Some(Thing::File { links }) = self.model.things[n].as_mut() {
                *links += 1;
            }
        }
    }

    fn rename(&mut self, dir: &InodeRef, at: usize, name: &[u8]) {
        let other = self.directory();
        let (to, new) = (self.inode(other), self.name());
        let modes = [
            RenameMode::Replace,
            RenameMode::Replace,
            RenameMode::NoReplace,
            RenameMode::Exchange,
        ];
        let mode = modes[usize::try_from(self.dice.below(4)).unwrap()];
        let got = errno(self.fs.rename(dir, name, &to, &new, mode));
        assert_eq!(
            got,
            self.model.rename((at, name), (other, &new), mode),
            "{mode:?}"
        );
    }

    fn compare(&mut self) {
        for n in self.model.directories() {
            let dir = self.inode(n);
            let entries = self.model.entries(n).clone();
            assert_eq!(
                list(&self.fs, &dir),
                entries.keys().cloned().collect::<Vec<_>>()
            );
            let mut below = 0;
            for (name, child) in entries {
                let found = self.fs.lookup(&dir, &name).unwrap().unwrap();
                assert_eq!(found.ino(), self.model.inos[child]);
                match &self.model.things[child] {
                    Some(Thing::File { links }) => assert_eq!(stat(&self.fs, &found).nlink, *links),
                    Some(Thing::Directory { parent, .. }) => {
                        below += 1;
                        assert_eq!(*parent, n);
                        assert_eq!(self.fs.parent(&found).unwrap(), dir.ino());
                    }
                    None => panic!("a removed thing has a name"),
                }
            }
            assert_eq!(stat(&self.fs, &dir).nlink, 2 + below);
            let (state, data) = (dir.inode().state().read(), dir.inode().data_head());
            let (root, owner) = (state.directory().root_nid(), state.directory().owner);
            assert_eq!(root.map_or(0, |nid| nid.0), data.map_root.get());
            assert_eq!(
                (owner, state.directory().set_number),
                (dir.ino(), data.set_number.get())
            );
        }
    }
}

fn run(seed: u64, rounds: usize, steps: usize) {
    println_seed(seed);
    let (disk, fs) = fresh();
    let root = Thing::Directory {
        entries: BTreeMap::new(),
        parent: 0,
    };
    let model = Model {
        things: vec![Some(root)],
        inos: vec![Ino::ROOT],
    };
    let mut run = Run {
        fs,
        model,
        dice: Seeded::new(seed),
        long: seed.is_multiple_of(2),
    };
    for round in 0..rounds {
        for _ in 0..steps {
            run.step();
        }
        run.compare();
        run.fs = if round % 2 == 0 {
            disk.remount(run.fs)
        } else {
            run.fs.sync().unwrap();
            drop(run.fs);
            disk.mount()
        };
        run.compare();
    }
    disk.remount(run.fs);
}

/// Shown by the test harness when the test fails.
#[expect(clippy::print_stdout, reason = "the seed replays a failed run")]
fn println_seed(seed: u64) {
    println!("seed={seed}");
}

#[test]
fn random_calls_agree_with_the_model() {
    for seed in 1..7 {
        run(seed, 4, 400);
    }
}
