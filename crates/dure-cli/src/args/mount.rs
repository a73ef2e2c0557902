//! `dure mount` and `dure umount`.

use std::path::PathBuf;

use super::Regions;
use crate::log::Level;

/// `dure mount`.
#[derive(Debug, Default, clap::Args)]
pub struct Mount {
    /// A block device or image file.
    pub volume: PathBuf,
    /// An existing directory.
    pub directory: PathBuf,
    /// Options, separated by commas: ro, rw, journal=per-core|single|jbd2|zjournal|none (a log
    /// per core, or one, of changed bytes; or one, or one per core, of whole nodes copied at commit,
    /// with the transactions of JBD2 and Z-Journal; or none, for comparison, with which a crash loses
    /// files: it needs the word no-crash-guarantee, too), data=ordered|writeback|journal (data goes
    /// to its place before the log; or does, but may be lost without what came after it; or goes
    /// through the log), commit=SECONDS (what waits is written back and made durable that often, 5
    /// by default, 1 for an image file, whose sync(1) the kernel keeps to itself), writeback or
    /// writethrough (the kernel collects writes, up to a limit for which room is kept, the default
    /// as root: small ones are faster, but a kill of the server loses up to 30 s of what was not
    /// synced, and on a full volume the last few hundred KiB are refused by fsync(2) or close(2); or
    /// each write(2) is in the server's cache, and has its ENOSPC, when it returns), transport=uring|device (requests come
    /// through a ring of io_uring for each core, where the kernel has them, or through /dev/fuse),
    /// ring_policy=idle|other (threads of rings give way to their callers, with SCHED_IDLE, while
    /// that costs nothing; or do not), cache=SIZE, noatime, relatime, strictatime,
    /// preset=NAME (the policies of a published system: jbd2, zjournal, f2fs-locks, hybridf2fs-locks,
    /// nova-locks, pnova-locks or nvram-lfs), flush=one|two, log-data=PAGES (an fsync of at most so many puts them into the log, 4 by
    /// default), fsync=closure|all (what an fsync commits: what it depends on, or everything),
    /// alloc=local|global (each core allocates in its own groups, or all at one place),
    /// numa=local|interleave|first (in persistent memory on several NUMA nodes: on the core's own
    /// first, on each in turn, or as they lie), topology=NODESxCORES (as if on such a machine),
    /// active_logs=2|4 (segments a core writes to: data and nodes, or also by how long data is
    /// likely to live), range_lock=inode|rwsem|tree|bitmap|segment (tasks that share a file wait for
    /// each other: one lock per file, which counts readers per core or in one place, or only where
    /// their ranges overlap: an interval tree, a bit per page, a word per segment),
    /// range_lock_wait=try|queue (a task that finds its range taken locks the file instead, and
    /// readers take no range; or all wait in order of arrival), segment_size=SIZE (of range_lock=segment, a power of two, 4K by
    /// default), node_lock=mutex|rwsem|optimistic (a reader of a metadata node takes its lock
    /// exclusively, takes it shared, or copies without it and checks for changes),
    /// blk.hw_queues=N and blk.nr_requests=N (queues in front of the device, 1 by default, and how
    /// many requests each lets into it at once, 256 by default), blk.merge=on|off (blocks that lie
    /// next to one another are one request, or each is one), blk.poll=sleep|poll|hybrid (callers
    /// sleep until the device is done, or poll it, at once or after half of the usual time),
    /// submit_lock=none|writes|all (requests are made by anybody at any time, or writes one at a
    /// time, or reads too), dirty_limit=SIZE|none (bytes of
    /// dirty pages that writers slow down for, half of the cache by default), workers=N (threads in
    /// the background, one for each NUMA node and 8 of its cores by default),
    /// nvm=auto|off|direct|emulated|optane|optane-interleaved|optane-separate (a volume on a DAX file
    /// is mapped and needs no flush; never; or nothing else will do; or any file is treated so, and
    /// what is synced survives the end of the server, not a power cut; or that, as slow as a module
    /// of Optane, or six, a block on each in turn or each with a part of the volume),
    /// page_cache=dram|nvram|none (files are cached in memory; or so, and what would go to the disk
    /// goes to the volume's persistent memory first; or files are used where they lie, on a volume
    /// wholly in persistent memory), nvram=SIZE, nvram_low=PERCENT|cached and
    /// nvram_absorb=all|move|sync (of page_cache=nvram: how much persistent memory such data may take,
    /// half by default; less of that free, 25 by default, or less than holds data, moves data to the
    /// disk; all data goes there before the call returns, or all and is not in DRAM any more, or what
    /// is synced), durability=posix|strict (a call is durable when it is synced; or when it
    /// returns, as with page_cache=none by default), trace=EVENTS
    /// (keep so many events of the journals per core, for `dure top --trace`), log=FILE and
    /// log-level=error|warning|info|debug (where the server says why it stopped, and how much),
    /// metrics=unix:PATH|FILE (where Prometheus finds the numbers of `dure top`),
    /// recover=whole|tolerate (if synced changes are missing in the logs: refuse, or show the rest,
    /// read-only), allow_other; uid=N, gid=N (all files show this owner, and none can be given
    /// another). The generic ones of mount(8): ro, nosuid, nodev (both unless root says suid, dev),
    /// noexec, sync, dirsync, nodiratime, nosymfollow, lazytime, silent; remount,ro and the like
    /// with a mounted directory. Those that are mount(8)'s own (auto, user, _netdev, x-...) are
    /// accepted.
    #[arg(
        short = 'o',
        long = "options",
        value_delimiter = ',',
        value_name = "OPT"
    )]
    pub options: Vec<String>,
    /// First switch FUSE over io_uring on, for the whole machine until its next boot (as root): calls
    /// of many small files then take half to four fifths of the time. The Debian package does it at
    /// each boot.
    #[arg(long)]
    pub enable_rings: bool,
    /// Serve in the foreground until unmounted, SIGINT or SIGTERM.
    #[arg(long)]
    pub foreground: bool,
    /// Append to this file what the server has to say, as -o log=FILE does [default: the system's
    /// log, which is syslogd or journald; with --foreground standard error].
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Say nothing that matters less, as -o log-level=LEVEL does [default: info].
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub log_level: Option<Level>,
    /// Show the numbers of `dure top` to Prometheus, as -o metrics=PLACE does: unix:PATH, a socket that
    /// answers HTTP, or a file that is written every 10 seconds.
    #[arg(long, value_name = "PLACE")]
    pub metrics: Option<String>,
    /// The file system type, as mount(8) passes it.
    #[arg(short = 't', hide = true, value_parser = ["dure", "fuse.dure", "fuseblk.dure"])]
    pub kind: Option<String>,
    /// Do everything but the mount, and change nothing.
    #[arg(short = 'f', long)]
    pub fake: bool,
    /// Leave out options that are not known, with a warning.
    #[arg(short = 's', long)]
    pub sloppy: bool,
    /// Say what was mounted.
    #[arg(short = 'v', long)]
    pub verbose: bool,
    /// Keep no list of mounts, as mount(8) passes it: the kernel keeps it.
    #[arg(short = 'n', hide = true)]
    pub no_list: bool,
    /// Its persistent memory.
    #[command(flatten)]
    pub regions: Regions,
}

/// `dure umount`.
#[derive(Debug, clap::Args)]
pub struct Umount {
    /// The directory.
    pub directory: PathBuf,
    /// Detach now, end when the last user leaves.
    #[arg(long, short)]
    pub lazy: bool,
}
