//! What really happened, and whether what was recovered agrees.

use std::collections::{BTreeMap, BTreeSet};

use dure_journal::Mark;

use super::recover::Recovered;

/// Slots of a granule's payload. A handle writes one: number `version % SLOTS`.
pub(crate) const SLOTS: usize = 4;
/// The payload of a granule.
pub(crate) type Payload = [u64; SLOTS];

/// One joined handle.
#[derive(Debug, Clone)]
pub(crate) struct Operation {
    pub(crate) mark: Mark,
    /// Granules and the versions they got.
    pub(crate) writes: Vec<(usize, u64)>,
    /// Last writers of what it wrote.
    pub(crate) wrote_after: Vec<Mark>,
    /// Last writers of what it read to decide.
    pub(crate) read_from: Vec<Mark>,
}

/// Everything since the last recovery.
#[derive(Debug, Clone)]
pub(crate) struct Truth {
    /// What recovery found, by granule.
    pub(crate) base: Vec<u64>,
    pub(crate) operations: Vec<Operation>,
    /// By granule and version.
    pub(crate) payloads: BTreeMap<(usize, u64), Payload>,
    /// Handles promised to survive a crash at or after a step of the device's log.
    pub(crate) promises: Vec<(u64, Mark)>,
}

impl Truth {
    pub(crate) fn new(base: Vec<(u64, Payload)>) -> Self {
        let payloads = base
            .iter()
            .enumerate()
            .map(|(granule, (version, payload))| ((granule, *version), *payload));
        Self {
            payloads: payloads.collect(),
            base: base.iter().map(|(version, _)| *version).collect(),
            operations: Vec::new(),
            promises: Vec::new(),
        }
    }

    /// Judges a recovery from a crash at `step`.
    ///
    /// # Errors
    /// What is wrong.
    pub(crate) fn judge(&self, step: u64, recovered: &Recovered) -> Result<(), String> {
        let promised: BTreeSet<Mark> = self
            .promises
            .iter()
            .filter(|(since, _)| *since <= step)
            .map(|(_, mark)| *mark)
            .collect();
        let mut there: BTreeSet<Mark> = BTreeSet::new();
        for operation in &self.operations {
            let found = operation
                .writes
                .iter()
                .filter(|(granule, version)| recovered.granules[*granule].0 >= *version)
                .count();
            if found != 0 && found != operation.writes.len() {
                return Err(format!("torn: {found} of {operation:?}"));
            }
            if found != 0 || operation.writes.is_empty() {
                there.insert(operation.mark);
            }
            if promised.contains(&operation.mark) && found != operation.writes.len() {
                return Err(format!("lost: {operation:?} was promised"));
            }
        }
        let known: BTreeSet<Mark> = self
            .operations
            .iter()
            .map(|operation| operation.mark)
            .collect();
        for operation in self
            .operations
            .iter()
            .filter(|operation| there.contains(&operation.mark))
        {
            let needs = operation.wrote_after.iter().chain(&operation.read_from);
            for need in needs.filter(|need| known.contains(need)) {
                // What wrote nothing leaves no trace that could be missed.
                if !there.contains(need) {
                    return Err(format!("{operation:?} is there without {need}"));
                }
            }
        }
        for (granule, (version, payload)) in recovered.granules.iter().enumerate() {
            if *version < self.base[granule] {
                return Err(format!("granule {granule} fell back to version {version}"));
            }
            match self.payloads.get(&(granule, *version)) {
                Some(truth) if truth == payload => {}
                Some(truth) => {
                    return Err(format!(
                        "granule {granule} version {version}: {payload:?} instead of {truth:?}"
                    ));
                }
                None => {
                    return Err(format!(
                        "granule {granule} has version {version} from nowhere"
                    ));
                }
            }
        }
        Ok(())
    }
}
