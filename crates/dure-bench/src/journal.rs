//! `dure bench journal`: all policies of the journal compared with other journaling file systems,
//! each on a device of its own of the same kind, and with the floor below all of them.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use dure_block::delay::DelayDevice;
use dure_block::nvm::NvmDevice;
use dure_block::ram::RamDevice;
use dure_block::{Device, share};
use dure_fs::members::{Member, join};
use dure_fs::{FileSystem, FormatOptions, NvmRegion};
use dure_pmem::Region;
use dure_sync::Arc;

use crate::measure::Point;
use crate::medium::{Medium, Mounted, Source};
use crate::micro::{self, Workload, or_default};
use crate::options::Measuring;
use crate::report;
use crate::target::{Target, options_of};

/// Policies of dure that are measured when none are named. Those this version does not know are
/// left out.
const POLICIES: [&str; 10] = [
    "journal=none,no-crash-guarantee",
    "journal=per-core",
    "journal=per-core,log-data=0",
    "journal=per-core,flush=two,log-data=0",
    "journal=per-core,fsync=all",
    "journal=single",
    "journal=zjournal",
    "journal=zjournal,data=journal",
    "journal=jbd2",
    "journal=jbd2,data=journal",
];

/// Other file systems: name, type, mount options.
const OTHERS: [(&str, &str, &str); 3] = [
    ("ext4", "ext4", "data=ordered"),
    ("ext4-data-journal", "ext4", "data=journal"),
    ("xfs", "xfs", ""),
];

/// `dure bench journal`.
#[derive(Debug, clap::Args)]
pub struct Journal {
    /// What the volumes lie on: zram, loop (in memory), delay (a slow RAM device, dure only), or a
    /// directory, for preallocated files in it, compared with the directory's own file system.
    #[arg(long, default_value = "zram")]
    pub device: String,
    /// Size of each device in MiB.
    #[arg(long, default_value_t = 512, value_name = "MIB", value_parser = clap::value_parser!(u64).range(64..=65_536))]
    pub size_mib: u64,
    /// Policies of dure, as mount options [default: all there are].
    #[arg(long = "policy", value_name = "OPTION[,OPTION...]")]
    pub policies: Vec<String>,
    /// Workloads [default: overwrite-fsync, append-fsync, create-fsync, overwrite,
    /// overwrite-shared].
    #[arg(long = "workload", value_name = "NAME", value_enum)]
    pub workloads: Vec<Workload>,
    /// Microseconds of a write and of a flush of the device `delay`.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "WRITE,FLUSH",
        default_value = "20,1000"
    )]
    pub delay: Vec<u64>,
    /// For each policy also a volume on such a device and on so many MiB of emulated persistent
    /// memory, where its tables, logs and nodes are.
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(64..=65_536))]
    pub nvm_mib: Option<u64>,
    /// How.
    #[command(flatten)]
    pub measuring: Measuring,
}

/// All that is compared, and what was left out and why.
#[derive(Debug, Default)]
struct Field {
    targets: Vec<Target>,
    /// Dropped after the targets.
    mounted: Vec<Mounted>,
    media: Vec<Medium>,
    left_out: Vec<String>,
}

/// Measures and prints the report.
///
/// # Errors
/// The device cannot be made, or an operation fails.
pub(crate) fn run(args: &Journal) -> Result<()> {
    let (points, left_out) = measure(args)?;
    args.measuring.report("journal", &points)?;
    for what in left_out {
        report::say(&format!("left out: {what}"));
    }
    Ok(())
}

/// Returns the points, and what was left out.
fn measure(args: &Journal) -> Result<(Vec<Point>, Vec<String>)> {
    let default = [
        Workload::OverwriteFsync,
        Workload::AppendFsync,
        Workload::CreateFsync,
        Workload::Overwrite,
        Workload::OverwriteShared,
    ];
    let workloads = or_default(&args.workloads, &default);
    let plan = args.measuring.plan(200);
    let mut field = if args.device == "delay" {
        slow_field(args)?
    } else {
        field(args)?
    };
    let points = micro::measure(workloads, std::mem::take(&mut field.targets), &plan)?;
    drop((field.mounted, field.media));
    Ok((points, field.left_out))
}

fn policies(args: &Journal, left_out: &mut Vec<String>) -> Result<Vec<String>> {
    if !args.policies.is_empty() {
        return Ok(args.policies.clone());
    }
    let known = |policy: &&str| match options_of("dure", policy) {
        Ok(_) => true,
        Err(_) => {
            left_out.push(format!("dure {policy}: this version has no such policy"));
            false
        }
    };
    let known: Vec<_> = POLICIES.iter().copied().filter(known).collect();
    Ok(known.into_iter().map(str::to_owned).collect())
}

fn field(args: &Journal) -> Result<Field> {
    let source = Source::parse(&args.device)?;
    let bytes = args.size_mib << 20;
    let mut field = Field::default();
    for (name, pages) in [("floor 4 KiB", 1), ("floor 8 KiB", 2)] {
        let medium = Medium::make(&source, bytes)?;
        let text = format!("raw:{},pages={pages}", medium.path.display());
        field.targets.push(Target::named(name, &text)?);
        field.media.push(medium);
    }
    match &source {
        Source::Directory(place) => {
            let text = format!("dir:{}", place.display());
            field.targets.push(Target::named("directory", &text)?);
            let why = "ext4, xfs: on files only through loop, see --device loop";
            field.left_out.push(why.to_owned());
        }
        Source::Zram | Source::Loop => others(&source, bytes, &mut field)?,
    }
    for policy in policies(args, &mut field.left_out)? {
        for nvm_mib in kinds(args) {
            let medium = Medium::make(&source, bytes)?;
            let device = dure_block::file::open_file(&medium.path, Default::default())?;
            field.targets.push(volume(&policy, share(device), nvm_mib)?);
            field.media.push(medium);
        }
    }
    Ok(field)
}

/// The kinds of volumes: those on a device, and those on a device and persistent memory.
fn kinds(args: &Journal) -> impl Iterator<Item = Option<u64>> {
    std::iter::once(None).chain(args.nvm_mib.map(Some))
}

fn others(source: &Source, bytes: u64, field: &mut Field) -> Result<()> {
    for (name, kind, options) in OTHERS {
        let medium = Medium::make(source, bytes)?;
        match Mounted::make(kind, options, medium) {
            Ok(mounted) => {
                let text = format!("dir:{}", mounted.directory.path().display());
                field.targets.push(Target::named(name, &text)?);
                field.mounted.push(mounted);
            }
            Err(error) => field.left_out.push(format!("{name}: {error:#}")),
        }
    }
    Ok(())
}

/// A volume on the device, and on so many MiB of emulated persistent memory.
fn volume(policy: &str, device: Arc<dyn Device>, nvm_mib: Option<u64>) -> Result<Target> {
    let mut format = FormatOptions::default();
    let Some(mib) = nvm_mib else {
        FileSystem::format(device.clone(), &format)?;
        let target = Target::volume("dure", policy, device);
        return target.with_context(|| format!("dure {policy}"));
    };
    let region = Region::anonymous(usize::try_from(mib << 20)?);
    let region = region.context("emulated persistent memory")?;
    let nvm = share(NvmDevice::in_memory("nvm", region));
    format.nvm = vec![NvmRegion {
        device: nvm.clone(),
        path: "nvm".into(),
        node: 0,
    }];
    FileSystem::format(device.clone(), &format)?;
    let members = [nvm, device].map(|device| Member {
        device,
        path: String::new(),
    });
    let target = Target::volume("dure, logs in NVM", policy, join(&members)?);
    target.with_context(|| format!("dure {policy} with persistent memory"))
}

/// Volumes on slow RAM devices: how flushes are shared.
fn slow_field(args: &Journal) -> Result<Field> {
    let [write, flush] = args.delay[..] else {
        bail!("--delay: two numbers, for writes and for flushes");
    };
    let mut field = Field::default();
    for policy in policies(args, &mut field.left_out)? {
        for nvm_mib in kinds(args) {
            let ram = RamDevice::new("delay", args.size_mib << 8);
            let (write, flush) = (Duration::from_micros(write), Duration::from_micros(flush));
            let device = share(DelayDevice::new(share(ram), write, flush));
            field.targets.push(volume(&policy, device, nvm_mib)?);
        }
    }
    Ok(field)
}
