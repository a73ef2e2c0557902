//! `dure mount`: the server in the foreground, or as a process of its own that is ready when the
//! command returns.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use dure_fs::{AccessTime, FileSystem, MountOptions, RecoveryStatistics, TRACE_EVENTS_MAX};
use dure_fuse::mount::Lazy;
use dure_fuse::{MountSettings, Session, WriteCache};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::Mount;
use crate::exit;
use crate::live::server::Server;
use crate::live::wire::Mounted;
use crate::size::Size;
use crate::volume::{self, Access};

/// Set for the server process that `dure mount` starts: it reports on standard output when it
/// serves.
const SERVER: &str = "DURE_MOUNT_SERVER";
const READY: &str = "ready";

pub(crate) fn run(args: &Mount) -> Result<u8> {
    let (options, settings) = parse(args)?;
    if args.foreground {
        return serve(args, options, &settings);
    }
    start_server(args)
}

/// Starts this program again as the server and waits until it serves or fails.
fn start_server(args: &Mount) -> Result<u8> {
    let program = std::env::current_exe().context("finding the dure program")?;
    let mut command = Command::new(program);
    command
        .arg("mount")
        .arg(&args.volume)
        .arg(&args.directory)
        .arg("--foreground");
    if !args.options.is_empty() {
        command.arg("-o").arg(args.options.join(","));
    }
    command
        .env(SERVER, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut server = command.spawn().context("starting the server process")?;
    let mut line = String::new();
    let out = server.stdout.take().expect("it was piped");
    BufReader::new(out)
        .read_line(&mut line)
        .context("waiting for the server process")?;
    if line.trim_end() == READY {
        return Ok(exit::OK);
    }
    // It has said why on standard error.
    let status = server.wait().context("waiting for the server process")?;
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(exit::FAILED))
}

fn serve(args: &Mount, options: MountOptions, settings: &MountSettings) -> Result<u8> {
    let background = std::env::var_os(SERVER).is_some();
    let access = if options.is_read_only() {
        Access::Read
    } else {
        Access::Write
    };
    let (device, claim) = if settings.block_device {
        let (device, claim) = volume::claimed_block_device(&args.volume, access)?;
        (device, Some(claim))
    } else {
        (volume::device(&args.volume, access)?, None)
    };
    let file_system =
        FileSystem::open(device, options).with_context(|| args.volume.display().to_string())?;
    drop(claim);
    if let Some(found) = file_system.recovered() {
        eprintln!("dure: {}: {}", args.volume.display(), recovery(&found));
    }
    let session = match Session::mount(file_system.clone(), &args.directory, settings) {
        Ok(session) => session,
        Err(error) => {
            file_system.close()?;
            return Err(error.into());
        }
    };
    let directory = session.path().to_owned();
    let _live = listen(args, &file_system, &directory);
    end_on_signals(directory.clone())?;
    if background {
        detach()?;
    } else {
        println!("{} on {}", args.volume.display(), directory.display());
    }
    let served = session.run();
    file_system
        .close()
        .with_context(|| format!("{}: closing", args.volume.display()))?;
    served?;
    Ok(exit::OK)
}

/// What the mount had to do because the volume had not been unmounted.
fn recovery(found: &RecoveryStatistics) -> String {
    format!(
        "it was not unmounted; recovered {} KiB of logs ({} of {} transactions, {} nodes, {} pages) in {} ms \
         with {} threads, {} MiB/s",
        found.log_bytes >> 10,
        found.applied,
        found.transactions,
        found.nodes,
        found.pages,
        found.total_ns() / 1_000_000,
        found.threads,
        found.mib_per_second()
    )
}

/// Lets `dure top` ask. A mount is not worth less without.
fn listen(args: &Mount, file_system: &FileSystem, directory: &Path) -> Option<Server> {
    let uuid = file_system.layout().superblock.uuid;
    let kept = |key: &str| {
        [
            "journal", "flush", "fsync", "alloc", "records", "data", "commit",
        ]
        .contains(&key)
    };
    let options = args.options.iter();
    let options = options.filter(|option| kept(option.split('=').next().unwrap_or_default()));
    let options: Vec<&str> = options.map(String::as_str).collect();
    let mounted = Mounted {
        volume: source_name(&args.volume),
        directory: directory.display().to_string(),
        uuid: uuid::Uuid::from_bytes(uuid).to_string(),
        options: if options.is_empty() {
            "default options".into()
        } else {
            options.join(",")
        },
    };
    match Server::start(&args.volume, file_system, mounted) {
        Ok(server) => Some(server),
        Err(error) => {
            eprintln!("dure: `dure top` will not work: {error:#}");
            None
        }
    }
}

/// SIGINT and SIGTERM unmount; what is in use is detached, so that the volume can be closed all the
/// same.
fn end_on_signals(directory: std::path::PathBuf) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("waiting for signals")?;
    let _ = dure_sync::thread::spawn("dure-signals", move || {
        for _ in signals.forever() {
            if dure_fuse::unmount(&directory, Lazy::No).is_err() {
                let _ = dure_fuse::unmount(&directory, Lazy::Yes);
            }
        }
    });
    Ok(())
}

/// Tells the waiting command that the mount is there, and leaves its terminal.
fn detach() -> Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{READY}")
        .and_then(|()| out.flush())
        .context("reporting that the mount is there")?;
    // Already leading a session is as good.
    let _ = rustix::process::setsid();
    let null = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    std::env::set_current_dir("/").context("leaving the working directory")
}

/// How often a mounted image file is committed, unless it is said: nobody else can make a `sync`
/// of it durable. Of block devices the kernel passes it on.
const IMAGE_COMMIT: Duration = Duration::from_secs(1);

/// Turns `-o` into the options of the file system and of the mount.
fn parse(args: &Mount) -> Result<(MountOptions, MountSettings)> {
    let mut options = MountOptions::default();
    let mut settings = MountSettings {
        source: source_name(&args.volume),
        block_device: volume::is_block_device(&args.volume),
        ..MountSettings::default()
    };
    if !settings.block_device {
        options.commit_interval = IMAGE_COMMIT;
    }
    for option in args.options.iter().filter(|option| !option.is_empty()) {
        let (key, value) = match option.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (option.as_str(), None),
        };
        match (key, value) {
            ("ro", None) => (options.read_only, settings.read_only) = (true, true),
            ("rw", None) => (options.read_only, settings.read_only) = (false, false),
            ("allow_other", None) => settings.allow_other = true,
            ("noatime", None) => {
                options.access_time = AccessTime::Never;
                settings.no_atime = true;
            }
            ("relatime", None) => options.access_time = AccessTime::Relative,
            ("strictatime", None) => options.access_time = AccessTime::Always,
            ("writeback", None) => settings.write_cache = WriteCache::Back,
            ("writethrough", None) => settings.write_cache = WriteCache::Through,
            ("uid", Some(value)) => settings.uid = Some(number(key, value)?),
            ("gid", Some(value)) => settings.gid = Some(number(key, value)?),
            ("trace", Some(value)) => options.trace = Some(events(value)?),
            ("commit", Some(value)) => options.commit_interval = seconds(value)?,
            ("cache", Some(value)) => {
                let Size(bytes) = value.parse().map_err(anyhow::Error::msg).context("cache")?;
                options.cache_bytes = Some(bytes);
            }
            _ if harmless(key) => {}
            (key, Some(value)) if set_policy(&mut options, key, value)? => {}
            _ => bail!("unknown mount option '{option}'; `dure mount --help` lists them"),
        }
    }
    settings.read_only |= options.is_read_only();
    Ok((options, settings))
}

/// Options for mount(8) itself, systemd and the kernel's generic layer.
fn harmless(key: &str) -> bool {
    const KNOWN: [&str; 16] = [
        "defaults",
        "auto",
        "noauto",
        "user",
        "nouser",
        "users",
        "_netdev",
        "nofail",
        "exec",
        "suid",
        "dev",
        "async",
        "nodev",
        "nosuid",
        "noexec",
        "nodiratime",
    ];
    KNOWN.contains(&key) || key.starts_with("x-")
}

fn source_name(volume: &Path) -> String {
    let whole = volume.canonicalize().unwrap_or_else(|_| volume.to_owned());
    whole.display().to_string()
}

fn number(key: &str, value: &str) -> Result<u32> {
    value
        .parse()
        .with_context(|| format!("{key}={value}: not a number"))
}

fn set_policy(options: &mut MountOptions, key: &str, value: &str) -> Result<bool> {
    options.set_policy(key, value).map_err(anyhow::Error::msg)
}

fn events(value: &str) -> Result<usize> {
    match value.parse() {
        Ok(events) if (1..=TRACE_EVENTS_MAX).contains(&events) => Ok(events),
        _ => bail!("trace={value}: it is a number of events per core, 1 to {TRACE_EVENTS_MAX}"),
    }
}

fn seconds(value: &str) -> Result<Duration> {
    let seconds: f64 = value
        .parse()
        .with_context(|| format!("commit={value}: not a number"))?;
    if !(0.001..=3600.0).contains(&seconds) {
        bail!("commit={value}: it is between 0.001 and 3600 seconds");
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(options: &[&str]) -> Result<(MountOptions, MountSettings)> {
        parse(&Mount {
            volume: "/v".into(),
            directory: "/m".into(),
            options: options.iter().map(ToString::to_string).collect(),
            foreground: false,
            kind: None,
        })
    }

    #[test]
    fn options_reach_their_place() {
        let (options, settings) = parsed(&[
            "ro",
            "noatime",
            "commit=0.5",
            "cache=64M",
            "uid=7",
            "writeback",
            "journal=single",
            "records=image",
            "trace=5",
            "data=journal",
            "fsync=all",
            "alloc=global",
            "active_logs=2",
        ])
        .unwrap();
        assert!(options.read_only && settings.read_only && settings.no_atime);
        assert_eq!(options.commit_interval, Duration::from_millis(500));
        assert_eq!(options.cache_bytes, Some(64 << 20));
        assert_eq!(options.trace, Some(5));
        assert_eq!(settings.uid, Some(7));
        assert_eq!(settings.write_cache, WriteCache::Back);
        assert_eq!(options.order, dure_fs::Order::Single);
        assert_eq!(options.records, dure_fs::RecordPolicy::Image);
        assert_eq!(options.data, dure_fs::DataMode::Journal);
        assert_eq!(options.fsync, dure_fs::FsyncScope::All);
        assert_eq!(options.alloc, dure_fs::AllocPolicy::Global);
        assert_eq!(options.active_logs, dure_fs::ActiveLogs::Two);
    }

    #[test]
    fn options_of_fstab_are_accepted_and_nonsense_is_not() {
        let (_, settings) = parsed(&["defaults", "nofail", "x-systemd.automount"]).unwrap();
        assert_eq!(settings.write_cache, WriteCache::Through);
        for bad in [
            "comit=5",
            "commit=0",
            "commit=x",
            "journal=two",
            "alloc=local,",
            "active_logs=3",
            "fsync=none",
            "cache=1Q",
            "trace=0",
            "trace=on",
            "trace",
            "uid=me",
        ] {
            assert!(parsed(&[bad]).is_err(), "{bad}");
        }
    }
}
