//! Opening all media of a volume that lies on several.
//!
//! **Structure.** [`join`] reads from the device of the volume which others there are, opens them
//! where they were when the volume was made, or where the caller says they are, and lets
//! [`dure_fs::members`] compare them. **Invariants.** Nothing is written. **Crash.** Nothing is
//! kept.

use std::path::{Path, PathBuf};

use dure_block::file::FileDevice;
use dure_block::nvm::{self, Nvm};
use dure_block::{Device, share};
use dure_fs::Error;
use dure_fs::format::media::MediumKind;
use dure_fs::members::{self, Head, Member};
use dure_sync::Arc;

/// The volume that is called by `path`, whose device is `volume`: on that device only, or joined
/// with its regions of persistent memory. `regions` are where they lie, in the order of mkfs; if
/// empty, they are looked for where mkfs found them. `nvm` says how they, or a volume without them,
/// are used.
///
/// # Errors
/// That of `open`; a medium that is missing, or not what it must be.
pub fn join<E: From<Error> + From<dure_block::Error>>(
    path: &Path,
    volume: FileDevice,
    regions: &[PathBuf],
    nvm: Nvm,
    open: impl Fn(&Path) -> Result<FileDevice, E>,
) -> Result<Arc<dyn Device>, E> {
    let Some(head) = members::look(&volume)? else {
        if let Some(region) = regions.first() {
            let why = "is a volume on one device, or none; leave out --nvm";
            return Err(refused(path, format!("{why} {}", region.display())).into());
        }
        return Ok(nvm::open(volume, nvm)?);
    };
    let (last, others) = head.media.split_last().expect("a volume has a medium");
    if head.member < others.len() {
        let why = format!(
            "is region {} of persistent memory of a volume; name the device of the volume, which was \
             {}, and this with --nvm",
            head.member + 1,
            last.path
        );
        return Err(refused(path, why).into());
    }
    let mut joined = Vec::new();
    for (place, region) in places(path, &head, regions)?.iter().enumerate() {
        let kind = others
            .get(place)
            .map_or(MediumKind::Nvm, |medium| medium.kind);
        joined.push(Member {
            device: nvm::open(open(region)?, used_as(kind, nvm))?,
            path: region.display().to_string(),
        });
    }
    joined.push(Member {
        device: match used_as(last.kind, nvm) {
            Nvm::Off => share(volume),
            other => nvm::open(volume, other)?,
        },
        path: path.display().to_string(),
    });
    Ok(members::join(&joined)?)
}

/// Where the regions are.
fn places(path: &Path, head: &Head, regions: &[PathBuf]) -> Result<Vec<PathBuf>, Error> {
    if !regions.is_empty() {
        return Ok(regions.to_vec());
    }
    let count = head.media.len() - 1;
    let known = head.media[..count].iter().enumerate();
    let place = |(n, medium): (usize, &dure_fs::format::media::Medium)| {
        let region = PathBuf::from(&medium.path);
        if medium.path.is_empty() {
            let why = format!(
                "where its region {} of persistent memory lies was too long to keep; name all {count} \
                 with --nvm",
                n + 1
            );
            return Err(refused(path, why));
        }
        if !region.exists() {
            let why = format!(
                "region {} of persistent memory of {} was here when it was made, and is missing; put \
                 it back, or name all {count} with --nvm of `dure mount`, `check` or `info`",
                n + 1,
                path.display()
            );
            return Err(refused(&region, why));
        }
        Ok(region)
    };
    known.map(place).collect()
}

/// A disk is no persistent memory because a region is.
fn used_as(kind: MediumKind, nvm: Nvm) -> Nvm {
    match (kind, nvm) {
        (MediumKind::Nvm, nvm) => nvm,
        (MediumKind::Block, Nvm::Auto | Nvm::Direct) => Nvm::Auto,
        (MediumKind::Block, _) => Nvm::Off,
    }
}

fn refused(path: &Path, why: String) -> Error {
    Error::Medium {
        name: path.display().to_string(),
        why,
    }
}
