//! `dure umount`: done when the server has written everything and let go of the volume.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use dure_fuse::mount::Lazy;
use dure_sync::{clock, thread};

use crate::args::Umount;
use crate::exit;
use crate::volume::{self, Access};

/// How long the server may take to write back and close.
const CLOSE_SECONDS: u64 = 600;

pub(crate) fn run(args: &Umount) -> Result<u8> {
    let lazy = if args.lazy { Lazy::Yes } else { Lazy::No };
    let source = source_of(&args.directory);
    dure_fuse::unmount(&args.directory, lazy)?;
    // umount(2) does not wait for the server of a FUSE mount, which still checkpoints and closes.
    if let (Some(source), Lazy::No) = (source, lazy) {
        wait_until_closed(&source)?;
    }
    Ok(exit::OK)
}

fn wait_until_closed(source: &Path) -> Result<()> {
    let start = clock::monotonic_ns();
    let in_use = |error: &anyhow::Error| {
        use dure_block::Error::{Busy, Locked};
        matches!(error.downcast_ref(), Some(Busy { .. } | Locked { .. }))
    };
    while let Err(error) = volume::device(source, Access::Read) {
        if !in_use(&error) {
            // Gone, or not ours to open: nothing to wait for.
            return Ok(());
        }
        if clock::monotonic_ns() - start > CLOSE_SECONDS * 1_000_000_000 {
            bail!(
                "{}: unmounted, but its server has not closed the volume within {CLOSE_SECONDS} s",
                source.display()
            );
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// The volume mounted on `directory`, from the kernel's list of mounts.
fn source_of(directory: &Path) -> Option<PathBuf> {
    let directory = directory.canonicalize().ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    // The last mount on a directory is the one that umount(2) ends.
    mounts
        .lines()
        .rev()
        .find_map(|line| parse(line, &directory))
}

/// `36 35 98:0 / /mnt/point rw,relatime - fuse.dure /path/v.img rw,...`; spaces are written `\\040`.
fn parse(line: &str, directory: &Path) -> Option<PathBuf> {
    let (place, kind) = line.split_once(" - ")?;
    let at = unescape(place.split(' ').nth(4)?);
    let mut kind = kind.split(' ');
    let is_dure = matches!(kind.next()?, "fuse.dure" | "fuseblk.dure");
    let source = unescape(kind.next()?);
    (is_dure && Path::new(&at) == directory).then(|| PathBuf::from(source))
}

fn unescape(text: &str) -> String {
    let codes = [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ];
    codes.iter().fold(text.to_owned(), |text, (code, plain)| {
        text.replace(code, plain)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_of_a_mount_is_found() {
        let line =
            "36 35 0:41 / /mnt/a\\040b rw,relatime shared:1 - fuse.dure /v/x.img rw,user_id=0";
        assert_eq!(parse(line, Path::new("/mnt/a b")), Some("/v/x.img".into()));
        assert_eq!(parse(line, Path::new("/mnt/a")), None);
        assert_eq!(
            parse(&line.replace("fuse.dure", "ext4"), Path::new("/mnt/a b")),
            None
        );
    }
}
