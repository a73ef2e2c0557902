//! How a check is asked for.
//!
//! **Problem.** A check of every page reads the whole medium, and a repair writes. **Structure.**
//! [`CheckOptions`]; the default is a check of the structures, which writes nothing.

use std::fmt;

use dure_store::Recover;

/// What the check may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Repair {
    /// Nothing.
    #[default]
    No,
    /// What needs no guess: the other copy of the superblock, SIT and summaries, link and block
    /// counts, orphan slots of inodes that do not exist.
    Safe,
    /// That, and if it does not suffice all structures are rebuilt from what is left: what is lost
    /// is taken out, what lost its name goes to `lost+found`, and the rest is found again.
    Full,
}

/// Whether the content of files is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Data {
    /// Only structures.
    #[default]
    Skip,
    /// Every page is compared with its checksum.
    Verify,
}

/// How far a check has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The name of the pass.
    pub pass: &'static str,
    /// Steps done in this pass.
    pub done: u64,
    /// Steps it has.
    pub total: u64,
}

/// How to check.
#[derive(Clone, Copy, Default)]
pub struct CheckOptions<'o> {
    /// What may be written.
    pub repair: Repair,
    /// Whether pages are compared with their checksums.
    pub data: Data,
    /// Called as the check goes on.
    pub progress: Option<&'o dyn Fn(&Progress)>,
    /// Threads that read logs; `None`: one for each core.
    pub threads: Option<usize>,
    /// Whether the check goes on when the logs have lost something durable.
    pub recover: Recover,
}

impl fmt::Debug for CheckOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckOptions")
            .field("repair", &self.repair)
            .field("data", &self.data)
            .field("progress", &self.progress.is_some())
            .field("threads", &self.threads)
            .field("recover", &self.recover)
            .finish()
    }
}
