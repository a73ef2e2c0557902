//! What the passes have found about quotas.

use std::collections::BTreeMap;

use dure_store::format::quota::{Subject, Usage};

/// What the passes have found about quotas.
#[derive(Debug, Default)]
pub(super) struct QuotaFacts {
    /// `mounts` of the volume header, if the volume was unmounted.
    pub(super) mounts: Option<u32>,
    /// What inodes have, by their owners.
    pub(super) used: BTreeMap<Subject, Usage>,
    /// What is stored, if it counts for the next mount.
    pub(super) kept: Option<Vec<(Subject, Usage)>>,
}
