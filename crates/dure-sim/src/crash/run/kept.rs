//! The snapshots of a recording: which of them a crash may leave, and with what.

use std::collections::BTreeMap;

use dure_fs::FileSystem;

use crate::crash::call::{Step, snapshot_name};
use crate::crash::tree::Tree;

/// A snapshot that there was.
#[derive(Debug)]
struct Kept {
    name: String,
    /// [`Tree::digest`] of what it has.
    digest: u64,
    /// The record steps between which it was taken.
    taken: (u64, u64),
    /// The record steps between which it was deleted.
    dropped: Option<(u64, u64)>,
}

/// All of a recording.
#[derive(Debug)]
pub(super) struct Snapshots(Vec<Kept>);

impl Snapshots {
    /// Those that a volume has.
    ///
    /// # Errors
    /// A tree that cannot be read.
    pub(super) fn of(fs: &FileSystem) -> Result<Snapshots, String> {
        let none = fs.snapshots().is_empty();
        let tree = if none {
            Tree::default()
        } else {
            Tree::read(fs)?
        };
        let kept = tree.snapshots.into_iter().map(|(name, digest)| Kept {
            name,
            digest,
            taken: (0, 0),
            dropped: None,
        });
        Ok(Snapshots(kept.collect()))
    }

    /// Notes a step that has ended.
    ///
    /// # Errors
    /// A tree that cannot be read.
    pub(super) fn step(
        &mut self,
        step: &Step,
        span: (u64, u64),
        fs: &FileSystem,
    ) -> Result<(), String> {
        match step {
            Step::Snapshot(number) => self.0.push(Kept {
                name: snapshot_name(*number),
                digest: Tree::read_live(fs)?.digest(),
                taken: span,
                dropped: None,
            }),
            Step::DropSnapshot(number) => {
                let name = snapshot_name(*number);
                let last = self.0.iter_mut().rfind(|kept| kept.name == name);
                last.expect("it was there").dropped = Some(span);
            }
            _ => {}
        }
        Ok(())
    }

    /// How many were taken or deleted, as callers know, before a crash at `step`.
    pub(super) fn promises(&self, step: u64) -> usize {
        let count = |kept: &Kept| {
            let dropped = kept.dropped.is_some_and(|(_, end)| end <= step);
            usize::from(kept.taken.1 <= step) + usize::from(dropped)
        };
        self.0.iter().map(count).sum()
    }

    /// Whether a crash at `step` may leave these.
    ///
    /// # Errors
    /// What is wrong.
    pub(super) fn check(&self, step: u64, found: &BTreeMap<String, u64>) -> Result<(), String> {
        for name in found.keys() {
            if !self.0.iter().any(|kept| kept.name == *name) {
                return Err(format!("snapshot {name}: nobody took it"));
            }
        }
        for kept in &self.0 {
            let name = &kept.name;
            let began = kept.taken.0 < step || kept.taken.1 <= step;
            let is_gone = kept.dropped.is_some_and(|(_, end)| end <= step);
            let may_be_gone = kept.dropped.is_some_and(|(begin, _)| begin < step);
            match found.get(name) {
                Some(_) if !began => return Err(format!("snapshot {name}: not taken yet")),
                Some(_) if is_gone => return Err(format!("snapshot {name}: it was deleted")),
                Some(digest) if *digest != kept.digest => {
                    return Err(format!("snapshot {name}: not what the volume was"));
                }
                None if kept.taken.1 <= step && !may_be_gone => {
                    return Err(format!("snapshot {name}: lost"));
                }
                _ => {}
            }
        }
        Ok(())
    }
}
