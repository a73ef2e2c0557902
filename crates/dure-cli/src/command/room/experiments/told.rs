//! What came out of a figure.

use anyhow::Result;
use dure_bench::report::{Rate, simulated_svg};
use dure_sim::room::experiments::{Checked, Experiment};
use serde::Serialize;

/// One of `--json`.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Told {
    pub(super) figure: &'static str,
    /// Its names and those of others with the same data.
    pub(super) figures: &'static [&'static str],
    pub(super) document: String,
    pub(super) title: &'static str,
    pub(super) shows: &'static str,
    pub(super) state: String,
    pub(super) agrees: Option<bool>,
    pub(super) comes_out: String,
    pub(super) why: String,
    pub(super) simulated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) workload: Option<&'static str>,
    pub(super) checks: Vec<ToldCheck>,
    pub(super) points: Vec<ToldPoint>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct ToldCheck {
    pub(super) check: String,
    /// A ratio, or a number of cores.
    pub(super) found: f64,
    pub(super) holds: bool,
    #[serde(skip)]
    pub(super) told: String,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct ToldPoint {
    pub(super) line: &'static str,
    pub(super) machine: &'static str,
    pub(super) policy: &'static str,
    pub(super) cores: usize,
    pub(super) ops_per_second: f64,
    pub(super) lines_per_op: f64,
    pub(super) bottleneck: String,
    pub(super) hash: String,
}

impl ToldCheck {
    pub(super) fn answer(&self) -> &'static str {
        if self.holds { "agrees " } else { "differs" }
    }
}

impl From<&Checked> for ToldCheck {
    fn from(checked: &Checked) -> ToldCheck {
        ToldCheck {
            check: checked.check.to_string(),
            found: checked.found,
            holds: checked.holds,
            told: checked.to_string(),
        }
    }
}

impl Told {
    /// One that has no answer here.
    fn unanswered(one: &Experiment) -> Told {
        let state = one.state();
        Told {
            figure: one.figures[0],
            figures: one.figures,
            document: one.figures[0][..3].to_owned(),
            title: one.title,
            shows: one.shows,
            why: format!("not simulated: {state}"),
            state,
            agrees: None,
            comes_out: String::new(),
            simulated: false,
            workload: None,
            checks: Vec::new(),
            points: Vec::new(),
        }
    }

    /// One for each of its names.
    pub(super) fn by_figure(&self) -> impl Iterator<Item = Told> {
        self.figures.iter().map(|figure| Told {
            figure,
            document: figure[..3].to_owned(),
            ..self.clone()
        })
    }

    /// Each line with its rates.
    pub(super) fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines: Vec<(&'static str, String)> = Vec::new();
        for point in &self.points {
            let rate = format!("{:.0} on {}", point.ops_per_second, point.cores);
            match lines.last_mut() {
                Some((line, rates)) if *line == point.line => {
                    rates.push_str(", ");
                    rates.push_str(&rate);
                }
                _ => lines.push((point.line, rate)),
            }
        }
        lines
    }

    /// Whether it agrees, and why not.
    pub(super) fn verdict(&self) -> String {
        match self.agrees {
            Some(true) => "agrees".to_owned(),
            Some(false) => format!("differs: {}", self.why),
            None => self.why.clone(),
        }
    }

    /// The drawing.
    pub(super) fn svg(&self) -> Result<String> {
        let rate = |point: &ToldPoint| Rate {
            workload: self.workload.unwrap_or_default().to_owned(),
            line: format!("{}: {}", point.line, point.policy),
            cores: point.cores,
            ops_per_second: point.ops_per_second,
        };
        let rates: Vec<Rate> = self.points.iter().map(rate).collect();
        simulated_svg(
            &format!("{}: {} (simulated)", self.figure, self.title),
            &rates,
        )
    }
}

/// What came out of each.
#[cfg(not(dure_backend = "sim"))]
pub(super) fn all(chosen: &[&'static Experiment]) -> Result<Vec<Told>> {
    let is_simulated = |one: &&Experiment| one.simulated().is_some();
    anyhow::ensure!(
        !chosen.iter().any(is_simulated),
        "this build runs on real cores: the other one simulates"
    );
    Ok(chosen.iter().map(|one| Told::unanswered(one)).collect())
}

#[cfg(dure_backend = "sim")]
pub(super) use simulating::all;

#[cfg(dure_backend = "sim")]
mod simulating {
    use anyhow::anyhow;
    use dure_bench::note;
    use dure_sim::room::experiments::{Points, Simulated};
    use indicatif::ProgressBar;

    use super::{Experiment, Result, Told, ToldCheck, ToldPoint};
    use crate::progress;

    /// What came out of each. Says on standard error how far it is.
    pub(in super::super) fn all(chosen: &[&'static Experiment]) -> Result<Vec<Told>> {
        let simulated = || chosen.iter().filter_map(|one| one.simulated());
        let count = simulated().map(|own| own.points().count()).sum();
        let bar = progress::bar(dure_fs::units::to_u64(count), "points");
        let (mut points, mut told) = (Points::default(), Vec::new());
        for one in chosen {
            told.push(match one.simulated() {
                Some(own) => answered(one, own, &mut points, &bar)
                    .map_err(|what| anyhow!("{}: {what}", one.figures[0]))?,
                None => Told::unanswered(one),
            });
        }
        bar.finish_and_clear();
        Ok(told)
    }

    fn answered(
        one: &Experiment,
        own: &'static Simulated,
        points: &mut Points,
        bar: &ProgressBar,
    ) -> Result<Told, String> {
        let mut told = Told::unanswered(one);
        let mut rates = Vec::new();
        for (line, cores) in own.points() {
            rates.push(points.rate(own, line, cores)?);
            let point = points.point(own, line, cores)?;
            told.points.push(ToldPoint {
                line: line.name,
                machine: line.machine,
                policy: line.policy,
                cores,
                ops_per_second: point.ops_per_second.round(),
                lines_per_op: point.lines_per_op,
                bottleneck: point.bottleneck.clone(),
                hash: format!("{:016x}", point.hash),
            });
            let (done, figure) = (told.points.len(), one.figures[0]);
            bar.inc(1);
            bar.suspend(|| {
                let all = own.points().count();
                note!("{figure}: {done} of {all}: {}, {cores} cores", line.name);
            });
        }
        let checked = own.shape.iter().map(|check| check.of(&rates));
        let checked: Vec<_> = checked
            .map(|one| one.expect("a test compares cores"))
            .collect();
        let agrees = checked.iter().all(|one| one.holds);
        let comes_out: Vec<String> = checked.iter().map(ToString::to_string).collect();
        told.comes_out = comes_out.join("; ");
        told.why = match (agrees, own.why) {
            (true, _) => String::new(),
            (false, "") => "not known".to_owned(),
            (false, why) => why.to_owned(),
        };
        told.agrees = Some(agrees);
        told.simulated = true;
        told.workload = Some(own.kind.name());
        told.checks = checked.iter().map(ToldCheck::from).collect();
        Ok(told)
    }
}
