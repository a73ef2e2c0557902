//! `dure put`, `dure get` and `dure clone`: whole trees, with everything that belongs to them.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use dure::{Cause, Session, tree};
use dure_bench::say;
use dure_block::count::Count;

use crate::args::Copy;
use crate::exit;
use crate::progress;
use crate::size::Size;
use crate::volume::{self, Access};

pub(crate) fn put(args: &Copy) -> Result<u8> {
    let volume = volume::open(&args.volume, Access::Write)?;
    let session = volume.root();
    let into = |path: &Path| session.metadata(path).is_ok_and(|data| data.is_dir());
    let copied = copy(args, into, |copies, step| {
        tree::put_all(&session, copies, step)
    });
    // What was copied before an error stays, whole.
    volume::close(&volume, &args.volume)?;
    report(args, &copied?);
    Ok(exit::OK)
}

pub(crate) fn clone(args: &Copy) -> Result<u8> {
    let volume = volume::open(&args.volume, Access::Write)?;
    let session = volume.root();
    let into = |path: &Path| session.metadata(path).is_ok_and(|data| data.is_dir());
    let cloned = copy(args, into, |copies, step| {
        tree::clone_all(&session, copies, step)
    });
    volume::close(&volume, &args.volume)?;
    report(args, &cloned?);
    Ok(exit::OK)
}

pub(crate) fn get(args: &Copy) -> Result<u8> {
    let volume = volume::open(&args.volume, Access::Read)?;
    let session: Session = volume.root();
    let copied = copy(args, Path::is_dir, |copies, step| {
        tree::get_all(&session, copies, step)
    })?;
    report(args, &copied);
    Ok(exit::OK)
}

fn copy(
    args: &Copy,
    is_directory: impl Fn(&Path) -> bool,
    all: impl Fn(
        &[(PathBuf, PathBuf)],
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
    let place = |source: &PathBuf| {
        let to = if into {
            inside(target, source)?
        } else {
            target.clone()
        };
        Ok((source.clone(), to))
    };
    let copies: Vec<(PathBuf, PathBuf)> = sources.iter().map(place).collect::<Result<_>>()?;
    let bar = progress::counter("files copied");
    let copied = all(&copies, &mut |now| {
        bar.set_position(now.files);
        ControlFlow::Continue(())
    });
    bar.finish_and_clear();
    copied.map_err(|error| match error.cause() {
        Cause::Host(_) => error.into(),
        // The path is one of the volume.
        _ => anyhow::Error::new(error).context(args.volume.display().to_string()),
    })
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
        say!("{}, {}", Count::copied(copied.files), Size(copied.bytes));
    }
}
