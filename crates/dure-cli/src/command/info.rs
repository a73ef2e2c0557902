//! `dure info`.

use std::path::Path;

use anyhow::{Context, Result};
use dure_bench::say;
use dure_fs::VolumeInfo;

use crate::args::Info;
use crate::exit;
use crate::live::client::Client;
use crate::live::wire::WorkerCounts;
use crate::size::Size;
use crate::volume::{self, Access};

pub(crate) fn run(args: &Info) -> Result<u8> {
    if args.journal {
        return super::journal::run(args);
    }
    let device = volume::device(&args.volume, Access::Read)?;
    let info = VolumeInfo::read(device).with_context(|| args.volume.display().to_string())?;
    let mut rows = rows(&info);
    rows.extend(workers(&args.volume)?);
    if args.json {
        let object: serde_json::Map<String, serde_json::Value> = rows
            .into_iter()
            .map(|(key, value, _)| (key.replace(' ', "_"), value))
            .collect();
        say!("{:#}", serde_json::Value::Object(object));
        return Ok(exit::OK);
    }
    for (key, value, shown) in rows {
        let plain = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        say!("{key:<20} {}", shown.unwrap_or(plain));
    }
    Ok(exit::OK)
}

/// The workers, if the volume is mounted and its server answers.
fn workers(volume: &Path) -> Result<Option<Row>> {
    let Ok(Some(mut client)) = Client::connect(volume) else {
        return Ok(None);
    };
    let Ok(Some(snapshot)) = client.snapshot() else {
        return Ok(None);
    };
    let line = |(number, worker): (usize, &WorkerCounts)| {
        format!(
            "{number}: partitions {}, {} pages wait, wrote {} pages and {} images",
            worker.group(),
            worker.backlog_pages,
            worker.pages_written,
            worker.images_written,
        )
    };
    let lines: Vec<String> = snapshot.workers.iter().enumerate().map(line).collect();
    let shown = lines.join(&format!("\n{:<20} ", ""));
    let value = serde_json::to_value(&snapshot.workers).context("writing JSON")?;
    Ok((!lines.is_empty()).then_some(("workers", value, Some(shown))))
}

/// Key, value, and how a person reads it where that differs.
type Row = (&'static str, serde_json::Value, Option<String>);

fn rows(info: &VolumeInfo) -> Vec<Row> {
    let blocks = |count: u64| {
        (
            count.into(),
            Some(format!("{count} ({})", Size(count * 4096))),
        )
    };
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
        (
            "state",
            if info.clean { "clean" } else { "dirty" }.into(),
            None,
        ),
        ("mounts", info.mounts.into(), None),
        ("epoch", info.epoch.into(), None),
        ("checkpoint", info.checkpoint.into(), None),
        ("journals", layout.journals.into(), None),
        ("segments", layout.segments.into(), None),
        ("segment blocks", layout.segment_blocks.into(), None),
        ("node ids", layout.nids().into(), None),
    ];
    for (key, count) in [
        ("blocks", layout.total_blocks),
        ("blocks used", info.blocks_used),
        ("blocks in logs", info.blocks_in_logs),
        ("blocks free", info.blocks_free),
    ] {
        let (value, shown) = blocks(count);
        rows.push((key, value, shown));
    }
    rows
}
