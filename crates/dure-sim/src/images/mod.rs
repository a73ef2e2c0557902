//! Damaged and crafted images: a base volume, a few changes, and what must hold of every image.
//!
//! **Problem.** A medium may hold anything: rot, or what an attacker wrote, whose checksums are
//! right. **Structure.** `base` makes volumes with one of everything, clean and crashed; `damage`
//! changes fields, names, blocks and generations, and makes checksums right again (or does not:
//! rot); `judge` checks, mounts, reads, copies out, writes and repairs. Its knowledge of layouts
//! comes from the `format` modules. **Invariants.** A case is its seed and number. A panic is a
//! violation; a hang or an abort is detected by the parent process, if [`run`] runs in a child.
//! **Crash.** None.

mod base;
mod damage;
mod found;
mod judge;
#[cfg(test)]
mod tests;

use std::path::Path;

/// One damaged image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// What all cases of a run depend on.
    pub seed: u64,
    /// Which of them.
    pub number: u64,
}

/// The result of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outcome {
    /// The check found nothing wrong.
    pub clean: bool,
    /// It could be mounted for writing.
    pub mounted: bool,
    /// A repair made it clean.
    pub repaired: bool,
}

/// Makes the image of `case` and judges it. `scratch` is a directory on the host, for what is
/// copied out.
///
/// # Errors
/// What was done to the image, and what does not hold.
pub fn run(case: Case, scratch: &Path) -> Result<Outcome, String> {
    let mut random = damage::Random::new(case.seed, case.number);
    let base = base::bases();
    let base = &base[random.below(base.len())];
    let damaged = damage::damage(base, &mut random, scratch);
    let judged = crate::crash::caught(|| judge::judge(base, &damaged, scratch));
    judged.map_err(|what| format!("{}: {}: {what}", base.name, damaged.how.join(", ")))
}
