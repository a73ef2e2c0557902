//! The bytes of a file that one core owns, over its life.
//!
//! **Structure.** Each change makes a version. Truncates are atomic calls and divide the life into
//! epochs. **Invariants.** In a recovered file each page is that of some version, no older than the
//! last promise and of no later epoch than the last truncate that survived, which cuts them all;
//! the size covers what was promised and no more than the epoch ever had.

use super::history::{CrashMoment, Moment};

const PAGE: usize = 4096;

#[derive(Debug)]
struct Version {
    moment: Moment,
    data: Vec<u8>,
    /// Truncates so far, this one included.
    epoch: usize,
    promised: Option<u64>,
}

/// The versions of one file.
#[derive(Debug)]
pub(super) struct FileHistory {
    versions: Vec<Version>,
    /// The size each truncate set, and its version.
    cuts: Vec<(usize, usize)>,
}

impl Default for FileHistory {
    fn default() -> Self {
        let empty = Version {
            moment: Moment::default(),
            data: Vec::new(),
            epoch: 0,
            promised: Some(0),
        };
        FileHistory {
            versions: vec![empty],
            cuts: Vec::new(),
        }
    }
}

impl FileHistory {
    /// The file holds `data` from now on; `cut` is the size if that was a truncate.
    pub(super) fn push(
        &mut self,
        moment: Moment,
        data: Vec<u8>,
        cut: Option<u64>,
        promised: Option<u64>,
    ) {
        if let Some(size) = cut {
            let size = usize::try_from(size).expect("files are small");
            self.cuts.push((size, self.versions.len()));
        }
        self.versions.push(Version {
            moment,
            data,
            epoch: self.cuts.len(),
            promised,
        });
    }

    /// Whether a file may hold `found`.
    ///
    /// # Errors
    /// What it may not.
    pub(super) fn check(&self, found: &[u8], at: CrashMoment) -> Result<(), String> {
        let started = |version: &&Version| at.has_started(version.moment);
        let last = self.versions.iter().take_while(started).count() - 1;
        let held = |version: &Version| at.must_hold(version.promised);
        let first = self.versions.iter().rposition(held).unwrap_or(0);
        let mut why = Vec::new();
        for epoch in self.versions[first].epoch..=self.versions[last].epoch {
            match self.check_epoch(found, first, last, epoch) {
                Ok(()) => return Ok(()),
                Err(what) => why.push(format!("with {epoch} truncates {what}")),
            }
        }
        let sizes: Vec<(usize, usize)> = self
            .versions
            .iter()
            .map(|version| (version.data.len(), version.epoch))
            .collect();
        Err(format!(
            "{} bytes {at:?}, promised version {first}, last {last} of (size, truncates) {sizes:?}, cuts {:?}: {}",
            found.len(),
            self.cuts,
            why.join("; ")
        ))
    }

    fn check_epoch(
        &self,
        found: &[u8],
        first: usize,
        last: usize,
        epoch: usize,
    ) -> Result<(), String> {
        let candidates = || (first..=last).filter(|version| self.versions[*version].epoch <= epoch);
        let sizes = candidates()
            .filter(|version| self.versions[*version].epoch == epoch)
            .map(|version| self.versions[version].data.len());
        let most = sizes.max().unwrap_or(0);
        let least = self
            .cuts_between(first, epoch)
            .fold(self.versions[first].data.len(), usize::min);
        if found.len() > most || found.len() < least {
            return Err(format!("it has {least} to {most} bytes"));
        }
        for (page, bytes) in found.chunks(PAGE).enumerate() {
            if !candidates().any(|version| self.page(version, page, epoch)[..bytes.len()] == *bytes)
            {
                let at = first_difference(
                    &self.page(last.min(self.versions.len() - 1), page, epoch),
                    bytes,
                );
                return Err(format!(
                    "page {page} is of no version (differs from the last at {at})"
                ));
            }
        }
        Ok(())
    }

    /// The sizes set by truncates after `version` up to `epoch`.
    fn cuts_between(&self, version: usize, epoch: usize) -> impl Iterator<Item = usize> {
        let cuts = self.cuts[..epoch].iter();
        cuts.filter(move |(_, at)| *at > version)
            .map(|(size, _)| *size)
    }

    /// A page as of a version, less what truncates up to `epoch` have taken since.
    fn page(&self, version: usize, page: usize, epoch: usize) -> Vec<u8> {
        let data = &self.versions[version].data;
        let from = (page * PAGE).min(data.len());
        let to = (from + PAGE).min(data.len());
        let mut bytes = data[from..to].to_vec();
        bytes.resize(PAGE, 0);
        for size in self.cuts_between(version, epoch) {
            let keep = size.saturating_sub(page * PAGE).min(PAGE);
            bytes[keep..].fill(0);
        }
        bytes
    }
}

fn first_difference(one: &[u8], other: &[u8]) -> usize {
    one.iter()
        .zip(other)
        .take_while(|(one, other)| one == other)
        .count()
}
