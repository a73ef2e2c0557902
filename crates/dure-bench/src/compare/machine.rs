//! The machine of a run, and how busy it was.

use serde::Serialize;

/// The machine, for reports.
#[derive(Debug, Serialize)]
pub(super) struct Machine {
    pub(super) processor: String,
    pub(super) cores: usize,
    /// Load averages of a minute, before the first measurement and after the last.
    pub(super) load_before: f64,
    pub(super) load_after: f64,
}

impl Machine {
    pub(super) fn new(load_before: f64) -> Machine {
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let names = text.lines().filter_map(|line| line.split_once(':'));
        let mut names = names.filter(|(key, _)| key.trim() == "model name");
        let processor = names.next().map_or("not known", |(_, name)| name.trim());
        Machine {
            processor: processor.to_owned(),
            cores: dure_sync::core_count(),
            load_before,
            load_after: load(),
        }
    }

    pub(super) fn words(&self) -> String {
        let Machine {
            processor,
            cores,
            load_before,
            load_after,
        } = self;
        format!(
            "{processor}, {}; load average {load_before:.2} before, {load_after:.2} after",
            dure_block::count::Count::of(*cores, "core")
        )
    }
}

/// The load average of a minute; zero where /proc is not mounted.
pub(super) fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split_ascii_whitespace().next();
    first.and_then(|number| number.parse().ok()).unwrap_or(0.0)
}
