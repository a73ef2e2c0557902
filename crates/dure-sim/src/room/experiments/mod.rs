//! The figures and tables of the five documents, as experiments.
//!
//! **Problem.** Whether dure does what the documents show of the systems it learns from is a question
//! for each figure, and an answer that was tuned is none. **Structure.** [`EXPERIMENTS`] is data: for
//! each figure the sentence that it shows, and either the points that are simulated (`Simulated`:
//! lines of policies over cores) and the shape that they should have ([`Check`]), or the command that
//! measures or shows it. `Points` simulates what several figures share once. **Invariants.** A shape
//! is what the document says, and was written before it was simulated; a figure agrees if every check
//! of it holds. Nothing that was not simulated gets an answer. **Crash.** Nothing is kept.

mod check;
#[cfg(dure_backend = "sim")]
mod points;
mod table;

pub use check::{Check, Checked, FALLS_MOST, FLAT_MOST, NEAR, Rate};
#[cfg(dure_backend = "sim")]
pub use points::Points;
pub use table::EXPERIMENTS;

use super::{Kind, Plan, machine};

/// A figure or table of a document.
#[derive(Debug)]
pub struct Experiment {
    /// Its names: number of the document, and of the figure in it. Several if documents share it.
    pub figures: &'static [&'static str],
    /// What it is of.
    pub title: &'static str,
    /// What the document shows.
    pub shows: &'static str,
    /// How it is repeated.
    pub how: How,
}

/// How a figure is repeated.
#[derive(Debug)]
pub enum How {
    /// On virtual cores.
    Simulated(Simulated),
    /// A command measures it on a real machine: what it says depends on devices, or on programs that
    /// are not simulated.
    MeasuredBy(&'static str),
    /// A command shows the mechanism: there is no rate to compare.
    ShownBy(&'static str),
}

/// What is simulated, and what should come out.
#[derive(Debug)]
pub struct Simulated {
    /// What its cores do.
    pub kind: Kind,
    /// The published system, its baseline, and dure's defaults.
    pub lines: &'static [Line],
    /// Numbers of cores.
    pub cores: &'static [usize],
    /// What the document shows, so that it can be checked.
    pub shape: &'static [Check],
    /// A part of it that holds on few cores, for tests.
    pub quick: &'static [Check],
    /// Why the shape does not agree, where that is known.
    pub why: &'static str,
}

/// A line of a figure.
#[derive(Debug)]
pub struct Line {
    /// Its name in the document.
    pub name: &'static str,
    /// The machine.
    pub machine: &'static str,
    /// The text of its work: how the volume is mounted.
    pub policy: &'static str,
}

impl Experiment {
    /// The experiment of a figure.
    ///
    /// # Errors
    /// There is none; the message has all names.
    pub fn named(figure: &str) -> Result<&'static Experiment, String> {
        let has = |one: &&Experiment| one.figures.contains(&figure);
        EXPERIMENTS.iter().find(has).ok_or_else(|| {
            let names: Vec<&str> = EXPERIMENTS
                .iter()
                .flat_map(|one| one.figures)
                .copied()
                .collect();
            format!(
                "{figure}: no figure has that name; it is {}",
                names.join(", ")
            )
        })
    }

    /// What is simulated, if anything is.
    #[must_use]
    pub fn simulated(&self) -> Option<&Simulated> {
        match &self.how {
            How::Simulated(simulated) => Some(simulated),
            How::MeasuredBy(_) | How::ShownBy(_) => None,
        }
    }

    /// The command by which it is repeated, if it is not simulated.
    #[must_use]
    pub fn command(&self) -> Option<&'static str> {
        match self.how {
            How::Simulated(_) => None,
            How::MeasuredBy(command) | How::ShownBy(command) => Some(command),
        }
    }

    /// How it is repeated, in words.
    #[must_use]
    pub fn state(&self) -> String {
        match self.how {
            How::Simulated(_) => "simulated".to_owned(),
            How::MeasuredBy(command) => format!("measured by {command}"),
            How::ShownBy(command) => format!("shown by {command}"),
        }
    }
}

impl Simulated {
    /// A line by its name.
    #[must_use]
    pub fn line(&self, name: &str) -> Option<&'static Line> {
        self.lines.iter().find(|line| line.name == name)
    }

    /// A point of a line.
    ///
    /// # Errors
    /// It cannot be simulated.
    pub fn plan(&self, line: &Line, cores: usize) -> Result<Plan, String> {
        let plan = Plan {
            machine: machine(line.machine)?,
            work: self.kind.work(line.policy)?,
            cores,
            seed: 1,
            planted: None,
        };
        plan.check()?;
        Ok(plan)
    }

    /// Lines and cores of all points.
    pub fn points(&self) -> impl Iterator<Item = (&'static Line, usize)> {
        let of_line = |line| self.cores.iter().map(move |cores| (line, *cores));
        self.lines.iter().flat_map(of_line)
    }

    /// Lines and cores that some checks need, each once.
    #[must_use]
    pub fn needed(&self, checks: &[Check]) -> Vec<(&'static Line, usize)> {
        let mut needed: Vec<(&'static Line, usize)> = Vec::new();
        for (name, cores) in checks.iter().flat_map(|check| check.uses(self.cores)) {
            let line = self.line(name).expect("a test compares names");
            if !needed
                .iter()
                .any(|(own, n)| own.name == name && *n == cores)
            {
                needed.push((line, cores));
            }
        }
        needed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn simulated() -> impl Iterator<Item = (&'static Experiment, &'static Simulated)> {
        let all = EXPERIMENTS.iter();
        all.filter_map(|one| one.simulated().map(|simulated| (one, simulated)))
    }

    #[test]
    fn each_point_of_the_table_can_be_simulated() {
        let mut count = 0;
        for (one, simulated) in simulated() {
            let quick = simulated.needed(simulated.quick);
            let shape = simulated.needed(simulated.shape);
            for (line, cores) in simulated.points().chain(quick).chain(shape) {
                let planned = simulated.plan(line, cores);
                assert!(planned.is_ok(), "{:?}: {planned:?}", one.figures);
                count += 1;
            }
        }
        assert!(count > 100, "{count}");
    }

    /// A check of cores that the figure does not have would never be answered.
    #[test]
    fn each_check_is_of_points_that_the_figure_has() {
        for (one, simulated) in simulated() {
            for (name, cores) in simulated
                .shape
                .iter()
                .flat_map(|check| check.uses(simulated.cores))
            {
                let what = format!("{:?}: {name} at {cores}", one.figures);
                assert!(simulated.line(name).is_some(), "{what}");
                assert!(simulated.cores.contains(&cores), "{what}");
            }
            assert!(!simulated.shape.is_empty() && !simulated.quick.is_empty());
            let last = simulated.lines.last().expect("a line");
            assert!(last.name.starts_with("dure"), "{:?}", one.figures);
        }
    }

    #[test]
    fn names_are_unique_and_an_unknown_one_is_told_with_all_of_them() {
        let mut names: Vec<&str> = EXPERIMENTS
            .iter()
            .flat_map(|one| one.figures)
            .copied()
            .collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
        for document in ["000", "001", "002", "003", "004"] {
            assert!(
                names.iter().any(|name| name.starts_with(document)),
                "{document}"
            );
        }
        let refused = Experiment::named("000-99").unwrap_err();
        assert!(refused.starts_with("000-99: no figure"), "{refused}");
        assert!(
            refused.contains("000-2a, ") && refused.contains("004-3b"),
            "{refused}"
        );
    }

    /// docs/simulation/experiments.md has a row of each, with the same sentence.
    #[test]
    fn the_page_has_each_figure() {
        let page = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/simulation/experiments.md"
        );
        let page = std::fs::read_to_string(page).unwrap();
        let rows: Vec<&str> = page
            .lines()
            .filter(|line| line.starts_with("| 00"))
            .collect();
        for one in EXPERIMENTS {
            let start = format!("| {} |", one.figures.join(", "));
            let row = rows.iter().find(|row| row.starts_with(&start));
            let row = row.unwrap_or_else(|| panic!("{start} is missing"));
            assert!(row.contains(one.shows), "{row}");
        }
        assert_eq!(rows.len(), EXPERIMENTS.len());
    }
}
