//! `dure blk export --ublk`: a device of ours as `/dev/ublkbN`.
//!
//! **Structure.** Opens the device, and has a thread for each hardware queue, on a core of its own,
//! serve it ([`dure_block::ublk`]); a signal ends it. **Invariants.** A thread that cannot go on
//! ends the process: the kernel would wait for its queue for ever. **On a crash** the kernel keeps
//! the device and its requests, which `--take-over` serves.

use std::panic::{AssertUnwindSafe, catch_unwind};

use anyhow::{Context, Result, bail};
use dure_block::ublk::{self, Options, Server};
use dure_block::{Queue, QueueConfig};
use dure_sync::{Arc, CoreId, core_count, thread};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::choices::{Engine, IrqArgs, MergeKind, Pattern, PollOf, RingArgs, WaitArgs, Waiting};
use super::device;
use super::load::{Work, bytes, drive};

/// `dure blk export`.
#[derive(Debug, Clone, clap::Args)]
pub struct Export {
    /// As /dev/ublkbN (Linux 6.5 or later with the module ublk_drv, and root).
    #[arg(long, required = true)]
    pub ublk: bool,
    /// null (completes at once), ram, or a block device or file; a file that is not there is made
    /// (see --size).
    #[arg(long, value_name = "DEVICE")]
    pub device: String,
    /// Its size, as in 64M or 1G [default: 256M of null and ram, all of a file].
    #[arg(long, value_parser = bytes, value_name = "SIZE")]
    pub size: Option<u64>,
    /// Refuse writes.
    #[arg(long)]
    pub read_only: bool,
    /// Hardware queues, each served by a thread.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub hw_queues: u16,
    /// Requests of each hardware queue that are under way at once.
    #[arg(long, default_value_t = 128, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub nr_requests: u16,
    /// The N of /dev/ublkbN [default: the first that is free].
    #[arg(long, value_name = "N")]
    pub number: Option<u32>,
    /// Serve /dev/ublkbN, whose server was killed, on: with the same device.
    #[arg(long, value_name = "N", conflicts_with_all = ["number", "hw_queues", "nr_requests"])]
    pub take_over: Option<u32>,
    /// How requests reach a file or block device.
    #[arg(long, value_enum, default_value_t = Engine::Auto)]
    pub engine: Engine,
    /// Requests of null and ram take this many microseconds at least.
    #[arg(long, value_name = "US", conflicts_with = "drive", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub delay: Option<u64>,
    /// null and ram have the times, channels and bandwidth of this drive.
    #[arg(long, value_name = "DRIVE", value_parser = drive)]
    pub drive: Option<dure_block::delay::Model>,
}

/// Serves until a signal comes.
pub(super) fn run(args: &Export) -> Result<()> {
    if args.take_over.is_some() && args.device == "ram" {
        bail!("--take-over: what a device in memory had went with its server");
    }
    if args.read_only && device::is_in_memory(&args.device) {
        bail!("--read-only: {} has nothing to read", args.device);
    }
    // Before there is anything to take back.
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("signals")?;
    let device = device::open(&args.work(), args.hw_queues)?;
    let mut export = match args.take_over {
        Some(number) => ublk::Export::recover(device.info(), number)?,
        None => {
            let options = Options {
                number: args.number,
                queues: args.hw_queues,
                depth: args.nr_requests,
            };
            ublk::Export::add(device.info(), &options)?
        }
    };
    let servers = export.servers()?;
    let queue = Queue::new(
        device,
        QueueConfig {
            hw_queues: u32::try_from(servers.len())?,
            nr_requests: u32::from(args.nr_requests),
            ..QueueConfig::default()
        },
    );
    let threads: Vec<_> = (0..core_count())
        .cycle()
        .zip(servers)
        .map(|(core, server)| {
            let (queue, core) = (Arc::clone(&queue), u16::try_from(core)?);
            let serve = move || serve(server, &queue);
            Ok(thread::spawn_on("dure-ublk", CoreId::new(core), serve))
        })
        .collect::<Result<_>>()?;
    export.start()?;
    crate::say!("/dev/ublkb{}", export.number());
    signals.forever().next();
    export.stop()?;
    for thread in threads {
        // A panic has ended the process.
        drop(thread.join());
    }
    export.delete()?;
    Ok(())
}

fn serve(server: Server, queue: &Queue) {
    match catch_unwind(AssertUnwindSafe(|| server.serve(queue))) {
        Ok(Ok(())) => return,
        Ok(Err(error)) => crate::note!("dure: {error}"),
        Err(_) => {}
    }
    // The kernel has requests of this queue: it takes them back when the process ends.
    std::process::exit(1);
}

impl Export {
    fn work(&self) -> Work {
        Work {
            device: self.device.clone(),
            rw: match self.read_only {
                true => Pattern::Read,
                false => Pattern::Write,
            },
            bs: super::load::block_bytes(),
            iodepth: 1,
            engine: self.engine,
            ring: RingArgs {
                hipri: false,
                sqthread_poll: false,
                registered: false,
            },
            wait: WaitArgs {
                poll: Waiting::Sleep,
                poll_share: 50,
                poll_of: PollOf::Mean,
                poll_period: 100,
            },
            size: self.size,
            seconds: 1.0,
            merge: MergeKind::None,
            sort: false,
            delay: self.delay,
            drive: self.drive,
            irq: IrqArgs {
                irqmode: 0,
                completion_nsec: None,
            },
            // It is what programs do with the block device that changes it.
            overwrite: true,
        }
    }
}
