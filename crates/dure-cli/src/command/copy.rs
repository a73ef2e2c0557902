//! `dure put`, `dure get` and `dure clone`: whole trees, with everything that belongs to them.

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use dure::tree::{self, Content, Failed, OfVolume, Source};
use dure::{Cause, Error, Metadata, Session};
use dure_bench::{note, say};
use dure_block::count::Count;
use rustix::io::Errno;

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
    let mut source = Readable {
        volume: &args.volume,
        source: OfVolume(&session),
        read: 0,
        left_out: 0,
    };
    let copied = copy(args, Path::is_dir, |copies, step| {
        tree::get_all_from(&mut source, copies, step)
    })?;
    report(args, &copied);
    if source.left_out > 0 {
        let at = args.volume.display();
        let left_out = Count::copied(source.left_out);
        bail!(
            "{at}: {left_out} could not be copied whole; `dure rescue {at} DIRECTORY` copies all that can be \
             read, with zeroes for what cannot"
        );
    }
    Ok(exit::OK)
}

/// The volume that a copy reads. What is damaged is told and left out, as cp(1) does.
struct Readable<'s> {
    volume: &'s Path,
    source: OfVolume<'s>,
    /// How far the file that is being copied was read, in bytes.
    read: u64,
    left_out: u64,
}

impl Source for Readable<'_> {
    fn metadata(&mut self, path: &Path) -> dure::Result<Metadata> {
        self.read = 0;
        self.source.metadata(path)
    }

    fn names(&mut self, directory: &Path) -> dure::Result<Vec<OsString>> {
        self.source.names(directory)
    }

    fn target(&mut self, path: &Path) -> dure::Result<PathBuf> {
        self.source.target(path)
    }

    fn attributes(&mut self, path: &Path) -> dure::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.source.attributes(path)
    }

    fn content(&mut self, path: &Path, len: u64, each: Content<'_>) -> dure::Result<u64> {
        let read = &mut self.read;
        self.source.content(path, len, &mut |offset, bytes| {
            each(offset, bytes)?;
            *read = offset + u64::try_from(bytes.len()).expect("a usize fits in 64 bits");
            Ok(())
        })
    }

    /// Goes on with the rest, unless it is the host that failed.
    fn failed(&mut self, path: &Path, _what: Failed<'_>, error: Error) -> dure::Result<()> {
        let is_host = matches!(error.cause(), Cause::Host(_));
        if is_host || error.errno() != Errno::IO.raw_os_error() {
            return Err(error);
        }
        self.left_out += 1;
        let (volume, path, cause) = (self.volume.display(), path.display(), error.cause());
        match self.read {
            0 => note!("dure: {volume}: {path} is not copied: {cause}"),
            read => {
                note!("dure: {volume}: {path} is not copied: byte {read} cannot be read: {cause}");
            }
        }
        Ok(())
    }
}

fn copy(
    args: &Copy,
    is_directory: impl Fn(&Path) -> bool,
    mut all: impl FnMut(
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
