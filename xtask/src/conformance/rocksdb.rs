//! RocksDB on a volume, through the door in `rocksdb/`: its tools, our tests, kills.
//!
//! **Problem.** A store with logs, tables, hard links and backups of its own, which reads many places
//! at once and reacts to each kind of failure. **Structure.** The door and its tests are compiled for
//! the RocksDB of the system, the tests once more with the address sanitizer; they and Debian's programs
//! run on one volume, which is checked after each. **Invariants.** Every acknowledged key is there.
//! **Crash.** SIGKILL to a program that has the volume open.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use dure_sync::thread;
use rustix::process::Signal;

use super::Cx;
use super::draw::Draw;
use super::mount::Volume;
use super::report::Report;
use super::step::Running;
use super::tools::{self, Needs};
use crate::{cargo, dist};

pub(crate) const NEEDS: Needs = Needs {
    mount: false,
    crates: &[],
    programs: &[
        ("c++", "g++"),
        ("/usr/include/rocksdb/file_system.h", "librocksdb-dev"),
        ("db_bench", "rocksdb-tools"),
        ("ldb", "rocksdb-tools"),
        ("sst_dump", "rocksdb-tools"),
    ],
};

const LIMIT: Duration = Duration::from_secs(300);
const SIZE: &str = "1G";
/// What the address sanitizer is told: RocksDB itself is not compiled with it.
const SANITIZER: &str = "detect_container_overflow=0";

pub(crate) fn run(cx: &Cx, report: &mut Report) -> Result<()> {
    let library = library(&cx.dure)?;
    let volume = Volume::sized(cx, "rocksdb", SIZE)?;
    for sanitized in [false, true] {
        let door = Door::build(&volume, &library, sanitized)?;
        door.tests(cx, report)?;
        if !sanitized {
            door.kills(cx, report)?;
            door.tools(report);
        }
    }
    let stress = std::env::var_os("DURE_DB_STRESS").map(PathBuf::from);
    match stress {
        None => report.note(
            "left out: db_stress, which no package of Debian has (xtask/programs/db_stress.sh makes one, for DURE_DB_STRESS=PROGRAM)".to_owned(),
        ),
        Some(program) => stress_kills(cx, &Door::build(&volume, &library, false)?, &program, report)?,
    }
    Ok(())
}

/// A prefix with libdure: the one that the program under test is installed in, or a new one.
fn library(dure: &Path) -> Result<PathBuf> {
    let prefix = dure.parent().and_then(Path::parent);
    match prefix.filter(|prefix| prefix.join("lib/libdure.so.0").is_file()) {
        Some(prefix) => Ok(prefix.to_owned()),
        None => dist::library_in(&cargo::target().join("rocksdb")),
    }
}

/// The door for RocksDB, and the program of its tests.
struct Door<'v> {
    volume: &'v Volume,
    libraries: PathBuf,
    folder: PathBuf,
    sanitized: bool,
}

impl<'v> Door<'v> {
    /// Compiles both; `library` is a prefix with libdure.
    fn build(volume: &'v Volume, library: &Path, sanitized: bool) -> Result<Self> {
        let name = if sanitized { "sanitized" } else { "door" };
        let folder = volume.scratch().join(name);
        fs::create_dir_all(&folder)?;
        let door = Door {
            volume,
            libraries: library.join("lib"),
            folder,
            sanitized,
        };
        let more: &[&str] = match sanitized {
            true => &["-fsanitize=address,undefined"],
            false => &[],
        };
        let mut build = dist::door(library, &door.folder);
        build.env("CXXFLAGS", more.join(" "));
        volume.steps.run(build, LIMIT)?;
        let tests = cargo::root().join("rocksdb/tests");
        let mut compile = tools::command("c++");
        compile.args(["-std=c++17", "-O1", "-g", "-Wall", "-Wextra", "-Werror"]);
        compile.args(more).arg("-o").arg(door.folder.join("tests"));
        for entry in fs::read_dir(tests)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "cc") {
                compile.arg(path);
            }
        }
        door.link(&mut compile);
        volume.steps.run(compile, LIMIT)?;
        Ok(door)
    }

    /// The words of the page for programs that link with the door, and where it is.
    fn link(&self, compile: &mut Command) {
        compile
            .arg("-L")
            .arg(&self.folder)
            .arg("-Wl,--no-as-needed");
        compile.args(["-ldure_rocksdb", "-lrocksdb", "-lpthread"]);
        compile.arg(format!("-Wl,-rpath-link,{}", self.libraries.display()));
    }

    fn uri(&self) -> String {
        format!("dure://{}", self.volume.image().display())
    }

    /// Where the loader finds the door and libdure.
    fn with_libraries(&self, mut command: Command) -> Command {
        let (own, library) = (self.folder.display(), self.libraries.display());
        command.env("LD_LIBRARY_PATH", format!("{own}:{library}"));
        command.env("ASAN_OPTIONS", SANITIZER);
        command
    }

    /// `tests NAME URI WORD`.
    fn test(&self, name: &str, folder: &str, word: &str) -> Command {
        let mut command = Command::new(self.folder.join("tests"));
        let uri = format!("{}{folder}", self.uri());
        command.arg(name).arg(uri).arg(word);
        self.with_libraries(command)
    }

    /// A program of RocksDB, which loads the door.
    fn program(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = tools::command(name);
        command.arg(format!("--fs_uri={}", self.uri()));
        command.args(arguments);
        command.env("LD_PRELOAD", self.folder.join("libdure_rocksdb.so"));
        self.with_libraries(command)
    }

    fn finish(&self, command: Command) -> Result<String> {
        let out = self.volume.steps.run(command, LIMIT)?;
        self.volume.check()?;
        Ok(out)
    }

    fn tests(&self, cx: &Cx, report: &mut Report) -> Result<()> {
        let suffix = if self.sanitized { ", sanitized" } else { "" };
        let host = self.folder.join("host");
        fs::create_dir_all(&host)?;
        let host = host.to_str().context("a plain name")?;
        for (name, folder) in [
            ("refused", ""),
            ("same", &*format!("/{name}", name = self.name())),
            ("reads", "?options=cache=2M"),
            ("database", ""),
        ] {
            let ended = self.finish(self.test(name, folder, host));
            report.case(&format!("{name}{suffix}"), ended.map(drop));
        }
        report.case(&format!("full{suffix}"), self.full(cx));
        for (how, expected) in [
            ("static", "before at exit"),
            ("fork", "before at exit"),
            ("leak", "before "),
        ] {
            let left = self.leave(how, expected);
            report.case(&format!("exit: {how}{suffix}"), left);
        }
        Ok(())
    }

    fn name(&self) -> &'static str {
        if self.sanitized { "sanitized" } else { "door" }
    }

    /// A volume of its own, which is full.
    fn full(&self, cx: &Cx) -> Result<()> {
        let small = Volume::sized(cx, "rocksdb-full", "128M")?;
        let mut command = Command::new(self.folder.join("tests"));
        command.arg("full");
        command.arg(format!("dure://{}", small.image().display()));
        small.steps.run(self.with_libraries(command), LIMIT)?;
        small.check()
    }

    /// What a process leaves that ends without syncing or closing: all that it wrote.
    fn leave(&self, how: &str, expected: &str) -> Result<()> {
        let mut test = self.test("leave", "", how);
        // A child gives its handles up, with their memory.
        if self.sanitized && how != "static" {
            test.env("ASAN_OPTIONS", format!("{SANITIZER}:detect_leaks=0"));
        }
        self.finish(test)?;
        let mut cat = self.volume.dure("cat");
        cat.arg(self.volume.image()).arg("/left");
        let out = self.volume.steps.run(cat, LIMIT)?;
        ensure!(out == expected, "'{out}' is there, not '{expected}'");
        Ok(())
    }

    /// Kills of a program with synced puts, each behind the last; then one that lies.
    fn kills(&self, cx: &Cx, report: &mut Report) -> Result<()> {
        let mut draw = Draw::new(cx.seed, 0);
        let rounds = if cx.quick { 5 } else { 30 };
        let went = (1..=rounds).try_for_each(|round| {
            let wait = Duration::from_millis(draw.between(300, 1500));
            let lost = self.kill("", wait);
            let lost = lost.with_context(|| format!("kill {round} after {wait:?}"))?;
            ensure!(!lost, "kill {round} after {wait:?} lost acknowledged keys");
            Ok(())
        });
        report.case(&format!("{rounds} kills under synced puts"), went);
        let canary = (1..=5).try_fold(false, |lost, _| {
            anyhow::Ok(lost || self.kill("lies", Duration::from_millis(900))?)
        });
        let canary = canary.and_then(|lost| {
            ensure!(lost, "kills lost nothing of what was not synced");
            Ok(())
        });
        report.case("canary: a program that does not sync", canary);
        Ok(())
    }

    /// Kills a writer after a while; whether something that it acknowledged is missing.
    fn kill(&self, word: &str, wait: Duration) -> Result<bool> {
        let test = self.test("append", "", word);
        let mut writer = self.volume.steps.start(test, None)?;
        thread::sleep(wait);
        writer.expect_running("the writer")?;
        writer.signal(Signal::KILL);
        let said = writer.wait(LIMIT)?.out;
        self.volume.check()?;
        let last = last_keys(&said);
        ensure!(!last.is_empty(), "nothing was acknowledged");
        let verify = self.test("verify", "", &last);
        let done = self.volume.steps.finish(verify, LIMIT)?;
        match done.status.code() {
            Some(0) => Ok(false),
            Some(3) => Ok(true),
            _ => bail!("verify: {}{}", done.status, done.tail()),
        }
    }

    fn tools(&self, report: &mut Report) {
        report.case("the page: programs", self.page_programs());
        report.case("the page: a program of one's own", self.page_program());
        report.case("db_bench", self.bench());
        report.case("ldb, sst_dump", self.ldb());
        report.case("one process at a time", self.second_process());
    }

    /// The lines of the page, on a volume of their own.
    fn page_programs(&self) -> Result<()> {
        let lines = block("\n```sh rocksdb\n", &self.folder.join("page.img"))?;
        let dure = self.volume.dure("mkfs");
        let programs = Path::new(dure.get_program()).parent();
        let programs = programs.context("a path")?.display();
        let path = std::env::var("PATH")?;
        let mut shell = Command::new("sh");
        shell.args(["-e", "-c", &lines]);
        shell.env("PATH", format!("{programs}:{path}"));
        let out = self.volume.steps.run(self.with_libraries(shell), LIMIT)?;
        ensure!(out.ends_with("seed : sown\n"), "the last line says {out}");
        Ok(())
    }

    /// The program of the page, in a `main`.
    fn page_program(&self) -> Result<()> {
        let code = block("\n```cpp\n", &self.volume.image())?;
        let (includes, lines) = code.split_once("\n\n").context("includes, lines")?;
        let source = self.folder.join("page.cc");
        fs::write(
            &source,
            format!(
                "{includes}\n#include <cstdio>\nint main() {{\n{lines}\nputs(status.ToString().c_str());\n\
                 delete db;\nreturn status.ok() ? 0 : 1;\n}}\n"
            ),
        )?;
        let program = self.folder.join("page");
        let mut compile = tools::command("c++");
        compile
            .arg("-std=c++17")
            .arg(source)
            .arg("-o")
            .arg(&program);
        self.link(&mut compile);
        self.volume.steps.run(compile, LIMIT)?;
        self.finish(self.with_libraries(Command::new(program)))
            .map(drop)
    }

    fn bench(&self) -> Result<()> {
        let synced = [
            "--benchmarks=fillsync",
            "--db=/synced",
            "--num=2000",
            "--threads=4",
        ];
        self.finish(self.program("db_bench", &synced))?;
        let benchmarks = "--benchmarks=fillseq,fillrandom,overwrite,compact,readrandom,\
                          multireadrandom,readseq,readreverse,readwhilewriting,seekrandom,\
                          verifychecksum,stats";
        let out = self.finish(self.program(
            "db_bench",
            &[
                benchmarks,
                "--db=/bench",
                "--num=50000",
                "--threads=2",
                "--multiread_batched",
                "--async_io",
                "--verify_checksum",
                "--cache_size=1048576",
                "--write_buffer_size=2097152",
            ],
        ))?;
        ensure!(out.contains("readwhilewriting"), "it did not end: {out}");
        Ok(())
    }

    /// A database by ldb: keys, a checkpoint, a backup in the volume, restored, and one on the host.
    fn ldb(&self) -> Result<()> {
        let ldb = |arguments: &[&str]| self.finish(self.program("ldb", arguments));
        let uri = self.uri();
        let at = |uri: &str| format!("--backup_fs_uri={uri}");
        ldb(&["--db=/ldb", "--create_if_missing", "put", "key", "sown"])?;
        ldb(&["--db=/ldb", "compact"])?;
        ldb(&["--db=/ldb", "put", "other", "reaped"])?;
        ldb(&[
            "--db=/ldb",
            "checkpoint",
            "--checkpoint_dir=/ldb-checkpoint",
        ])?;
        ldb(&["--db=/ldb", &at(&uri), "--backup_dir=/ldb-backup", "backup"])?;
        ldb(&[
            "--db=/ldb-new",
            &at(&uri),
            "--backup_dir=/ldb-backup",
            "restore",
        ])?;
        for name in ["--db=/ldb", "--db=/ldb-checkpoint", "--db=/ldb-new"] {
            let out = ldb(&[name, "scan"])?;
            ensure!(out == "key : sown\nother : reaped\n", "{name}: {out}");
        }
        let out =
            self.finish(self.program("sst_dump", &["--file=/ldb-checkpoint", "--command=check"]))?;
        ensure!(out.contains("block-based"), "sst_dump: {out}");
        Ok(())
    }

    /// While a process has the volume open, another one is refused, with the reason.
    fn second_process(&self) -> Result<()> {
        let writer = self.volume.steps.start(self.test("append", "", ""), None)?;
        thread::sleep(Duration::from_millis(700));
        let refused = self.program("ldb", &["--db=/killed", "scan"]);
        let done = self.volume.steps.finish(refused, LIMIT)?;
        writer.signal(Signal::KILL);
        writer.wait(LIMIT)?;
        let said = format!("{}{}", done.out, done.err());
        ensure!(
            !done.status.success() && said.contains("in use"),
            "ldb: {}: {said}",
            done.status
        );
        Ok(())
    }
}

/// The first block of the page that begins so, with `image` as its volume.
fn block(fence: &str, image: &Path) -> Result<String> {
    let page = fs::read_to_string(cargo::root().join("docs/user/rocksdb.md"))?;
    let (_, rest) = page
        .split_once(fence)
        .context("the page has such a block")?;
    let (block, _) = rest.split_once("```").context("it ends")?;
    Ok(block.replace("/srv/v.img", &image.display().to_string()))
}

/// The last number that each of four threads has said, with commas between.
fn last_keys(said: &str) -> String {
    let mut last = [None; 4];
    // The last line may be cut.
    let whole = said.rfind('\n').map_or("", |end| &said[..end]);
    for key in whole.lines().filter_map(|line| line.parse::<u64>().ok()) {
        let thread = usize::try_from(key % 4).expect("it is small");
        last[thread] = last[thread].max(Some(key));
    }
    let last: Vec<String> = last.iter().flatten().map(u64::to_string).collect();
    last.join(",")
}

/// Kills of RocksDB's own db_stress, which compares with what it noted on the host.
fn stress_kills(cx: &Cx, door: &Door<'_>, program: &Path, report: &mut Report) -> Result<()> {
    let mut draw = Draw::new(cx.seed, 1);
    let rounds = if cx.quick { 3 } else { 20 };
    for (name, options) in STRESS_MODES {
        let expected = door.folder.join(name);
        fs::create_dir_all(&expected)?;
        let run = |ops: u64| -> Result<Running> {
            let mut stress = Command::new(program);
            stress.arg(format!("--fs_uri={}", door.uri()));
            stress.arg(format!("--db=/stress-{name}"));
            stress.arg(format!("--expected_values_dir={}", expected.display()));
            stress.arg(format!("--ops_per_thread={ops}"));
            stress.args(options).args(STRESS);
            stress.env("LD_PRELOAD", door.folder.join("libdure_rocksdb.so"));
            door.volume.steps.start(door.with_libraries(stress), None)
        };
        let went = (1..=rounds).try_for_each(|_| {
            let mut running = run(100_000_000)?;
            thread::sleep(Duration::from_millis(draw.between(2000, 6000)));
            running.expect_running("db_stress")?;
            running.signal(Signal::KILL);
            running.wait(LIMIT)?;
            door.volume.check()
        });
        let went = went.and_then(|()| run(1000)?.wait(LIMIT)?.success().map(drop));
        let went = went.and_then(|()| door.volume.check());
        report.case(&format!("{rounds} kills of db_stress, {name}"), went);
    }
    Ok(())
}

/// Each put durable; or none, when what is left has to be all that came before a moment. A file that is
/// ingested is durable at once, and has no place in that.
const STRESS_MODES: [(&str, [&str; 3]); 2] = [
    (
        "synced",
        [
            "--sync=1",
            "--manual_wal_flush_one_in=0",
            "--ingest_external_file_one_in=2000",
        ],
    ),
    (
        "not-synced",
        [
            "--sync=0",
            "--manual_wal_flush_one_in=1000",
            "--ingest_external_file_one_in=0",
        ],
    ),
];

const STRESS: [&str; 19] = [
    "--destroy_db_initially=0",
    "--verify_before_write=1",
    "--threads=4",
    "--max_key=20000",
    "--column_families=1",
    "--clear_column_family_one_in=0",
    "--reopen=0",
    "--write_buffer_size=262144",
    "--target_file_size_base=262144",
    "--max_bytes_for_level_base=1048576",
    "--checkpoint_one_in=2000",
    "--backup_one_in=5000",
    "--compact_range_one_in=5000",
    "--get_live_files_one_in=5000",
    "--flush_one_in=1000",
    "--use_multiget=1",
    "--async_io=1",
    "--mmap_read=0",
    "--verify_checksum=1",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_keys_of_threads_are_read() {
        assert_eq!(last_keys("0\n1\n4\n5\n3\n99"), "4,5,3");
        assert_eq!(last_keys("7"), "");
    }
}
