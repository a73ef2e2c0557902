//! `dure snapshot`: of a volume that is not mounted, or through the server of one that is.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use dure_bench::{note, say};
use dure_block::count::Count;
use dure_fs::{FileSystem, MountOptions, SnapshotInfo, VolumeInfo};
use rustix::io::Errno;

use crate::args::Snapshot;
use crate::command::{changes, stream};
use crate::exit;
use crate::live::client::Client;
use crate::live::wire::{Reply, Request, SnapshotRow, SnapshotTask};
use crate::log;
use crate::mounts;
use crate::size::Size;
use crate::volume::{self, Access};

/// How long a server may take: it writes everything back.
const PATIENCE: Duration = Duration::from_secs(600);

pub(crate) fn run(args: &Snapshot) -> Result<u8> {
    match args {
        Snapshot::Create(args) => {
            let name = args.name.clone();
            work(&args.volume, &[SnapshotTask::Create { name }])?;
        }
        Snapshot::Delete(args) => {
            let delete = |name: &String| SnapshotTask::Delete { name: name.clone() };
            let tasks: Vec<SnapshotTask> = args.names.iter().map(delete).collect();
            work(&args.volume, &tasks)?;
        }
        Snapshot::Rename(args) => {
            let (name, to) = (args.name.clone(), args.to.clone());
            work(&args.volume, &[SnapshotTask::Rename { name, to }])?;
        }
        Snapshot::Restore(args) => stream::restore(args)?,
        Snapshot::Mount(args) => {
            dure_fuse::mount::directory(&args.directory)?;
            let directory = args.directory.canonicalize()?;
            let directory = directory
                .to_str()
                .context("a directory whose name is UTF-8")?;
            mount(&args.volume, &args.name, directory)?;
        }
        Snapshot::Diff(args) => changes::run(args)?,
        Snapshot::List(args) => show(&work(&args.volume, &[])?, args.json),
    }
    Ok(exit::OK)
}

/// Does it; the snapshots that the volume has then.
fn work(volume: &Path, tasks: &[SnapshotTask]) -> Result<Vec<SnapshotRow>> {
    let is_create = |task: &SnapshotTask| matches!(task, SnapshotTask::Create { .. });
    // What the kernel holds is not in what is listed, renamed or deleted.
    let found = match tasks.iter().any(is_create) {
        true => server(volume)?,
        false => find(volume)?.0,
    };
    if let Some(client) = found.client
        && let Some(rows) = mounted(client, tasks)?
    {
        return Ok(rows);
    }
    unmounted(&found.path, tasks)
}

/// A volume and, if it is mounted, its server.
pub(crate) struct Found {
    pub(crate) path: PathBuf,
    pub(crate) client: Option<Client>,
}

/// Finds the server of a volume, given by where it lies or is mounted, and writes to it what the
/// kernel holds: that was acknowledged, too.
pub(crate) fn server(volume: &Path) -> Result<Found> {
    let (found, mount) = find(volume)?;
    if let (Some(_), Some(mount)) = (&found.client, &mount) {
        flush(&mount.directory)?;
    }
    Ok(found)
}

/// Finds the server of a volume, given by where it lies or is mounted, and its mount.
pub(crate) fn find(volume: &Path) -> Result<(Found, Option<mounts::Listed>)> {
    let mount = mounts::on(volume).or_else(|| mounts::of(volume));
    let path = mount.as_ref().map(|mount| mount.source.clone());
    let (found, mut client) = Client::of(volume)?;
    if let (None, Some(path)) = (&client, &path) {
        client = Client::connect(path)?;
    }
    let path = path.unwrap_or(found);
    Ok((Found { path, client }, mount))
}

/// Lets the server of a mounted volume show a snapshot.
fn mount(volume: &Path, name: &str, directory: &str) -> Result<()> {
    let (path, client) = Client::of(volume)?;
    let at = path.display();
    let Some(mut client) = client else {
        bail!("{at}: it is not mounted: `dure mount {at} {directory} -o snapshot={name}` shows it");
    };
    let (name, directory) = (name.to_owned(), directory.to_owned());
    match client.ask_patiently(&Request::MountSnapshot { name, directory }, PATIENCE)? {
        Some(Reply::Done { error: None }) => Ok(()),
        Some(Reply::Done { error: Some(why) }) => bail!("{at}: {why}"),
        Some(other) => bail!("{at}: answered {other:?}"),
        None => bail!("{at}: its server ended meanwhile"),
    }
}

/// Has the kernel write back what it holds.
fn flush(directory: &Path) -> Result<()> {
    let at = || directory.display().to_string();
    let file = std::fs::File::open(directory).with_context(at)?;
    let earlier = flushed(&mut || rustix::fs::syncfs(&file)).with_context(at)?;
    if let Some(error) = earlier {
        note!(
            "dure: {}: a program wrote what could not be written back ({error}); the rest is",
            at()
        );
    }
    Ok(())
}

/// Has `sync` write back. The kernel tells each descriptor once of an error of any program's writes since
/// anybody was told: that is returned if all else is written back.
fn flushed(sync: &mut dyn FnMut() -> rustix::io::Result<()>) -> rustix::io::Result<Option<Errno>> {
    match sync() {
        Ok(()) => Ok(None),
        Err(earlier @ (Errno::NOSPC | Errno::DQUOT | Errno::IO)) => sync().map(|()| Some(earlier)),
        Err(error) => Err(error),
    }
}

/// Nothing if the server was about to end: it answers no more, and has done nothing.
fn mounted(mut client: Client, tasks: &[SnapshotTask]) -> Result<Option<Vec<SnapshotRow>>> {
    let at = client.volume().display().to_string();
    let tasks = tasks.to_vec();
    match client.ask_patiently(&Request::Snapshots { tasks }, PATIENCE)? {
        Some(Reply::Snapshots { list }) => Ok(Some(list)),
        Some(Reply::Done { error: Some(why) }) => bail!("{at}: {why}"),
        Some(other) => bail!("{at}: answered {other:?}"),
        None => Ok(None),
    }
}

fn unmounted(path: &Path, tasks: &[SnapshotTask]) -> Result<Vec<SnapshotRow>> {
    let at = || path.display().to_string();
    if tasks.is_empty() {
        let info = VolumeInfo::read(volume::device(path, Access::Read)?).with_context(at)?;
        return Ok(info.snapshots.iter().map(SnapshotRow::of).collect());
    }
    let device = volume::device(path, Access::Write)?;
    let fs = FileSystem::open(device, MountOptions::default()).with_context(at)?;
    let creates = tasks
        .iter()
        .any(|task| matches!(task, SnapshotTask::Create { .. }));
    let allowed = match creates {
        true => volume::whole(&fs, path),
        false => Ok(()),
    };
    let allowed = allowed.and_then(|()| allow(&fs, tasks));
    let done = allowed.and_then(|()| tasks.iter().try_for_each(|task| perform(&fs, task)));
    let rows = rows(&fs);
    fs.close().with_context(at)?;
    done.with_context(at)?;
    Ok(rows)
}

/// Refuses, before the first is deleted, if one of them cannot be.
pub(crate) fn allow(fs: &FileSystem, tasks: &[SnapshotTask]) -> Result<()> {
    let snapshots = fs.snapshots();
    for (at, task) in tasks.iter().enumerate() {
        let SnapshotTask::Delete { name } = task else {
            continue;
        };
        let is_same =
            |task: &SnapshotTask| matches!(task, SnapshotTask::Delete { name: one } if one == name);
        if tasks[..at].iter().any(is_same) {
            bail!("{name} is named twice; nothing was deleted");
        }
        if snapshots.iter().all(|info| info.name != *name) {
            let missing = dure_fs::Error::NoSnapshot { name: name.clone() };
            return Err(match tasks {
                [_] => missing.into(),
                _ => anyhow::Error::from(missing).context("nothing was deleted"),
            });
        }
        dure::stream::check_delete(fs, name)?;
    }
    Ok(())
}

/// Does it.
pub(crate) fn perform(fs: &FileSystem, task: &SnapshotTask) -> Result<()> {
    match task {
        SnapshotTask::Create { name } => drop(fs.create_snapshot(name)?),
        SnapshotTask::Delete { name } => {
            dure::stream::check_delete(fs, name)?;
            fs.delete_snapshot(name)?;
        }
        SnapshotTask::Rename { name, to } => fs.rename_snapshot(name, to)?,
    }
    Ok(())
}

/// The snapshots of a volume.
pub(crate) fn rows(fs: &FileSystem) -> Vec<SnapshotRow> {
    fs.snapshots().iter().map(SnapshotRow::of).collect()
}

impl SnapshotRow {
    fn of(info: &SnapshotInfo) -> SnapshotRow {
        SnapshotRow {
            id: info.id,
            name: info.name.clone(),
            created: info.created,
            inodes: info.inodes,
            bytes: info.blocks * 4096,
        }
    }
}

fn show(rows: &[SnapshotRow], json: bool) {
    if json {
        let rows = serde_json::to_value(rows).expect("rows are JSON");
        say!("{rows:#}");
        return;
    }
    for row in rows {
        let bytes = Size(row.bytes).to_string();
        let (date, files) = (log::date(row.created), Count::of(row.inodes, "inode"));
        say!("{date}  {bytes:>10}  {files:>14}  {}", row.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_others_is_told_once_and_one_that_stays_ends_it() {
        let after = |answers: &[rustix::io::Result<()>]| {
            let mut answers = answers.iter();
            let flushed = flushed(&mut || *answers.next().expect("two calls at most"));
            (flushed, answers.count())
        };
        assert_eq!(after(&[Ok(())]), (Ok(None), 0));
        for error in [Errno::NOSPC, Errno::DQUOT, Errno::IO] {
            assert_eq!(after(&[Err(error), Ok(())]), (Ok(Some(error)), 0));
            assert_eq!(after(&[Err(error), Err(error)]), (Err(error), 0));
        }
        assert_eq!(
            after(&[Err(Errno::ACCESS), Ok(())]),
            (Err(Errno::ACCESS), 1)
        );
    }
}
