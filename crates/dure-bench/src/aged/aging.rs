//! Filling a target, and changing what is in it.

use std::path::PathBuf;

use anyhow::{Context, Result};
use dure_sync::clock;
use dure_sync::random::Seeded;

use super::{DIRECTORIES, directory_of};
use crate::interrupt;
use crate::measure::f64_of;
use crate::micro::content;
use crate::random::gamma;
use crate::target::{How, Target, Tree, is_full};

const BLOCK_BYTES: usize = 4096;
/// Bytes of one write.
const WRITE_BYTES: usize = 256 << 10;
/// A change of a file in place, at most.
const CHANGE_BYTES: u64 = 64 << 10;
/// An appended piece, at most.
const APPEND_BYTES: u64 = 16 << 10;
/// Changes between two fsyncs of the file: changes in between are written back together.
const SYNC_INTERVAL: u64 = 32;
/// Everything is synced whenever this part of the room was written: otherwise files that are
/// created and removed within a cache's size never reach a device.
const SYNCS_PER_ROOM: u64 = 16;
/// Changes between two checks of how full it is.
const ROOM_INTERVAL: u64 = 16;

/// How old a target gets.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) fill_percent: u64,
    pub(super) churn_percent: u64,
    pub(super) mean_bytes: u64,
}

/// The results of aging.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Counts {
    pub(super) files: usize,
    pub(super) file_bytes: u64,
    pub(super) churn_bytes: u64,
    pub(super) seconds: f64,
    device_bytes: Option<u64>,
    extents: Option<u64>,
}

impl Counts {
    pub(super) fn write_amplification(&self) -> Option<f64> {
        Some(f64_of(self.device_bytes?) / f64_of(self.churn_bytes.max(1)))
    }

    pub(super) fn kib_per_extent(&self) -> Option<f64> {
        Some(f64_of(self.file_bytes) / 1024.0 / f64_of(self.extents?.max(1)))
    }
}

/// A file, by its number and its size.
#[derive(Debug, Clone, Copy)]
struct Filed {
    number: u64,
    bytes: u64,
}

/// A target while it is aged.
#[derive(Debug)]
pub(super) struct Aging<'t> {
    target: &'t Target,
    tree: Tree,
    shape: Shape,
    /// Free space while it was empty.
    room_bytes: u64,
    files: Vec<Filed>,
    next: u64,
    random: Seeded,
    content: Vec<u8>,
    counts: Counts,
}

impl<'t> Aging<'t> {
    pub(super) fn new(target: &'t Target, tree: Tree, shape: Shape) -> Result<Aging<'t>> {
        for number in 0..DIRECTORIES {
            tree.create_dir(&tree.root().join(directory_of(number)))?;
        }
        Ok(Aging {
            target,
            room_bytes: tree.room_bytes()?,
            tree,
            shape,
            files: Vec::new(),
            next: 0,
            random: Seeded::new(1),
            content: content(0).repeat(WRITE_BYTES / BLOCK_BYTES),
            counts: Counts::default(),
        })
    }

    pub(super) fn target(&self) -> &'t Target {
        self.target
    }

    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Fills the target, changes what is in it, and counts the results.
    pub(super) fn age(&mut self) -> Result<()> {
        self.fill().context("filling it")?;
        self.tree.sync()?;
        let device = self.target.device_bytes();
        let start = clock::monotonic_ns();
        self.churn().context("changing what is in it")?;
        self.tree.sync()?;
        self.counts.seconds = f64_of(clock::monotonic_ns() - start) / 1e9;
        self.counts.device_bytes = match (device, self.target.device_bytes()) {
            (Some(before), Some(after)) => Some(after - before),
            _ => None,
        };
        self.counts.files = self.files.len();
        self.counts.file_bytes = self.files.iter().map(|file| file.bytes).sum();
        let paths: Vec<_> = self
            .files
            .iter()
            .map(|file| self.path(file.number))
            .collect();
        self.counts.extents = self.tree.extents(&paths)?;
        Ok(())
    }

    fn path(&self, number: u64) -> PathBuf {
        let directory = self.tree.root().join(directory_of(number));
        directory.join(format!("f{number}"))
    }

    /// Whether it is as full as wanted, or fuller.
    fn is_filled(&self) -> Result<bool> {
        let used = self.room_bytes.saturating_sub(self.tree.room_bytes()?);
        Ok(used >= self.room_bytes / 100 * self.shape.fill_percent)
    }

    fn fill(&mut self) -> Result<()> {
        while !self.next.is_multiple_of(ROOM_INTERVAL) || !self.is_filled()? {
            interrupt::check()?;
            self.create()?;
        }
        Ok(())
    }

    fn churn(&mut self) -> Result<()> {
        let want = self.room_bytes / 100 * self.shape.churn_percent;
        let interval = self.room_bytes / SYNCS_PER_ROOM;
        let mut written = 0;
        let mut sync_at = interval;
        let mut too_full = false;
        let mut change = 0;
        while written < want {
            interrupt::check()?;
            if written >= sync_at {
                self.tree.sync()?;
                sync_at = written + interval;
            }
            change += 1_u64;
            if change.is_multiple_of(ROOM_INTERVAL) {
                too_full = self.is_filled()?;
            }
            written += match self.random.below(4) {
                0 => self.overwrite(change)?,
                1 => self.append(change)?,
                _ => {
                    // Removes as many files as it creates; when the target is too full, it creates
                    // half as many.
                    self.remove()?;
                    if too_full && change.is_multiple_of(2) {
                        0
                    } else {
                        self.create()?
                    }
                }
            };
            if self.files.len() < 2 {
                written += self.create()?;
            }
        }
        self.counts.churn_bytes = written;
        Ok(())
    }

    /// Creates a file; returns the bytes written. On a full file system there is no file, and 0.
    fn create(&mut self) -> Result<u64> {
        let number = self.next;
        self.next += 1;
        let bytes = gamma(&mut self.random, self.shape.mean_bytes).max(1);
        let path = self.path(number);
        match self.write_new(number, bytes) {
            Ok(()) => {
                self.files.push(Filed { number, bytes });
                Ok(bytes)
            }
            Err(error) if is_full(&error) => {
                if self.tree.exists(&path)? {
                    self.tree.remove_file(&path)?;
                }
                self.remove()?;
                Ok(0)
            }
            Err(error) => Err(error),
        }
    }

    fn write_new(&self, number: u64, bytes: u64) -> Result<()> {
        let file = self.tree.open(&self.path(number), How::CreateNew)?;
        let mut left = usize::try_from(bytes)?;
        while left > 0 {
            let piece = left.min(WRITE_BYTES);
            file.write(&self.content[..piece])?;
            left -= piece;
        }
        if number.is_multiple_of(SYNC_INTERVAL) {
            file.sync()?;
        }
        Ok(())
    }

    fn remove(&mut self) -> Result<()> {
        if self.files.is_empty() {
            return Ok(());
        }
        let chosen = self.random.index(self.files.len());
        let file = self.files.swap_remove(chosen);
        self.tree.remove_file(&self.path(file.number))
    }

    /// A part of a file, in whole blocks.
    fn overwrite(&mut self, change: u64) -> Result<u64> {
        let chosen = self.random.index(self.files.len());
        let Filed { number, bytes } = self.files[chosen];
        let block = u64::try_from(BLOCK_BYTES)?;
        let from = self.random.below(bytes.div_ceil(block)) * block;
        let count = (self.random.below(CHANGE_BYTES / block) + 1) * block;
        self.write_part(number, from, count.min(bytes - from), change)
    }

    fn append(&mut self, change: u64) -> Result<u64> {
        let chosen = self.random.index(self.files.len());
        let count = self.random.below(APPEND_BYTES) + 1;
        let Filed { number, bytes } = self.files[chosen];
        let written = self.write_part(number, bytes, count, change)?;
        self.files[chosen].bytes += written;
        Ok(written)
    }

    /// Bytes written: none if the file system is full.
    fn write_part(&self, number: u64, from: u64, bytes: u64, change: u64) -> Result<u64> {
        let file = self.tree.open(&self.path(number), How::Write)?;
        let part = &self.content[..usize::try_from(bytes)?];
        match file.write_at(part, from) {
            Ok(()) if change.is_multiple_of(SYNC_INTERVAL) => file.sync()?,
            Ok(()) => (),
            Err(error) if is_full(&error) => {
                // What was written before the file system was full is not counted as existing.
                let size = self.files.iter().find(|file| file.number == number);
                file.set_len(size.map_or(0, |file| file.bytes))?;
                return Ok(0);
            }
            Err(error) => return Err(error),
        }
        Ok(bytes)
    }
}
