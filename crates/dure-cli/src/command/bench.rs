//! `dure bench`.

use anyhow::Result;
use dure_bench::compare::Shown;
use dure_sim::room::experiments::Experiment;

use crate::exit;

pub(crate) fn run(args: dure_bench::Args) -> Result<u8> {
    dure_bench::run(&args, words)?;
    Ok(exit::OK)
}

/// What a document shows of a figure.
fn words(figure: &str) -> Option<Shown> {
    let one = Experiment::named(figure).ok()?;
    let simulated = one.simulated().is_some();
    Some(Shown {
        title: one.title,
        shows: one.shows,
        many_cores: simulated.then(|| format!("dure sim experiments --figure {figure}")),
        state: one.state(),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use dure_bench::compare::{How, LEFT_OUT, PAPERS};
    use dure_sim::room::experiments::EXPERIMENTS;

    use super::*;

    /// A figure in no table is forgotten; one in two is repeated for nothing.
    #[test]
    fn each_figure_is_in_one_table_or_left_out_for_a_reason() {
        let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for paper in &PAPERS {
            for figure in paper.rows.iter().flat_map(|row| row.figures) {
                found.entry(figure).or_default().push(paper.spelled);
            }
        }
        for (figures, reason) in LEFT_OUT {
            assert!(reason.len() > 20, "{figures:?}: {reason}");
            for figure in *figures {
                found.entry(figure).or_default().push("left out");
            }
        }
        let known: Vec<&str> = EXPERIMENTS
            .iter()
            .flat_map(|one| one.figures)
            .copied()
            .collect();
        for figure in &known {
            let places = found.remove(figure).unwrap_or_default();
            assert_eq!(places.len(), 1, "{figure}: {places:?}");
        }
        assert!(found.is_empty(), "no document has {found:?}");
    }

    /// Figures of one row have the same data there, so they have the same words.
    #[test]
    fn a_row_is_of_one_experiment() {
        for row in PAPERS.iter().flat_map(|paper| paper.rows) {
            let one = Experiment::named(row.figures[0]).unwrap();
            assert_eq!(row.figures, one.figures);
            let shown = words(row.figures[0]).unwrap();
            let is_here = matches!(row.how, How::Here { .. });
            let is_measured = shown.many_cores.is_some() || shown.state.starts_with("measured by");
            assert_eq!(is_here, is_measured, "{:?}: {}", row.figures, shown.state);
        }
    }

    #[test]
    fn what_is_simulated_is_named_with_its_command() {
        let shown = words("002-4").unwrap();
        let command = shown.many_cores.unwrap();
        assert_eq!(command, "dure sim experiments --figure 002-4");
        assert!(words("003-6a").unwrap().many_cores.is_none() && words("000-99").is_none());
    }
}
