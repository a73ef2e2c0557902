//! Power cuts under transactions: a recorded device is cut at every commit and between, with writes
//! lost in any subset. What was acknowledged is there, and no transaction in part.

use std::path::Path;

use dure::{FormatOptions, MountOptions, Volume};
use dure_block::crash::{CrashImages, Selection};
use dure_block::ram::RamDevice;
use dure_block::record::RecordDevice;
use dure_block::share;
use dure_sync::Arc;

use crate::library::{Connection, open};

const BLOCKS: u64 = 4096;
const TRANSACTIONS: u64 = 12;

/// Transactions recorded on a device.
struct Run {
    images: CrashImages,
    /// Steps by which a transaction was acknowledged, in order.
    acknowledged: Vec<u64>,
}

fn connect(folder: &Path) -> Option<Connection> {
    let uri = format!("file:{}/v.img/db?vfs=dure", folder.display());
    Some(open(&uri)?.unwrap())
}

/// Transaction `n` changes two tables and an index; some of them grow, some spill pages before they
/// commit.
fn transaction(n: u64) -> String {
    format!(
        "BEGIN; INSERT INTO entries VALUES({n}, hex(randomblob({})), zeroblob({}));
         UPDATE entries SET payload = hex(randomblob(40)) WHERE n % 3 = {n} % 3;
         DELETE FROM entries WHERE n = {n} - 9;
         UPDATE total SET last = {n}; COMMIT",
        20 + n * 37 % 90,
        n * 5003 % 13_000
    )
}

/// Runs the transactions; `None` without SQLite.
fn record(folder: &Path, pragmas: &str) -> Option<Run> {
    let ram = Arc::new(RamDevice::new("disk", BLOCKS));
    let made = Volume::create_on(
        share(Arc::clone(&ram)),
        &FormatOptions::default(),
        MountOptions::default(),
    );
    made.unwrap().close().unwrap();
    let base = ram.snapshot();
    let device = RecordDevice::new(share(ram));
    let log = device.log();
    let volume = Volume::open_on(share(device), MountOptions::default()).unwrap();
    std::fs::write(folder.join("v.img"), b"").unwrap();
    let lent = dure_sqlite::lend(folder.join("v.img"), &volume).unwrap();
    let database = connect(folder)?;
    database.exec(&format!(
        "PRAGMA cache_size=4; {pragmas};
         CREATE TABLE entries(n INTEGER PRIMARY KEY, payload, grown);
         CREATE INDEX by_payload ON entries(payload);
         CREATE TABLE total(last); INSERT INTO total VALUES(0)"
    ));
    let mut acknowledged = vec![log.step()];
    for n in 1..=TRANSACTIONS {
        database.exec(&transaction(n));
        acknowledged.push(log.step());
    }
    let images = CrashImages::new(base, &log);
    drop((database, lent));
    Some(Run {
        images,
        acknowledged,
    })
}

/// The last transaction that is there after a cut, if the database is whole.
fn recovered(folder: &Path, volume: &Volume) -> Result<u64, String> {
    let lent = dure_sqlite::lend(folder.join("v.img"), volume).unwrap();
    let database = connect(folder).expect("it was there before");
    let whole = database
        .try_exec("PRAGMA integrity_check")
        .map_err(|wrong| format!("{wrong:?}"))?;
    if whole != ["ok"] {
        return Err(format!("integrity_check: {whole:?}"));
    }
    let numbers =
        "SELECT last, (SELECT max(n) FROM entries), (SELECT count(*) FROM entries) FROM total";
    // Before the tables are there.
    let numbers = database.try_exec(numbers).unwrap_or_default();
    drop((database, lent));
    let Some(numbers) = numbers.first() else {
        return Ok(0);
    };
    let numbers: Vec<u64> = numbers.split('|').map(|n| n.parse().unwrap_or(0)).collect();
    let [last, max, count] = numbers[..] else {
        return Err(format!("{numbers:?}"));
    };
    match max == last && count == last.min(9) {
        true => Ok(last),
        false => Err(format!("a transaction in part: {numbers:?}")),
    }
}

/// Cuts a run at commits and between them; the first state that lost something.
fn cut(folder: &Path, run: &Run, between: u64) -> Result<usize, String> {
    let mut steps = run.acknowledged.clone();
    for pair in run.acknowledged.windows(2) {
        let (from, to) = (pair[0], pair[1]);
        steps.extend((1..between).map(|part| from + (to - from) * part / between));
    }
    steps.sort_unstable();
    steps.dedup();
    let mut states = 0;
    for step in steps {
        let point = run.images.at(step);
        let promised = run.acknowledged.iter().filter(|at| **at <= step).count();
        let promised = u64::try_from(promised.saturating_sub(1)).unwrap();
        let selection = Selection {
            exhaustive_max: 1,
            random: 3,
            seed: step,
            ..Selection::default()
        };
        for choice in point.choices(selection) {
            let device = share(point.image(&choice));
            let state = |what: String| format!("step {step}, writes {choice}: {what}");
            let volume = Volume::open_on(device, MountOptions::default());
            let volume = volume.map_err(|error| state(error.to_string()))?;
            let there = recovered(folder, &volume).map_err(state)?;
            if !(promised..=promised + 1).contains(&there) {
                return Err(state(format!("{promised} acknowledged, {there} there")));
            }
            states += 1;
        }
    }
    Ok(states)
}

#[test]
fn a_power_cut_loses_no_committed_transaction() {
    for pragmas in [
        "PRAGMA journal_mode=wal; PRAGMA synchronous=full; PRAGMA wal_autocheckpoint=20",
        "PRAGMA journal_mode=delete; PRAGMA synchronous=extra",
        "PRAGMA journal_mode=truncate; PRAGMA synchronous=full",
        "PRAGMA journal_mode=persist; PRAGMA synchronous=full",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let Some(run) = record(folder.path(), pragmas) else {
            return;
        };
        match cut(folder.path(), &run, 6) {
            Ok(states) => assert!(states > 100, "{pragmas}: {states} states"),
            Err(what) => panic!("{pragmas}: {what}"),
        }
    }
}

#[test]
fn canary_a_power_cut_loses_what_was_not_synced() {
    let folder = tempfile::tempdir().unwrap();
    let pragmas = "PRAGMA journal_mode=wal; PRAGMA synchronous=off";
    let Some(run) = record(folder.path(), pragmas) else {
        return;
    };
    let lost = cut(folder.path(), &run, 2).unwrap_err();
    assert!(lost.contains("acknowledged"), "{lost}");
}
