//! What is measured.
//!
//! **Structure.** A name of a device in memory, or a path. **Invariants.** Nothing that was there
//! is written without `--overwrite`; a device in memory that is read has been written before, so
//! that blocks are really copied. **On a crash** a new file stays behind.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use dure_block::delay::{DelayDevice, Model};
use dure_block::file::{
    Allocation, Buffers, FileDevice, OpenOptions, RingOptions, create_image, open_file,
};
use dure_block::null::{Irq, NullDevice};
use dure_block::ram::RamDevice;
use dure_block::{Device, Io, Lba, WriteFlags, file, share};
use dure_sync::{Arc, ProcessOnce};

use super::choices::{Engine, Waiting};
use super::load::{Work, block_bytes};

/// Size of a device in memory.
const MEMORY_BYTES: u64 = 256 << 20;
/// Blocks of a write that fills.
const FILL_BLOCKS: u64 = 256;

/// Opens the device for at most so many jobs.
pub(super) fn open(args: &Work, jobs: u16) -> Result<Arc<dyn Device>> {
    let blocks = args.size.unwrap_or(MEMORY_BYTES) / block_bytes();
    let irq = args.irq.policy()?;
    if irq != Irq::None && args.device != "null" {
        bail!("{}: --irqmode is for null", args.device);
    }
    match args.device.as_str() {
        "null" => {
            let null = NullDevice::with_irq("null", blocks, irq);
            Ok(slowed(share(null), args))
        }
        "ram" => {
            let ram = RamDevice::new("ram", blocks);
            if args.rw.reads() {
                fill(&ram)?;
            }
            Ok(slowed(share(ram), args))
        }
        path if args.delay.is_some() || args.drive.is_some() => {
            bail!("{path}: --delay and --drive are for null and ram")
        }
        path => open_path(Path::new(path), args, jobs),
    }
}

/// Whether that is a device of our own, without an interface of the kernel.
pub(super) fn is_in_memory(device: &str) -> bool {
    matches!(device, "null" | "ram")
}

/// With the times that are asked for.
fn slowed(device: Arc<dyn Device>, args: &Work) -> Arc<dyn Device> {
    let time = args.delay.map(Duration::from_micros);
    let fixed = time.map(|time| Model {
        read: time,
        write: time,
        ..Model::default()
    });
    match fixed.or(args.drive) {
        Some(model) => share(DelayDevice::with_model(device, model)),
        None => device,
    }
}

/// The engine with its options.
fn engine(args: &Work, jobs: u16) -> Result<file::Engine> {
    let ring = args.ring;
    if args.engine != Engine::Uring && (ring.hipri || ring.sqthread_poll || ring.registered) {
        bail!("--hipri, --sqthread-poll and --registered are for --engine io_uring");
    }
    Ok(match args.engine {
        Engine::Auto => file::Engine::Auto,
        Engine::Psync => file::Engine::Psync,
        Engine::Pvsync2 => file::Engine::Pvsync2,
        Engine::Libaio => file::Engine::Libaio,
        Engine::Uring => file::Engine::Uring(RingOptions {
            iopoll: ring.hipri,
            sqpoll: ring.sqthread_poll,
            // Each job is bound to a core, and waits for itself.
            own_waits: args.wait.poll == Waiting::Sleep,
            registered: match ring.registered {
                true => Some(Buffers {
                    count: u16::try_from(u32::from(jobs) * args.iodepth)
                        .context("--registered: more than 65535 requests under way")?,
                    blocks: u32::try_from(args.bs / block_bytes())
                        .context("--registered: --bs is too large")?,
                }),
                false => None,
            },
        }),
    })
}

/// Says once what the kernel does not do although it was asked for.
fn tell_of_polling(device: &FileDevice, args: &Work) {
    static TOLD: ProcessOnce<()> = ProcessOnce::new();
    let polls = args.engine == Engine::Pvsync2 || args.ring.hipri;
    if polls && !device.is_polled() && TOLD.set(()).is_ok() {
        crate::note!(
            "dure: {}: its driver has no queues to poll (queue/io_poll is not 1): the kernel waits \
             for interrupts",
            args.device
        );
    }
}

fn open_path(path: &Path, args: &Work, jobs: u16) -> Result<Arc<dyn Device>> {
    let options = OpenOptions {
        read_only: !args.rw.writes(),
        engine: engine(args, jobs)?,
        ..OpenOptions::default()
    };
    if path.exists() {
        if args.rw.writes() && !args.overwrite {
            bail!(
                "{}: its content would be lost; --overwrite allows it",
                path.display()
            );
        }
        let device = open_file(path, options)?;
        tell_of_polling(&device, args);
        return Ok(share(device));
    }
    let bytes = args.size.with_context(|| {
        let shown = path.display();
        format!("{shown}: there is no such file; --size makes one")
    })?;
    let blocks = bytes / block_bytes();
    let new = OpenOptions {
        read_only: false,
        ..options
    };
    let device = create_image(path, blocks, Allocation::Preallocated, new)?;
    if args.rw.reads() {
        fill(&device)?;
    }
    Ok(share(device))
}

/// Writes all blocks.
fn fill(device: &impl Device) -> Result<()> {
    let most = FILL_BLOCKS.min(device.info().max_blocks_per_request);
    let step = usize::try_from(most * block_bytes())?;
    let (memory, mut lba) = (vec![0x5a; step], 0);
    while lba < device.info().blocks {
        let blocks = most.min(device.info().blocks - lba);
        let part = &memory[..usize::try_from(blocks * block_bytes())?];
        device.execute(Io::Write {
            lba: Lba::new(lba),
            parts: &[part],
            flags: WriteFlags::NONE,
        })?;
        lba += blocks;
    }
    Ok(())
}
