//! The report, as text and as JSON.

use std::collections::BTreeMap;

use anyhow::Result;
use dure_bench::say;
use dure_block::count::Count;
use dure_fs::MountOptions;
use dure_sim::conflicts::{
    Exception, Line, Options, Place, REAL_MEETINGS, REPEATS, Survey, survey,
};
use serde::Serialize;

use crate::args::SimConflicts;
use crate::command::sim;
use crate::{exit, progress};

pub(super) fn run(args: &SimConflicts) -> Result<u8> {
    let options = Options {
        mount: sim::with_policies(MountOptions::default(), &args.mount)?,
        every: dure_fs::units::to_usize(args.every.into()),
        only: args.only.clone(),
        threads: match args.threads {
            Some(threads) => dure_fs::units::to_usize(threads.into()),
            None => dure_sync::core_count(),
        },
        beside: None,
    };
    let bar = progress::bar(0, "pairs");
    let found = survey(&options, |done, all| {
        bar.set_length(dure_fs::units::to_u64(all));
        bar.set_position(dure_fs::units::to_u64(done));
    });
    bar.finish_and_clear();
    let report = Report::new(&found);
    if args.json {
        say!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        report.print(args.list);
    }
    let enough = args
        .at_least
        .is_none_or(|percent| report.share * 100.0 >= percent);
    Ok(if report.wrong.is_empty() && enough {
        exit::OK
    } else {
        exit::FAILED
    })
}

/// With `--json`.
#[derive(Debug, Serialize)]
struct Report {
    pairs: u64,
    conflict_free: u64,
    share: f64,
    ordered: u64,
    /// Meetings of cores after which a structure counts as contended here, and on real cores.
    meetings: u32,
    real_meetings: u32,
    rehearsals: u64,
    exceptions: Vec<Class>,
    excepted_pairs: Vec<Excepted>,
    wrong: Vec<String>,
}

/// The shared lines that one place in the code writes.
#[derive(Debug, Serialize)]
struct Class {
    class: String,
    count: u64,
    alone: u64,
    justified: Option<&'static str>,
    pair: String,
    line: SharedLine,
}

#[derive(Debug, Serialize)]
struct SharedLine {
    made: Code,
    offset: usize,
    false_sharing: bool,
    uses: Vec<Used>,
}

#[derive(Debug, Serialize)]
struct Code {
    function: String,
    at: String,
    text: String,
}

#[derive(Debug, Serialize)]
struct Used {
    core: usize,
    access: &'static str,
    byte: usize,
    #[serde(rename = "type")]
    what: &'static str,
    code: Code,
}

#[derive(Debug, Serialize)]
struct Excepted {
    pair: String,
    classes: Vec<String>,
}

impl Code {
    fn new(place: &Place) -> Code {
        Code {
            function: place.function.clone(),
            at: place.at.clone(),
            text: place.text.clone(),
        }
    }
}

impl SharedLine {
    fn new(line: &Line) -> SharedLine {
        let uses = line.uses.iter().map(|one| Used {
            core: one.core,
            access: one.access,
            byte: one.byte,
            what: one.what,
            code: Code::new(&one.place),
        });
        SharedLine {
            made: Code::new(&line.made),
            offset: line.offset,
            false_sharing: line.is_false_sharing(),
            uses: uses.collect(),
        }
    }
}

/// The classes of the lines of a pair, each once.
fn classes(exception: &Exception) -> BTreeMap<&str, &Line> {
    let lines = exception.lines.iter().rev();
    lines.map(|line| (&*line.class, line)).collect()
}

impl Report {
    fn new(found: &Survey) -> Report {
        let mut all: BTreeMap<&str, Class> = BTreeMap::new();
        for exception in &found.exceptions {
            let own = classes(exception);
            for (name, line) in &own {
                let class = all.entry(name).or_insert_with(|| Class {
                    class: (*name).to_owned(),
                    count: 0,
                    alone: 0,
                    justified: line.justified(),
                    pair: exception.pair.clone(),
                    line: SharedLine::new(line),
                });
                class.count += 1;
                class.alone += u64::from(own.len() == 1);
            }
        }
        let mut exceptions: Vec<Class> = all.into_values().collect();
        exceptions.sort_by_key(|class| std::cmp::Reverse(class.count));
        let excepted = found.exceptions.iter().map(|exception| Excepted {
            pair: exception.pair.clone(),
            classes: classes(exception).into_keys().map(str::to_owned).collect(),
        });
        let per_ten_thousand =
            u32::try_from(found.share()).expect("a share is at most 10000 of ten thousand");
        Report {
            pairs: found.pairs,
            conflict_free: found.conflict_free,
            share: f64::from(per_ten_thousand) / 10_000.0,
            ordered: found.ordered,
            meetings: dure_sync::CONTENDED_AFTER,
            real_meetings: REAL_MEETINGS,
            rehearsals: REPEATS,
            exceptions,
            excepted_pairs: excepted.collect(),
            wrong: found.wrong.clone(),
        }
    }

    fn print(&self, list: bool) {
        for class in &self.exceptions {
            class.print();
        }
        if list {
            for excepted in &self.excepted_pairs {
                say!("{}: {}", excepted.pair, excepted.classes.join(", "));
            }
            say!("");
        }
        for wrong in &self.wrong {
            say!("WRONG ANSWER {wrong}");
        }
        say!(
            "{} pairs commute ({} more do not); {} share no written line: {:.2} %",
            self.pairs,
            self.ordered,
            self.conflict_free,
            self.share * 100.0
        );
        say!(
            "Counted after up to {} rehearsals, with statistics. Structures adapt after {} meetings of \
             cores instead of {}, so that the rehearsals suffice: what counts is the state they reach, \
             not the way there.",
            self.rehearsals,
            self.meetings,
            self.real_meetings
        );
    }
}

impl Class {
    fn print(&self) {
        say!(
            "{} of {}, of {} the only one ({})",
            self.class,
            Count::of(self.count, "pair"),
            self.alone,
            self.justified.unwrap_or("not justified")
        );
        let (line, false_sharing) = (&self.line, self.line.false_sharing);
        say!(
            "  for example {}\n  byte {} of what {} made at {}{}",
            self.pair,
            line.offset,
            line.made.function,
            line.made.at,
            if false_sharing {
                "; different words of it"
            } else {
                ""
            }
        );
        for one in &line.uses {
            say!(
                "    core {} {:6} +{:<2} {} {}: {}",
                one.core,
                one.access,
                one.byte,
                one.code.function,
                one.code.at,
                one.code.text
            );
        }
        say!("");
    }
}
