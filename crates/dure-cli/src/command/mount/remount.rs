//! `-o remount`: changes the flags of an existing mount.
//!
//! **Structure.** The flags that are there, from the kernel's list; the words, one after the other;
//! the kernel does the rest. **Invariants.** What only the server could change is refused: it has
//! its options for as long as it serves. A mount that becomes read-only is durable. **Crash.**
//! Nothing is kept.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use dure_bench::say;
use dure_fuse::mount::flags;
use rustix::mount::MountFlags;

use super::options;
use crate::args::Mount;
use crate::exit;
use crate::live::client::{Client, Waited};
use crate::live::wire::Request;
use crate::mounts::{self, Listed};

/// Flags that the server implements, so they cannot be changed while it serves.
const SERVERS: MountFlags = MountFlags::SYNCHRONOUS
    .union(MountFlags::DIRSYNC)
    .union(MountFlags::NOATIME)
    .union(MountFlags::STRICTATIME)
    .union(MountFlags::NODIRATIME);

/// How long the device may take to make everything durable.
const SYNC: Duration = Duration::from_secs(600);

/// What the kernel shows of a mount of ours; mount(8) repeats it.
const SHOWN: [&str; 8] = [
    "user_id",
    "group_id",
    "default_permissions",
    "allow_other",
    "blksize",
    "max_read",
    "fd",
    "rootmode",
];

pub(super) fn run(args: &Mount) -> Result<u8> {
    let directory = args.directory.as_path();
    let Some(listed) = mounts::on(directory) else {
        bail!("{}: nothing of dure is mounted there", directory.display());
    };
    let before = present(&listed);
    let mut wanted = before;
    for option in args.options.iter().filter(|option| !option.is_empty()) {
        wanted = match options::after(wanted, option)? {
            Some(flags) => flags,
            None if SHOWN.contains(&option.split('=').next().unwrap_or_default()) => wanted,
            None => bail!("{option}: cannot be changed while mounted; unmount and mount again"),
        };
    }
    let changed = before.symmetric_difference(wanted);
    if let Some(word) = flags::words(changed.intersection(SERVERS)).next() {
        bail!("{word}: its server has this until it ends; unmount and mount again");
    }
    if changed.contains(MountFlags::RDONLY) {
        turn(&listed, wanted)?;
    }
    if !args.fake {
        dure_fuse::mount::remount(&listed.directory, wanted)?;
        if wanted.contains(MountFlags::RDONLY) {
            make_durable(&listed.source)?;
        }
    }
    if args.verbose {
        let words: Vec<_> = flags::words(wanted).collect();
        say!("{}: {}", directory.display(), words.join(","));
    }
    Ok(exit::OK)
}

/// The flags of a mount.
fn present(listed: &Listed) -> MountFlags {
    let words = listed.options.iter().chain(&listed.super_options);
    words.fold(MountFlags::empty(), |flags, word| {
        // "rw" of the mount does not undo "ro" of the file system.
        let set = flags::after(MountFlags::empty(), word).unwrap_or(MountFlags::empty());
        flags | set
    })
}

/// Whether the server can serve the other way.
fn turn(listed: &Listed, wanted: MountFlags) -> Result<()> {
    if wanted.contains(MountFlags::RDONLY) {
        return Ok(());
    }
    let source = listed.source.display();
    let snapshot = match Client::connect(&listed.source)? {
        Some(mut client) => client.snapshot()?,
        None => None,
    };
    match snapshot {
        Some(snapshot) if !snapshot.mounted.read_only => Ok(()),
        Some(_) => bail!("{source}: its server has it read-only; unmount and mount again"),
        None => bail!("{source}: its server does not say whether it can write; mount again"),
    }
}

fn make_durable(source: &Path) -> Result<()> {
    let waited = match Client::connect(source)? {
        Some(mut client) => {
            client.send(&Request::Sync)?;
            client.wait(SYNC)?
        }
        None => Waited::Gone,
    };
    if waited != Waited::Done {
        bail!(
            "{}: read-only, but its server has not made everything durable; unmount it",
            source.display()
        );
    }
    Ok(())
}
