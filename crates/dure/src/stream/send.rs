//! Writing a stream.
//!
//! **Structure.** A [`Sender`] has the snapshot open, and the one that the stream is relative to, and
//! writes records through an [`Output`]. **Invariants.** Both are snapshots, so nothing changes while
//! they are read, and two streams of the same snapshots of a volume have the same bytes. What cannot be read ends
//! the stream with a record that says so. **Crash.** Nothing is changed.

use std::io::{BufWriter, Write};
use std::path::Path;

use dure_fs::{FileSystem, InodeRef, Named, SnapshotInfo};

use super::body::{Reader, Source};
use super::fault::Fault;
use super::format::{Attributes, Begin, Identity, Make, PATH_BYTES_MAX, Record};
use super::frames::FrameWriter;
use super::state::{self, AWAY};
use super::{Callback, Progress, shown, tell};
use crate::error::{Cause, Context, Result};
use crate::metadata::from_time;
use crate::volume::Volume;

/// Bytes that are written at once where records are small.
const BUFFER_BYTES: usize = 256 << 10;

/// Writes the stream of a snapshot to `out`: of everything, or of what differs from the older snapshot
/// `from`. Returns how long it is.
///
/// # Errors
/// Those of [`Sender::open`] and [`Sender::send`].
pub fn send(
    volume: &Volume,
    snapshot: &str,
    from: Option<&str>,
    out: &mut dyn Write,
    callback: Callback<'_>,
) -> Result<Progress> {
    Sender::open(volume.file_system(), snapshot, from)?.send(out, callback)
}

/// A snapshot of a volume that is open, to be sent.
#[derive(Debug)]
pub struct Sender {
    snapshot: FileSystem,
    /// What the stream is relative to, and when the earlier of the two was taken.
    older: Option<(i64, FileSystem)>,
    begin: Begin,
}

impl Sender {
    /// Opens the snapshots, which cannot be deleted while this lasts. The stream is relative to `from`.
    ///
    /// # Errors
    /// `ENOENT` for a name that is none; `EINVAL` if `from` is not older; `EBUSY` for a snapshot that
    /// was taken while a stream was half received; `EEXIST` for a tree with the reserved name
    /// `.dure-receive`; corruption, those of the device.
    pub fn open(fs: &FileSystem, snapshot: &str, from: Option<&str>) -> Result<Sender> {
        let newer = Snapshot::open(fs, snapshot, "send")?;
        let Some(from) = from else {
            return Ok(Sender::of(newer, None, None));
        };
        let Snapshot { info, fs, identity } = Snapshot::open(fs, from, "send")?;
        if info.id >= newer.info.id {
            return Err(Cause::Stream(Fault::NotOlder).at("send", Path::new(from)));
        }
        let base = (identity, info.name);
        Ok(Sender::of(newer, Some((info.created, fs)), Some(base)))
    }

    /// What differs from `older`, which is the base, to `newer`. The earlier of the two was taken at
    /// `taken`, in seconds since 1970.
    pub(super) fn between(
        newer: Snapshot,
        (taken, older): (i64, FileSystem),
        base: (Identity, String),
    ) -> Sender {
        Sender::of(newer, Some((taken, older)), Some(base))
    }

    fn of(
        newer: Snapshot,
        older: Option<(i64, FileSystem)>,
        base: Option<(Identity, String)>,
    ) -> Sender {
        let begin = Begin {
            snapshot: newer.identity,
            name: newer.info.name,
            base,
        };
        Sender {
            snapshot: newer.fs,
            older,
            begin,
        }
    }

    /// Writes the stream.
    ///
    /// # Errors
    /// What cannot be read, with its path; the stream says so, too. Those of `out`.
    pub fn send(&self, out: &mut dyn Write, callback: Callback<'_>) -> Result<Progress> {
        let mut buffered = BufWriter::with_capacity(BUFFER_BYTES, out);
        let frames = FrameWriter::begin(&mut buffered).during("send")?;
        let mut output = Output {
            frames,
            callback,
            reader: Reader::default(),
        };
        let sent = self.records(&mut output);
        let at = output.frames.at;
        let last = match &sent {
            Ok(()) => output.frames.write(&Record::End { records: at.record }),
            Err(error) => {
                let message = error.to_string();
                let message = message.as_bytes();
                output.frames.write(&Record::Failed { message })
            }
        };
        let flushed = last.and_then(|()| output.frames.flush());
        let at = output.frames.at;
        sent?;
        flushed.during("send")?;
        Ok(at.into())
    }

    fn records(&self, output: &mut Output<'_>) -> Result<()> {
        output.record(&[], &Record::Begin(self.begin.clone()))?;
        match &self.older {
            None => super::full::send(&self.snapshot, output),
            Some((taken, older)) => super::increment::send((*taken, older), &self.snapshot, output),
        }
    }
}

/// A snapshot that is open.
pub(super) struct Snapshot {
    pub(super) info: SnapshotInfo,
    pub(super) fs: FileSystem,
    pub(super) identity: Identity,
}

impl Snapshot {
    /// Opens one that a stream can be of, to do what `verb` says.
    pub(super) fn open(fs: &FileSystem, name: &str, verb: &'static str) -> Result<Snapshot> {
        let path = Path::new(name);
        let opened = super::receive::open(fs, name).during(verb)?;
        let all = fs.snapshots();
        let info = all.into_iter().find(|info| info.name == name);
        let info = info.ok_or_else(|| dure_fs::Error::NoSnapshot { name: name.into() });
        let info = info.during(verb)?;
        let found = state::identity(fs.layout().superblock.uuid, &info, &opened);
        let Some(identity) = found.at(verb, path)? else {
            let name = name.to_owned();
            return Err(Cause::Stream(Fault::NotWhole { name }).during(verb));
        };
        let root = opened.root().at(verb, path)?;
        if opened.lookup(&root, AWAY).at(verb, path)?.is_some() {
            return Err(Cause::Stream(Fault::Reserved).at(verb, shown(AWAY)));
        }
        Ok(Snapshot {
            info,
            fs: opened,
            identity,
        })
    }
}

/// Where records go.
pub(super) struct Output<'o> {
    frames: FrameWriter<'o>,
    callback: Callback<'o>,
    pub(super) reader: Reader,
}

impl Output<'_> {
    /// Writes a record about `path`.
    pub(super) fn record(&mut self, path: &[u8], record: &Record<'_>) -> Result<()> {
        if path.len() > PATH_BYTES_MAX {
            let start = shown(&path[..100]);
            return Err(Cause::Stream(Fault::PathTooLong).at("send", start));
        }
        let written = self.frames.write(record).map_err(Cause::Host);
        let written = written.and_then(|()| tell(self.frames.at, &mut *self.callback));
        written.during("send")
    }

    /// A new inode of this name, without what it holds.
    pub(super) fn make(&mut self, fs: &FileSystem, inode: &InodeRef, named: &Named) -> Result<()> {
        let is_link = inode.kind() == dure_fs::FileKind::Symlink;
        let target = match is_link {
            true => fs.read_link(inode).at("send", shown(&named.path))?,
            false => Vec::new(),
        };
        let attributes = &named.attributes;
        let make = Make {
            kind: attributes.kind,
            mode: attributes.mode & 0o7777,
            uid: attributes.uid,
            gid: attributes.gid,
            rdev: attributes.rdev,
            path: &named.path,
            target: &target,
        };
        self.record(&named.path, &Record::Make(make))
    }

    /// The project and the attributes of what is selected.
    pub(super) fn attributes(&mut self, source: &Source<'_>) -> Result<()> {
        let Source { fs, inode, named } = source;
        if fs.has_projects() {
            let id = fs.project(inode);
            self.record(&named.path, &Record::Project { id })?;
        }
        let found = &named.attributes;
        let size = match found.kind {
            dure_fs::FileKind::File => found.size,
            _ => 0,
        };
        let attributes = Attributes {
            mode: found.mode & 0o7777,
            uid: found.uid,
            gid: found.gid,
            size,
            accessed: from_time(found.atime),
            modified: from_time(found.mtime),
        };
        self.record(&named.path, &Record::Attributes(attributes))
    }
}
