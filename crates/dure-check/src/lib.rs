//! The structural check of an unmounted volume, the repairs that need no guess, and the rebuild of
//! what is lost.
//!
//! **Problem.** After a bug, a broken disk or an attack, a tool must say what is wrong with a
//! volume without trusting anything on it. **Structure.** Passes over the raw medium (never through
//! the mounted caches), a file each; each finding is an [`Issue`] in a [`Report`].
//!
//! **Invariants.** Any input gives a report or an error, never a panic, and in time and memory
//! bounded by the volume's size: no recursion, and nothing is followed twice. Without
//! a [`Repair`] nothing is written. **Crash.** A volume that was not unmounted is checked as
//! its recovery would leave it; a repair that is cut off leaves at worst blocks without an owner.
//!
//! A repair through an [`UndoDevice`] can be taken back.
//!
//! # Order of the passes
//! Superblocks; volume header and pack; snapshots; journal headers; NAT; node images and inodes; orphan slots;
//! trees of files and directories; links; SIT; summaries; and, if asked, the checksum of every
//! page.

mod bits;
mod blob;
mod clones;
mod context;
mod counts;
mod data;
mod directory;
pub mod dump;
mod file;
mod header;
mod heads;
mod inode;
mod inodes;
mod issue;
mod journals;
mod loss;
mod names;
mod nat;
mod nodes;
mod options;
mod orphans;
mod owner;
mod pairs;
mod passes;
mod quota;
mod quota_facts;
mod rebuild;
mod repair;
mod repairs;
mod replay;
mod report;
mod shared;
mod sit;
mod snapshots;
mod space;
mod summaries;
mod summary;
mod superblock;
mod trees;
mod undo;

use dure_block::Device;
use dure_store::error::{Error, Result};
use dure_store::media::Region;
use dure_store::units::Ino;
use dure_sync::Arc;

pub use issue::{Issue, IssueKind, Severity};
pub use loss::Loss;
pub use options::{CheckOptions, Data, Progress, Repair};
pub use owner::{BlockUse, NodeUse, PairKind, PairName};
pub use rebuild::{Each, NAMELESS, Rescue};
pub use report::{Counts, ISSUES_MAX, Report};
pub use undo::{Saved, UndoDevice, UndoError, UndoFile, Undone, undo};

use context::Context;

/// Checks the volume on `device`, which must not be mounted; with [`Repair::Full`], what is lost is
/// rebuilt from what is left, if a safe repair does not suffice.
///
/// # Errors
/// Those of a check without a rebuild; and no room for what a rebuild must write.
pub fn check(device: Arc<dyn Device>, options: &CheckOptions<'_>) -> Result<Report> {
    if options.repair != Repair::Full {
        return check_once(device, options);
    }
    let safe = CheckOptions {
        repair: Repair::Safe,
        ..*options
    };
    let mut report = match check_once(device.clone(), &safe) {
        Ok(report) if !report.needs_rebuild() => return Ok(report),
        Ok(report) => report,
        // The volume was not unmounted, and cannot be mounted: a rebuild replays what it can.
        Err(Error::BadOption { .. }) => check_once(device.clone(), &CheckOptions::default())?,
        Err(error) => return Err(error),
    };
    let region = Region::open(device.clone());
    let layout = superblock::find(&region, &mut Report::default())?;
    if layout.total_blocks > region.blocks() {
        return Ok(report);
    }
    let rebuilt = rebuild::run(region, layout, options)?;
    report.losses = rebuilt.losses;
    let damaged = |issue: &Issue| snapshots::are_damaged(&issue.kind);
    if report.counts().snapshots > 0 || report.issues().iter().any(damaged) {
        report.losses.push(Loss {
            ino: Ino(0),
            path: None,
            what: "all snapshots: a rebuild keeps the volume as it is now only".into(),
        });
    }
    report.lost = rebuilt.lost;
    if !rebuilt.left.is_empty() {
        return Ok(report);
    }
    report.mark_repaired(|kind| !matches!(kind, IssueKind::DataChecksum { .. }));
    // What the rebuild did not mend is found by looking again.
    let after = check_once(
        device,
        &CheckOptions {
            data: options.data,
            ..CheckOptions::default()
        },
    )?;
    for issue in after.issues() {
        let known = |known: &&Issue| known.kind == issue.kind && !known.repaired;
        if report.issues().iter().find(known).is_none() {
            report.add(issue.kind.clone());
        }
    }
    report.counts = *after.counts();
    Ok(report)
}

/// Checks the volume on `device`, once.
///
/// # Errors
/// `NotDure`, `Unsupported` or `Corrupt` when there is no superblock to start from; `BadOption`
/// when a repair is asked for but the volume was not unmounted; a failed write of a repair.
/// Everything else, failed reads too, is an issue of the report.
fn check_once(device: Arc<dyn Device>, options: &CheckOptions<'_>) -> Result<Report> {
    let region = Region::open(device);
    let mut report = Report::default();
    let layout = superblock::find(&region, &mut report)?;
    if report.worst() == Some(Severity::Fatal) {
        return Ok(report);
    }
    if options.repair != Repair::No {
        layout.superblock.expect_writable()?;
    }
    let mut context = Context::new(options, region, layout, report);
    let Some(header) = header::volume(&mut context) else {
        return Ok(context.report);
    };
    if context.repairing() && !context.clean {
        let why = "the volume was not unmounted: mount it once, so that its logs are replayed";
        return Err(Error::BadOption {
            option: "repair",
            why: why.into(),
        });
    }
    heads::check(&mut context);
    if !header::packs(&mut context, &header) {
        return Ok(context.report);
    }
    snapshots::check(&mut context, &header);
    journals::check(&mut context);
    nat::load(&mut context);
    sit::load(&mut context);
    snapshots::own(&mut context);
    clones::load(&mut context, &header);
    if !replay::load(&mut context, &header) {
        return Ok(context.report);
    }
    counts::check(&mut context, &header);
    passes::run(&mut context);
    if context.repairing() {
        repair::run(&mut context)?;
    }
    Ok(context.report)
}

/// The tests mount and check thousands of small volumes.
#[cfg(all(test, not(dure_backend = "sim")))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[cfg(test)]
pub(crate) mod tests;
