//! `-o`: words to the options of the file system and of the mount.
//!
//! **Structure.** A word is a generic option of mount(8) with a flag ([`flags`]), one that is for
//! mount(8) itself, or ours. **Invariants.** A word does what it says or is refused with the
//! reason; of words that contradict each other the last one counts, as mount(8) says, but `ro` with
//! `rw` is refused. Policies,
//! which fstab and the command line do not mix by accident, are named once. **Crash.** Nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use dure_bench::note;
use dure_block::nvm::Nvm;
use dure_fs::{AccessTime, MountOptions, TRACE_EVENTS_MAX};
use dure_fuse::mount::flags;
use dure_fuse::{MountSettings, RingPolicy, Transport, WriteCache};
use rustix::mount::MountFlags;
use rustix::process::geteuid;

use crate::args::Mount;
use crate::log::Level;
use crate::manual::MOUNT_WORDS;
use crate::metrics::Place;
use crate::size::Size;
use crate::volume;

/// Words that mount(8) handles before it calls us; here they have no effect.
const FOR_MOUNT: [&str; 13] = [
    "defaults",
    "auto",
    "noauto",
    "nofail",
    "_netdev",
    "nouser",
    "noowner",
    "nogroup",
    "remount",
    "noiversion",
    "nomand",
    "uhelper",
    "helper",
];

/// How often a mounted image file is committed by default: the kernel does not pass sync(1) on to a
/// mount of one, as it does for block devices.
const IMAGE_COMMIT: Duration = Duration::from_secs(1);

/// The least `cache=`: below it a mount would hold hardly more than what it is just doing.
const CACHE_MIN: u64 = 1 << 20;

/// Turns `-o` into the options of the file system and of the mount.
pub(super) fn parse(args: &Mount) -> Result<(MountOptions, MountSettings)> {
    let mut options = MountOptions {
        cache_bytes: dure::quarter_of_memory(),
        ..MountOptions::default()
    };
    let mut settings = MountSettings {
        source: source_name(&args.volume),
        block_device: volume::is_block_device(&args.volume),
        ..MountSettings::default()
    };
    if !settings.block_device {
        options.commit_interval = IMAGE_COMMIT;
    }
    let said = |word: &str| args.options.iter().any(|option| option == word);
    if said("ro") && said("rw") {
        bail!("ro and rw: give one of them");
    }
    let mut policies = BTreeMap::new();
    for option in args.options.iter().filter(|option| !option.is_empty()) {
        if let Some(flags) = after(settings.flags, option)? {
            settings.flags = flags;
            continue;
        }
        let (key, value) = match option.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (option.as_str(), None),
        };
        let earlier = value.and_then(|value| policies.insert(key, value));
        if let (Some(earlier), Some(value)) = (earlier, value)
            && earlier != value
        {
            bail!("{key}={earlier} and {key}={value}: give one of them");
        }
        match (key, value) {
            ("allow_other", None) => settings.allow_other = true,
            ("writeback", None) => settings.write_cache = WriteCache::Back,
            ("writethrough", None) => settings.write_cache = WriteCache::Through,
            ("transport", Some(value)) => settings.transport = transport(value)?,
            ("ring_policy", Some(value)) => settings.ring_policy = ring_policy(value)?,
            ("uid", Some(value)) => settings.uid = Some(number(key, value)?),
            ("gid", Some(value)) => settings.gid = Some(number(key, value)?),
            // Of the server: see `log`.
            ("log", Some(_)) => {}
            // See `metrics`.
            ("metrics", Some(place)) => drop(Place::parse(place)?),
            ("log-level", Some(value)) => drop(level(value)?),
            // Of the device: see `nvm`.
            ("nvm", Some(value)) => drop(nvm_of(value)?),
            ("snapshot", Some(value)) => options.snapshot = Some(value.to_owned()),
            ("trace", Some(value)) => options.trace = Some(events(value)?),
            ("commit", Some(value)) => options.commit_interval = seconds(value)?,
            ("cache", Some(value)) => {
                options.cache_bytes = cache(value)?;
            }
            (key, value) if set_policy(&mut options, key, value.unwrap_or_default())? => {}
            _ if args.sloppy => note!("dure: unknown mount option '{option}', left out"),
            (key, None) if takes_value(key) => bail!("{key}: it needs a value, {key}=VALUE"),
            _ => bail!("unknown mount option '{option}'; `dure mount --help` lists them"),
        }
    }
    follow(&mut options, settings.flags);
    if options.is_read_only() {
        settings.flags |= MountFlags::RDONLY;
    }
    only_roots(settings.flags)?;
    Ok((options, settings))
}

/// Whether `key` is an option of ours that stands before a value.
fn takes_value(key: &str) -> bool {
    let words = MOUNT_WORDS.iter().filter_map(|word| word.split_once('='));
    words.map(|(before, _)| before).any(|before| before == key)
}

/// Where the server's log goes, if not to the system's, and how much of it.
pub(super) fn log(args: &Mount) -> Result<(Option<PathBuf>, Level)> {
    let of = |key: &str| {
        let mut values = args.options.iter().rev();
        values.find_map(|option| option.strip_prefix(key)?.strip_prefix('='))
    };
    let file = args.log.clone().or_else(|| of("log").map(PathBuf::from));
    let said = of("log-level").map(level).transpose()?;
    Ok((file, args.log_level.or(said).unwrap_or(Level::Info)))
}

/// Where the numbers for Prometheus go, if anywhere.
pub(super) fn metrics(args: &Mount) -> Result<Option<Place>> {
    let mut values = args.options.iter().rev();
    let said = values.find_map(|option| option.strip_prefix("metrics="));
    let place = args.metrics.as_deref().or(said);
    place.map(Place::parse).transpose()
}

fn level(value: &str) -> Result<Level> {
    let level = Level::from_str(value, false).ok();
    level.with_context(|| format!("log-level={value}: error, warning, info or debug"))
}

/// Whether the volume is used as persistent memory.
pub(super) fn nvm(args: &Mount) -> Result<Nvm> {
    let mut values = args
        .options
        .iter()
        .filter_map(|option| option.strip_prefix("nvm="));
    values.next().map_or(Ok(Nvm::Auto), nvm_of)
}

fn nvm_of(value: &str) -> Result<Nvm> {
    Nvm::named(value).with_context(|| format!("nvm={value}: {}", Nvm::NAMES))
}

/// The flags after one more word of mount(8); `None` if the word is not its.
pub(super) fn after(before: MountFlags, option: &str) -> Result<Option<MountFlags>> {
    if let Some(flags) = flags::after(before, option) {
        return Ok(Some(flags));
    }
    let key = option.split('=').next().unwrap_or_default();
    Ok(match key {
        // A mount by an ordinary user must not give that user a set-uid program.
        "user" | "users" => Some(before | flags::DEFAULT | MountFlags::NOEXEC),
        "owner" | "group" => Some(before | flags::DEFAULT),
        "mand" => bail!("mand: Linux has no mandatory locks since 5.15"),
        "iversion" => bail!("iversion: dure keeps no such count for others"),
        "bind" | "rbind" | "move" => bail!("{key}: mount(8) does it by itself, without -t dure"),
        _ if FOR_MOUNT.contains(&key) => Some(before),
        _ if ["x-", "X-"].iter().any(|prefix| key.starts_with(prefix)) => Some(before),
        "comment" => Some(before),
        _ => None,
    })
}

/// What the file system itself does of the generic options.
fn follow(options: &mut MountOptions, flags: MountFlags) {
    options.read_only = flags.contains(MountFlags::RDONLY);
    options.access_time = if flags.contains(MountFlags::NOATIME) {
        AccessTime::Never
    } else if flags.contains(MountFlags::STRICTATIME) {
        AccessTime::Always
    } else {
        AccessTime::Relative
    };
    let no_directories = flags.contains(MountFlags::NODIRATIME);
    options.directory_access_time = no_directories.then_some(AccessTime::Never);
}

fn only_roots(flags: MountFlags) -> Result<()> {
    if geteuid().is_root() {
        return Ok(());
    }
    for (flag, word) in [(MountFlags::NOSUID, "suid"), (MountFlags::NODEV, "dev")] {
        if !flags.contains(flag) {
            bail!("{word}: only root may mount so");
        }
    }
    if flags.contains(MountFlags::SILENT) {
        bail!("silent: fusermount3 does not know it; only root may mount so");
    }
    Ok(())
}

pub(super) fn source_name(volume: &Path) -> String {
    let whole = volume.canonicalize().unwrap_or_else(|_| volume.to_owned());
    whole.display().to_string()
}

fn number(key: &str, value: &str) -> Result<u32> {
    let number = value.parse().ok();
    number.with_context(|| format!("{key}={value}: it is a number, as id(1) shows it"))
}

fn transport(value: &str) -> Result<Transport> {
    match value {
        "device" => Ok(Transport::Device),
        "uring" => Ok(Transport::Uring),
        _ => bail!("transport={value}: device or uring"),
    }
}

fn ring_policy(value: &str) -> Result<RingPolicy> {
    match value {
        "idle" => Ok(RingPolicy::Idle),
        "other" => Ok(RingPolicy::Other),
        _ => bail!("ring_policy={value}: idle or other"),
    }
}

fn set_policy(options: &mut MountOptions, key: &str, value: &str) -> Result<bool> {
    options.set_policy(key, value).map_err(anyhow::Error::msg)
}

fn cache(value: &str) -> Result<u64> {
    let Size(bytes) = value.parse().map_err(anyhow::Error::msg).context("cache")?;
    if bytes < CACHE_MIN {
        bail!("cache={value}: it is at least {}", Size(CACHE_MIN));
    }
    Ok(bytes)
}

fn events(value: &str) -> Result<usize> {
    match value.parse() {
        Ok(events) if (1..=TRACE_EVENTS_MAX).contains(&events) => Ok(events),
        _ => bail!("trace={value}: it is a number of events per core, 1 to {TRACE_EVENTS_MAX}"),
    }
}

fn seconds(value: &str) -> Result<Duration> {
    match value.parse() {
        Ok(seconds) if (0.001..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => bail!("commit={value}: it is a number of seconds, from 0.001 to 3600"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(options: &[&str]) -> Result<(MountOptions, MountSettings)> {
        parse(&Mount {
            volume: "/v".into(),
            directory: "/m".into(),
            options: options.iter().map(ToString::to_string).collect(),
            ..Mount::default()
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
            "nvm=emulated",
            "transport=uring",
            "ring_policy=other",
            "journal=jbd2",
            "trace=5",
            "data=journal",
            "fsync=all",
            "alloc=global",
            "active_logs=2",
        ])
        .unwrap();
        assert!(options.read_only && settings.flags.contains(MountFlags::RDONLY));
        assert!(settings.flags.contains(MountFlags::NOATIME));
        assert_eq!(options.commit_interval, Duration::from_millis(500));
        assert_eq!(options.cache_bytes, 64 << 20);
        assert_eq!(options.trace, Some(5));
        assert_eq!(settings.uid, Some(7));
        assert_eq!(settings.write_cache, WriteCache::Back);
        assert_eq!(settings.transport, Transport::Uring);
        assert_eq!(settings.ring_policy, RingPolicy::Other);
        assert_eq!(options.order, dure_fs::Order::Single);
        assert_eq!(options.records, dure_fs::RecordPolicy::Image);
        assert_eq!(options.data, dure_fs::DataMode::Journal);
        assert_eq!(options.fsync, dure_fs::FsyncScope::All);
        assert_eq!(options.alloc, dure_fs::AllocPolicy::Global);
        assert_eq!(options.active_logs, dure_fs::ActiveLogs::Two);
    }

    #[test]
    fn generic_options_are_flags_and_those_of_nobody_are_refused() {
        let flags = |options: &[&str]| parsed(options).unwrap().1.flags;
        assert_eq!(flags(&[]), flags::DEFAULT);
        assert_eq!(flags(&["users"]), flags::DEFAULT | MountFlags::NOEXEC);
        assert_eq!(flags(&["user", "exec"]), flags::DEFAULT);
        assert_eq!(flags(&["noexec", "comment=x", "x-a=b"]), flags(&["users"]));
        let (options, _) = parsed(&["nodiratime", "strictatime"]).unwrap();
        assert_eq!(options.directory_access_time, Some(AccessTime::Never));
        assert_eq!(options.access_time, AccessTime::Always);
        for (bad, why) in [
            (&["mand"][..], "mandatory"),
            (&["bind"], "mount(8)"),
            (&["journal=single", "journal=per-core"], "give one"),
            (&["ro", "rw"], "ro and rw: give one"),
            (&["commit=abc"], "a number of seconds"),
            (&["cache=0"], "at least 1.0 MiB"),
            (&["uid=me"], "a number, as id(1)"),
            (&["nosiud"], "unknown"),
        ] {
            let error = parsed(bad).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    /// What completions offer is what the parser takes, and what the page for users lists.
    #[test]
    fn words_of_completions_are_options() {
        let value = |key: &str| match key {
            "log=" | "metrics=" => "/l",
            "cache=" | "segment_size=" | "dirty_limit=" => "16M",
            "topology=" => "1x1",
            _ => "1",
        };
        for word in crate::manual::MOUNT_WORDS {
            let value = if word.ends_with('=') { value(word) } else { "" };
            let word = format!("{word}{value}");
            let taken = parsed(&[&word]).map_err(|error| error.to_string());
            let of_root = |why: &str| !geteuid().is_root() && why.contains("only root may");
            assert!(taken.err().is_none_or(|why| of_root(&why)), "{word}");
        }
        let page = include_str!("../../../../../docs/user/options.md");
        let (_, page) = page.split_once("## Of a mount that people set").unwrap();
        let (page, _) = page.split_once("## Generic mount options").unwrap();
        let rows = page.lines().filter(|line| line.starts_with("| `"));
        for row in rows {
            let cell = row.split('|').nth(1).unwrap();
            let options = cell.split('`').skip(1).step_by(2);
            for option in options.map(|option| option.trim_end_matches("FILE")) {
                let offered = |word: &str| word.starts_with(option);
                assert!(
                    crate::manual::MOUNT_WORDS.iter().any(|word| offered(word)),
                    "{option}"
                );
            }
        }
    }

    #[test]
    fn a_preset_sets_policies_and_refuses_others() {
        let (options, _) = parsed(&["preset=f2fs-locks", "commit=3"]).unwrap();
        assert_eq!(
            options.said.preset().map(|preset| preset.name()),
            Some("f2fs-locks")
        );
        for words in [
            ["preset=jbd2", "data=ordered"],
            ["data=ordered", "preset=jbd2"],
        ] {
            let why = parsed(&words).unwrap_err().to_string();
            assert!(
                why.contains("preset=jbd2 sets data=journal; leave one"),
                "{why}"
            );
        }
        let why = parsed(&["preset=jbd2", "preset=zjournal"]).unwrap_err();
        assert!(why.to_string().contains("give one of them"), "{why}");
    }

    #[test]
    fn options_of_fstab_are_accepted_and_nonsense_is_not() {
        let (_, settings) = parsed(&["defaults", "nofail", "x-systemd.automount"]).unwrap();
        assert_eq!(settings.write_cache, WriteCache::Auto);
        for bad in [
            "comit=5",
            "commit=0",
            "commit=x",
            "journal=two",
            "preset=ext4",
            "alloc=local,",
            "active_logs=3",
            "fsync=none",
            "cache=1Q",
            "trace=0",
            "trace=on",
            "trace",
            "uid=me",
            "nvm=yes",
            "transport=pigeon",
            "ring_policy=fifo",
        ] {
            assert!(parsed(&[bad]).is_err(), "{bad}");
        }
    }
}
