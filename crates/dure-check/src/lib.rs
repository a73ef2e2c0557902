//! The structural check of an unmounted volume, and the repairs that need no guess.
//!
//! **Problem.** After a bug, a broken disk or an attack, a tool must say what is wrong with a
//! volume without trusting anything on it. **Structure.** Passes over the raw medium (never through
//! the mounted caches), a file each; each finding is an [`Issue`] in a [`Report`].
//!
//! **Invariants.** Any input gives a report or an error, never a panic, and in time and memory
//! bounded by the volume's size: no recursion, and nothing is followed twice. Without
//! [`Repair::Safe`] nothing is written. **Crash.** A volume that was not unmounted is checked as
//! its recovery would leave it; a repair that is cut off leaves at worst blocks without an owner.
//!
//! # Order of the passes
//! Superblocks; volume header and pack; journal headers; NAT; node images and inodes; orphan slots;
//! trees of files and directories; links; SIT; summaries; and, if asked, the checksum of every
//! page.

mod bits;
mod blob;
mod context;
mod counts;
mod data;
mod directory;
pub mod dump;
mod file;
mod header;
mod inode;
mod inodes;
mod issue;
mod journals;
mod names;
mod nat;
mod nodes;
mod options;
mod orphans;
mod owner;
mod pairs;
mod repair;
mod repairs;
mod replay;
mod report;
mod sit;
mod summaries;
mod summary;
mod superblock;
mod trees;

use dure_block::Device;
use dure_store::error::{Error, Result};
use dure_store::media::Region;
use dure_sync::Arc;

pub use issue::{Issue, IssueKind, Severity};
pub use options::{CheckOptions, Data, Progress, Repair};
pub use owner::{BlockUse, NodeUse, PairKind, PairName};
pub use report::{Counts, ISSUES_MAX, Report};

use context::Context;

/// Checks the volume on `device`, which must not be mounted.
///
/// # Errors
/// `NotDure`, `Unsupported` or `Corrupt` when there is no superblock to start from; `BadOption`
/// when a repair is asked for but the volume was not unmounted; a failed write of a repair.
/// Everything else, failed reads too, is an issue of the report.
pub fn check(device: Arc<dyn Device>, options: &CheckOptions<'_>) -> Result<Report> {
    let region = Region::open(device);
    let mut report = Report::default();
    let layout = superblock::find(&region, &mut report)?;
    if report.worst() == Some(Severity::Fatal) {
        return Ok(report);
    }
    let mut context = Context::new(options, region, layout, report);
    let Some(header) = header::volume(&mut context) else {
        return Ok(context.report);
    };
    if options.repair == Repair::Safe && !context.clean {
        let why = "the volume was not unmounted: mount it once, so that its logs are replayed";
        return Err(Error::BadOption {
            option: "repair",
            why: why.into(),
        });
    }
    if !header::packs(&mut context, &header) {
        return Ok(context.report);
    }
    journals::check(&mut context);
    nat::load(&mut context);
    sit::load(&mut context);
    if !replay::load(&mut context, &header) {
        return Ok(context.report);
    }
    counts::check(&mut context, &header);
    nat::check(&mut context);
    nodes::check(&mut context);
    nodes::check_root(&mut context);
    orphans::check(&mut context);
    trees::check(&mut context);
    names::check(&mut context);
    names::check_leaks(&mut context);
    sit::check(&mut context);
    summary::finish(&mut context);
    if options.repair == Repair::Safe {
        repair::run(&mut context)?;
    }
    Ok(context.report)
}

#[cfg(test)]
pub(crate) mod tests;
