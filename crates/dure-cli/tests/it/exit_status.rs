//! Every command ends with a status of its manual page, and each status of the page is met.

#![expect(clippy::unwrap_used, reason = "tests panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Output;

use dure_cli::manual;

use crate::program::{can_mount, errors, program, text, volume};

/// A program whose reader went away: `trust` tries it.
const CLOSED: u8 = 141;

/// Lines, in the folder of [`place`], and how they end. A line may need what lines before it made.
/// Wrong arguments and help are tried of every command besides.
const CASES: &[(&str, u8)] = &[
    ("mkfs new.img --size 64M", 0),
    ("mkfs v.img", 1),
    ("mkfs --size nonsense new.img", 2),
    ("mount no-such.img m", 1),
    ("mount v.img m -o nonsense", 2),
    ("mount v.img", 2),
    ("umount m", 1),
    ("check v.img", 0),
    ("check --json v.img", 0),
    ("check bad.img", 4),
    ("check --json bad.img", 4),
    ("check broken.img", 4),
    ("check short.img", 4),
    ("check --repair --safe broken.img", 4),
    ("check --repair --undo undo.file bad.img", 1),
    ("check bad.img", 0),
    ("check --repair bad.img", 0),
    ("check no-such.img", 8),
    ("check zero.img", 8),
    ("check --safe v.img", 16),
    ("check", 16),
    ("undo undo.file bad.img", 0),
    ("check bad.img", 4),
    ("undo no-such bad.img", 1),
    ("rescue v.img out-whole", 0),
    ("rescue broken.img out-broken", 4),
    ("rescue short.img out-short", 4),
    ("rescue zero.img out-zero", 1),
    ("rescue v.img m/..", 1),
    ("resize v.img 128M", 0),
    ("resize v.img 16M", 1),
    ("resize v.img nonsense", 2),
    ("upgrade --list v.img", 0),
    ("upgrade v.img", 0),
    ("upgrade --feature nonsense v.img", 2),
    ("upgrade zero.img", 1),
    ("upgrade", 2),
    ("snapshot list v.img", 0),
    ("snapshot list zero.img", 1),
    ("snapshot list", 2),
    ("snapshot create v.img one", 0),
    ("snapshot create v.img one", 1),
    ("snapshot create v.img", 2),
    ("snapshot restore v.img one", 0),
    ("snapshot restore v.img none", 1),
    ("snapshot restore v.img", 2),
    ("snapshot delete v.img before-one", 0),
    ("snapshot rename v.img one two", 0),
    ("snapshot rename v.img one two", 1),
    ("snapshot rename v.img one", 2),
    ("snapshot diff v.img two", 0),
    ("snapshot diff v.img one", 1),
    ("snapshot diff v.img", 2),
    ("snapshot mount v.img two m", 1),
    ("snapshot mount v.img two", 2),
    ("snapshot delete v.img two", 0),
    ("snapshot delete v.img two", 1),
    ("snapshot delete v.img", 2),
    ("snapshot create v.img sent", 0),
    ("quota enable v.img", 0),
    ("quota enable zero.img", 1),
    ("quota set v.img --user 7 --hard 10M", 0),
    ("quota set v.img --user 7 --soft 11M", 1),
    ("quota set v.img --user 7 --soft 5M --hard 1M", 2),
    ("quota set v.img --user 0 --hard 10M", 2),
    ("quota set v.img --user 7", 2),
    ("quota set v.img --project 7 --hard 10M", 0),
    ("quota set v.img --project 0 --hard 10M", 2),
    ("quota project v.img / 7", 0),
    ("quota project v.img /", 0),
    ("quota project v.img /none 7", 1),
    ("quota project v.img / -1", 2),
    ("quota list v.img", 0),
    ("quota disable v.img", 0),
    ("quota list v.img", 1),
    ("quota disable zero.img", 1),
    ("send v.img sent", 0),
    ("send v.img none", 1),
    ("send v.img", 2),
    ("mkfs copy.img --size 64M", 0),
    ("receive copy.img < sent", 0),
    ("receive --check < sent", 0),
    ("receive copy.img < file", 1),
    ("receive --check < file", 1),
    ("receive --check v.img", 2),
    ("scrub start v.img", 8),
    ("scrub start", 16),
    ("scrub status v.img", 8),
    ("scrub status", 16),
    ("scrub pause v.img", 8),
    ("scrub pause", 16),
    ("trim v.img", 0),
    ("trim zero.img", 1),
    ("info v.img", 0),
    ("info zero.img", 1),
    ("top v.img", 1),
    ("top --wide --json v.img", 2),
    ("ls v.img /", 0),
    ("ls v.img /no", 1),
    ("put -q v.img file /", 0),
    ("put -q v.img no-such /", 1),
    ("put v.img /", 2),
    ("clone -q v.img /file /again", 0),
    ("clone -q v.img /no-such /again", 1),
    ("clone v.img /", 2),
    ("cat v.img /file", 0),
    ("cat v.img /", 1),
    ("get -q v.img /file got", 0),
    ("get -q v.img /no got", 1),
    ("mkdir v.img /d", 0),
    ("mkdir v.img /d", 1),
    ("rm -r v.img /d", 0),
    ("rm v.img /d", 1),
    ("dump v.img volume", 0),
    ("dump v.img node 4000000000", 1),
    ("dump v.img nonsense", 2),
    ("demo --no-mount --size 64M", 0),
    ("demo --no-mount --size 8K", 1),
    ("sim crash --count 1", 0),
    ("sim crash --replay nonsense", 1),
    ("sim crash --seq 9", 2),
    ("sim conflicts --every 0", 2),
    ("sim explain zjournal", 0),
    ("sim scale --workload DWOL --machine nonsense", 1),
    ("sim scale --workload DWOL --cores 81", 1),
    ("sim scale --workload DWOL --policy jornal=jbd2", 1),
    ("sim scale --workload NONE", 2),
    ("sim experiments --figure 003-6a --figure 000-1 --json", 0),
    ("sim experiments --figure 003-6a --html figures.html", 0),
    ("sim experiments --figure 000-99", 1),
    ("sim experiments --figures 000-1", 2),
    ("sim validate --machine no-such.toml", 1),
    ("sim validate --repeat 0", 2),
    ("bench micro --workload read --target dir:m", 0),
    ("bench micro --workload read --target dir:no-such", 1),
    ("bench fxmark --workload DRBL --target dir:m", 0),
    ("bench fxmark --workload DRBL --target dir:no-such", 1),
    (
        "bench filebench --personality varmail --files 20 --workers 1 --target dir:m",
        0,
    ),
    (
        "bench filebench --personality varmail --target dir:no-such",
        1,
    ),
    (
        "bench aim7 --users 1 --file-kib 16 --mix shared --target dir:m",
        0,
    ),
    ("bench aim7 --target dir:no-such", 1),
    (
        "bench compare --paper blk-mq --figure 001-3 --threads 1 --seconds 0.01 --repeat 3",
        0,
    ),
    ("bench compare --paper zjournal --figure 000-99", 1),
    ("bench aged --full 10 --churn 10 --target dir:no-such", 1),
    ("bench directory --target dir:no-such", 1),
    ("bench journal --device no-such", 1),
    ("bench checkpoint --policy nonsense", 1),
    ("bench buffered --policy nonsense", 1),
    ("bench tpcc --trace-file no-such", 1),
    ("bench recovery --size-mib 4 --threads 1 --logs fsyncs", 0),
    ("bench blk --device null --seconds 0.01", 0),
    ("bench blk --device no-such", 1),
    ("bench mount --options nonsense", 1),
    ("bench locks --range-lock segment --cores 1", 0),
    ("bench device --target dir:no-such", 1),
    ("blk analyze --device null --cores 1 --seconds 0.01", 0),
    ("blk analyze --device no-such", 1),
    ("blk trace run --device null --seconds 0.01", 0),
    ("blk trace run --device no-such", 1),
    ("blk trace blkparse no-such", 1),
    ("blk trace kernel no-such --seconds 0.01", 1),
    ("blk export --ublk --device no-such", 1),
];

/// What a case is not made of: it takes long, another machine, or a mistake in dure.
const UNMET: &[(&str, &[u8])] = &[
    ("top", &[0]),
    ("sim conflicts", &[0, 1]),
    ("sim explain", &[1]),
    ("sim scale", &[0]),
    ("sim calibrate", &[0, 1]),
    ("sim validate", &[0]),
    ("bench aged", &[0]),
    ("bench directory", &[0]),
    ("bench journal", &[0]),
    ("bench checkpoint", &[0]),
    ("bench buffered", &[0]),
    ("bench tpcc", &[0]),
    ("bench recovery", &[1]),
    ("bench mount", &[0]),
    ("bench locks", &[1]),
    ("bench device", &[0]),
    ("blk trace blkparse", &[0]),
    ("blk trace kernel", &[0]),
    ("blk export", &[0]),
];

/// A volume `v.img`, one cut short, one without its first superblock, one without its header, one of
/// zeros, a file and an empty directory.
fn place() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let whole = volume(folder.path());
    let path = |name: &str| folder.path().join(name);
    let copy = |name: &str| {
        fs::copy(&whole, path(name)).unwrap();
        File::options().write(true).open(path(name)).unwrap()
    };
    copy("short.img").set_len(8 << 20).unwrap();
    copy("bad.img").write_at(&[0; 4096], 0).unwrap();
    copy("broken.img")
        .write_at(&[0; 4 * 4096], 2 * 4096)
        .unwrap();
    let zero = File::create(path("zero.img")).unwrap();
    zero.set_len(64 << 20).unwrap();
    fs::write(path("file"), "hello").unwrap();
    fs::create_dir(path("m")).unwrap();
    folder
}

/// Runs a line of words in `folder`.
fn ends(folder: &Path, line: &str) -> Output {
    let (words, input) = line.split_once(" < ").unwrap_or((line, ""));
    let mut program = program();
    program.args(words.split_whitespace()).current_dir(folder);
    if !input.is_empty() {
        program.stdin(File::open(folder.join(input)).unwrap());
    }
    let output = program.output().unwrap();
    if words == "send v.img sent" {
        fs::write(folder.join("sent"), &output.stdout).unwrap();
    }
    output
}

/// The command of a line: its longest beginning that has a page.
fn command_of(line: &str) -> &str {
    let pages = manual::pages().map(|page| page.command);
    let begins = |command: &&str| line == *command || line.starts_with(&format!("{command} "));
    let found = pages.filter(begins).max_by_key(|command| command.len());
    found.unwrap_or_else(|| panic!("{line}: no page"))
}

/// A bench measures as little as it can.
fn shortened(line: &str) -> String {
    let measures = ["micro", "fxmark", "filebench", "aim7", "locks"];
    let short = " --milliseconds 5 --warm-up 1 --repeat 1 --cores 1";
    match line.split(' ').nth(1) {
        Some(bench) if line.starts_with("bench ") && measures.contains(&bench) => {
            format!("{line}{short}")
        }
        _ => line.to_owned(),
    }
}

/// The statuses that a page tells of.
fn told(command: &str) -> BTreeSet<u8> {
    let page = manual::of(command).unwrap();
    page.status.iter().map(|(status, _)| *status).collect()
}

fn is_group(command: &str) -> bool {
    let all = manual::command();
    let found = command
        .split(' ')
        .try_fold(&all, |above, name| above.find_subcommand(name));
    found.unwrap().has_subcommands()
}

#[test]
fn every_command_ends_as_its_manual_says() {
    let folder = place();
    // An undo file is on another file system than the volume, where there is one.
    let shared = Path::new("/dev/shm");
    let undo = tempfile::tempdir_in(if shared.is_dir() {
        shared
    } else {
        folder.path()
    });
    let undo = undo.unwrap();
    let mut met: BTreeMap<&str, BTreeSet<u8>> = BTreeMap::new();
    let mut wrong = Vec::new();
    let mut meet = |line: &'static str, expected: u8| {
        let command = command_of(line);
        let file = text(undo.path()).to_owned() + "/undo.file";
        let output = ends(folder.path(), &shortened(line).replace("undo.file", &file));
        let (code, why) = (output.status.code(), errors(&output));
        if code != Some(i32::from(expected)) {
            wrong.push(format!("{line}: {code:?}, not {expected}: {why}"));
        }
        assert!(told(command).contains(&expected), "{line}: not in its page");
        // Whoever fails says why, and whoever is right does not complain.
        assert!(
            expected == 0 || !why.is_empty() || expected == 4 || command == "run",
            "{line}: no word"
        );
        met.entry(command).or_default().insert(expected);
    };
    CASES.iter().for_each(|(line, status)| meet(line, *status));
    if can_mount() {
        meet("run v.img -- true", 0);
        meet("run v.img -- false", 1);
        meet("mount v.img m", 0);
        meet("top --once v.img", 0);
        fs::create_dir(folder.path().join("then")).unwrap();
        meet("snapshot create m shot", 0);
        meet("snapshot mount m shot then", 0);
        meet("umount then", 0);
        meet("scrub start --wait m", 0);
        meet("scrub status m", 0);
        meet("scrub pause m", 0);
        meet("umount m", 0);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for page in manual::pages() {
        let seen = met.entry(page.command).or_default();
        seen.extend(of_every_command(page.command));
        let unmet = UNMET.iter().filter(|(command, _)| *command == page.command);
        let unmet = unmet.flat_map(|(_, statuses)| *statuses).copied();
        let by_what_it_is: &[u8] = match page.command {
            "run" if can_mount() => &[128],
            "run" => &[0, 1, 128],
            "mount" | "umount" | "snapshot mount" | "scrub pause" if !can_mount() => &[0],
            // `scrub` has damage.
            "scrub start" | "scrub status" => &[0, 1, 4],
            // The commands below it have these.
            "scrub" => &[0, 1, 4, 8],
            group if is_group(group) => &[0, 1],
            _ => &[],
        };
        let missing: BTreeSet<u8> = &told(page.command) - seen;
        let excused: BTreeSet<u8> = unmet.chain(by_what_it_is.iter().copied()).collect();
        assert!(
            missing.is_subset(&excused),
            "{}: {missing:?} is not met",
            page.command
        );
    }
}

/// Help and wrong arguments.
fn of_every_command(command: &str) -> BTreeSet<u8> {
    let line = |more: &str| format!("{command} {more}");
    let code = |line: &str| ends(Path::new("/"), line).status.code();
    let help = code(&line("--help"));
    assert_eq!(help, Some(0), "{command} --help");
    let wrong = code(&line("--no-such-option"));
    let usage = match command.split(' ').next() {
        Some("check" | "scrub") => 16,
        _ => 2,
    };
    assert_eq!(wrong, Some(usage), "{command} --no-such-option");
    if is_group(command) {
        assert_eq!(code(command), Some(usage), "{command}");
    }
    BTreeSet::from([u8::try_from(usage).unwrap(), CLOSED])
}
