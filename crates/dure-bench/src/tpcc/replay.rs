//! Volumes that a trace is replayed on, and how long each call takes.

use std::num::NonZeroU32;
use std::time::Duration;

use anyhow::{Context, Result};
use dure_block::delay::{DelayDevice, Model};
use dure_block::nvm::NvmDevice;
use dure_block::overlay::OverlayRam;
use dure_block::ram::Image;
use dure_block::{BLOCK_BYTES, Device, share};
use dure_fs::members::{Member, join};
use dure_fs::{
    FileSystem, FormatOptions, InodeRef, MountOptions, NewInode, NvmRegion, ReadMode, Stamp,
    SyncScope,
};
use dure_pmem::Region;
use dure_sync::{Arc, clock};

use super::trace::{Call, Trace};
use crate::measure::f64_of;
use crate::micro::content;

const PAGE: usize = BLOCK_BYTES;
/// Bytes of persistent memory for tables, logs and nodes.
const METADATA_BYTES: u64 = 192 << 20;

/// A volume to be compared.
#[derive(Debug, Clone)]
pub(super) struct Subject {
    pub(super) name: &'static str,
    /// Bytes of persistent memory for data; `None`: there is none at all.
    pub(super) nvm_bytes: Option<u64>,
    pub(super) mount: MountOptions,
}

/// What a run took.
#[derive(Debug, Clone, Default)]
pub(crate) struct Run {
    pub(super) total_ns: u64,
    /// Nanoseconds of each call, ascending.
    pub(super) ns: Vec<u64>,
    /// Requests to the disk meanwhile: reads, writes, flushes.
    pub(super) requests: [u64; 3],
    /// Pages moved from persistent memory to the disk since the beginning.
    pub(super) moved: u64,
    /// Times that there was no room for data in persistent memory.
    pub(super) refused: u64,
}

impl Run {
    pub(crate) fn total_s(&self) -> f64 {
        f64_of(self.total_ns) / 1e9
    }

    fn calls(&self) -> f64 {
        f64_of(u64::try_from(self.ns.len().max(1)).unwrap_or(u64::MAX))
    }

    /// Of a call, as are those below.
    pub(crate) fn mean_us(&self) -> f64 {
        self.ns.iter().map(|ns| f64_of(*ns)).sum::<f64>() / self.calls() / 1e3
    }

    pub(crate) fn deviation_us(&self) -> f64 {
        let mean = self.mean_us();
        let squares = self.ns.iter().map(|ns| (f64_of(*ns) / 1e3 - mean).powi(2));
        (squares.sum::<f64>() / self.calls()).sqrt()
    }

    pub(crate) fn shortest_us(&self) -> f64 {
        self.ns.first().map_or(0.0, |ns| f64_of(*ns) / 1e3)
    }

    pub(crate) fn longest_us(&self) -> f64 {
        self.ns.last().map_or(0.0, |ns| f64_of(*ns) / 1e3)
    }
}

/// Replays the trace on a fresh volume, on a disk of this kind; only what is behind the first
/// `warm_up` calls is timed.
pub(super) fn replay(
    subject: &Subject,
    trace: &Trace,
    disk: Option<Model>,
    warm_up: usize,
) -> Result<Run> {
    let fs = mount(subject, trace, disk)?;
    let files = fill(&fs, trace)?;
    let most = trace.calls.iter().map(pages_of).max().unwrap_or(1);
    let mut buffer = content(0).repeat(most);
    buffer.truncate(most * PAGE);
    let (warm, timed) = trace.calls.split_at(warm_up.min(trace.calls.len()));
    for call in warm {
        perform(&fs, &files, *call, &mut buffer)?;
    }
    let before = requests(&fs);
    let mut ns = Vec::with_capacity(timed.len());
    let begin = clock::monotonic_ns();
    for call in timed {
        let start = clock::monotonic_ns();
        perform(&fs, &files, *call, &mut buffer)?;
        ns.push(clock::monotonic_ns() - start);
    }
    let total_ns = clock::monotonic_ns() - begin;
    ns.sort_unstable();
    let after = requests(&fs);
    let absorbed = fs.activity().absorbed;
    let (moved, refused) = absorbed.map_or((0, 0), |absorbed| (absorbed.moved, absorbed.refused));
    drop(files);
    fs.close()?;
    Ok(Run {
        total_ns,
        ns,
        requests: std::array::from_fn(|n| after[n] - before[n]),
        moved,
        refused,
    })
}

fn requests(fs: &FileSystem) -> [u64; 3] {
    let device = fs.activity().device;
    [device.reads, device.writes, device.device_flushes]
}

fn pages_of(call: &Call) -> usize {
    match *call {
        Call::Read { count, .. } | Call::Write { count, .. } | Call::Append { count, .. } => {
            usize::from(count)
        }
        Call::Sync { .. } => 1,
    }
}

fn mount(subject: &Subject, trace: &Trace, disk: Option<Model>) -> Result<FileSystem> {
    let appended = trace.calls.iter().map(|call| match call {
        Call::Append { count, .. } => u64::from(*count),
        _ => 0,
    });
    let pages = trace.files.iter().map(|pages| u64::from(*pages));
    let data: u64 = pages.chain(appended).sum();
    let image = Image::zeroed(3 * data + (1 << 16));
    let ram = share(OverlayRam::new("disk", Arc::new(image)));
    let disk: Arc<dyn Device> = match disk {
        Some(model) => share(DelayDevice::with_model(ram, model)),
        None => ram,
    };
    let mut format = FormatOptions {
        journals: u32::try_from(dure_sync::core_count()).ok(),
        ..FormatOptions::default()
    };
    let Some(nvm_bytes) = subject.nvm_bytes else {
        FileSystem::format(disk.clone(), &format)?;
        return Ok(FileSystem::open(disk, subject.mount.clone())?);
    };
    let bytes = usize::try_from(nvm_bytes + METADATA_BYTES)?;
    let region = Region::anonymous(bytes).context("emulated persistent memory")?;
    let nvm = share(NvmDevice::in_memory("nvm", region));
    format.nvm = vec![NvmRegion {
        device: nvm.clone(),
        path: "nvm".into(),
        node: 0,
    }];
    FileSystem::format(disk.clone(), &format)?;
    let members = [nvm, disk].map(|device| Member {
        device,
        path: String::new(),
    });
    Ok(FileSystem::open(join(&members)?, subject.mount.clone())?)
}

/// Makes the files.
fn fill(fs: &FileSystem, trace: &Trace) -> Result<Vec<InodeRef>> {
    let root = fs.root()?;
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    let page = content(0).repeat(64);
    let mut files = Vec::new();
    for (number, pages) in trace.files.iter().enumerate() {
        let file = fs.create(&root, format!("file{number}").as_bytes(), &new)?;
        let mut at = 0;
        while at < u64::from(*pages) {
            let count = (u64::from(*pages) - at).min(64);
            let bytes = &page[..usize::try_from(count)? * PAGE];
            fs.write(&file, at * 4096, bytes, Stamp::Set)?;
            at += count;
        }
        files.push(file);
    }
    fs.sync()?;
    Ok(files)
}

fn perform(fs: &FileSystem, files: &[InodeRef], call: Call, buffer: &mut [u8]) -> Result<()> {
    let bytes = pages_of(&call) * PAGE;
    match call {
        Call::Read { file, page, .. } => {
            let file = &files[usize::from(file)];
            let out = &mut buffer[..bytes];
            let got = fs.read(file, u64::from(page) * 4096, out, ReadMode::Cached)?;
            anyhow::ensure!(got == bytes, "a read of {bytes} bytes found {got}");
        }
        Call::Write { file, page, .. } => {
            let (file, at) = (&files[usize::from(file)], u64::from(page) * 4096);
            fs.write(file, at, &buffer[..bytes], Stamp::Set)?;
        }
        Call::Append { file, .. } => {
            fs.append(&files[usize::from(file)], &buffer[..bytes])?;
        }
        Call::Sync { file } => fs.fsync(&files[usize::from(file)], SyncScope::Data)?,
    }
    Ok(())
}

/// The model with all times and rates so many times as fast.
pub(super) fn faster(model: Model, speed: NonZeroU32) -> Model {
    let shorter = |time: Duration| time / speed.get();
    let rate = model.bytes_per_second;
    Model {
        read: shorter(model.read),
        write: shorter(model.write),
        write_block: shorter(model.write_block),
        flush: shorter(model.flush),
        bytes_per_second: rate.map(|rate| rate.saturating_mul(speed.into())),
        ..model
    }
}
