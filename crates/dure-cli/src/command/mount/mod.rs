//! `dure mount`: the server in the foreground, or as a process of its own that is ready when the
//! command returns.

mod options;
mod process;
mod remount;

use std::io::{IsTerminal, Write};

use anyhow::{Context, Result, bail};
use dure_bench::{note, say};
use dure_block::Device;
use dure_block::count::Count;
use dure_block::file::DeviceClaim;
use dure_block::nvm::Medium;
use dure_fs::{Durability, FileSystem, MountOptions, RecoveryStatistics};
use dure_fuse::{MountSettings, Session, SnapshotPlaces, Switch, WriteCache};
use dure_sync::Arc;

use crate::args::Mount;
use crate::exit;
use crate::live;
use crate::live::scrub::Scrubs;
use crate::live::server::{Grows, Observed, Server};
use crate::live::snapshots::SnapshotMounts;
use crate::live::wire::Mounted;
use crate::log::sink::Sink;
use crate::log::watch::Watch;
use crate::log::{self, Level};
use crate::metrics::Metrics;
use crate::volume::{self, Access};

/// A cache of which what the allocator keeps of freed memory would be a considerable part.
const SMALL_CACHE_BYTES: u64 = 256 << 20;

pub(crate) fn run(args: &Mount, return_memory_soon: fn()) -> Result<u8> {
    if args.options.iter().any(|option| option == "remount") {
        return remount::run(args);
    }
    if args.enable_rings && !args.fake {
        Switch::turn_on().context("--enable-rings")?;
    }
    let wrong = |error| exit::WrongArguments(crate::message(&error));
    let (options, settings) = options::parse(args).map_err(wrong)?;
    if options.cache_bytes < SMALL_CACHE_BYTES {
        return_memory_soon();
    }
    check_place(args)?;
    if args.fake {
        return look(args, options);
    }
    if args.foreground {
        return serve(args, options, &settings);
    }
    let status = process::start_server(args)?;
    if args.verbose && status == exit::OK {
        say!("{} on {}", settings.source, args.directory.display());
    }
    Ok(status)
}

/// Refuses, before anything is opened or recovered, what cannot be mounted on, and a directory whose
/// mount would hide the volume: an access to the volume's path would then
/// wait for the server, and the server itself would wait for its own reply.
fn check_place(args: &Mount) -> Result<()> {
    dure_fuse::mount::directory(&args.directory)?;
    let (volume, directory) = (args.volume.canonicalize(), args.directory.canonicalize());
    if let (Ok(volume), Ok(directory)) = (volume, directory)
        && volume.starts_with(&directory)
    {
        bail!(
            "{}: lies in {}, where it would be hidden by its own mount; mount it elsewhere",
            args.volume.display(),
            args.directory.display()
        );
    }
    Ok(())
}

/// Everything but the mount: checks that the volume can be opened and mounted, changing nothing.
fn look(args: &Mount, options: MountOptions) -> Result<u8> {
    let access = access(&options);
    let device = volume::device_as(&args.volume, access, &args.regions, options::nvm(args)?)?;
    let options = MountOptions {
        read_only: true,
        ..options
    };
    let opened = FileSystem::open(device, options);
    opened.with_context(|| args.volume.display().to_string())?;
    if args.verbose {
        say!(
            "{} can be mounted on {}",
            args.volume.display(),
            args.directory.display()
        );
    }
    Ok(exit::OK)
}

fn access(options: &MountOptions) -> Access {
    if options.is_read_only() {
        Access::Read
    } else {
        Access::Write
    }
}

/// Serves, and writes to the log how that went.
fn serve(args: &Mount, options: MountOptions, settings: &MountSettings) -> Result<u8> {
    let background = std::env::var_os(process::SERVER).is_some();
    let (file, level) = options::log(args)?;
    let sink = match &file {
        Some(path) => Sink::file(path).with_context(|| path.display().to_string())?,
        None if background => Sink::system(),
        None => Sink::Terminal,
    };
    log::begin(sink, level, args.volume.display().to_string());
    log::watch::failures();
    let served = serve_logged(args, options, settings, background);
    if let Err(error) = &served {
        log::said(Level::Error, &crate::message(error));
    }
    served
}

/// Tells the terminal, while there is one, and the log.
fn tell(args: &Mount, level: Level, text: &str) {
    note!("dure: {}: {text}", args.volume.display());
    log::said(level, text);
}

fn serve_logged(
    args: &Mount,
    options: MountOptions,
    settings: &MountSettings,
    background: bool,
) -> Result<u8> {
    let read_only = options.is_read_only();
    let access = access(&options);
    // After the mount, the path may lead into it, and no worker serves it yet.
    let address = live::address(&args.volume);
    let (device, claim) = open_volume(args, settings, access)?;
    let grows = Grows {
        device: Arc::clone(&device),
        is_block_device: volume::is_block_device(&args.volume),
    };
    SnapshotMounts::forget_killed();
    let snapshots = Arc::new(SnapshotMounts::of(settings, &args.directory));
    let places: Box<dyn SnapshotPlaces> = Box::new(Arc::clone(&snapshots));
    let settings = &MountSettings {
        snapshots: Some(Arc::from(places)),
        ..settings.clone()
    };
    let (file_system, session, scrubs) = open_and_mount(args, (device, claim), options, settings)?;
    tell_fallback(args, session.fallback());
    let mounted = mounted(args, &file_system, &session, read_only);
    let directory = session.path().to_owned();
    log::said(Level::Info, &summary(&mounted, &file_system));
    drop(file_system);
    let volume = session.volume();
    let observed = Observed::new(volume.clone(), mounted, Some(grows), snapshots.clone())
        .scrubbed_by(scrubs.clone());
    let metrics = metrics(args, &observed);
    let live = address
        .context("its socket")
        .and_then(|address| Server::start(&address, observed));
    if let Err(error) = &live {
        tell(
            args,
            Level::Warning,
            &format!("`dure top` will not work: {error:#}"),
        );
    }
    process::end_on_signals(directory.clone())?;
    if background {
        process::detach()?;
    } else {
        // The server goes on even if its output has been closed.
        let on = format!("{} on {}", args.volume.display(), directory.display());
        let _ = writeln!(std::io::stdout(), "{on}");
    }
    let watch = Watch::begin(&volume);
    scrubs.go_on(&volume);
    let served = session.run();
    drop(metrics);
    snapshots.end();
    scrubs.suspend();
    let closed = volume.file_system().close();
    drop(watch);
    log::said(
        Level::Info,
        if closed.is_ok() {
            "unmounted"
        } else {
            "unmounted, not closed"
        },
    );
    if let Ok(live) = live {
        live.finish(closed.as_ref().err().map(ToString::to_string));
    }
    closed.with_context(|| format!("{}: closing", args.volume.display()))?;
    served?;
    Ok(exit::OK)
}

/// Opens the volume, tells what was found, and mounts it.
fn open_and_mount(
    args: &Mount,
    (device, claim): (Arc<dyn Device>, Option<DeviceClaim>),
    options: MountOptions,
    settings: &MountSettings,
) -> Result<(FileSystem, Session, Arc<Scrubs>)> {
    let changes = access(&options) == Access::Write;
    let file_system =
        FileSystem::open(device, options).with_context(|| args.volume.display().to_string())?;
    drop(claim);
    if changes && let Err(half) = volume::whole(&file_system, &args.volume) {
        file_system.close()?;
        return Err(half);
    }
    let is_strict = file_system.durability() == Durability::Strict;
    if is_strict && settings.write_cache == WriteCache::Back {
        file_system.close()?;
        bail!(
            "writeback: with durability=strict a write is durable when it returns; leave one out"
        );
    }
    if let Some(found) = file_system.recovered() {
        tell(args, Level::Warning, &recovery(&found));
    }
    if file_system.first_superblock_is_damaged() {
        let advice = "the first superblock is damaged, and the last was used; unmount, and \
                      `dure check --repair` makes it again";
        tell(args, Level::Warning, advice);
    }
    // Before the mount: the state directory may lie in it, and no worker serves it yet.
    let uuid = uuid::Uuid::from_bytes(file_system.layout().superblock.uuid).to_string();
    let scrubs = Arc::new(Scrubs::of(&options::source_name(&args.volume), &uuid));
    match Session::mount(file_system.clone(), &args.directory, settings) {
        Ok(session) => Ok((file_system, session, scrubs)),
        Err(error) => {
            file_system.close()?;
            Err(error.into())
        }
    }
}

/// Why requests do not come as they might, if they do not.
fn tell_fallback(args: &Mount, why: Option<&str>) {
    let Some(why) = why else { return };
    let said = format!("transport=uring: {why}; requests go through /dev/fuse");
    if args
        .options
        .iter()
        .any(|option| option == "transport=uring")
    {
        note!("dure: {said}");
        return;
    }
    // The user did not ask for rings.
    log::said(Level::Info, &said);
    let is_root = rustix::process::geteuid().is_root();
    if is_root && Switch::now() == Switch::Off && std::io::stderr().is_terminal() {
        note!("dure: a mount with --enable-rings is faster (`dure help mount`)");
    }
}

/// The volume on all its media, which it tells about; and the claim on its block device.
fn open_volume(
    args: &Mount,
    settings: &MountSettings,
    access: Access,
) -> Result<(Arc<dyn Device>, Option<DeviceClaim>)> {
    let (file, claim) = if settings.block_device {
        let (file, claim) = volume::claimed_block_device(&args.volume, access)?;
        (file, Some(claim))
    } else {
        (volume::file_device(&args.volume, access)?, None)
    };
    let nvm = options::nvm(args)?;
    let device = volume::join(&args.volume, file, access, &args.regions, nvm)?;
    for part in device.parts() {
        let info = part.device.info();
        let how = info.nvm.map_or("by requests", memory);
        tell(args, Level::Info, &format!("{}: {how}", info.name));
    }
    if let Some(medium) = device.info().nvm {
        tell(args, Level::Info, memory(medium));
    }
    Ok((device, claim))
}

/// Begins to show the numbers for Prometheus. A mount without them is better than none.
fn metrics(args: &Mount, observed: &Observed) -> Option<Metrics> {
    let place = options::metrics(args).ok().flatten()?;
    match Metrics::start(place, observed.clone()) {
        Ok(metrics) => Some(metrics),
        Err(error) => {
            tell(args, Level::Warning, &format!("no metrics: {error:#}"));
            None
        }
    }
}

/// The mount in one line.
fn summary(mounted: &Mounted, file_system: &FileSystem) -> String {
    let room = file_system.activity().room;
    format!(
        "mounted on {} {} with {}, uuid {}, {}, {} of {} blocks of 4 KiB free",
        mounted.directory,
        if mounted.read_only { "ro" } else { "rw" },
        mounted.options,
        mounted.uuid,
        Count::of(file_system.layout().journals, "journal"),
        room.blocks_free,
        room.blocks,
    )
}

/// What kind of memory the volume is in, and what that promises.
fn memory(medium: Medium) -> &'static str {
    match medium {
        Medium::Direct => "in persistent memory, mapped",
        Medium::Emulated => {
            "in emulated persistent memory: what is synced survives the end of the server, but not \
             a power cut"
        }
    }
}

/// What the mount had to do because the volume had not been unmounted.
fn recovery(found: &RecoveryStatistics) -> String {
    format!(
        "it was not unmounted; recovered {} KiB of logs ({} of {}, {}, {}) in {} ms with {}, {} \
         MiB/s",
        found.log_bytes >> 10,
        found.applied,
        Count::of(found.transactions, "transaction"),
        Count::of(found.nodes, "node"),
        Count::of(found.pages, "page"),
        found.total_ns() / 1_000_000,
        Count::of(found.threads, "thread"),
        found.mib_per_second()
    )
}

/// Facts about the mount for `dure top`.
fn mounted(args: &Mount, file_system: &FileSystem, session: &Session, read_only: bool) -> Mounted {
    let uuid = file_system.layout().superblock.uuid;
    // What says how the volume is used; not the words for mount(2), nor what fstab adds for others.
    let kept = |option: &&String| {
        let key = option.split_once('=').map(|(key, _)| key);
        key.is_some_and(|key| key != "comment" && !key.to_lowercase().starts_with("x-"))
    };
    let shown = args.options.iter().filter(kept);
    let shown: Vec<&str> = shown.map(String::as_str).collect();
    Mounted {
        volume: options::source_name(&args.volume),
        label: label(&file_system.layout().superblock.label),
        format_version: file_system.layout().superblock.version.get(),
        directory: session.path().display().to_string(),
        transport: session.transport().name().to_owned(),
        no_rings: session.fallback().map(str::to_owned),
        write_cache: match session.write_cache() {
            WriteCache::Back => "writeback",
            WriteCache::Through | WriteCache::Auto => "writethrough",
        }
        .to_owned(),
        writes_through: session.writes_through().map(str::to_owned),
        uuid: uuid::Uuid::from_bytes(uuid).to_string(),
        options: if shown.is_empty() {
            "default options".into()
        } else {
            shown.join(",")
        },
        read_only,
        half_done: dure::stream::half_done(file_system)
            .ok()
            .flatten()
            .map(|half| (half.what().to_owned(), half.snapshot().to_owned())),
    }
}

/// The label of a volume as text.
fn label(bytes: &[u8]) -> String {
    let used = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(used).into_owned()
}
