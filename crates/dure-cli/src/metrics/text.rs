//! A snapshot as Prometheus reads it (text format 0.0.4).
//!
//! **Structure.** The snapshot is walked as the JSON that `dure top --json` prints, so that nothing
//! is shown there and missing here: numbers are counters unless they stand in [`GAUGES`], lists and
//! maps become labels, histograms stay histograms. **Invariants.** Lines of one name stand together,
//! times are seconds.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::live::wire::Snapshot;

/// Numbers that also fall.
const GAUGES: &[&str] = &[
    "dure_backlog_pages",
    "dure_blocks",
    "dure_blocks_free",
    "dure_format_version",
    "dure_journal_handles_open",
    "dure_journal_ring_blocks",
    "dure_journal_ring_blocks_used",
    "dure_journal_transactions_durable",
    "dure_journal_transactions_running_bytes",
    "dure_journal_transactions_running_handles",
    "dure_journal_transactions_valid",
    "dure_journal_transactions_writing",
    "dure_journal_transactions_written",
    "dure_read_only",
    "dure_scrub_bad_blocks",
    "dure_scrub_blocks_done",
    "dure_scrub_blocks_read",
    "dure_scrub_blocks_total",
    "dure_scrub_compared",
    "dure_scrub_mended",
    "dure_scrub_replaced",
    "dure_scrub_unknown",
    "dure_stopped",
    "dure_up_seconds",
    "dure_worker_backlog_pages",
];

/// Fields that say nothing to a monitor, or are labels.
const LEFT_OUT: &[&str] = &["clock_ns", "journal", "log", "partitions"];

/// Lines by name: its type, and the lines.
type Families = BTreeMap<String, (&'static str, Vec<String>)>;

/// The text of a snapshot.
pub(super) fn of(snapshot: &Snapshot) -> String {
    let mut families = Families::new();
    let volume = format!("volume=\"{}\"", escaped(&snapshot.mounted.volume));
    if let Ok(Value::Object(fields)) = serde_json::to_value(snapshot) {
        walk(&mut families, "dure", &volume, &fields);
    }
    let stopped = f64::from(u8::from(snapshot.stopped.is_some()));
    number(&mut families, "dure_stopped".into(), &volume, stopped);
    families
        .iter()
        .fold(String::new(), |mut text, (name, (kind, lines))| {
            text.push_str(&format!("# TYPE {name} {kind}\n"));
            lines.iter().for_each(|line| text.push_str(line));
            text
        })
}

fn walk(families: &mut Families, name: &str, labels: &str, fields: &Map<String, Value>) {
    if let Some(times) = Times::of(fields) {
        return times.put(families, name, labels);
    }
    let fields = fields
        .iter()
        .filter(|(key, _)| !LEFT_OUT.contains(&key.as_str()));
    for (key, value) in fields {
        let below = format!("{name}_{key}");
        match value {
            Value::Number(value) => {
                let value = value.as_f64().unwrap_or(0.0);
                match below.strip_suffix("_ns") {
                    Some(name) => number(families, format!("{name}_seconds"), labels, value / 1e9),
                    None => number(families, below, labels, value),
                }
            }
            Value::Bool(value) => number(families, below, labels, f64::from(u8::from(*value))),
            // One of `journals` is a journal.
            Value::Array(all) => {
                let one = key.trim_end_matches('s');
                for (index, value) in all.iter().enumerate() {
                    let Value::Object(fields) = value else {
                        continue;
                    };
                    let index = fields.get(one).map_or(index.to_string(), Value::to_string);
                    let labels = format!("{labels},{one}=\"{index}\"");
                    walk(families, &format!("{name}_{one}"), &labels, fields);
                }
            }
            Value::Object(fields) if key == "stalls" || key == "operations" => {
                let one = key.trim_end_matches('s');
                for (kind, value) in fields {
                    let Value::Object(fields) = value else {
                        continue;
                    };
                    let labels = format!("{labels},{one}=\"{}\"", escaped(kind));
                    walk(families, &format!("{name}_{one}"), &labels, fields);
                }
            }
            Value::Object(fields) => walk(families, &below, labels, fields),
            Value::String(_) | Value::Null => {}
        }
    }
}

fn number(families: &mut Families, name: String, labels: &str, value: f64) {
    let (name, kind) = if GAUGES.contains(&name.as_str()) {
        (name, "gauge")
    } else {
        (name + "_total", "counter")
    };
    let line = format!("{name}{{{labels}}} {value}\n");
    let (_, lines) = families.entry(name).or_insert((kind, Vec::new()));
    lines.push(line);
}

/// A histogram of the snapshot.
struct Times {
    count: u64,
    sum_ns: u64,
    buckets: Vec<u64>,
}

impl Times {
    fn of(fields: &Map<String, Value>) -> Option<Times> {
        let number = |key: &str| fields.get(key)?.as_u64();
        let buckets = fields.get("buckets")?.as_array()?;
        Some(Times {
            count: number("count")?,
            sum_ns: number("sum_ns")?,
            buckets: buckets.iter().filter_map(Value::as_u64).collect(),
        })
    }

    /// The n-th bucket is of what is below 2^n nanoseconds, the first of zeros.
    fn put(&self, families: &mut Families, name: &str, labels: &str) {
        let name = format!("{name}_seconds");
        let (_, lines) = families
            .entry(name.clone())
            .or_insert(("histogram", Vec::new()));
        let mut below = 0;
        for (bucket, count) in (0_i32..).zip(&self.buckets) {
            below += count;
            let bound = if bucket == 0 {
                0.0
            } else {
                2_f64.powi(bucket) / 1e9
            };
            lines.push(format!(
                "{name}_bucket{{{labels},le=\"{bound}\"}} {below}\n"
            ));
        }
        let (count, sum) = (self.count, std::time::Duration::from_nanos(self.sum_ns));
        lines.push(format!("{name}_bucket{{{labels},le=\"+Inf\"}} {count}\n"));
        lines.push(format!("{name}_sum{{{labels}}} {}\n", sum.as_secs_f64()));
        lines.push(format!("{name}_count{{{labels}}} {count}\n"));
    }
}

/// A label's value.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    text.replace('\n', "\\n")
}
