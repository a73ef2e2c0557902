//! The events of the journals.

use std::collections::BTreeMap;

use dure_fs::{OpKind, TraceEvent, TraceRecord};
use serde::{Deserialize, Serialize};

/// An event of the trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TraceLine {
    pub(crate) ns: u64,
    pub(crate) core: u16,
    pub(crate) journal: Option<u16>,
    pub(crate) event: String,
    /// Further fields, by name.
    #[serde(flatten)]
    pub(crate) details: BTreeMap<String, serde_json::Value>,
}

impl TraceLine {
    pub(crate) fn of(record: &TraceRecord) -> TraceLine {
        let (event, details) = describe(record.event);
        TraceLine {
            ns: record.ns,
            core: record.core.number(),
            journal: record.journal.map(|journal| journal.number()),
            event: event.to_owned(),
            details: details
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        }
    }
}

type Details = Vec<(&'static str, serde_json::Value)>;

fn describe(event: TraceEvent) -> (&'static str, Details) {
    let operation = |number: u8| {
        let kind = OpKind::ALL.get(usize::from(number));
        kind.map_or("unknown", |kind| kind.name()).into()
    };
    match event {
        TraceEvent::Begin { bytes } => ("begin", vec![("bytes", bytes.into())]),
        TraceEvent::BeginFull => ("begin-full", vec![]),
        TraceEvent::Join {
            number,
            bytes,
            operation: kind,
        } => (
            "join",
            vec![
                ("number", number.into()),
                ("bytes", bytes.into()),
                ("operation", operation(kind)),
            ],
        ),
        TraceEvent::Drop => ("drop", vec![]),
        TraceEvent::CommitBegin => ("commit-begin", vec![]),
        TraceEvent::CommitEnd { journals } => ("commit-end", vec![("journals", journals.into())]),
        TraceEvent::Write {
            sequence,
            first,
            last,
            blocks,
        } => (
            "write",
            vec![
                ("sequence", sequence.into()),
                ("first", first.into()),
                ("last", last.into()),
                ("blocks", blocks.into()),
            ],
        ),
        TraceEvent::Written { sequence } => ("written", vec![("sequence", sequence.into())]),
        TraceEvent::FlushBegin => ("flush-begin", vec![]),
        TraceEvent::FlushEnd => ("flush-end", vec![]),
        TraceEvent::Valid { upto } => ("valid", vec![("upto", upto.into())]),
        TraceEvent::Tail { sequence } => ("tail", vec![("sequence", sequence.into())]),
        TraceEvent::Checkpoint { checkpoint, step } => (
            "checkpoint",
            vec![("checkpoint", checkpoint.into()), ("step", step.into())],
        ),
        TraceEvent::Stall { stall, ns } => (
            "stall",
            vec![("reason", stall.name().into()), ("waited_ns", ns.into())],
        ),
        // An event of a later version of the journal.
        _ => ("other", vec![]),
    }
}
