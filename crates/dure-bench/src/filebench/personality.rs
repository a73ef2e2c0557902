//! The personalities with the numbers of Filebench's own files.

use clap::ValueEnum;

/// What kind of server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Personality {
    /// Create and write whole files, append, read whole files, delete, stat.
    Fileserver,
    /// A mail spool: small files, each append followed by an fsync.
    Varmail,
    /// Reads whole files ten to one append to a log.
    Webserver,
    /// Deletes, creates and appends one file for five that are read.
    Webproxy,
    /// Random 2 KiB reads by many, synchronous random writes by few, and a log writer.
    Oltp,
}

/// Sizes of a set of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    /// Gamma of shape 1.5 with this mean.
    Gamma(u64),
    /// All the same.
    Fixed(u64),
}

/// A set of files as a personality wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SetShape {
    pub(super) files: usize,
    /// Entries of a directory.
    pub(super) width: usize,
    pub(super) size: Size,
    /// How many of a hundred are there at the beginning.
    pub(super) present_percent: usize,
}

impl Personality {
    /// All of them.
    pub const ALL: [Personality; 5] = [
        Personality::Fileserver,
        Personality::Varmail,
        Personality::Webserver,
        Personality::Webproxy,
        Personality::Oltp,
    ];

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Personality::Fileserver => "fileserver",
            Personality::Varmail => "varmail",
            Personality::Webserver => "webserver",
            Personality::Webproxy => "webproxy",
            Personality::Oltp => "oltp",
        }
    }

    /// Threads; of oltp 200 shadows, 10 writers of the database and one of the log.
    #[must_use]
    pub fn workers(self) -> usize {
        match self {
            Personality::Fileserver => 50,
            Personality::Varmail => 16,
            Personality::Webserver | Personality::Webproxy => 100,
            Personality::Oltp => 211,
        }
    }

    pub(super) fn shape(self) -> SetShape {
        const FLAT: usize = 1_000_000;
        let (files, width, size, present_percent) = match self {
            Personality::Fileserver => (10_000, 20, Size::Gamma(128 << 10), 80),
            Personality::Varmail => (1000, FLAT, Size::Gamma(16 << 10), 80),
            Personality::Webserver => (1000, 20, Size::Gamma(16 << 10), 100),
            Personality::Webproxy => (10_000, FLAT, Size::Fixed(16 << 10), 80),
            Personality::Oltp => (10, FLAT, Size::Fixed(10 << 20), 100),
        };
        SetShape {
            files,
            width,
            size,
            present_percent,
        }
    }
}
