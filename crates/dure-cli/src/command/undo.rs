//! `dure undo`, and the undo file of `dure check --repair --undo FILE` on the host.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use anyhow::{Context, Result, bail};
use dure_bench::{note, say};
use dure_block::Device;
use dure_block::count::Count;
use dure_block::nvm::Nvm;
use dure_check::{UndoDevice, UndoFile};
use dure_sync::Arc;

use crate::args::Undo;
use crate::exit;
use crate::volume::{self, Access};

pub(crate) fn run(args: &Undo) -> Result<u8> {
    let at = || args.file.display().to_string();
    let file = OpenOptions::new().read(true).write(true).open(&args.file);
    let file = HostFile(file.with_context(at)?);
    let device = volume::device_as(&args.volume, Access::Write, &args.regions, Nvm::Auto)?;
    let undone = dure_check::undo(device, &file).with_context(at)?;
    let repair = if undone.finished {
        "the repair is taken back"
    } else {
        "a repair or an undo that was cut off is taken back"
    };
    say!(
        "{}: {repair}, as it was before: {} of 4 KiB",
        args.volume.display(),
        Count::of(undone.blocks, "block")
    );
    Ok(exit::OK)
}

/// A file of the host.
#[derive(Debug)]
struct HostFile(File);

impl UndoFile for HostFile {
    fn read_at(&self, at: u64, out: &mut [u8]) -> io::Result<usize> {
        let mut len = 0;
        while len < out.len() {
            let offset = at + u64::try_from(len).expect("a usize fits in 64 bits");
            match self.0.read_at(&mut out[len..], offset) {
                Ok(0) => break,
                Ok(count) => len += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(len)
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, at)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

/// How a repair has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// By itself.
    Whole,
    /// With an error: blocks may be anything.
    Failed,
}

/// A repair with an undo file.
pub(crate) struct Saving<'p> {
    device: Arc<UndoDevice>,
    path: &'p Path,
}

impl Saving<'_> {
    /// Makes the file, which must not exist.
    pub(crate) fn begin<'p>(
        inner: Arc<dyn Device>,
        volume: &Path,
        path: &'p Path,
    ) -> Result<Saving<'p>> {
        let at = || path.display().to_string();
        let mut options = OpenOptions::new();
        let file = match options.read(true).write(true).create_new(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => bail!(
                "{}: cannot make the undo file: it is {}; name a new one, on another file system",
                at(),
                if is_same(volume, path) {
                    "the volume itself"
                } else {
                    "there already"
                },
            ),
            made => made.with_context(|| format!("{}: cannot make the undo file", at()))?,
        };
        let made = sync_directory(path).with_context(at);
        let device = made.and_then(|()| Ok(UndoDevice::new(inner, Box::new(HostFile(file)))?));
        match device {
            Ok(device) => Ok(Saving {
                device: Arc::new(device),
                path,
            }),
            Err(error) => {
                let _ = std::fs::remove_file(path);
                Err(error)
            }
        }
    }

    /// What the repair writes to.
    pub(crate) fn device(&self) -> Arc<dyn Device> {
        dure_block::share(Arc::clone(&self.device))
    }

    /// Ends the file, and says what it is good for; removes it if nothing was written.
    pub(crate) fn finish(&self, volume: &Path, ended: Ended) -> Result<()> {
        let at = || self.path.display().to_string();
        let saved = match ended {
            Ended::Whole => self.device.finish().with_context(at)?,
            Ended::Failed => self.device.saved(),
        };
        if saved.blocks == 0 {
            return std::fs::remove_file(self.path).with_context(at);
        }
        let (file, volume) = (self.path.display(), volume.display());
        note!("`dure undo {file} {volume}` takes this back, until the volume is used");
        Ok(())
    }
}

fn is_same(one: &Path, other: &Path) -> bool {
    let number = |path: &Path| std::fs::metadata(path).map(|data| (data.dev(), data.ino()));
    matches!((number(one), number(other)), (Ok(one), Ok(other)) if one == other)
}

/// The name of a new file must outlive a crash as its content does.
fn sync_directory(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}
