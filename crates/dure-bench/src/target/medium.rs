//! What the volume of a target lies on: a file, persistent memory, a drive that is modelled.
//!
//! **Structure.** Words among the policies of a target say so: `nvm=`, `drive=`, and of a temporary
//! volume `node_log=nvm`. A temporary volume is in a file without a name, so that nothing is left of
//! it whatever happens. **Invariants.** Only the disk takes the time of a drive, persistent
//! memory does not. **On a crash** nothing is left of a temporary volume.

use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use anyhow::{Context, Result, bail};
use dure_block::delay::{DelayDevice, Model};
use dure_block::file::{OpenOptions, open_file};
use dure_block::nvm::{self, Nvm, NvmDevice};
use dure_block::{Device, share};
use dure_fs::members::{Member, join};
use dure_fs::{FileSystem, FormatOptions, NvmRegion};
use dure_pmem::Region;
use dure_sync::Arc;

/// A temporary volume is never smaller.
const TEMPORARY_BYTES_MIN: u64 = 256 << 20;
/// Persistent memory for tables, logs and nodes of a temporary volume.
const NODE_LOG_BYTES: usize = 256 << 20;

/// The value of a word, if it is there.
fn word<'p>(policy: &'p str, key: &str) -> Option<&'p str> {
    let pairs = policy.split(',').filter_map(|word| word.split_once('='));
    let mut values = pairs.filter(|(name, _)| *name == key);
    values.next().map(|(_, value)| value)
}

/// Whether a volume with these options is used as persistent memory.
pub(crate) fn nvm_of(name: &str, policy: &str) -> Result<Nvm> {
    word(policy, "nvm").map_or(Ok(Nvm::Auto), |value| {
        let nvm = Nvm::named(value);
        nvm.with_context(|| format!("--target {name}: nvm= takes {}", Nvm::NAMES))
    })
}

/// Whether tables, logs and nodes of a temporary volume are in persistent memory.
fn has_node_log(name: &str, policy: &str) -> Result<bool> {
    match word(policy, "node_log") {
        None => Ok(false),
        Some("nvm") if nvm_of(name, policy)? == Nvm::Auto => Ok(true),
        Some("nvm") => bail!("--target {name}: nvm= and node_log=nvm: give one"),
        Some(_) => bail!("--target {name}: node_log= takes nvm; without, all is on one device"),
    }
}

/// The drive that the options name, if any.
fn drive_of(name: &str, policy: &str) -> Result<Option<Model>> {
    let Some(drive) = word(policy, "drive") else {
        return Ok(None);
    };
    let drives = Model::DRIVES.join(", ");
    let model = Model::of_drive(drive);
    let model = model.with_context(|| format!("--target {name}: drive= takes one of {drives}"))?;
    Ok(Some(model))
}

/// Refuses words that are none, or contradict each other.
pub(super) fn check(name: &str, policy: &str) -> Result<()> {
    nvm_of(name, policy)?;
    drive_of(name, policy)?;
    has_node_log(name, policy).map(drop)
}

/// The device, whose requests take as long as those of the drive that the options name, if any.
fn slowed(name: &str, policy: &str, device: Arc<dyn Device>) -> Result<Arc<dyn Device>> {
    Ok(match drive_of(name, policy)? {
        Some(model) => share(DelayDevice::with_model(device, model)),
        None => device,
    })
}

/// The device of the volume at `path`, with all its members.
pub(super) fn of_volume(name: &str, policy: &str, path: &Path) -> Result<Arc<dyn Device>> {
    if has_node_log(name, policy)? {
        bail!("--target {name}: node_log= is for a temporary volume; mkfs decides it for others");
    }
    let nvm = nvm_of(name, policy)?;
    let open = |path: &Path| Ok(open_file(path, OpenOptions::default())?);
    let file = open(path)?;
    let device = dure::members::join::<anyhow::Error>(path, file, &[], nvm, open)?;
    slowed(name, policy, device)
}

/// The device of a new volume in an unnamed file in `place`, of at most `bytes` bytes.
pub(super) fn temporary(
    name: &str,
    policy: &str,
    place: &Path,
    bytes: u64,
) -> Result<Arc<dyn Device>> {
    let has_node_log = has_node_log(name, policy)?;
    let disk = file(place, bytes, nvm_of(name, policy)?)?;
    let mut format = FormatOptions::default();
    if !has_node_log {
        FileSystem::format(disk.clone(), &format)?;
        return slowed(name, policy, disk);
    }
    let region = Region::anonymous(NODE_LOG_BYTES).context("emulated persistent memory")?;
    let memory = share(NvmDevice::in_memory("nvm", region));
    format.nvm = vec![NvmRegion {
        device: memory.clone(),
        path: "nvm".to_owned(),
        node: 0,
    }];
    FileSystem::format(disk.clone(), &format)?;
    let members = [memory, slowed(name, policy, disk)?].map(|device| Member {
        device,
        path: String::new(),
    });
    Ok(join(&members)?)
}

/// A file without a name.
fn file(place: &Path, bytes: u64, nvm: Nvm) -> Result<Arc<dyn Device>> {
    let shown = place.display();
    let room = rustix::fs::statvfs(place).with_context(|| shown.to_string())?;
    let room = room.f_bavail.saturating_mul(room.f_frsize);
    let bytes = (room / 2).min(bytes);
    if bytes < TEMPORARY_BYTES_MIN {
        bail!("{shown} has no room for a temporary volume (512 MiB); name another --target");
    }
    let file = tempfile::tempfile_in(place)
        .with_context(|| format!("{shown}: a temporary volume; name another --target"))?;
    file.set_len(bytes / 4096 * 4096)?;
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    Ok(nvm::open(
        open_file(Path::new(&path), OpenOptions::default())?,
        nvm,
    )?)
}
