//! `dure quota project`: of a volume that is not mounted, or through the server of one that is.

use std::ops::ControlFlow;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use dure_bench::say;
use dure_fs::{FileSystem, InodeRef, MountOptions};

use crate::args::QuotaProject;
use crate::command::snapshot;
use crate::live::client::Client;
use crate::live::wire::{Reply, Request};
use crate::progress;
use crate::volume::{self, Access};

/// How long a server may take to the next step, and to make all durable.
const PATIENCE: Duration = Duration::from_secs(600);
/// Names between two steps that are told.
const STEP: u64 = 1000;

/// Told of a project, and of how many inodes got it so far; whether to go on.
type Tell<'t> = &'t mut dyn FnMut(u32, u64) -> bool;

pub(super) fn run(args: &QuotaProject) -> Result<()> {
    let found = match args.id {
        Some(_) => snapshot::server(&args.volume)?,
        None => snapshot::find(&args.volume)?.0,
    };
    let bar = progress::counter("inodes");
    let mut last = None;
    let mut tell = |id, inodes| {
        last = Some((id, inodes));
        bar.set_position(inodes);
        true
    };
    let is_done = match found.client {
        Some(client) => mounted(client, args, &mut tell)?,
        None => false,
    };
    if !is_done {
        let at = || found.path.display().to_string();
        let device = volume::device(&found.path, Access::Write)?;
        let fs = FileSystem::open(device, MountOptions::default()).with_context(at)?;
        let whole = match args.id {
            Some(_) => volume::whole(&fs, &found.path),
            None => Ok(()),
        };
        let done = whole.and_then(|()| {
            let done = perform(&fs, &args.directory, args.id, &mut tell);
            done.with_context(at)
        });
        fs.close().with_context(at)?;
        done?;
    }
    bar.finish_and_clear();
    let (id, inodes) = last.context("the server did not say which project")?;
    match (id, args.id) {
        (_, Some(_)) => say!("{inodes} inodes"),
        (0, None) => say!("none"),
        (id, None) => say!("{id}"),
    }
    Ok(())
}

/// `false` if the server was about to end: it answers no more, and has done nothing.
fn mounted(mut client: Client, args: &QuotaProject, tell: Tell<'_>) -> Result<bool> {
    let at = client.volume().display().to_string();
    let (directory, id) = (args.directory.clone(), args.id);
    let mut reply = client.ask_patiently(&Request::Project { directory, id }, PATIENCE)?;
    let mut has_begun = false;
    loop {
        match reply {
            Some(Reply::Project { id, inodes }) => tell(id, inodes),
            Some(Reply::Done { error: None }) => return Ok(true),
            Some(Reply::Done { error: Some(why) }) => bail!("{at}: {why}"),
            Some(other) => bail!("{at}: answered {other:?}"),
            None if has_begun => bail!("{at}: its server ended meanwhile; do it again"),
            None => return Ok(false),
        };
        has_begun = true;
        reply = client.next(PATIENCE)?;
    }
}

fn find(fs: &FileSystem, directory: &str) -> Result<InodeRef> {
    let mut at = fs.root()?;
    for name in directory.split('/').filter(|name| !name.is_empty()) {
        let found = fs.lookup(&at, name.as_bytes());
        let found = found.with_context(|| directory.to_owned())?;
        at = found.with_context(|| format!("{directory}: the volume has no such directory"))?;
    }
    Ok(at)
}

/// Gives a directory of the volume a project, or asks for it.
pub(crate) fn perform(
    fs: &FileSystem,
    directory: &str,
    id: Option<u32>,
    tell: Tell<'_>,
) -> Result<()> {
    let inode = find(fs, directory)?;
    let Some(id) = id else {
        tell(fs.project(&inode), 0);
        return Ok(());
    };
    let (mut is_stopped, mut steps) = (false, 0_u64);
    let count = fs.set_project(&inode, id, &mut |inodes| {
        steps += 1;
        is_stopped = steps.is_multiple_of(STEP) && !tell(id, inodes);
        match is_stopped {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    let count = count.with_context(|| directory.to_owned())?;
    if is_stopped {
        bail!("{directory}: stopped after {count} inodes; do it again for the others");
    }
    tell(id, count);
    Ok(())
}
