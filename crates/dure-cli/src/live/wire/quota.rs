//! Quotas: what is asked, and what users, groups and projects have.

use serde::{Deserialize, Serialize};

use crate::command::quota::LimitChange;

/// What is to be done.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "do")]
pub(crate) enum QuotaTask {
    Enable,
    Disable,
    /// Change limits of a subject: its kind (1 user, 2 group, 3 project) and number.
    Set {
        subject: (u32, u32),
        change: LimitChange,
    },
}

/// What a user, group or project has and may have; a limit of 0 is none.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct QuotaRow {
    pub(crate) kind: String,
    pub(crate) id: u32,
    pub(crate) bytes: u64,
    pub(crate) inodes: u64,
    pub(crate) soft: u64,
    pub(crate) hard: u64,
    pub(crate) soft_inodes: u64,
    pub(crate) hard_inodes: u64,
    /// Seconds.
    pub(crate) grace: u32,
    /// Seconds since 1970 when the soft limit was exceeded; 0: it is not.
    pub(crate) since: i64,
    pub(crate) inodes_since: i64,
}
