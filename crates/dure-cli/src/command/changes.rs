//! `dure snapshot diff`: what differs between a snapshot and a later one, or the present.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use dure_bench::say;
use dure_fs::{Change, FileSystem, MountOptions};
use serde::{Deserialize, Serialize};

use crate::args::SnapshotDiff;
use crate::live::client::Client;
use crate::live::wire::{Reply, Request};
use crate::volume::{self, Access};

/// How long a server may take for the next differences: it goes through all directories.
const PATIENCE: Duration = Duration::from_secs(3600);
/// Differences in a reply.
const BATCH: usize = 1000;

/// A difference, with paths as they are printed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ChangeRow {
    change: Kind,
    path: String,
    /// Of what was renamed, before.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Added,
    Removed,
    Modified,
    Renamed,
}

impl ChangeRow {
    fn of(change: Change) -> ChangeRow {
        let (kind, path, from) = match change {
            Change::Added(path) => (Kind::Added, path, None),
            Change::Removed(path) => (Kind::Removed, path, None),
            Change::Modified(path) => (Kind::Modified, path, None),
            Change::Renamed(from, to) => (Kind::Renamed, to, Some(from)),
        };
        ChangeRow {
            change: kind,
            path: shown(&path),
            from: from.map(|from| shown(&from)),
        }
    }

    fn print(&self, json: bool) {
        if json {
            let row = serde_json::to_string(self).expect("a row is JSON");
            return say!("{row}");
        }
        let path = &self.path;
        match (self.change, &self.from) {
            (Kind::Added, _) => say!("+ {path}"),
            (Kind::Removed, _) => say!("- {path}"),
            (Kind::Modified, _) => say!("M {path}"),
            (Kind::Renamed, from) => say!("R {} -> {path}", from.as_deref().unwrap_or_default()),
        }
    }
}

/// A path in one line: what does not print, a backslash and what is not UTF-8 are `\xNN`.
pub(super) fn shown(path: &[u8]) -> String {
    let mut text = String::from("/");
    for chunk in path.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '\\' => text.push_str("\\x5c"),
                char if char.is_ascii_control() => {
                    text.push_str(&format!("\\x{:02x}", u32::from(char)));
                }
                char => text.push(char),
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// `dure snapshot diff`.
pub(crate) fn run(args: &SnapshotDiff) -> Result<()> {
    // What the kernel holds is of the present.
    let found = match args.later {
        Some(_) => super::snapshot::find(&args.volume)?.0,
        None => super::snapshot::server(&args.volume)?,
    };
    let (from, to) = (args.name.clone(), args.later.clone());
    if let Some(client) = found.client
        && ask(client, Request::Changes { from, to }, args.json)?
    {
        return Ok(());
    }
    let at = || found.path.display().to_string();
    let device = volume::device(&found.path, Access::Read)?;
    let options = MountOptions {
        read_only: true,
        ..MountOptions::default()
    };
    let fs = FileSystem::open(device, options).with_context(at)?;
    let mut print = |change| ChangeRow::of(change).print(args.json);
    fs.changes(&args.name, args.later.as_deref(), &mut print)
        .with_context(at)
}

/// Prints what the server of a mounted volume tells. `false` if it was about to end.
fn ask(mut client: Client, request: Request, json: bool) -> Result<bool> {
    let at = client.volume().display().to_string();
    let mut reply = client.ask_patiently(&request, PATIENCE)?;
    let mut began = false;
    loop {
        match reply {
            Some(Reply::Changes { list }) => list.iter().for_each(|row| row.print(json)),
            Some(Reply::Done { error: None }) => return Ok(true),
            Some(Reply::Done { error: Some(why) }) => bail!("{at}: {why}"),
            Some(other) => bail!("{at}: answered {other:?}"),
            None if began => bail!("{at}: its server ended meanwhile"),
            None => return Ok(false),
        }
        began = true;
        reply = client.next(PATIENCE)?;
    }
}

/// The changes in batches, for a client.
pub(crate) fn batches(
    fs: &FileSystem,
    (from, to): (&str, Option<&str>),
    send: &mut dyn FnMut(Vec<ChangeRow>) -> Result<()>,
) -> Result<()> {
    let mut batch = Vec::new();
    let mut sent = Ok(());
    fs.changes(from, to, &mut |change| {
        batch.push(ChangeRow::of(change));
        if batch.len() == BATCH && sent.is_ok() {
            sent = send(std::mem::take(&mut batch));
        }
    })?;
    sent?;
    send(batch)
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn a_path_is_one_line() {
        assert_eq!(shown(b""), "/");
        assert_eq!(shown("ä b/c".as_bytes()), "/ä b/c");
        assert_eq!(shown(b"a\nb\\\xff"), "/a\\x0ab\\x5c\\xff");
    }
}
