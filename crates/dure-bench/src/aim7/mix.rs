//! AIM7's storage tests, and how often each mix runs them.

use clap::ValueEnum;

/// A test: one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Test {
    DiskWrite,
    DiskRead,
    DiskReadRandom,
    DiskRewriteRandom,
    DiskCopy,
    DiskSource,
    SyncWrite,
    SyncRewriteRandom,
    SyncCopy,
    SyncUpdate,
    CreateClose,
    Link,
    ReadDirectory,
}

/// A mix of tests. Tests of CPU, memory and network are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mix {
    /// A file server: all tests, few synchronous ones.
    Fserver,
    /// A database: reads and synchronous updates.
    Dbase,
    /// A machine many use.
    Shared,
}

impl Mix {
    /// All of them.
    pub const ALL: [Mix; 3] = [Mix::Fserver, Mix::Dbase, Mix::Shared];

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Mix::Fserver => "fserver",
            Mix::Dbase => "dbase",
            Mix::Shared => "shared",
        }
    }

    /// KiB of a file, and KiB that all users share on top.
    fn kib(self) -> (u64, u64) {
        match self {
            Mix::Fserver => (10 << 10, 20 << 10),
            Mix::Dbase => (1 << 10, 25 << 10),
            Mix::Shared => (1 << 10, 10 << 10),
        }
    }

    /// KiB, which are I/Os, of a file of one of `users` users.
    pub(super) fn kib_per_user(self, users: usize) -> u64 {
        let (file, pool) = self.kib();
        file + pool / u64::try_from(users).expect("users are few").max(1)
    }

    /// How often each test is run, relative to the others.
    pub(super) fn hits(self) -> Vec<(Test, u32)> {
        let names = [Test::CreateClose, Test::ReadDirectory, Test::Link];
        let disk = [
            Test::DiskCopy,
            Test::DiskRead,
            Test::DiskReadRandom,
            Test::DiskRewriteRandom,
            Test::DiskSource,
            Test::DiskWrite,
        ];
        let sync = [Test::SyncCopy, Test::SyncRewriteRandom, Test::SyncWrite];
        let all = |names_hits, disk_hits, sync_hits| {
            let names = names.map(|test| (test, names_hits));
            let disk = disk.map(|test| (test, disk_hits));
            let sync = sync.map(|test| (test, sync_hits));
            names.into_iter().chain(disk).chain(sync).collect()
        };
        match self {
            Mix::Fserver => all(20, 30, 5),
            Mix::Shared => all(10, 20, 10),
            Mix::Dbase => vec![
                (Test::DiskRead, 40),
                (Test::DiskReadRandom, 40),
                (Test::SyncRewriteRandom, 30),
                (Test::SyncUpdate, 30),
            ],
        }
    }

    /// The tests of about a hundred jobs, each at least once.
    pub(super) fn jobs(self) -> Vec<Test> {
        let hits = self.hits();
        let total: u32 = hits.iter().map(|(_, hits)| hits).sum();
        let mut jobs = Vec::new();
        for (test, hits) in hits {
            let count = ((hits * 100 + total / 2) / total).max(1);
            jobs.extend((0..count).map(|_| test));
        }
        jobs
    }
}
