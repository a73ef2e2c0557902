//! `dure quota`: of a volume that is not mounted, or through the server of one that is.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use dure_bench::say;
use dure_fs::units::BLOCK_BYTES_U64;
use dure_fs::{FileSystem, Limits, MountOptions, Quota as Found, QuotaKind, Subject};
use dure_sync::clock;

use crate::args::{Quota, QuotaSet};
use crate::command::{project, snapshot};
use crate::exit;
use crate::live::client::Client;
use crate::live::wire::{QuotaRow, QuotaTask, Reply, Request};
use crate::size::Size;
use crate::volume::{self, Access};

/// How long a server may take: it writes everything back, and counts all inodes.
const PATIENCE: Duration = Duration::from_secs(600);
/// The grace time of a subject that had no limit, in seconds.
const GRACE: u32 = 7 * 24 * 3600;
const HOUR: u32 = 3600;

pub(crate) fn run(args: &Quota) -> Result<u8> {
    match args {
        Quota::Enable(args) => drop(work(&args.volume, Some(QuotaTask::Enable))?),
        Quota::Disable(args) => drop(work(&args.volume, Some(QuotaTask::Disable))?),
        Quota::Set(args) => {
            is_ordered(args)?;
            drop(work(&args.volume, Some(QuotaTask::set(args)))?);
        }
        Quota::Project(args) => project::run(args)?,
        Quota::List(args) => {
            let rows = work(&args.volume, None)?;
            show(&rows, args.json);
        }
    }
    Ok(exit::OK)
}

/// Refuses a soft limit above the hard one if both are given.
fn is_ordered(args: &QuotaSet) -> Result<()> {
    let bytes = |size: Option<Size>| size.map(|Size(bytes)| bytes);
    let pairs = [
        (bytes(args.soft), bytes(args.hard), "--soft", "--hard"),
        (
            args.soft_inodes,
            args.hard_inodes,
            "--soft-inodes",
            "--hard-inodes",
        ),
    ];
    for (soft, hard, low, high) in pairs {
        if hard.is_some_and(|hard| hard != 0) && soft > hard {
            let why = format!("{low} is above {high}; a soft limit is at most the hard one");
            return Err(exit::WrongArguments(why).into());
        }
    }
    Ok(())
}

/// Does it; what all have then.
fn work(path: &Path, task: Option<QuotaTask>) -> Result<Vec<QuotaRow>> {
    // A count of what the kernel still holds would be too low. Later, it is counted as it is written.
    let found = match task {
        Some(QuotaTask::Enable) => snapshot::server(path)?,
        _ => snapshot::find(path)?.0,
    };
    if let Some(client) = found.client
        && let Some(rows) = mounted(client, task)?
    {
        return Ok(rows);
    }
    let at = || found.path.display().to_string();
    let device = volume::device(&found.path, Access::Write)?;
    let fs = FileSystem::open(device, MountOptions::default()).with_context(at)?;
    let done = match task {
        Some(QuotaTask::Enable) => fs
            .switch_quotas_on()
            .map_err(Into::into)
            .map(|()| Vec::new()),
        Some(task) => perform(&fs, task).map(|()| Vec::new()),
        None => rows(&fs),
    };
    fs.close().with_context(at)?;
    done.with_context(at)
}

/// Nothing if the server was about to end: it answers no more, and has done nothing.
fn mounted(mut client: Client, task: Option<QuotaTask>) -> Result<Option<Vec<QuotaRow>>> {
    let at = client.volume().display().to_string();
    match client.ask_patiently(&Request::Quotas { task }, PATIENCE)? {
        Some(Reply::Quotas { list }) => Ok(Some(list)),
        Some(Reply::Done { error: Some(why) }) => bail!("{at}: {why}"),
        Some(other) => bail!("{at}: answered {other:?}"),
        None => Ok(None),
    }
}

/// Does it, but for switching quotas on.
pub(crate) fn perform(fs: &FileSystem, task: QuotaTask) -> Result<()> {
    match task {
        QuotaTask::Enable => fs.switch_quotas_on()?,
        QuotaTask::Disable => fs.switch_quotas_off()?,
        QuotaTask::Set { subject, change } => {
            let (kind, id) = subject;
            let kind = QuotaKind::from_code(kind).context("a user, a group or a project")?;
            let subject = Subject { kind, id };
            let present = fs.quotas().context(OFF)?;
            let present = present.into_iter().find(|one| one.subject == subject);
            let first = Limits {
                grace: GRACE,
                ..Limits::default()
            };
            let limits = match present {
                Some(found) if found.is_limited() => found.limits,
                _ => first,
            };
            fs.set_quota(subject, &change.applied(limits))?;
        }
    }
    Ok(())
}

const OFF: &str = "quotas are off; `dure quota enable` counts what users, groups and projects have";

/// What users, groups and projects have.
pub(crate) fn rows(fs: &FileSystem) -> Result<Vec<QuotaRow>> {
    let found = fs.quotas().context(OFF)?;
    if let Some(why) = fs.unreadable_limits() {
        bail!("{why}: no limit counts until one is set, which writes all anew");
    }
    Ok(found.iter().map(QuotaRow::of).collect())
}

/// What to change of the limits of a subject, in blocks, inodes and seconds.
#[derive(Debug, Clone, Copy, serde::Serialize, serde::Deserialize)]
pub(crate) struct LimitChange {
    soft: Option<u64>,
    hard: Option<u64>,
    soft_inodes: Option<u64>,
    hard_inodes: Option<u64>,
    grace: Option<u32>,
}

impl LimitChange {
    fn applied(&self, mut limits: Limits) -> Limits {
        let set = |to: &mut u64, from: Option<u64>| *to = from.unwrap_or(*to);
        set(&mut limits.blocks.soft, self.soft);
        set(&mut limits.blocks.hard, self.hard);
        set(&mut limits.inodes.soft, self.soft_inodes);
        set(&mut limits.inodes.hard, self.hard_inodes);
        limits.grace = self.grace.unwrap_or(limits.grace);
        limits
    }
}

impl QuotaTask {
    fn set(args: &QuotaSet) -> QuotaTask {
        let (user, group) = (QuotaKind::User.code(), QuotaKind::Group.code());
        let project = QuotaKind::Project.code();
        let whom = [
            (user, args.user),
            (group, args.group),
            (project, args.project),
        ];
        let given = |(kind, id): (u32, Option<u32>)| id.map(|id| (kind, id));
        let subject = whom.into_iter().find_map(given);
        let subject = subject.expect("one of them is required");
        // A limit in the middle of a block is that of the whole one.
        let blocks = |bytes: Option<Size>| bytes.map(|Size(bytes)| bytes.div_ceil(BLOCK_BYTES_U64));
        let change = LimitChange {
            soft: blocks(args.soft),
            hard: blocks(args.hard),
            soft_inodes: args.soft_inodes,
            hard_inodes: args.hard_inodes,
            grace: args.grace.map(|hours| hours * HOUR),
        };
        QuotaTask::Set { subject, change }
    }
}

impl QuotaRow {
    fn of(found: &Found) -> QuotaRow {
        let bytes = |blocks: u64| blocks.saturating_mul(BLOCK_BYTES_U64);
        let Found {
            subject,
            usage,
            limits,
        } = found;
        QuotaRow {
            kind: subject.kind.name().to_owned(),
            id: subject.id,
            bytes: bytes(usage.blocks),
            inodes: usage.inodes,
            soft: bytes(limits.blocks.soft),
            hard: bytes(limits.blocks.hard),
            soft_inodes: limits.inodes.soft,
            hard_inodes: limits.inodes.hard,
            grace: limits.grace,
            since: limits.blocks.since,
            inodes_since: limits.inodes.since,
        }
    }

    /// What is left of the grace time of a soft limit that is exceeded.
    fn left(&self, now: i64) -> String {
        let since = [self.since, self.inodes_since];
        let Some(since) = since.into_iter().filter(|since| *since != 0).min() else {
            return "-".to_owned();
        };
        let left = since.saturating_add(i64::from(self.grace) - now).max(0);
        match left / i64::from(HOUR) {
            hours @ 0..48 => format!("{hours} h"),
            hours => format!("{} d", hours / 24),
        }
    }
}

fn show(rows: &[QuotaRow], json: bool) {
    if json {
        let rows = serde_json::to_value(rows).expect("rows are JSON");
        say!("{rows:#}");
        return;
    }
    let size = |bytes: u64| match bytes {
        0 => "-".to_owned(),
        bytes => Size(bytes).to_string(),
    };
    let count = |count: u64| match count {
        0 => "-".to_owned(),
        count => count.to_string(),
    };
    let now = clock::wall_coarse().secs;
    let heads = ["used", "soft", "hard", "inodes", "soft", "hard", "left"];
    let line = |name: &str, cells: [String; 7]| {
        let cells = cells.map(|cell| format!("{cell:>10}"));
        say!("{name:<16}{}", cells.concat());
    };
    line("owner", heads.map(str::to_owned));
    for row in rows {
        let cells = [
            Size(row.bytes).to_string(),
            size(row.soft),
            size(row.hard),
            row.inodes.to_string(),
            count(row.soft_inodes),
            count(row.hard_inodes),
            row.left(now),
        ];
        line(&format!("{} {}", row.kind, row.id), cells);
    }
}
