//! PostgreSQL on a mount, and a kill of the server under pgbench.
//!
//! **Problem.** A database with checksums of its own, a log, and many processes. **Structure.**
//! initdb with checksums, pgbench, a kill in the middle, recovery, comparison. **Invariants.** The
//! balances of the three tables and the history agree; the history has every acknowledged
//! transaction; pg_amcheck and pg_checksums find nothing. **Crash.** SIGKILL to the mount server.

use std::fs;
use std::os::unix::fs::chown;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use dure_sync::thread;
use rustix::process::Signal;

use super::Cx;
use super::mount::Volume;
use super::report::Report;
use super::step::Running;
use super::tools::{self, Needs};

pub(crate) const NEEDS: Needs = Needs {
    mount: true,
    crates: &[],
    programs: &[
        ("initdb", "postgresql"),
        ("postgres", "postgresql"),
        ("pgbench", "postgresql"),
        ("pg_amcheck", "postgresql"),
        ("pg_checksums", "postgresql"),
        ("setpriv", "util-linux"),
    ],
};

const LIMIT: Duration = Duration::from_secs(300);
/// How long the database may take to start, recovery included, or to stop.
const START: Duration = Duration::from_secs(120);
const USER: &str = "postgres";

pub(crate) fn run(cx: &Cx, report: &mut Report) -> Result<()> {
    let (uid, gid) = user()?;
    let mut volume = Volume::mounted(cx, "postgres")?;
    let database = Database {
        data: volume.root().join("data"),
        socket: volume.scratch().join("socket"),
        uid,
        gid,
    };
    for folder in [&database.data, &database.socket] {
        fs::create_dir(folder)?;
        chown(folder, Some(uid), Some(gid))?;
    }
    if !report.case("initdb", database.initdb(&volume)) {
        return Ok(());
    }
    let seconds = if cx.quick { 5 } else { 20 };
    if !report.case("pgbench", database.first_run(&volume, seconds)) {
        return Ok(());
    }
    for round in 1..=if cx.quick { 1 } else { 3 } {
        let name = format!("kill {round} under pgbench");
        if !report.case(&name, database.cut_off(&mut volume, round)) {
            return Ok(());
        }
    }
    let sums = database.program("pg_checksums", &["--check", "-D"]);
    let sums = volume.steps.run(with(sums, &database.data), LIMIT);
    report.case("pg_checksums", sums.map(drop));
    report.case("check", volume.close());
    Ok(())
}

struct Database {
    data: PathBuf,
    socket: PathBuf,
    uid: u32,
    gid: u32,
}

impl Database {
    /// A program of PostgreSQL, as its user.
    fn program(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = tools::command("setpriv");
        command
            .arg(format!("--reuid={}", self.uid))
            .arg(format!("--regid={}", self.gid))
            .arg("--clear-groups")
            .arg(tools::find(name).unwrap_or_else(|| PathBuf::from(name)))
            .args(arguments)
            .env("PGHOST", &self.socket)
            .env("PGUSER", USER)
            .env("LC_ALL", "C.UTF-8")
            .current_dir("/");
        command
    }

    fn initdb(&self, volume: &Volume) -> Result<()> {
        let arguments = ["--data-checksums", "--auth=trust", "--encoding=UTF8", "-D"];
        let initdb = with(self.program("initdb", &arguments), &self.data);
        volume.steps.run(initdb, LIMIT)?;
        let socket = self.socket.display();
        let settings = format!(
            "listen_addresses = ''\nunix_socket_directories = '{socket}'\nfsync = on\n\
             synchronous_commit = on\nfull_page_writes = on\nmax_wal_size = '96MB'\n\
             checkpoint_timeout = '30s'\nrestart_after_crash = off\n"
        );
        fs::write(self.data.join("postgresql.auto.conf"), settings)?;
        Ok(())
    }

    /// Starts the server; it answers when this returns.
    fn start(&self, volume: &Volume) -> Result<Running> {
        // Left by a server that was killed; its process is certainly gone.
        let _ = fs::remove_file(self.data.join("postmaster.pid"));
        let command = with(self.program("postgres", &["-D"]), &self.data);
        let mut server = volume.steps.start(command, None)?;
        let tries = START.as_millis() / 200;
        for _ in 0..tries {
            thread::sleep(Duration::from_millis(200));
            if !server.is_running()? {
                let done = server.wait(START)?;
                bail!("postgres ended with {}{}", done.status, done.tail());
            }
            let ready = self.program("pg_isready", &["-q"]);
            if volume.steps.finish(ready, LIMIT)?.status.success() {
                return Ok(server);
            }
        }
        bail!("postgres does not answer after {START:?}")
    }

    /// Stops the server as an administrator would ("fast").
    fn stop(&self, server: Running) -> Result<()> {
        server.signal_leader(Signal::INT);
        let done = server.wait(START)?;
        ensure!(
            done.status.success(),
            "postgres: {}{}",
            done.status,
            done.tail()
        );
        Ok(())
    }

    fn first_run(&self, volume: &Volume, seconds: u32) -> Result<()> {
        let server = self.start(volume)?;
        let create = self.program("createdb", &["bench"]);
        volume.steps.run(create, LIMIT)?;
        let fill = self.program("pgbench", &["-i", "-q", "-s", "5", "bench"]);
        volume.steps.run(fill, LIMIT)?;
        let seconds = seconds.to_string();
        let bench = ["-n", "-c", "2", "-T", &seconds, "bench"];
        let out = volume.steps.run(self.program("pgbench", &bench), LIMIT)?;
        let processed = processed(&out)?;
        let history = self.consistent(volume)?;
        ensure!(
            history == processed,
            "{processed} transactions were acknowledged, {history} are in the history"
        );
        self.amcheck(volume)?;
        self.stop(server)?;
        let server = self.start(volume)?;
        let again = self.consistent(volume)?;
        ensure!(
            again == history,
            "history after a restart: {again}, not {history}"
        );
        self.stop(server)
    }

    /// A kill under load, recovery, and what is left.
    fn cut_off(&self, volume: &mut Volume, round: u64) -> Result<()> {
        let server = self.start(volume)?;
        let before = self.consistent(volume)?;
        let bench = ["-n", "-c", "2", "-T", "60", "bench"];
        let mut bench = volume.steps.start(self.program("pgbench", &bench), None)?;
        thread::sleep(Duration::from_millis(3000 + 700 * round));
        bench.expect_running("pgbench")?;
        volume.kill()?;
        let bench = bench.wait(START)?;
        ensure!(
            !bench.status.success(),
            "pgbench saw no error though the file system was gone"
        );
        // The database stops by itself, or is made to: it can write nothing any more.
        server.signal(Signal::QUIT);
        thread::sleep(Duration::from_millis(500));
        server.signal(Signal::KILL);
        server.wait(START)?;
        let acknowledged = processed(&bench.out)?;
        ensure!(
            acknowledged > 0,
            "nothing was acknowledged before the kill{}",
            bench.tail()
        );

        volume.check().context("before the remount")?;
        volume.mount()?;
        let server = self.start(volume)?;
        let history = self.consistent(volume)?;
        ensure!(
            history >= before + acknowledged,
            "{before} transactions before and {acknowledged} acknowledged, {history} are there"
        );
        // Each client may have had one commit without an answer.
        ensure!(
            history <= before + acknowledged + 2,
            "{before} transactions before and {acknowledged} acknowledged, but {history} are there"
        );
        self.amcheck(volume)?;
        self.stop(server)
    }

    /// That the tables agree; the number of rows in the history.
    fn consistent(&self, volume: &Volume) -> Result<u64> {
        let query = "SELECT (SELECT coalesce(sum(abalance), 0) FROM pgbench_accounts), \
                     (SELECT coalesce(sum(tbalance), 0) FROM pgbench_tellers), \
                     (SELECT coalesce(sum(bbalance), 0) FROM pgbench_branches), \
                     (SELECT coalesce(sum(delta), 0) FROM pgbench_history), \
                     (SELECT count(*) FROM pgbench_history)";
        let psql = self.program("psql", &["-X", "-A", "-t", "-c", query, "bench"]);
        let out = volume.steps.run(psql, LIMIT)?;
        let numbers: Vec<i64> = out
            .trim()
            .split('|')
            .map(|number| number.parse().with_context(|| out.clone()))
            .collect::<Result<_>>()?;
        let [accounts, tellers, branches, deltas, rows] = numbers[..] else {
            bail!("five numbers were expected: {out}");
        };
        ensure!(
            accounts == tellers && tellers == branches && branches == deltas,
            "the sums differ: accounts {accounts}, tellers {tellers}, branches {branches}, \
             history {deltas}"
        );
        Ok(u64::try_from(rows)?)
    }

    fn amcheck(&self, volume: &Volume) -> Result<()> {
        let arguments = ["--install-missing", "--heapallindexed", "-d", "bench"];
        let amcheck = self.program("pg_amcheck", &arguments);
        volume.steps.run(amcheck, LIMIT).map(drop)
    }
}

fn with(mut command: Command, path: &PathBuf) -> Command {
    command.arg(path);
    command
}

/// `number of transactions actually processed: 1234`, also of a run that was cut off.
fn processed(out: &str) -> Result<u64> {
    let line = out
        .lines()
        .find(|line| line.contains("transactions actually processed:"))
        .with_context(|| format!("pgbench does not say what it did: {out}"))?;
    let number = line.rsplit(": ").next().unwrap_or_default();
    let number = number.split('/').next().unwrap_or_default().trim();
    number.parse().with_context(|| line.to_owned())
}

/// The ids of the user that the package makes: PostgreSQL refuses to run as root.
fn user() -> Result<(u32, u32)> {
    let text = fs::read_to_string("/etc/passwd").context("/etc/passwd")?;
    let line = text
        .lines()
        .find(|line| line.split(':').next() == Some(USER))
        .with_context(|| format!("no user {USER}"))?;
    let id = |field| -> Result<u32> {
        let text = line
            .split(':')
            .nth(field)
            .context("a short line in /etc/passwd")?;
        text.parse().with_context(|| line.to_owned())
    };
    Ok((id(2)?, id(3)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledged_transactions_are_read() {
        let out = "x\nnumber of transactions actually processed: 123\ny\n";
        assert_eq!(processed(out).unwrap(), 123);
        assert_eq!(
            processed("number of transactions actually processed: 7/20").unwrap(),
            7
        );
        assert!(processed("nothing").is_err());
    }
}
