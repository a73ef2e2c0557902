//! `dure put` and `dure get`: whole trees, with everything that belongs to them.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use dure::{Session, tree};
use dure_bench::say;

use crate::args::Copy;
use crate::exit;
use crate::progress;
use crate::size::Size;
use crate::volume::{self, Access};

pub(crate) fn put(args: &Copy) -> Result<u8> {
    let volume = volume::open(&args.volume, Access::Write)?;
    let session = volume.root();
    let into = |path: &Path| session.metadata(path).is_ok_and(|data| data.is_dir());
    let copied = copy(args, into, |from, to, step| {
        tree::put(&session, from, to, step)
    });
    // What was copied before an error stays, whole.
    volume::close(&volume, &args.volume)?;
    report(args, &copied?);
    Ok(exit::OK)
}

pub(crate) fn get(args: &Copy) -> Result<u8> {
    let volume = volume::open(&args.volume, Access::Read)?;
    let session: Session = volume.root();
    let copied = copy(args, Path::is_dir, |from, to, step| {
        tree::get(&session, from, to, step)
    })?;
    report(args, &copied);
    Ok(exit::OK)
}

fn copy(
    args: &Copy,
    is_directory: impl Fn(&Path) -> bool,
    one: impl Fn(
        &Path,
        &Path,
        &mut dyn FnMut(&tree::Progress) -> ControlFlow<()>,
    ) -> dure::Result<tree::Progress>,
) -> Result<tree::Progress> {
    let (target, sources) = args
        .paths
        .split_last()
        .expect("at least two, says the parser");
    let into = is_directory(target);
    if sources.len() > 1 && !into {
        bail!(
            "{}: several sources need an existing directory as target",
            target.display()
        );
    }
    let bar = progress::counter("files copied");
    let mut total = tree::Progress::default();
    for source in sources {
        let to = if into {
            inside(target, source)?
        } else {
            target.clone()
        };
        let before = total;
        let copied = one(source, &to, &mut |now| {
            bar.set_position(before.files + now.files);
            ControlFlow::Continue(())
        })?;
        total.files += copied.files;
        total.bytes += copied.bytes;
    }
    bar.finish_and_clear();
    Ok(total)
}

/// `target/` plus the last part of `source`; all of `/` and `.` go straight into the target.
fn inside(target: &Path, source: &Path) -> Result<PathBuf> {
    match source.components().next_back() {
        Some(std::path::Component::Normal(name)) => Ok(target.join(name)),
        Some(std::path::Component::ParentDir) => bail!("{}: ends in '..'", source.display()),
        _ => Ok(target.to_owned()),
    }
}

fn report(args: &Copy, copied: &tree::Progress) {
    if !args.quiet {
        say!(
            "{} files and directories, {}",
            copied.files,
            Size(copied.bytes)
        );
    }
}
