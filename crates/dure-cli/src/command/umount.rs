//! `dure umount`: done when the server has written everything, closed the volume and let go of it.
//!
//! **Problem.** umount(2) does not wait for the server of a FUSE mount, which still checkpoints and
//! closes; a user that moves the volume elsewhere, or mounts it again, comes too early.
//! **Structure.** Before the unmount, the server is asked to report when the volume is closed, and
//! the outcome; then its lock has to be released. **Invariants.** Status 0 says that the volume is
//! closed and clean.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use dure_bench::note;
use dure_block::file::open_file;
use dure_fuse::mount::{Lazy, MountError};
use dure_sync::{clock, thread};
use rustix::io::Errno;

use crate::args::Umount;
use crate::exit;
use crate::live::client::{Client, Waited};
use crate::live::wire::{Reply, Request};
use crate::mounts::{self, is_mounted, source_of};
use crate::volume::{self, Access};

/// How long the server may take to write back and close.
const CLOSE: Duration = Duration::from_secs(600);
/// How long it waits before it says so.
const TELL_AFTER: Duration = Duration::from_secs(2);

pub(crate) fn run(args: &Umount) -> Result<u8> {
    expect_dure(&args.directory)?;
    if args.lazy {
        unmount(&args.directory, Lazy::Yes)?;
        return Ok(exit::OK);
    }
    let source = source_of(&args.directory);
    // A server that does not answer or is not trusted does not prevent the unmount.
    let mut server = source
        .as_deref()
        .and_then(|source| awaiting(source, &args.directory));
    unmount(&args.directory, Lazy::No)?;
    if let Some(server) = &mut server {
        await_close(server)?;
    }
    // Another mount of the volume goes on, and has it open.
    if let Some(source) = source.filter(|source| !is_shown(source, |_| true)) {
        await_lock(&source)?;
    }
    Ok(exit::OK)
}

/// Refuses a mount of another file system.
fn expect_dure(directory: &Path) -> Result<()> {
    match mounts::last_on(directory) {
        Some(other) if !other.is_dure() => bail!(
            "{at}: is a mount of {kind} ({source}), not of dure; `umount {at}` ends it",
            at = directory.display(),
            kind = other.kind,
            source = other.source.display()
        ),
        _ => Ok(()),
    }
}

fn unmount(directory: &Path, lazy: Lazy) -> Result<()> {
    let at = directory.display();
    let Err(error) = dure_fuse::unmount(directory, lazy) else {
        return Ok(());
    };
    let number = match &error {
        MountError::Unmount { source, .. } => source.raw_os_error(),
        _ => None,
    };
    match number.map(Errno::from_raw_os_error) {
        Some(Errno::INVAL) => bail!("{at}: nothing is mounted there"),
        // Of a user the helper is in the way: it is not there, or says it in other words.
        None if !is_mounted(directory) => bail!("{at}: nothing is mounted there"),
        Some(Errno::BUSY) => bail!(
            "{at}: busy: a process has a file open there, or works there (`fuser -vm {at}` names it); with \
             --lazy it is taken away at once, and closed when that ends"
        ),
        _ => Err(error.into()),
    }
}

/// Whether dure serves the volume on a directory like this.
fn is_shown(source: &Path, is_meant: impl Fn(&Path) -> bool) -> bool {
    let mounts = mounts::all();
    let mut mounts = mounts.iter();
    mounts.any(|one| one.is_dure() && one.source == source && is_meant(&one.directory))
}

/// The server of the mount on `directory`, which has promised to report when the volume is closed. Nothing
/// if the one that answers for the volume serves another mount of it, as of two that only read.
fn awaiting(source: &Path, directory: &Path) -> Option<Client> {
    let mut server = Client::connect(source).ok()??;
    let served = PathBuf::from(server.snapshot().ok()??.mounted.directory);
    let own = directory
        .canonicalize()
        .unwrap_or_else(|_| directory.to_owned());
    if served != own && served != directory && is_shown(source, |one| one == served) {
        return None;
    }
    match server.ask(&Request::AwaitClose) {
        Ok(Some(Reply::Awaiting)) => Some(server),
        _ => None,
    }
}

/// Waits for the server's report that the volume is closed.
fn await_close(server: &mut Client) -> Result<()> {
    let failed =
        "unmounted, but not closed; what was synced is safe, and the next mount recovers it";
    let mut waited = server.wait(TELL_AFTER).context(failed)?;
    if waited == Waited::Late {
        let volume = server.volume().display();
        note!("dure: {volume}: waiting for its server to write back and close");
        waited = server.wait(CLOSE).context(failed)?;
    }
    let volume = server.volume().display();
    match waited {
        Waited::Done => Ok(()),
        Waited::Gone => bail!("{volume}: its server ended early: {failed}"),
        Waited::Late => bail!("{volume}: its server has not closed it within {CLOSE:?}"),
    }
}

/// Waits until the volume can be opened again.
fn await_lock(source: &Path) -> Result<()> {
    let start = clock::monotonic_ns();
    let mut told = false;
    while let Err(error) = open_file(source, volume::exclusively(Access::Read)) {
        if !volume::is_in_use(&error) {
            // Gone, or not ours to open: nothing to wait for.
            return Ok(());
        }
        let waited = Duration::from_nanos(clock::monotonic_ns() - start);
        if waited > CLOSE {
            return Err(error).context("unmounted, but its server does not let go of the volume");
        }
        if waited > TELL_AFTER && !told {
            note!("dure: {error}; waiting for it");
            told = true;
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
