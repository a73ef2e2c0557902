//! One thing has one name: an option of several commands takes the same kind of value in all of them,
//! and what means the same is called the same.

use std::collections::BTreeMap;

/// Names that an option must not have, because another one is used for it.
const SYNONYMS: &[(&str, &[&str])] = &[
    ("--seconds", &["--runtime", "--duration", "--time"]),
    ("--repeat", &["--runs", "--iterations", "--loops"]),
    ("--json", &["--format", "--output-format"]),
    ("--force", &["--yes", "--assume-yes"]),
    ("--quiet", &["--silent"]),
    ("--recursive", &["--recurse"]),
    ("--size", &["--len", "--length", "--capacity"]),
    ("--device", &["--dev", "--disk", "--filename"]),
    ("--file-mib", &["--file", "--file-size"]),
    ("--seed", &["--random-seed", "--randseed"]),
];

/// What the name of a value means, where that of another option's value means the same.
const SAME_KIND: &[(&str, &str)] = &[
    ("FILE[@NODE]", "FILE"),
    ("WRITE,FLUSH", "US"),
    ("DRIVE|plain", "DRIVE"),
    ("MIB/S", "MIB"),
    ("OPTION[,OPTION...]", "OPT"),
];

/// One option of one command.
struct Use {
    command: String,
    long: String,
    /// "a switch", or the name of its value.
    kind: String,
    help: String,
}

fn uses(command: &clap::Command, above: &str, found: &mut Vec<Use>) {
    let name = format!("{above}{}", command.get_name());
    for argument in command.get_arguments() {
        let Some(long) = argument.get_long() else {
            continue;
        };
        let values = argument.get_value_names().unwrap_or_default();
        let kind = match argument.get_action().takes_values() {
            false => "a switch".to_owned(),
            true => values.join(" "),
        };
        let same = SAME_KIND.iter().find(|(special, _)| *special == kind);
        let kind = same.map_or(kind.clone(), |(_, kind)| (*kind).to_owned());
        let help = argument.get_help().map(ToString::to_string);
        found.push(Use {
            command: name.clone(),
            long: format!("--{long}"),
            kind,
            help: help.unwrap_or_default(),
        });
    }
    for below in command.get_subcommands() {
        uses(below, &format!("{name} "), found);
    }
}

fn all_uses() -> Vec<Use> {
    let mut command = dure_cli::manual::command();
    command.build();
    let mut found = Vec::new();
    uses(&command, "", &mut found);
    found
}

/// Options of one name that take different kinds of values.
fn kinds_that_differ(uses: &[Use]) -> Vec<String> {
    let mut kinds: BTreeMap<&str, &Use> = BTreeMap::new();
    let mut wrong = Vec::new();
    for one in uses {
        let first = kinds.entry(&one.long).or_insert(one);
        if first.kind != one.kind {
            wrong.push(format!(
                "{}: {} in `{}`, {} in `{}`",
                one.long, first.kind, first.command, one.kind, one.command
            ));
        }
    }
    wrong
}

/// Options that say the same with different names.
fn names_that_differ(uses: &[Use]) -> Vec<String> {
    let mut names: BTreeMap<&str, &Use> = BTreeMap::new();
    let mut wrong = Vec::new();
    for one in uses {
        let first = names.entry(&one.help).or_insert(one);
        if first.long != one.long {
            wrong.push(format!(
                "\"{}\" is {} in `{}`, {} in `{}`",
                one.help, first.long, first.command, one.long, one.command
            ));
        }
        let other = SYNONYMS.iter().find(|(_, not)| not.contains(&&*one.long));
        if let Some((name, _)) = other {
            wrong.push(format!("{} of `{}` is {name}", one.long, one.command));
        }
    }
    wrong
}

#[test]
fn an_option_takes_the_same_kind_of_value_in_all_commands() {
    let uses = all_uses();
    assert!(uses.len() > 250, "only {} options were found", uses.len());
    let wrong = kinds_that_differ(&uses);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_means_the_same_has_the_same_name() {
    let wrong = names_that_differ(&all_uses());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The comparison finds what it must find.
#[test]
fn names_and_kinds_that_differ_are_found() {
    let used = |command: &str, long: &str, kind: &str, help: &str| Use {
        command: command.into(),
        long: long.into(),
        kind: kind.into(),
        help: help.into(),
    };
    let uses = [
        used("a", "--seconds", "SECONDS", "How long"),
        used("b", "--runtime", "SECONDS", "How long"),
        used("c", "--seconds", "a switch", "Times in seconds"),
    ];
    assert_eq!(kinds_that_differ(&uses).len(), 1);
    let named = names_that_differ(&uses);
    assert_eq!(named.len(), 2, "{named:?}");
}
