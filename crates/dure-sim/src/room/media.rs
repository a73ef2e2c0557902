//! The volume of a point, and the media that it lies on.
//!
//! **Structure.** A volume lies on the machine's drive, or in memory if its file has none; with
//! `nvm=emulated` in persistent memory, a region on each socket; with `node_log=nvm` on the drive and a
//! region of the first socket. **Invariants.** Copies from and to a region use the modules of its
//! socket. **Crash.** Nothing is kept.

use anyhow::Result;
use dure::Volume;
use dure_block::delay::{DelayDevice, Model, Spread};
use dure_block::nvm::NvmDevice;
use dure_block::ram::RamDevice;
use dure_block::{BLOCK_BYTES, Device, share};
use dure_fs::members::{Member, join};
use dure_fs::{FileSystem, FormatOptions, MountOptions, NodeLog, NvmRegion};
use dure_pmem::Region;
use dure_sync::Arc;
use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use super::{Plan, Policy, probe};

/// Blocks of the volume for each core.
const BLOCKS_PER_CORE: u64 = 8192;
/// The volume has room for so many cores at least: MRPM makes 37,000 files whatever their number.
const CORES_MIN: u16 = 64;
/// A device that serves more requests at once is not bounded by that.
const PARALLEL_MAX: u64 = 65_536;
/// Hardware queues of a volume at most.
const QUEUES_MAX: u64 = 1024;

/// A region of emulated persistent memory on the modules of a socket.
fn region(blocks: u64, socket: usize) -> Result<Arc<dyn Device>> {
    let region = Region::anonymous(usize::try_from(blocks)? * BLOCK_BYTES)?;
    probe::place_persistent(region.addresses(), socket);
    Ok(share(NvmDevice::in_memory("nvm", region)))
}

/// The drive of the machine, or memory.
fn drive(plan: &Plan, blocks: u64) -> Result<Arc<dyn Device>> {
    let memory = share(RamDevice::new("room", blocks));
    let Some(drive) = &plan.machine.device else {
        return Ok(memory);
    };
    let parallel = u32::try_from(drive.parallel.min(PARALLEL_MAX))?;
    let model = Model {
        read: Duration::from_nanos(drive.read_ns),
        write: Duration::from_nanos(drive.write_ns),
        write_block: Duration::ZERO,
        flush: Duration::from_nanos(drive.flush_ns),
        spread: Spread::Fixed,
        channels: NonZeroU32::new(parallel).filter(|_| drive.parallel < PARALLEL_MAX),
        bytes_per_second: NonZeroU64::new(drive.mb_s * 1_000_000),
    };
    Ok(share(DelayDevice::with_model(memory, model)))
}

/// The media of the volume: its device, and regions of persistent memory, one for each other socket if
/// it lies there wholly.
struct Media {
    device: Arc<dyn Device>,
    regions: Vec<NvmRegion>,
}

impl Media {
    fn new(plan: &Plan, policy: &Policy, blocks: u64) -> Result<Media> {
        let sockets = match (policy.is_nvm(), policy.has_node_log_in_nvm()) {
            (true, _) => plan.machine.sockets,
            (_, true) => 1,
            _ => 0,
        };
        let each = blocks / sockets.max(1);
        let mut regions = Vec::new();
        for socket in 0..sockets {
            regions.push(NvmRegion {
                device: region(each, usize::try_from(socket)?)?,
                path: "nvm".to_owned(),
                node: u32::try_from(socket)?,
            });
        }
        let device = match regions.pop_if(|_| policy.is_nvm()) {
            Some(last) => last.device,
            None => drive(plan, blocks)?,
        };
        Ok(Media { device, regions })
    }

    fn volume(self, mut format: FormatOptions, mount: MountOptions) -> Result<Volume> {
        if self.regions.is_empty() {
            return Ok(Volume::create_on(self.device, &format, mount)?);
        }
        let devices = self.regions.iter().map(|region| &region.device);
        let member = |device: &Arc<dyn Device>| Member {
            device: Arc::clone(device),
            path: "room".to_owned(),
        };
        let members: Vec<Member> = devices.chain([&self.device]).map(member).collect();
        format.nvm = self.regions;
        FileSystem::format(self.device, &format)?;
        Ok(Volume::open_on(join(&members)?, mount)?)
    }
}

/// A new volume for so many cores, as the policy says.
pub(super) fn volume(plan: &Plan, policy: &Policy, cores: u16) -> Result<Volume> {
    let mut format = FormatOptions {
        journals: Some(u32::from(cores)),
        uuid: Some([7; 16]),
        ..FormatOptions::default()
    };
    let queues = plan.machine.device.as_ref().map(|drive| drive.queues);
    let queues = queues.map(|queues| u32::try_from(queues.min(QUEUES_MAX)).expect("few"));
    let mount = policy.mount(cores, queues);
    // The first segments lie as later ones do.
    format.numa = mount.numa.clone();
    let media = Media::new(
        plan,
        policy,
        u64::from(cores.max(CORES_MIN)) * BLOCKS_PER_CORE,
    )?;
    if policy.is_nvm() {
        let last = plan.machine.sockets.saturating_sub(1);
        format.device_node = Some(u32::try_from(last)?);
    } else {
        format.node_log = NodeLog::Nvm;
    }
    media.volume(format, mount)
}
