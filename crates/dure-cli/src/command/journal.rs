//! `dure info --journal`: the journals of a volume, mounted or not.

use std::fmt::Write;

use anyhow::{Context, Result};
use dure_block::count::Count;
use dure_block::nvm::Nvm;
use dure_fs::{JournalInfo, JournalsInfo, RecoveryPlan};
use serde_json::json;

use crate::args::Info;
use crate::command::top;
use crate::exit;
use crate::live::client::Client;
use crate::volume::{self, Access};

pub(crate) fn run(args: &Info) -> Result<u8> {
    let (volume, client) = Client::of(&args.volume)?;
    let volume = volume.as_path();
    if let Some(mut client) = client
        && let Some(snapshot) = client.snapshot()?
    {
        top::print_once(&snapshot, args.json, false)?;
        return Ok(exit::OK);
    }
    let device = volume::device_as(volume, Access::Read, &args.regions, Nvm::Auto)?;
    let info = JournalsInfo::read(device).with_context(|| volume.display().to_string())?;
    let text = if args.json {
        format!("{:#}\n", to_json(&info))
    } else {
        to_text(&info)?
    };
    top::print(&text);
    Ok(exit::OK)
}

fn to_json(info: &JournalsInfo) -> serde_json::Value {
    let journals: Vec<_> = info.journals.iter().map(journal_to_json).collect();
    let recovery = info.recovery.as_ref().map(|plan| match plan {
        Ok(plan) => json!({
            "transactions_apply": plan.apply,
            "transactions_leave_out": plan.leave_out,
            "nodes_changed": plan.nodes_changed,
            "nodes_freed": plan.nodes_freed,
            "runs_named": plan.runs_named,
        }),
        Err(why) => json!({ "error": why }),
    });
    json!({
        "clean": info.clean,
        "epoch": info.epoch,
        "first_number": info.first_number,
        "checkpoint": info.checkpoint,
        "segment_blocks": info.segment_blocks,
        "recovery": recovery,
        "journals": journals,
    })
}

fn journal_to_json(journal: &JournalInfo) -> serde_json::Value {
    let counts = &journal.transactions;
    json!({
        "journal": journal.journal.number(),
        "header_block": journal.header_block,
        "generation": journal.generation,
        "header_epoch": journal.header_epoch,
        "checkpoint": journal.checkpoint,
        "segments": journal.segments,
        "tail_segment": journal.tail.0,
        "tail_block": journal.tail.1,
        "tail_sequence": journal.tail_sequence,
        "tail_number": journal.tail_number,
        "durable_upto": journal.durable_upto,
        "next_number": journal.next_number,
        "transactions": {
            "complete": counts.complete,
            "durable": counts.durable,
            "written": counts.written,
            "valid": counts.valid,
            "lacking_marks": counts.lacking_marks,
            "lacking_data": counts.lacking_data,
        },
        "handles": counts.handles,
        "records": counts.records,
        "marks": counts.marks,
    })
}

fn to_text(info: &JournalsInfo) -> Result<String> {
    let mut out = String::new();
    writeln!(
        out,
        "epoch {}, checkpoint {}, first handle {}, {}, segments of {}",
        info.epoch,
        info.checkpoint,
        info.first_number,
        Count::of(info.journals.len(), "journal"),
        Count::of(info.segment_blocks, "block")
    )?;
    writeln!(out, "{}", recovery(info.recovery.as_ref()))?;
    writeln!(
        out,
        "{:>7} {:>5} {:>4} {:>6} {:>10} {:>8} {:>8} {:>8} {:>8} {:>7} {:>5} {:>7} {:>5}",
        "JOURNAL",
        "EPOCH",
        "RING",
        "HEADER",
        "TAIL",
        "SEQUENCE",
        "NUMBER",
        "DURABLE",
        "COMPLETE",
        "FLUSHED",
        "VALID",
        "HANDLES",
        "MARKS"
    )?;
    for journal in &info.journals {
        let counts = &journal.transactions;
        let (segment, block) = journal.tail;
        let at = journal.segments.get(usize::try_from(segment)?);
        let at = at.map_or_else(|| "-".to_owned(), |first| format!("{first}+{block}"));
        writeln!(
            out,
            "{:>7} {:>5} {:>4} {:>6} {at:>10} {:>8} {:>8} {:>8} {:>8} {:>7} {:>5} {:>7} {:>5}",
            journal.journal.number(),
            journal.header_epoch,
            journal.segments.len(),
            journal.generation,
            journal.tail_sequence,
            journal.tail_number,
            journal.durable_upto,
            counts.complete,
            counts.durable,
            counts.valid,
            counts.handles,
            counts.marks,
        )?;
    }
    Ok(out)
}

fn recovery(plan: Option<&Result<RecoveryPlan, String>>) -> String {
    match plan {
        None => "clean: the next mount reads no log".into(),
        Some(Err(why)) => format!("not unmounted; the next mount would fail: {why}"),
        Some(Ok(plan)) => {
            format!(
                "not unmounted; the next mount applies {}, leaves out {}, changes {}, frees {}",
                Count::of(plan.apply, "transaction"),
                plan.leave_out,
                Count::of(plan.nodes_changed, "node"),
                plan.nodes_freed
            )
        }
    }
}
