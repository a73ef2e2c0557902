//! What manual pages and `--help` say besides the arguments: examples and exit statuses; and the
//! words of `-o`, for completions.
//!
//! **Structure.** [`pages`] has a page for each command. [`command`] is the command line with them,
//! which the program parses with; `cargo xtask dist` makes the manual from the same table.
//! **Invariants.** Every command has examples; a test runs those that need no other machine.
//! **Crash.** Nothing.

mod measure_pages;
mod use_pages;
mod words;

use clap::CommandFactory;
use dure_bench::print;

pub use self::words::MOUNT_WORDS;
use crate::args::Args;
use crate::exit;

/// What a command needs besides its arguments.
#[derive(Debug)]
pub struct Page {
    /// The command, with the commands above it: `bench micro`.
    pub command: &'static str,
    /// What for, and the line.
    pub examples: &'static [(&'static str, &'static str)],
    /// Exit statuses, and what they say. A test runs each command in its good and bad cases.
    pub status: Statuses,
}

/// Exit statuses, and what they say.
pub type Statuses = &'static [(u8, &'static str)];

/// The exit statuses of most commands.
pub const STATUS: Statuses = &[
    (exit::OK, "done"),
    (exit::FAILED, "it failed; standard error says why"),
    (exit::USAGE, "wrong arguments"),
    CLOSED,
];

/// An exit status of every command.
const CLOSED: (u8, &str) = (print::CLOSED, "the reader of its output went away");

const fn page(
    command: &'static str,
    examples: &'static [(&'static str, &'static str)],
    status: Statuses,
) -> Page {
    Page {
        command,
        examples,
        status,
    }
}

/// All pages: of what uses volumes, then of what measures.
pub fn pages() -> impl Iterator<Item = &'static Page> {
    use_pages::PAGES.iter().chain(measure_pages::PAGES)
}

/// The pages whose examples a test can run.
#[must_use]
pub fn pages_to_run() -> &'static [Page] {
    use_pages::PAGES
}

/// The page of a command, `NAME` or `ABOVE NAME`.
#[must_use]
pub fn of(command: &str) -> Option<&'static Page> {
    pages().find(|page| page.command == command)
}

/// The command line, whose long help ends with examples and exit statuses.
#[must_use]
pub fn command() -> clap::Command {
    pages().fold(Args::command(), |command, page| {
        let words: Vec<&str> = page.command.split(' ').collect();
        below(command, &words, page)
    })
}

/// `command`, of which the one that `words` lead to has the page.
fn below(command: clap::Command, words: &[&str], page: &Page) -> clap::Command {
    match words {
        [] => with_help(command, page),
        [name, rest @ ..] => command.mut_subcommand(*name, |found| below(found, rest, page)),
    }
}

fn with_help(command: clap::Command, page: &Page) -> clap::Command {
    let mut text = String::new();
    if let Some(before) = command.get_after_long_help() {
        text.push_str(&before.to_string());
        text.push_str("\n\n");
    }
    text.push_str("Examples:\n");
    for (what, line) in page.examples {
        text.push_str(&format!("  {what}:\n      {line}\n"));
    }
    text.push_str("\nExit status:\n");
    for (status, meaning) in page.status {
        text.push_str(&format!("  {status:<3}  {meaning}\n"));
    }
    command.after_long_help(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_and_every_page_a_command() {
        let all = command();
        every_command_below(&all, "");
        for page in pages() {
            let found = page
                .command
                .split(' ')
                .try_fold(&all, |command, word| command.find_subcommand(word));
            let help = found.expect(page.command).get_after_long_help();
            let help = help.expect("examples").to_string();
            assert!(help.contains("Exit status:\n  0"), "{help}");
        }
    }

    fn every_command_below(command: &clap::Command, above: &str) {
        for found in command
            .get_subcommands()
            .filter(|found| !found.is_hide_set())
        {
            let name = format!("{above}{}", found.get_name());
            let page = of(&name).unwrap_or_else(|| panic!("{name} has no page"));
            assert!(!page.examples.is_empty() && page.status.len() > 1);
            every_command_below(found, &format!("{name} "));
        }
    }

    #[test]
    fn examples_of_measurements_can_be_parsed() {
        for (_, line) in measure_pages::PAGES.iter().flat_map(|page| page.examples) {
            let line = line.rsplit("| ").next().expect("a command");
            let parsed = command().try_get_matches_from(line.split(' '));
            if let Err(error) = parsed {
                assert!(!error.use_stderr(), "{line}: {error}");
            }
        }
    }
}
