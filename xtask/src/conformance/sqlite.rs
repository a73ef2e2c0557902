//! SQLite in its journal modes, with kills of the mount server; then by the extension.
//!
//! **Problem.** A database relies on fsync, truncate, unlink and locks more than any other program.
//! **Structure.** Per mode: a workload to its end, then rounds of a workload that is cut off. Each
//! transaction is acknowledged on the host's file system. **Invariants.** `integrity_check` finds
//! nothing, the two tables of a transaction agree, and every acknowledged transaction is there.
//! **Crash.** SIGKILL to the server.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dure_sync::thread;

use super::Cx;
use super::mount::Volume;
use super::profile::Profile;
use super::report::Report;
use super::tools::{self, Needs};
use crate::cargo;

pub(crate) const NEEDS: Needs = Needs {
    mount: true,
    crates: &[],
    programs: &[("sqlite3", "sqlite3")],
};

const LIMIT: Duration = Duration::from_secs(300);
/// More transactions than a round lasts for.
const ENDLESS: u64 = 100_000;

/// Journal mode, and the `synchronous` that makes a commit durable in it: after a deleted journal
/// only EXTRA syncs the directory.
const MODES: [(&str, &str); 4] = [
    ("wal", "full"),
    ("delete", "extra"),
    ("truncate", "full"),
    ("persist", "full"),
];

pub(crate) fn run(cx: &Cx, report: &mut Report) -> Result<()> {
    let mut volume = Volume::mounted(cx, "sqlite")?;
    databases(cx, &mut volume, false, report);
    report.case("check", volume.close());
    // The extension opens volumes in one file.
    if cx.profile == Profile::Disk {
        let extension = cargo::build_extension()?;
        for (mode, _) in MODES {
            let went = by_extension(&volume, &extension, mode);
            report.case(&format!("{mode}: by the extension"), went);
        }
        report.case("check after the extension", volume.check());
    }
    Ok(())
}

/// A database in each mode on a volume that is mounted, or that each program opens under `dure run`.
pub(crate) fn databases(cx: &Cx, volume: &mut Volume, under_run: bool, report: &mut Report) {
    let (transactions, rounds) = if cx.quick { (300, 1) } else { (3000, 5) };
    for (mode, synchronous) in MODES {
        let database = Database {
            mode,
            synchronous,
            name: format!("{mode}.db"),
            under_run,
        };
        let mut acknowledged = 0;
        let whole = database.whole(volume, transactions);
        let went = whole.map(|last| acknowledged = last);
        if !report.case(&format!("{mode}: workload"), went) {
            continue;
        }
        for round in 1..=rounds {
            let cut = database.cut_off(volume, acknowledged, round);
            let name = format!("{mode}: kill {round}");
            let went = cut.map(|last| acknowledged = last);
            if !report.case(&name, went) {
                break;
            }
        }
    }
}
/// One more transaction on a database of the mount, without it.
fn by_extension(volume: &Volume, extension: &Path, mode: &str) -> Result<()> {
    let script = volume.scratch().join("extension.sql");
    let lines = format!(
        ".load {}
         .open file:{}/{mode}.db?vfs=dure
         PRAGMA integrity_check;
         BEGIN IMMEDIATE;
         INSERT INTO entries SELECT max(n) + 1, 'by the extension', NULL FROM entries;
         UPDATE total SET count = count + 1, last = last + 1;
         COMMIT;
         SELECT count(*) = max(n) AND max(n) = (SELECT last FROM total) FROM entries;\n",
        extension.display(),
        volume.image().display()
    );
    // A line with a dot begins with it.
    fs::write(&script, lines.replace("\n         ", "\n"))?;
    let mut command = tools::command("sqlite3");
    command.args(["-batch", "-bail", ":memory:"]);
    let out = volume.steps.start(command, Some(&script))?;
    let out = out.wait(LIMIT)?.success()?;
    ensure!(out == "ok\n1\n", "sqlite3 said: {out}");
    Ok(())
}

struct Database {
    mode: &'static str,
    synchronous: &'static str,
    name: String,
    /// Each program opens the volume, and is killed itself.
    under_run: bool,
}

impl Database {
    /// A workload that runs to its end; the number of the last transaction.
    fn whole(&self, volume: &Volume, transactions: u64) -> Result<u64> {
        let schema = "CREATE TABLE entries(n INTEGER PRIMARY KEY, payload TEXT, grown BLOB);
            CREATE INDEX by_payload ON entries(payload);
            CREATE TABLE total(count INTEGER, last INTEGER);
            INSERT INTO total VALUES(0, 0);\n";
        let script = volume.scratch().join("whole.sql");
        fs::write(&script, schema.to_owned() + &workload(1, transactions))?;
        let running = volume.steps.start(self.sqlite3(volume), Some(&script))?;
        let out = running.wait(LIMIT)?.success()?;
        self.expect_mode(&out)?;
        let last = last_number(&out).context("no acknowledged transaction")?;
        ensure!(
            last == transactions,
            "{last} of {transactions} were acknowledged"
        );
        self.verify(volume, last, 0)
    }

    /// A workload that the server's end cuts off; the number of the last transaction.
    fn cut_off(&self, volume: &mut Volume, before: u64, round: u64) -> Result<u64> {
        let script = volume.scratch().join("endless.sql");
        fs::write(&script, workload(before + 1, before + ENDLESS))?;
        let mut running = volume.steps.start(self.sqlite3(volume), Some(&script))?;
        thread::sleep(Duration::from_millis(700 + 370 * round));
        running.expect_running("the workload")?;
        match self.under_run {
            true => running.kill_child("sqlite3")?,
            false => volume.kill()?,
        }
        let done = running.wait(LIMIT)?;
        ensure!(
            !done.status.success(),
            "sqlite3 saw no error though it, or the server, was gone"
        );
        self.expect_mode(&done.out)?;
        let mut acknowledged = last_number(&done.out).unwrap_or(before);
        let mut open = 1;
        if self.mode == "delete" && !self.under_run {
            // When the server is gone, SQLite cannot open the directory, treats that as a directory
            // that cannot be synced, and reports success: only the next success proves the sync.
            acknowledged -= 1;
            open += 1;
        }
        ensure!(
            acknowledged > before,
            "nothing was acknowledged before the kill{}",
            done.tail()
        );
        volume.check().context("before the remount")?;
        if !self.under_run {
            volume.mount()?;
        }
        self.verify(volume, acknowledged, open)
    }

    /// Everything acknowledged is there, and at most `open` transactions more.
    fn verify(&self, volume: &Volume, acknowledged: u64, open: u64) -> Result<u64> {
        let script = volume.scratch().join("verify.sql");
        fs::write(
            &script,
            "PRAGMA integrity_check;
             SELECT count(*), max(n), (SELECT count FROM total), (SELECT last FROM total)
             FROM entries;\n",
        )?;
        let running = volume.steps.start(self.sqlite3(volume), Some(&script))?;
        let out = running.wait(LIMIT)?.success()?;
        self.expect_mode(&out)?;
        let mut lines = out.lines().rev();
        let numbers = lines.next().context("no counts")?;
        ensure!(lines.next() == Some("ok"), "integrity_check: {out}");
        let numbers: Vec<u64> = numbers
            .split('|')
            .map(|number| number.parse().with_context(|| numbers.to_owned()))
            .collect::<Result<_>>()?;
        let last = numbers[1];
        ensure!(
            numbers.iter().all(|number| *number == last),
            "entries and total disagree (count, max, total.count, total.last): {numbers:?}"
        );
        ensure!(
            last >= acknowledged,
            "{acknowledged} transactions were acknowledged, {last} are there"
        );
        ensure!(
            last <= acknowledged + open,
            "{acknowledged} transactions were acknowledged, but {last} are there"
        );
        Ok(last)
    }

    /// sqlite3 in this mode, which it prints first.
    fn sqlite3(&self, volume: &Volume) -> std::process::Command {
        let mut command = tools::command("sqlite3");
        command.args(["-batch", "-bail", "-cmd", ".timeout 1000"]);
        for pragma in [
            ("journal_mode", self.mode),
            ("synchronous", self.synchronous),
        ] {
            command
                .arg("-cmd")
                .arg(format!("PRAGMA {}={}", pragma.0, pragma.1));
        }
        command.arg(volume.root().join(&self.name));
        match self.under_run {
            true => volume.under_run(&command),
            false => command,
        }
    }

    /// An error if sqlite3 did not go into the mode.
    fn expect_mode(&self, out: &str) -> Result<()> {
        let said = out.lines().next().unwrap_or_default();
        ensure!(
            said == self.mode,
            "sqlite3 is in the journal mode '{said}', not '{}'",
            self.mode
        );
        Ok(())
    }
}

/// Transactions `first..=last`, each followed by a line with its number.
fn workload(first: u64, last: u64) -> String {
    let mut script = String::new();
    for n in first..=last {
        let old = n * 7919 % n;
        writeln!(
            script,
            "BEGIN IMMEDIATE;\
             INSERT INTO entries VALUES({n}, hex(randomblob(100)), NULL);\
             UPDATE entries SET payload = hex(randomblob(60)), grown = zeroblob(3 * {old} % 9000) \
             WHERE n = {old};\
             UPDATE total SET count = count + 1, last = {n};\
             COMMIT;SELECT {n};"
        )
        .expect("writing to a string");
    }
    script
}

/// The last line that is a number.
fn last_number(out: &str) -> Option<u64> {
    out.lines().rev().find_map(|line| line.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledgements_are_read() {
        assert_eq!(last_number("wal\n1\n2\nError: disk I/O error\n"), Some(2));
        assert_eq!(last_number("wal\n"), None);
        assert_eq!(workload(3, 4).lines().count(), 2);
    }
}
