//! Manual pages: a page for each command in section 1, one for each name of a system tool in
//! section 8, from the arguments and from `dure_cli::manual`.

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use dure_cli::manual::{self, Page, STATUS};

use super::NAMES;

/// Writes all pages below `folder`, `share/man`.
pub(super) fn write(folder: &Path) -> Result<()> {
    let (user, system) = (folder.join("man1"), folder.join("man8"));
    fs::create_dir_all(&user)?;
    fs::create_dir_all(&system)?;
    let mut dure = dure_cli::args::Args::command().disable_help_subcommand(true);
    dure.build();
    write_user(&dure, &[], &user)?;
    for (name, subcommand) in NAMES {
        let Some(subcommand) = subcommand else {
            continue;
        };
        let found = dure.find_subcommand(subcommand);
        let command = found.with_context(|| format!("dure {subcommand}"))?;
        let command = command
            .clone()
            .name(name)
            .display_name(name)
            .bin_name(name)
            .version(env!("CARGO_PKG_VERSION"));
        let also = format!("dure-{subcommand}(1)");
        let text = page(command, "8", manual::of(subcommand), &["dure(1)", &also])?;
        fs::write(system.join(format!("{name}.8")), text)?;
    }
    // As manual pages do it: the one page under all names.
    for (also, name) in [
        ("mount.fuse", "mount"),
        ("umount.fuse", "umount"),
        ("umount.fuseblk", "umount"),
    ] {
        let page = format!(".so man8/{name}.dure.8\n");
        fs::write(system.join(format!("{also}.dure.8")), page)?;
    }
    Ok(())
}

/// The page of a command, and those of the commands below it.
fn write_user(command: &Command, path: &[&str], folder: &Path) -> Result<()> {
    let name = path.join(" ");
    let below: Vec<String> = command
        .get_subcommands()
        .filter(|below| !below.is_hide_set())
        .map(|below| [&["dure"], path, &[below.get_name()]].concat().join("-") + "(1)")
        .collect();
    let mut also: Vec<&str> = below.iter().map(String::as_str).collect();
    if !path.is_empty() {
        also.insert(0, "dure(1)");
    }
    let text = page(command.clone(), "1", manual::of(&name), &also)?;
    let file = [&["dure"], path].concat().join("-") + ".1";
    fs::write(folder.join(file), text)?;
    for below in command
        .get_subcommands()
        .filter(|below| !below.is_hide_set())
    {
        write_user(below, &[path, &[below.get_name()]].concat(), folder)?;
    }
    Ok(())
}

fn page(command: Command, section: &str, page: Option<&Page>, also: &[&str]) -> Result<Vec<u8>> {
    let arguments = command
        .get_arguments()
        .any(|argument| !argument.is_hide_set());
    let subcommands = command.has_subcommands();
    let notes = command.get_after_long_help().map(ToString::to_string);
    let man = Man::new(command).section(section).manual("dure");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    if arguments {
        man.render_options_section(&mut text)?;
    }
    if subcommands {
        man.render_subcommands_section(&mut text)?;
    }
    if let Some(notes) = notes {
        writeln!(text, ".SH NOTES")?;
        for line in notes.lines() {
            writeln!(
                text,
                "{}",
                if line.is_empty() {
                    ".PP".into()
                } else {
                    escaped(line)
                }
            )?;
        }
    }
    if let Some(page) = page {
        writeln!(text, ".SH EXAMPLES")?;
        for (what, line) in page.examples {
            writeln!(
                text,
                ".PP\n{}:\n.PP\n.RS 4\n.nf\n{}\n.fi\n.RE",
                escaped(what),
                escaped(line)
            )?;
        }
    }
    writeln!(text, ".SH \"EXIT STATUS\"")?;
    for (status, meaning) in page.map_or(STATUS, |page| page.status) {
        writeln!(text, ".TP\n\\fB{status}\\fR\n{}", escaped(meaning))?;
    }
    if !also.is_empty() {
        writeln!(text, ".SH \"SEE ALSO\"\n{}", escaped(&also.join(", ")))?;
    }
    Ok(text)
}

/// A line of text: nothing in it is a request or an escape.
pub(super) fn escaped(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-");
    match line.as_bytes().first() {
        Some(b'.' | b'\'') => format!("\\&{line}"),
        _ => line,
    }
}
