//! Concurrent writers that record each acknowledged write.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail};
use dure_block::count::Count;
use dure_sync::{Mutex, thread};

use super::directory;
use crate::volume::{self, Access};

/// Writers at a time.
const WRITERS: u64 = 4;
/// Rank of the list of acknowledged writes; no lock is taken while it is held.
const LIST: u8 = 10;
/// Bytes each file holds; odd, so that the last page is partial.
const BYTES: usize = 9001;
/// Files one writer makes before it begins to overwrite them.
const FILES: u64 = 64;

/// One write that was acknowledged: writer `writer` was told that its `number`-th is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Write {
    pub(crate) writer: u64,
    pub(crate) number: u64,
}

impl Write {
    /// The file it went to.
    pub(crate) fn file(self) -> String {
        format!("w{}-{}", self.writer, self.number % FILES)
    }

    /// What the file holds after it. The number stands in the first eight bytes.
    pub(crate) fn content(self) -> Vec<u8> {
        let mut bytes = self.number.to_le_bytes().to_vec();
        let mut state = self.writer << 32 | self.number;
        while bytes.len() < BYTES {
            // A Weyl sequence through a finaliser: any torn or mixed page shows.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ state >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            bytes.extend_from_slice(&mixed.to_le_bytes());
        }
        bytes.truncate(BYTES);
        bytes
    }

    pub(crate) fn parse(line: &str) -> Option<Write> {
        let (writer, number) = line.strip_suffix('.')?.split_once(' ')?;
        Some(Write {
            writer: writer.parse().ok()?,
            number: number.parse().ok()?,
        })
    }
}

/// All acknowledged writes.
#[derive(Debug, Default)]
pub(crate) struct Acknowledged(Mutex<LIST, Vec<Write>>);

impl Acknowledged {
    pub(crate) fn add(&self, write: Write) {
        self.0.lock().push(write);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    pub(crate) fn all(&self) -> Vec<Write> {
        self.0.lock().clone()
    }

    pub(crate) fn summary(&self) -> String {
        format!(
            "{} acknowledged by {WRITERS} writers",
            Count::of(self.0.lock().len(), "write")
        )
    }
}

/// Writers on the host's file system at `place`, until a write fails; `kill` makes it fail.
pub(crate) fn host_writers(
    place: &Path,
    kill: impl FnOnce(&Acknowledged) -> Result<()>,
) -> Result<Acknowledged> {
    let acknowledged = Acknowledged::default();
    fs::File::open(place).and_then(|directory| directory.sync_all())?;
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let acknowledged = &acknowledged;
            scope.spawn(move || {
                for number in 0.. {
                    let write = Write { writer, number };
                    if host_write(place, write).is_err() {
                        return;
                    }
                    acknowledged.add(write);
                }
            });
        }
        kill(&acknowledged)
    })?;
    if acknowledged.is_empty() {
        bail!("no write was acknowledged");
    }
    Ok(acknowledged)
}

fn host_write(place: &Path, write: Write) -> std::io::Result<()> {
    // Never truncated: old content stays until the new one is there.
    let path = place.join(write.file());
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)?;
    file.write_all(&write.content())?;
    file.sync_all()
}

/// The process that is killed: writes through the library and prints each acknowledgement.
pub(super) fn child(image: &Path) -> Result<()> {
    let volume = volume::open(image, Access::Write)?;
    let session = volume.root();
    let place = directory("writers");
    session.create_dir(&place)?;
    let results: Vec<Result<()>> = thread::scope(|scope| {
        let writer = |writer: u64| {
            let (session, place) = (session.clone(), place.clone());
            scope.spawn(move || -> Result<()> {
                for number in 0.. {
                    let write = Write { writer, number };
                    let options = dure::OpenOptions::new().write(true).create(true);
                    let file = options.open(&session, place.join(write.file()))?;
                    file.write_all_at(&write.content(), 0)?;
                    file.sync_all()?;
                    let mut out = std::io::stdout().lock();
                    writeln!(out, "{writer} {number}.").and_then(|()| out.flush())?;
                }
                Ok(())
            })
        };
        let writers: Vec<_> = (0..WRITERS).map(writer).collect();
        writers
            .into_iter()
            .map(|writer| writer.join().expect("writers return errors"))
            .collect()
    });
    results
        .into_iter()
        .collect::<Result<()>>()
        .context("writing until killed")
}
