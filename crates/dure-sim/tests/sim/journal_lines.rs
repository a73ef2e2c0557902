//! Cache lines that move for a buffered overwrite of a file of the core's own (FxMark's DWOL) and of
//! a page of a shared file (DWOM) with `data=journal`, with each protocol of the journal, on 4 to 16
//! simulated cores with a journal each: see docs/design/protocols/transactions.md.
//!
//! Runs with the sim backend only: `cargo xtask sim -p dure-sim -- sim_journal_lines --nocapture`.
//! Lines are counted, not time.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test prints its table"
)]

use dure_block::overlay::OverlayRam;
use dure_block::ram::Image;
use dure_block::share;
use dure_fs::{Background, FileSystem, FormatOptions, MountOptions, NewInode, Stamp};
use dure_sync::sim::{Config, try_run};
use dure_sync::{Arc, CoreId, thread};

const PAGE: usize = 4096;
/// Bytes from one core's page of a shared file to the next one's.
const REGION: u64 = 64 * 4096;
const CORES: [u16; 3] = [4, 8, 16];
/// At least as many as cores.
const JOURNALS: u32 = 16;
const PROTOCOLS: [&str; 4] = ["single", "per-core", "jbd2", "zjournal"];

/// Whose file a core overwrites.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Load {
    /// Its own.
    Dwol,
    /// All the same.
    Dwom,
}

fn mount(journal: &str) -> FileSystem {
    let mut options = MountOptions {
        background: Background::None,
        cache_bytes: 256 << 20,
        recovery_threads: Some(1),
        ..MountOptions::default()
    };
    for (key, value) in [("journal", journal), ("data", "journal")] {
        assert_eq!(options.set_policy(key, value), Ok(true));
    }
    let medium = share(OverlayRam::new("lines", Arc::new(Image::zeroed(1 << 17))));
    let format = FormatOptions {
        journals: Some(JOURNALS),
        ..FormatOptions::default()
    };
    FileSystem::format(medium.clone(), &format).unwrap();
    FileSystem::open(medium, options).unwrap()
}

/// Lines moved by so many rounds on each core.
fn transfers(journal: &'static str, load: Load, cores: u16, rounds: u64) -> u64 {
    let done = try_run(Config::min_clock(usize::from(cores)), move || {
        let fs = mount(journal);
        let root = fs.root().unwrap();
        let new = NewInode {
            mode: 0o100_644,
            ..NewInode::default()
        };
        let files: Vec<_> = (0..cores)
            .map(|core| {
                let name = format!("file {core}");
                fs.create(&root, name.as_bytes(), &new).unwrap()
            })
            .collect();
        thread::scope(|scope| {
            for core in 0..cores {
                let (fs, files) = (&fs, &files);
                scope.spawn_on(CoreId::new(core), move || {
                    let (file, at) = match load {
                        Load::Dwol => (&files[usize::from(core)], 0),
                        Load::Dwom => (&files[0], u64::from(core) * REGION),
                    };
                    for _ in 0..rounds {
                        fs.write(file, at, &[1; PAGE], Stamp::Set).unwrap();
                    }
                });
            }
        });
    });
    let done = done.unwrap_or_else(|failure| panic!("{failure}"));
    done.report.transfers
}

/// Hundredths of lines moved by a call, once all has been touched.
fn lines_of_a_call(journal: &'static str, load: Load, cores: u16) -> u64 {
    let few = transfers(journal, load, cores, 40);
    let many = transfers(journal, load, cores, 120);
    many.saturating_sub(few) * 100 / (80 * u64::from(cores))
}

fn table(load: Load) -> Vec<[u64; CORES.len()]> {
    println!("| {load:?} | {CORES:?} cores |");
    let mut found = Vec::new();
    for journal in PROTOCOLS {
        let lines = CORES.map(|cores| lines_of_a_call(journal, load, cores));
        let text = lines.map(|lines| format!("{}.{:02}", lines / 100, lines % 100));
        println!("| `{journal}` | {} |", text.join(" | "));
        found.push(lines);
    }
    found
}

/// A page of a file of its own takes write access in the one journal, or in its core's.
#[test]
fn sim_journal_lines_of_private_files() {
    let [single, per_core, jbd2, zjournal] = table(Load::Dwol)[..] else {
        unreachable!("a row per protocol")
    };
    for at in 0..CORES.len() {
        // dure's own log what was written only when it is written back.
        for none in [single, per_core, zjournal] {
            assert!(none[at] < 10, "{} hundredths of lines a call", none[at]);
        }
        let most = per_core[at].max(zjournal[at]).max(10);
        assert!(jbd2[at] >= 10 * most, "{} hundredths", jbd2[at]);
    }
}

/// The lines of the shared file come first, whatever the journal.
#[test]
fn sim_journal_lines_of_a_shared_file() {
    let [_, _, jbd2, zjournal] = table(Load::Dwom)[..] else {
        unreachable!("a row per protocol")
    };
    for at in 0..CORES.len() {
        assert!(jbd2[at] > zjournal[at], "{} cores", CORES[at]);
    }
}
