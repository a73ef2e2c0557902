//! `dure info`.

use std::path::Path;

use anyhow::{Context, Result};
use dure::stream;
use dure_bench::say;
use dure_block::Device;
use dure_block::count::Count;
use dure_block::nvm::Nvm;
use dure_fs::format::feature::{FEATURES, FlagSet};
use dure_fs::format::media::{Medium, MediumKind};
use dure_fs::format::sit::SegmentUse;
use dure_fs::format::superblock::SuperBlock;
use dure_fs::{FileSystem, Layout, MountOptions, VolumeInfo};
use dure_sync::Arc;

use crate::args::Info;
use crate::exit;
use crate::live::client::Client;
use crate::live::wire::{AbsorbedBlocks, NodeBytes, Reply, Request, Snapshot, WorkerCounts};
use crate::mounts;
use crate::size::Size;
use crate::volume::{self, Access};

/// Lines of the log that a person is shown.
const LOG_LINES: usize = 5;
/// Rows of a volume on which something is half done.
const HALF_DONE: [&str; 2] = ["half received", "half restored"];

pub(crate) fn run(args: &Info) -> Result<u8> {
    if args.journal {
        return super::journal::run(args);
    }
    if let Some(client) = mounted(&args.volume)? {
        return of_mounted(args, client);
    }
    let device = volume::device_as(&args.volume, Access::Read, &args.regions, Nvm::Auto)?;
    let info = VolumeInfo::read(Arc::clone(&device));
    let info = info.with_context(|| args.volume.display().to_string())?;
    let mut rows = rows(&info);
    rows.extend(half_done(device));
    show(rows, args.json);
    Ok(exit::OK)
}

/// The snapshot that is half received or half restored. Nothing of a volume that cannot be opened: the
/// other rows tell what they can.
fn half_done(device: Arc<dyn Device>) -> Option<Row> {
    let options = MountOptions {
        read_only: true,
        ..MountOptions::default()
    };
    let fs = FileSystem::open(device, options).ok()?;
    let half = stream::half_done(&fs).ok()??;
    Some((half.what(), half.snapshot().into(), None))
}

/// The server of a volume, given it or where it is mounted, if it is.
fn mounted(path: &Path) -> Result<Option<Client>> {
    let source = mounts::source_of(path);
    let volume = source.as_deref().unwrap_or(path);
    if !volume.exists() {
        return Ok(None);
    }
    Ok(Client::of(path)?.1)
}

/// What the server says; the medium is not read.
fn of_mounted(args: &Info, mut client: Client) -> Result<u8> {
    let snapshot = client.snapshot()?.context("unmounted just now")?;
    let mut rows = rows_of_mounted(&snapshot);
    // Of a server of an older version nothing.
    let room = client
        .ask(&Request::Room)
        .ok()
        .flatten()
        .and_then(room_rows);
    let before = rows.iter().position(|(key, ..)| *key == "blocks free");
    let before = before.unwrap_or(rows.len());
    rows.splice(before..before, room.into_iter().flatten());
    show(rows, args.json);
    if !args.json {
        for line in snapshot.log.iter().rev().take(LOG_LINES).rev() {
            say!("{line}");
        }
    }
    Ok(exit::OK)
}

fn show(rows: Vec<Row>, json: bool) {
    if json {
        let object: serde_json::Map<String, serde_json::Value> = rows
            .into_iter()
            .map(|(key, value, _)| (key.replace(' ', "_"), value))
            .collect();
        say!("{:#}", serde_json::Value::Object(object));
        return;
    }
    for (key, value, shown) in rows {
        let plain = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        say!("{key:<20} {}", shown.unwrap_or(plain));
    }
}

/// Where a write(2) goes, and how much may wait there.
fn write_cache(now: &Snapshot) -> Row {
    let word = &now.mounted.write_cache;
    let bounded = now
        .kernel_cache_bytes
        .map(|bytes| format!("{word}, up to {}, for which room is kept", Size(bytes)));
    ("write cache", word.clone().into(), bounded)
}

/// The workers of a mount, if it has any.
fn workers(snapshot: &Snapshot) -> Option<Row> {
    let line = |(number, worker): (usize, &WorkerCounts)| {
        format!(
            "{number}: partitions {}, {} waiting, wrote {} and {}",
            worker.group(),
            Count::of(worker.backlog_pages, "page"),
            Count::of(worker.pages_written, "page"),
            Count::of(worker.images_written, "image"),
        )
    };
    let lines: Vec<String> = snapshot.workers.iter().enumerate().map(line).collect();
    let shown = lines.join(&format!("\n{:<20} ", ""));
    let value = serde_json::to_value(&snapshot.workers).expect("counts are JSON");
    (!lines.is_empty()).then_some(("workers", value, Some(shown)))
}

/// What takes the room of a mounted volume, as of one that is not.
fn room_rows(reply: Reply) -> Option<Vec<Row>> {
    let Reply::Room {
        used,
        in_logs,
        of_snapshots,
        spared,
        snapshots,
    } = reply
    else {
        return None;
    };
    let mut rows = taken_rows([used, in_logs, of_snapshots, spared]).to_vec();
    rows.push(("snapshots", snapshots.into(), None));
    Some(rows)
}

/// Blocks used, in logs, of snapshots, and spared by clones.
fn taken_rows([used, in_logs, of_snapshots, spared]: [u64; 4]) -> [Row; 4] {
    [
        blocks("blocks used", used),
        blocks("blocks in logs", in_logs),
        blocks("blocks of snapshots", of_snapshots),
        blocks("blocks spared by clones", spared),
    ]
}

/// Key, value, and how a person reads it where that differs.
type Row = (&'static str, serde_json::Value, Option<String>);

fn blocks(key: &'static str, count: u64) -> Row {
    let shown = format!("{count} ({})", Size(count * 4096));
    (key, count.into(), Some(shown))
}

fn rows_of_mounted(now: &Snapshot) -> Vec<Row> {
    let mounted = &now.mounted;
    let seconds = now.up_ns / 1_000_000_000;
    let mut rows: Vec<Row> = vec![
        ("uuid", mounted.uuid.clone().into(), None),
        ("label", mounted.label.clone().into(), None),
        ("format version", mounted.format_version.into(), None),
        ("state", "mounted".into(), None),
        ("mounted on", mounted.directory.clone().into(), None),
        // A volume that has stopped takes no change either.
        (
            "read only",
            (mounted.read_only || now.stopped.is_some()).into(),
            None,
        ),
        ("options", mounted.options.clone().into(), None),
        ("transport", mounted.transport.clone().into(), None),
        ("seconds mounted", seconds.into(), None),
        ("checkpoints", now.checkpoints.into(), None),
        ("journals", now.journals.len().into(), None),
        blocks("blocks for files", now.blocks),
        blocks("blocks free", now.blocks_free),
        ("device errors", now.device.errors.into(), None),
    ];
    if let Some(why) = &mounted.no_rings {
        rows.push(("why no rings", why.clone().into(), None));
    }
    rows.push(write_cache(now));
    if let Some(why) = &mounted.writes_through {
        rows.push(("why writethrough", why.clone().into(), None));
    }
    if let Some((what, snapshot)) = &mounted.half_done {
        let key = HALF_DONE.into_iter().find(|key| key == what);
        rows.extend(key.map(|key| (key, snapshot.clone().into(), None)));
    }
    if let Some(why) = &now.stopped {
        rows.push(("stopped", why.clone().into(), None));
    }
    rows.extend(now.nodes.as_ref().map(nodes));
    rows.extend(now.absorbed.as_ref().map(absorbed));
    rows.extend(workers(now));
    let lines = now.log.iter().map(ToString::to_string);
    let lines: Vec<String> = lines.collect();
    rows.push((
        "log",
        lines.into(),
        Some(Count::of(now.log.len(), "line").to_string()),
    ));
    rows
}

fn rows(info: &VolumeInfo) -> Vec<Row> {
    let layout = &info.layout;
    let uuid = uuid::Uuid::from_bytes(layout.superblock.uuid).to_string();
    let mut rows: Vec<Row> = vec![
        ("uuid", uuid.into(), None),
        ("label", info.label().into(), None),
        (
            "format version",
            layout.superblock.version.get().into(),
            None,
        ),
        features(&layout.superblock),
        ("state", info.state.name().into(), None),
        ("mounts", info.mounts.into(), None),
        ("epoch", info.epoch.into(), None),
        ("checkpoint", info.checkpoint.into(), None),
        ("journals", layout.journals.into(), None),
        ("segments", layout.segments.into(), None),
        ("segment blocks", layout.segment_blocks.into(), None),
        ("node ids", layout.nids().into(), None),
    ];
    rows.push(blocks("blocks", layout.total_blocks));
    rows.extend(taken_rows([
        info.blocks_used,
        info.blocks_in_logs,
        info.blocks_of_snapshots,
        info.blocks_spared,
    ]));
    rows.push(blocks("blocks free", info.blocks_free));
    rows.push(("snapshots", info.snapshots.len().into(), None));
    rows.extend(media(layout));
    rows
}

/// Those that it has; of the ones that this dure does not know, names or numbers.
fn features(superblock: &SuperBlock) -> Row {
    let known = FEATURES.iter().filter(|one| superblock.has(**one));
    let mut names: Vec<String> = known.map(|one| one.name.to_owned()).collect();
    let sets = [FlagSet::RoCompat, FlagSet::Compat];
    names.extend(sets.into_iter().flat_map(|set| superblock.unknown(set)));
    let shown = match names.join(", ") {
        none if none.is_empty() => "none".to_owned(),
        names => names,
    };
    ("features", names.into(), Some(shown))
}

/// The NUMA node of persistent memory.
fn node(medium: &Medium) -> Option<u32> {
    (medium.kind == MediumKind::Nvm).then_some(medium.node)
}

/// How much of what was copied from and to persistent memory was on the node of the core.
fn nodes(counts: &NodeBytes) -> Row {
    let share = |local: u64, remote: u64| match local + remote {
        0 => "nothing".to_owned(),
        all => {
            let tenths = local * 1000 / all;
            format!("{}.{} % of {}", tenths / 10, tenths % 10, Size(all))
        }
    };
    let (read, written) = (
        share(counts.local_read, counts.remote_read),
        share(counts.local_written, counts.remote_written),
    );
    let value = serde_json::to_value(counts).expect("counts are JSON");
    let shown = format!("{written} written, {read} read");
    ("own NUMA node", value, Some(shown))
}

/// How much data is in persistent memory before it moves to the device.
fn absorbed(counts: &AbsorbedBlocks) -> Row {
    let size = |blocks: u64| Size(blocks * 4096);
    let AbsorbedBlocks {
        blocks,
        blocks_max,
        moved,
        refused,
    } = *counts;
    let value = serde_json::to_value(counts).expect("counts are JSON");
    let shown = format!(
        "{} of {} in use, {} moved to the device, no room {}",
        size(blocks),
        size(blocks_max),
        size(moved),
        Count::of(refused, "time")
    );
    ("data in persistent memory", value, Some(shown))
}

/// Which medium holds what, if there are several.
fn media(layout: &Layout) -> Option<Row> {
    let media = layout.superblock.media();
    if media.len() == 1 {
        return None;
    }
    let holds = |medium: &Medium| {
        let in_nvm = medium.kind == MediumKind::Nvm;
        let last = media.last().map(|last| last.kind);
        if last == Some(MediumKind::Nvm) {
            let tables = (medium.first < layout.main).then_some("tables, ");
            return format!("{}logs, nodes, data", tables.unwrap_or_default());
        }
        let tables = (medium.first < layout.main).then_some("tables");
        let logs = layout.areas(SegmentUse::Log)[0].start == 0;
        let nodes = (in_nvm == logs).then_some("logs, nodes");
        let data = (!in_nvm).then_some("data");
        let all: Vec<&str> = [tables, nodes, data].into_iter().flatten().collect();
        all.join(", ")
    };
    let line = |medium: &Medium| {
        let (kind, size) = (medium.kind.name(), Size(medium.blocks * 4096));
        let node = node(medium).map_or_else(String::new, |node| format!(" on node {node}"));
        format!(
            "{kind}{node}, {size}, was {}: {}",
            medium.path,
            holds(medium)
        )
    };
    let lines: Vec<String> = media.iter().map(line).collect();
    let value = media.iter().map(|medium| {
        serde_json::json!({
            "kind": medium.kind.name(),
            "node": node(medium),
            "blocks": medium.blocks,
            "was": medium.path,
            "holds": holds(medium),
        })
    });
    let value: Vec<_> = value.collect();
    Some((
        "media",
        value.into(),
        Some(lines.join(&format!("\n{:<20} ", ""))),
    ))
}
