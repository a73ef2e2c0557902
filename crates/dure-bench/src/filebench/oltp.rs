//! oltp: a database. Shadows read at random and post; writers of the database and of the log wait
//! for enough posts, and write synchronously.
//!
//! **Against the original.** Writes are synchronous where Filebench hands them to the C library's
//! asynchronous I/O, which does the same in threads of its own. A waiting writer polls instead of
//! sleeping in the kernel, so that no writer is left asleep when the time is up. A post is never
//! refused: the mark at which it would be (2000 and 3200) is not kept.

use std::hint::black_box;

use anyhow::{Result, ensure};
use dure_sync::atomic::{AtomicU64, Ordering};
use dure_sync::random::Seeded;
use dure_sync::{Arc, thread};

use super::fileset::FileSet;
use crate::measure::Worker;
use crate::target::{How, OpenFile};

const READ_BYTES: usize = 2 << 10;
const FILE_BYTES: u64 = 10 << 20;
const LOG_WRITE_BYTES: usize = 256 << 10;
const WRITES_OF_WRITER: u64 = 100;
const HOG_SHADOW: u32 = 200_000;
const HOG_WRITER: u32 = 10_000;
const POSTS_OF_WRITER: u64 = 1000;
const POSTS_OF_LOG: u64 = 3200;

/// The role of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Shadow,
    DatabaseWriter,
    LogWriter,
}

impl Role {
    /// One of `count` workers writes the log, every twentieth the database, ten at most.
    pub(super) fn of(number: usize, count: usize) -> Role {
        let writers = (count / 20).clamp(1, 10);
        match number {
            0 => Role::LogWriter,
            n if n <= writers => Role::DatabaseWriter,
            _ => Role::Shadow,
        }
    }
}

/// What the workers share.
#[derive(Debug)]
pub(super) struct Database {
    pub(super) files: FileSet,
    /// Posts that no writer has taken; counts only, hence Relaxed.
    pub(super) to_database: AtomicU64,
    pub(super) to_log: AtomicU64,
}

/// One worker.
pub(super) struct Member {
    role: Role,
    shared: Arc<Database>,
    data: Vec<OpenFile>,
    log: OpenFile,
    random: Seeded,
    buffer: Vec<u8>,
    works: u64,
}

impl Member {
    pub(super) fn new(shared: Arc<Database>, number: usize, count: usize) -> Result<Member> {
        let role = Role::of(number, count);
        let how = match role {
            Role::Shadow => How::Read,
            _ => How::Durable,
        };
        let tree = &shared.files.tree;
        let data = (0..10).map(|file| tree.open(shared.files.path(file), how));
        let data = data.collect::<Result<_>>()?;
        let path = tree.path("log");
        if number == 0 {
            tree.open(&path, How::CreateNew)?.set_len(FILE_BYTES)?;
        }
        let log = tree.open(&path, how)?;
        Ok(Member {
            role,
            data,
            log,
            shared,
            random: Seeded::new(u64::try_from(number)?),
            buffer: crate::micro::content(number).repeat(LOG_WRITE_BYTES / 4096),
            works: 0,
        })
    }

    /// A random place of whole pieces of `bytes`.
    fn place(&mut self, bytes: usize) -> Result<u64> {
        let bytes = u64::try_from(bytes)?;
        Ok(self.random.below(FILE_BYTES / bytes) * bytes)
    }

    /// read, hog, two posts.
    fn shadow(&mut self) -> Result<u64> {
        let file = self.random.index(self.data.len());
        let at = self.place(READ_BYTES)?;
        self.data[file].read_at(&mut self.buffer[..READ_BYTES], at)?;
        hog(HOG_SHADOW);
        self.shared.to_log.fetch_add(1, Ordering::Relaxed);
        self.shared.to_database.fetch_add(1, Ordering::Relaxed);
        Ok(4)
    }

    /// A hundred writes, hog, and the two waits.
    fn write_database(&mut self) -> Result<u64> {
        if !take(&self.shared.to_database, POSTS_OF_WRITER) {
            return Ok(0);
        }
        for _ in 0..WRITES_OF_WRITER {
            let file = self.random.index(self.data.len());
            let at = self.place(READ_BYTES)?;
            self.data[file].write_at(&self.buffer[..READ_BYTES], at)?;
        }
        hog(HOG_WRITER);
        Ok(WRITES_OF_WRITER + 3)
    }

    fn write_log(&mut self) -> Result<u64> {
        if !take(&self.shared.to_log, POSTS_OF_LOG) {
            return Ok(0);
        }
        let at = self.place(LOG_WRITE_BYTES)?;
        self.log.write_at(&self.buffer, at)?;
        Ok(3)
    }
}

/// Takes `count` posts if there are so many.
fn take(posts: &AtomicU64, count: u64) -> bool {
    posts
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |posts| {
            posts.checked_sub(count)
        })
        .is_ok()
}

/// Touches memory `count` times.
fn hog(count: u32) {
    let mut cell = 0_u32;
    for n in 0..count {
        cell = black_box(n);
    }
    black_box(cell);
}

impl Worker for Member {
    fn operate(&mut self) -> Result<Option<u64>> {
        let works = match self.role {
            Role::Shadow => self.shadow()?,
            Role::DatabaseWriter => self.write_database()?,
            Role::LogWriter => self.write_log()?,
        };
        if works == 0 {
            thread::sleep(std::time::Duration::from_micros(100));
        }
        self.works += works;
        Ok(Some(works))
    }

    fn batch(&self) -> u64 {
        1
    }

    fn check(&mut self) -> Result<()> {
        if self.role == Role::Shadow {
            ensure!(self.works > 0, "a shadow read nothing");
        }
        if self.role == Role::LogWriter {
            self.shared.files.check()?;
            ensure!(self.log.len()? == FILE_BYTES, "the log grew or shrank");
        }
        Ok(())
    }
}
