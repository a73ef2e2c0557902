//! `dure mkfs`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use dure_bench::say;
use dure_block::count::Count;
use dure_block::file::FileDevice;
use dure_block::nvm::{self, Nvm};
use dure_block::{Device, share};
use dure_fs::{
    Error, FileSystem, FormatOptions, Layout, NodeLog, Numa, NvmRegion, Owner, TableCopies,
    VolumeInfo,
};
use dure_sync::{Arc, Topology};

use crate::args::{self, Mkfs};
use crate::exit;
use crate::numa;
use crate::size::Size;
use crate::volume::{self, Access, Allocation};

const BLOCK: u64 = 4096;

pub(crate) fn run(args: &Mkfs) -> Result<u8> {
    let path = args.volume.as_path();
    let mut new = Vec::new();
    // Locks are held until half-made files have been removed.
    let mut held = Vec::new();
    let result = make(args, path, &mut new, &mut held);
    if result.is_err() {
        for path in new {
            let _ = fs::remove_file(path);
        }
    }
    drop(held);
    let layout = result?;
    let segments = u64::from(layout.segments) * u64::from(layout.segment_blocks) * BLOCK;
    say!(
        "{}: {} volume, {} for files and nodes, {}, uuid {}",
        path.display(),
        Size(layout.bytes()),
        Size(segments),
        Count::of(layout.journals, "journal"),
        uuid::Uuid::from_bytes(layout.superblock.uuid)
    );
    Ok(exit::OK)
}

/// Makes the volume; what it makes files for is in `new`, and in `held` what is opened.
fn make(
    args: &Mkfs,
    path: &Path,
    new: &mut Vec<PathBuf>,
    held: &mut Vec<Arc<dyn Device>>,
) -> Result<Layout> {
    let regions = args.nvm.iter().map(|file| file.path.as_path());
    volume::named_once(regions.chain([path]))?;
    let mut options = options(args);
    let topology = options.numa.topology();
    if let Some(node) = options.device_node {
        exists(&topology, path, node)?;
    }
    for file in &args.nvm {
        if let Some(node) = file.node {
            exists(&topology, &file.path, node)?;
        }
    }
    for file in &args.nvm {
        let mut region = region(args, &file.path, new)?;
        let first = topology.nodes()[0];
        let told = || numa::node_of(&file.path).filter(|node| topology.nodes().contains(node));
        region.node = file.node.or_else(told).unwrap_or(first);
        held.push(region.device.clone());
        options.nvm.push(region);
    }
    let (device, made) = prepare(args, path, &options)?;
    held.push(device.clone());
    if made == Made::New {
        new.push(path.to_owned());
    }
    options.path = hint(path);
    format(args, path, device, made, &options)
}

/// Refuses a NUMA node that the machine does not have.
fn exists(topology: &Topology, path: &Path, node: u32) -> Result<()> {
    let nodes = topology.nodes();
    if nodes.contains(&node) {
        return Ok(());
    }
    let all: Vec<String> = nodes.iter().map(u32::to_string).collect();
    bail!(
        "{}: there is no NUMA node {node}; the nodes are {}; --topology says what machine is meant, if \
         not this one",
        path.display(),
        all.join(", ")
    );
}

/// A region of persistent memory; a new file if there is none.
fn region(args: &Mkfs, path: &Path, new: &mut Vec<PathBuf>) -> Result<NvmRegion> {
    let nvm = if args.require_dax {
        Nvm::Direct
    } else {
        Nvm::Auto
    };
    let made = !path.exists();
    let file = if made {
        let Some(Size(bytes)) = args.nvm_size else {
            bail!(
                "{}: no such file; give --nvm-size to make one",
                path.display()
            );
        };
        let (how, options) = (Allocation::Preallocated, volume::exclusively(Access::Write));
        let file = volume::create_image(path, bytes / BLOCK, how, options)?;
        new.push(path.to_owned());
        file
    } else {
        volume::file_device(path, Access::Write)?
    };
    let device = nvm::open(file, nvm)?;
    if !args.force && !made {
        refuse_to_overwrite(path, &device)?;
    }
    let path = hint(path);
    Ok(NvmRegion {
        device,
        path,
        node: 0,
    })
}

/// Where a medium is, for the table of media and for messages.
fn hint(path: &Path) -> String {
    let whole = path.canonicalize();
    whole.as_deref().unwrap_or(path).display().to_string()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Made {
    New,
    Existing,
}

/// Opens and locks the image or device, before anything is changed; makes the image if there is
/// none.
fn prepare(args: &Mkfs, path: &Path, plans: &FormatOptions) -> Result<(Arc<dyn Device>, Made)> {
    let Ok(found) = fs::metadata(path) else {
        let Some(Size(bytes)) = args.size else {
            bail!(
                "{}: no such file or device; give --size to make an image file",
                path.display()
            );
        };
        let how = if args.preallocate {
            Allocation::Preallocated
        } else {
            Allocation::Sparse
        };
        plan(plans, path, Size(bytes))?;
        let options = volume::exclusively(Access::Write);
        let device = volume::create_image(path, bytes / BLOCK, how, options)?;
        return Ok((used(args, device)?, Made::New));
    };
    if found.is_dir() {
        bail!(
            "{}: is a directory; give a block device or the path of an image file",
            path.display()
        );
    }
    if args.size.is_some() && volume::is_block_device(path) {
        bail!(
            "{}: a block device has its own size; leave out --size",
            path.display()
        );
    }
    if args.preallocate {
        bail!(
            "{}: exists; --preallocate is for a new image file",
            path.display()
        );
    }
    let device = volume::file_device(path, Access::Write)?;
    let device = resized(args, plans, device)?;
    Ok((used(args, device)?, Made::Existing))
}

/// The device of the volume, which must be mapped directly if it is to be persistent memory, and all
/// of that must be.
fn used(args: &Mkfs, device: FileDevice) -> Result<Arc<dyn Device>> {
    Ok(match args.node {
        Some(_) if args.require_dax => nvm::open(device, Nvm::Direct)?,
        _ => share(device),
    })
}

/// What a volume of the size asked for would be, to refuse what cannot be before anything is changed.
fn plan(options: &FormatOptions, path: &Path, size: Size) -> Result<()> {
    let cores = u32::try_from(dure_sync::core_count()).unwrap_or(u32::MAX);
    let at = path.display();
    match Layout::plan(size.0 / BLOCK, options, cores) {
        Ok(_) => Ok(()),
        // There is no device yet: what is too small is what was asked for.
        Err(Error::TooSmall { what, need, .. }) => {
            bail!(
                "{at}: --size {size} is too small; {what} needs {}",
                Size(need * BLOCK)
            )
        }
        Err(error) => Err(error).context(at.to_string()),
    }
}

/// Gives an existing image, which is locked, the size asked for.
fn resized(args: &Mkfs, plans: &FormatOptions, device: FileDevice) -> Result<FileDevice> {
    let path = args.volume.as_path();
    let Some(Size(bytes)) = args.size else {
        return Ok(device);
    };
    let have = device.info().blocks;
    if have == bytes / BLOCK {
        return Ok(device);
    }
    if !args.force {
        bail!(
            "{}: exists with {}; leave out --size, or give --force to make it {}",
            path.display(),
            Size(have * BLOCK),
            Size(bytes)
        );
    }
    plan(plans, path, Size(bytes))?;
    Ok(volume::resize_image(path, device, bytes / BLOCK)?)
}

fn options(args: &Mkfs) -> FormatOptions {
    FormatOptions {
        journals: args.journals,
        label: args.label.clone(),
        owner: args.owner.unwrap_or_else(caller),
        node_log: match args.node_log {
            args::NodeLog::Nvm => NodeLog::Nvm,
            args::NodeLog::Block => NodeLog::Block,
        },
        device_node: args.node,
        numa: Numa {
            policy: args.numa,
            topology: args.topology.clone().map(Arc::new),
        },
        table_copies: match args.metadata_copies {
            2 => TableCopies::Two,
            _ => TableCopies::One,
        },
        written_logs: !volume::is_block_device(&args.volume),
        ..FormatOptions::default()
    }
}

/// The user that runs mkfs: the default owner of the root directory.
fn caller() -> Owner {
    Owner {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
    }
}

fn format(
    args: &Mkfs,
    path: &Path,
    device: Arc<dyn Device>,
    made: Made,
    options: &FormatOptions,
) -> Result<Layout> {
    if !args.force && made == Made::Existing {
        refuse_to_overwrite(path, &device)?;
    }
    FileSystem::format(device, options).with_context(|| path.display().to_string())
}

/// A device that holds anything but zeroes in its first 64 KiB holds something.
fn refuse_to_overwrite(path: &Path, device: &Arc<dyn Device>) -> Result<()> {
    let old = VolumeInfo::read(device.clone());
    if let Err(error @ dure_fs::Error::Unsupported { .. }) = &old {
        bail!(
            "{}: is not empty ({error}); give --force to overwrite it",
            path.display()
        );
    }
    if let Ok(old) = old {
        let label = match old.label() {
            label if label.is_empty() => String::new(),
            label => format!(" labelled '{label}'"),
        };
        bail!(
            "{}: holds a dure volume{label}; give --force to destroy it",
            path.display()
        );
    }
    let queue = dure_block::Queue::new(device.clone(), dure_block::QueueConfig::default());
    let blocks = queue.info().blocks.min(16);
    let mut head = vec![0; usize::try_from(blocks * BLOCK).expect("64 KiB fit in memory")];
    match queue.read(dure_block::Lba::new(0), &mut head) {
        Ok(()) if head.iter().all(|&byte| byte == 0) => Ok(()),
        Ok(()) => bail!(
            "{}: is not empty; give --force to overwrite it",
            path.display()
        ),
        Err(error) => Err(Error::from(error)).with_context(|| path.display().to_string()),
    }
}
