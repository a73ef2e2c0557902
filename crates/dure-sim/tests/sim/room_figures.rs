//! A part of the shape of each simulated figure, on few cores; `dure sim experiments` has all of it.
//!
//! Runs with the sim backend only: `cargo xtask sim -p dure-sim -- sim_room_figure`.

use dure_sim::room::experiments::{EXPERIMENTS, Experiment, Points};

/// What the table says of few cores comes out.
fn comes_out(figure: &str) {
    let one = Experiment::named(figure).unwrap_or_else(|what| panic!("{what}"));
    let own = one.simulated().expect("a figure that is simulated");
    let (mut points, mut rates) = (Points::default(), Vec::new());
    for (line, cores) in own.needed(own.quick) {
        let rate = points.rate(own, line, cores);
        rates.push(rate.unwrap_or_else(|what| panic!("{figure}: {what}")));
    }
    for check in own.quick {
        let checked = check.of(&rates).expect("its points were simulated");
        assert!(checked.holds, "{figure}: {checked} ({rates:?})");
    }
}

macro_rules! figures {
    ($($test:ident: $figure:literal,)*) => {
        const TESTED: &[&str] = &[$($figure),*];
        $(#[test] fn $test() { comes_out($figure); })*
    };
}

figures! {
    sim_room_figure_000_2a: "000-2a",
    sim_room_figure_000_2b: "000-2b",
    sim_room_figure_000_7a: "000-7a",
    sim_room_figure_000_7b: "000-7b",
    sim_room_figure_000_7c: "000-7c",
    sim_room_figure_000_13a: "000-13a",
    sim_room_figure_000_13b: "000-13b",
    sim_room_figure_000_13c: "000-13c",
    sim_room_figure_000_13d: "000-13d",
    sim_room_figure_001_3: "001-3",
    sim_room_figure_001_5: "001-5",
    sim_room_figure_001_6: "001-6",
    sim_room_figure_004_2a: "004-2a",
    sim_room_figure_004_2b: "004-2b",
    sim_room_figure_004_3a: "004-3a",
    sim_room_figure_004_3b: "004-3b",
}

#[test]
fn sim_room_figures_are_all_tested() {
    let simulated = EXPERIMENTS.iter().filter(|one| one.simulated().is_some());
    let names: Vec<&str> = simulated.map(|one| one.figures[0]).collect();
    assert_eq!(names, TESTED);
}
