//! `dure sim experiments`: the figures of the five documents.
//!
//! **Structure.** The table of figures is in dure-sim. `told` says of each what came out; here it is
//! printed, and `page` makes one page of all. Simulated ones need the program for simulated cores, which
//! this one becomes. **Invariants.** What was not simulated has no answer. **Crash.** Nothing is kept.

mod page;
mod told;

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use dure_bench::say;
use dure_sim::room::experiments::{EXPERIMENTS, Experiment};

use self::told::Told;
use crate::args::SimExperiments;
use crate::exit;

/// The figures that are asked for, in the order of the table.
fn chosen(names: &[String]) -> Result<Vec<&'static Experiment>> {
    for name in names {
        Experiment::named(name).map_err(|what| anyhow!("--figure {what}"))?;
    }
    let is_asked = |one: &&Experiment| {
        names.is_empty()
            || one
                .figures
                .iter()
                .any(|figure| names.iter().any(|name| name == figure))
    };
    Ok(EXPERIMENTS.iter().filter(is_asked).collect())
}

pub(crate) fn run(args: &SimExperiments) -> Result<u8> {
    let chosen = chosen(&args.figures)?;
    #[cfg(not(dure_backend = "sim"))]
    if chosen.iter().any(|one| one.simulated().is_some()) {
        return crate::command::simulated::run();
    }
    let told = told::all(&chosen)?;
    if args.json {
        let figures = told.iter().flat_map(Told::by_figure);
        say!(
            "{}",
            serde_json::to_string_pretty(&figures.collect::<Vec<_>>())?
        );
    } else {
        told.iter().for_each(print);
    }
    if let Some(folder) = &args.svg_dir {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        for one in told.iter().filter(|one| one.simulated) {
            write(&folder.join(format!("{}.svg", one.figures[0])), &one.svg()?)?;
        }
    }
    if let Some(path) = &args.html {
        write(path, &page::html(&told)?)?;
    }
    Ok(exit::OK)
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| path.display().to_string())
}

fn print(told: &Told) {
    let (figures, title) = (told.figures.join(", "), told.title);
    say!("{figures}: {title}");
    say!("  shown    {}", told.shows);
    for check in &told.checks {
        say!("  {}  {}", check.answer(), check.told);
    }
    for (line, rates) in told.lines() {
        say!("  {line}: {rates} operations/s (simulated)");
    }
    say!("  {}\n", told.verdict());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_chosen_by_any_of_their_names() {
        let names = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            let chosen = chosen(&names)?;
            anyhow::Ok(chosen.iter().map(|one| one.figures[0]).collect::<Vec<_>>())
        };
        assert_eq!(names(&["002-4", "000-1"]).unwrap(), ["000-1", "000-2a"]);
        assert_eq!(names(&["000-2a", "002-4"]).unwrap(), ["000-2a"]);
        assert_eq!(names(&[]).unwrap().len(), EXPERIMENTS.len());
        let refused = names(&["000-2a", "000-99"]).unwrap_err().to_string();
        assert!(
            refused.starts_with("--figure 000-99: no figure"),
            "{refused}"
        );
    }

    /// A command that the program does not have would measure nothing.
    #[test]
    fn commands_of_figures_that_are_not_simulated_can_be_given() {
        let mut count = 0;
        for one in EXPERIMENTS {
            let Some(command) = one.command().filter(|command| command.starts_with("dure ")) else {
                continue;
            };
            let parsed = crate::manual::command().try_get_matches_from(command.split(' '));
            assert!(parsed.is_ok(), "{:?}: {command}: {parsed:?}", one.figures);
            count += 1;
        }
        assert!(count > 12, "{count}");
    }

    /// Those that are not simulated have no answer, and say why.
    #[test]
    fn what_is_not_simulated_has_no_answer() {
        let chosen = chosen(&["003-6a".to_owned(), "000-1".to_owned()]).unwrap();
        let told = told::all(&chosen).unwrap();
        let json: Vec<_> = told.iter().flat_map(Told::by_figure).collect();
        let json = serde_json::to_value(&json).unwrap();
        assert_eq!(json[0]["state"], "shown by dure sim explain zjournal");
        assert_eq!(json[1]["figure"], "003-6a");
        assert_eq!(json[2]["figure"], "003-6b");
        for figure in json.as_array().unwrap() {
            assert!(
                figure["agrees"].is_null() && figure["simulated"] == false,
                "{figure}"
            );
            assert!(figure["why"].as_str().unwrap().len() > 10, "{figure}");
        }
    }
}
