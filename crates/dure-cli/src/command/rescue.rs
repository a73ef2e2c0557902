//! `dure rescue`: what is left of a volume that cannot be mounted, copied to the host.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use dure::tree::{self, Content, Failed, Source};
use dure::{Cause, Error, FileKind, Metadata};
use dure_bench::say;
use dure_block::count::Count;
use dure_block::nvm::Nvm;
use dure_check::{CheckOptions, Loss, Progress, Rescue};
use dure_fs::Attributes;
use dure_fs::format::inode::{InodeRecord, Time};
use dure_fs::units::Ino;
use rustix::io::Errno;

use crate::args;
use crate::exit;
use crate::progress;
use crate::size::Size;
use crate::volume::{self, Access};

pub(crate) fn run(args: &args::Rescue) -> Result<u8> {
    require_empty(&args.directory)?;
    let device = volume::device_as(&args.volume, Access::Read, &args.regions, Nvm::Auto)?;
    let bar = progress::bar(1, "reading");
    let step = |now: &Progress| {
        bar.set_message(now.pass);
        bar.set_length(now.total);
        bar.set_position(now.done);
    };
    let options = CheckOptions {
        progress: Some(&step),
        ..CheckOptions::default()
    };
    let rescue = Rescue::open(device, &options);
    bar.finish_and_clear();
    let rescue = rescue.with_context(|| args.volume.display().to_string())?;
    let bar = progress::bar(rescue.names(), "copying");
    let mut source = Left {
        losses: rescue.report().losses().to_vec(),
        rescue,
        known: BTreeMap::from([(PathBuf::from("/"), Ino::ROOT)]),
    };
    let mut tell = |now: &tree::Progress| {
        bar.set_position(now.files);
        ControlFlow::Continue(())
    };
    let copied = tree::get_from(&mut source, Path::new("/"), &args.directory, &mut tell);
    bar.finish_and_clear();
    for lost in source.rescue.report().lost() {
        say!("lost: {lost}");
    }
    for loss in &source.losses {
        say!("lost: {loss}");
    }
    let copied = copied?;
    say!("{}, {}", Count::copied(copied.files), Size(copied.bytes));
    let whole = source.losses.is_empty() && source.rescue.report().lost().is_empty();
    Ok(if whole { exit::OK } else { exit::RESCUE_LOST })
}

/// The copy must not mix with what is there.
fn require_empty(directory: &Path) -> Result<()> {
    let at = || directory.display().to_string();
    match std::fs::read_dir(directory) {
        Ok(mut entries) => match entries.next() {
            Some(_) => bail!("{}: is not empty; name an empty or a new directory", at()),
            None => Ok(()),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(at),
    }
}

/// What is left, by paths.
struct Left<'o> {
    rescue: Rescue<'o>,
    /// Inodes of paths, entered when their directory is listed.
    known: BTreeMap<PathBuf, Ino>,
    losses: Vec<Loss>,
}

impl Left<'_> {
    fn ino(&self, path: &Path) -> Ino {
        *self.known.get(path).expect("its directory was listed")
    }

    fn lose(&mut self, path: &Path, what: String) {
        let ino = self.ino(path);
        let path = Some(path.as_os_str().as_bytes().to_vec());
        self.losses.push(Loss { ino, path, what });
    }
}

fn gone(path: &Path) -> Error {
    Error::new("read", path, Cause::Posix(Errno::NODATA))
}

impl Source for Left<'_> {
    fn metadata(&mut self, path: &Path) -> dure::Result<Metadata> {
        let ino = self.ino(path);
        let record = self.rescue.inode(ino);
        let attributes = record.and_then(|record| attributes(ino, &record));
        attributes.map(Metadata::from).ok_or_else(|| gone(path))
    }

    fn names(&mut self, directory: &Path) -> dure::Result<Vec<OsString>> {
        let entries = self.rescue.entries(self.ino(directory));
        let mut names = Vec::new();
        for (name, ino) in entries {
            let name = OsStr::from_bytes(name);
            self.known.insert(directory.join(name), ino);
            names.push(name.to_owned());
        }
        Ok(names)
    }

    fn target(&mut self, path: &Path) -> dure::Result<PathBuf> {
        let target = self.rescue.target(self.ino(path));
        let target = target.ok_or_else(|| gone(path))?;
        Ok(OsString::from_vec(target).into())
    }

    fn attributes(&mut self, path: &Path) -> dure::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        Ok(self.rescue.attributes(self.ino(path)))
    }

    fn content(&mut self, path: &Path, len: u64, each: Content<'_>) -> dure::Result<u64> {
        for (first, last) in self.rescue.content(self.ino(path), each)? {
            let what = format!("pages {first} to {last} are destroyed and read as zeroes");
            self.lose(path, what);
        }
        Ok(len)
    }

    /// Goes on with the rest, unless nothing else will fit or can be written.
    fn failed(&mut self, path: &Path, what: Failed<'_>, error: Error) -> dure::Result<()> {
        let hopeless = [
            Errno::NOSPC,
            Errno::DQUOT,
            Errno::IO,
            Errno::ROFS,
            Errno::INTR,
        ];
        match what {
            Failed::Attribute(name) => {
                let name = name.escape_ascii();
                self.lose(path, format!("attribute {name} is not copied: {error}"));
            }
            Failed::Entry if hopeless.iter().any(|e| e.raw_os_error() == error.errno()) => {
                return Err(error);
            }
            Failed::Entry => self.lose(path, format!("is not copied: {error}")),
        }
        Ok(())
    }
}

/// What stat shows of an inode.
fn attributes(ino: Ino, record: &InodeRecord) -> Option<Attributes> {
    let (attributes, data) = (&record.attributes, &record.data);
    let kind = u8::try_from(attributes.mode.get() >> 12).ok();
    let latest = |a: Time, b: Time| {
        let key = |time: Time| (time.secs.get(), time.nanos.get());
        if key(a) > key(b) { a } else { b }
    };
    Some(Attributes {
        ino,
        generation: attributes.generation.get(),
        kind: kind.and_then(FileKind::from_code)?,
        mode: attributes.mode.get(),
        nlink: attributes.nlink.get(),
        uid: attributes.uid.get(),
        gid: attributes.gid.get(),
        rdev: attributes.rdev.get(),
        size: data.size.get(),
        blocks: data.blocks.get() * 8,
        atime: data.atime,
        mtime: data.mtime,
        ctime: latest(attributes.ctime, data.ctime),
        btime: attributes.btime,
        extended: attributes.xattr_root.get() != 0,
    })
}
