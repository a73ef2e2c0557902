//! The model against this machine.
//!
//! **Structure.** [`measure`] runs a workload as a point does, on the real cores; [`judge`] compares.
//! **Invariants.** The fastest of several runs counts: what else the machine does only slows them.

use super::stage::{Window, play};
use super::{Plan, Workload};

/// Workloads and policies that are compared.
pub const PREDICTED: [(Workload, &str); 16] = [
    (Workload::Drbl, ""),
    (Workload::Drbm, ""),
    (Workload::Drbh, ""),
    (Workload::Dwol, ""),
    (Workload::Dwol, "journal=jbd2,data=journal"),
    (Workload::Dwom, ""),
    (Workload::Dwom, "range_lock=rwsem"),
    (Workload::Dwsl, ""),
    (Workload::Dwal, ""),
    (Workload::Mrpl, ""),
    (Workload::Mrdl, ""),
    (Workload::Mwcl, ""),
    (Workload::Mwcl, "journal=jbd2"),
    (Workload::Mwcm, ""),
    (Workload::Mwul, ""),
    (Workload::Mwrl, ""),
];

/// A prediction is right within so many percent of what is measured.
pub const WITHIN_PERCENT: f64 = 25.0;

/// Rates of one point on real cores.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Operations a second of each run, from the lowest.
    pub rates: Vec<f64>,
}

impl Measured {
    /// The highest rate.
    #[must_use]
    pub fn fastest(&self) -> f64 {
        self.rates.last().copied().unwrap_or(0.0)
    }
}

/// How a prediction compares.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Judged {
    /// Predicted by measured.
    pub ratio: f64,
    /// Whether it is within the bounds.
    pub is_right: bool,
}

/// Compares a prediction with what was measured.
#[must_use]
pub fn judge(predicted: f64, measured: f64) -> Judged {
    let ratio = predicted / measured;
    let is_right = (ratio - 1.0).abs() * 100.0 <= WITHIN_PERCENT;
    Judged { ratio, is_right }
}

/// As many operations as a simulated window has: directories grow, and nothing in the background
/// makes them small again.
const WINDOW: Window = Window {
    warm_ns: 1_000_000,
    run_ns: 4_000_000,
    fill: 8_000,
};

/// Measures a point on the cores of this machine, `repeat` times, each on a new volume.
///
/// # Errors
/// A call that failed.
pub fn measure(plan: &Plan, repeat: u32) -> anyhow::Result<Measured> {
    let mut rates = Vec::new();
    for _ in 0..repeat {
        let done = play(plan, plan.cores, WINDOW, 0)?;
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        rates.push(done.works as f64 / done.mean_ns * 1e9);
    }
    rates.sort_by(f64::total_cmp);
    Ok(Measured { rates })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::room::Work;

    #[test]
    fn a_quarter_is_right_and_more_is_not() {
        assert!(judge(125.0, 100.0).is_right);
        assert!(judge(75.0, 100.0).is_right);
        assert!(!judge(126.0, 100.0).is_right);
        assert!(!judge(74.0, 100.0).is_right);
    }

    #[test]
    fn what_is_compared_can_be_simulated() {
        for (workload, text) in PREDICTED {
            let plan = Plan {
                machine: crate::room::machine("4x20-6138").unwrap(),
                work: Work::Calls(workload, text.parse().unwrap()),
                cores: 2,
                seed: 1,
                planted: None,
            };
            assert_eq!(plan.check(), Ok(()), "{workload:?} {text}");
        }
    }
}
