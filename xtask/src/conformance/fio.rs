//! fio on a volume without a mount, by the engine of `fio/`.
//!
//! **Problem.** The engine is compiled on the machine of its user, with the headers of a program
//! that we do not have, and translates its calls. **Structure.** `fio/build` compiles it. The
//! examples and the page run as they stand; then jobs that verify, jobs that are refused, and what
//! is left by each. **Invariants.** fio reads what it wrote, also in another process; what was
//! trimmed is missed (the canary); each refusal says why, and leaves a volume that was closed.
//! **Crash.** None here: `dure-capi` and `kill` have them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::Cx;
use super::mount::Volume;
use super::report::Report;
use super::step::Done;
use super::tools::{self, Needs};
use crate::cargo;
use crate::dist::library;

pub(crate) const NEEDS: Needs = Needs {
    mount: false,
    crates: &[],
    programs: &[("fio", "fio"), ("cc", "gcc"), ("pkg-config", "pkg-config")],
};

const LIMIT: Duration = Duration::from_secs(300);
/// Where examples and the page have the engine, and the volume.
const ENGINE: &str = "target/fio/libdure_fio.so";
const IMAGE: &str = "v.img";
const BEFORE: &str = "[global]\n\
    ioengine=external:target/fio/libdure_fio.so\n\
    volume=v.img\nmount_options=cache=8M\nthread=1\nbs=4k\nsize=16M\n[job]\n";
const VERIFY: &str = "verify=crc32c\nverify_fatal=1\nverify_state_save=0\n";

/// Jobs that fio verifies, after [`BEFORE`] and [`VERIFY`].
const VERIFIED: &[(&str, &str)] = &[
    ("overwrites", "rw=randwrite\noverwrite=1\nfsync=16\n"),
    ("32 at once", "rw=randwrite\niodepth=32\nfdatasync=100\n"),
    ("sizes", "rw=randwrite\nbsrange=512-64k\niodepth=8\n"),
    (
        "threads on one file",
        "filename=dir/below/shared\nrw=randwrite\nsize=8M\noffset_increment=8M\nnumjobs=4\niodepth=8\n",
    ),
    (
        "threads on files of their own",
        "rw=randwrite\nnumjobs=4\nnrfiles=3\nsize=6M\nfile_service_type=random\n",
    ),
    ("trims", "rw=randtrimwrite\niodepth=4\n"),
    ("O_DSYNC", "rw=write\nsync=dsync\nbs=64k\n"),
    (
        "a file that grows",
        "rw=write\nfile_append=1\nfilename=log\nsize=4M\n[again]\nstonewall\n\
         rw=write\nfile_append=1\nfilename=log\nsize=4M\n",
    ),
    (
        "a file that is made when opened",
        "rw=randwrite\ncreate_on_open=1\nfilename=made/late\nloops=2\nunlink_each_loop=1\n",
    ),
    (
        "jobs that set up by themselves",
        "rw=randwrite\ncreate_serialize=0\nnumjobs=2\n",
    ),
];

/// Jobs that fail, after [`BEFORE`], and words of what they say.
const REFUSED: &[(&str, &str, &str)] = &[
    ("processes", "thread=0\nrw=read\n", "thread=1 is missing"),
    (
        "no volume",
        "volume=none.img\nrw=read\n",
        "none.img: No such file",
    ),
    ("no image", "volume=target\nrw=read\n", "target: "),
    (
        "direct",
        "direct=1\nrw=read\n",
        "direct=1: a volume has no O_DIRECT",
    ),
    (
        "pre_read",
        "pre_read=1\nrw=read\n",
        "pre_read=1 cannot be done",
    ),
    (
        "zones",
        "rw=read\nzonemode=zbd\nzonesize=1M\n",
        "zonemode=zbd: a file has no zones",
    ),
    (
        "fill_device",
        "fill_device=1\nrw=write\n",
        "fill_device=1 cannot be done",
    ),
    ("options", "mount_options=cash=1M\nrw=read\n", "cash"),
    (
        "a directory",
        "filename=dir\nrw=read\n",
        "dir: no regular file",
    ),
    (
        "a file that may not be made",
        "allow_file_create=0\nfilename=new\nrw=read\n",
        "new: ",
    ),
    (
        "no size",
        "filename=none\nsize=0\nrw=read\n",
        "you need to specify size=",
    ),
    (
        "sync_file_range",
        "rw=write\nsync_file_range=write:8\n",
        "not supported",
    ),
    (
        "submission by other threads",
        "rw=read\nio_submit_mode=offload\n",
        "offloaded submit",
    ),
    (
        "different options",
        "rw=read\n[other]\nmount_options=cache=9M\n",
        "mount_options= differ",
    ),
    (
        "a full volume",
        "rw=write\nsize=2G\nfallocate=none\nunlink=1\n",
        "No space left",
    ),
    (
        "a full volume, laid out",
        "rw=read\nsize=2G\n",
        "No space left",
    ),
];

pub(crate) fn run(cx: &Cx, report: &mut Report) -> Result<()> {
    if cx.profile.has_region() {
        report.skip("the library for C opens volumes on one medium".to_owned());
        return Ok(());
    }
    let volume = Volume::unmounted(cx, "fio")?;
    let suite = Suite { volume: &volume };
    symlink(volume.image(), suite.file(IMAGE))?;
    if let Err(why) = suite.build() {
        let why = format!("{why:#}");
        match why.contains("cannot fetch the source") {
            true => report.skip(why),
            false => drop(report.case("build", Err(anyhow::anyhow!(why)))),
        }
        return Ok(());
    }
    report.case("build", Ok(()));
    report.case("another source", suite.another_source());
    for example in ["dure.fio", "verify.fio"] {
        let path = cargo::root().join("fio/examples").join(example);
        let went = fs::read_to_string(path).map_err(Into::into);
        report.case(example, went.and_then(|job| suite.succeeds(&job).map(drop)));
    }
    report.case("the page", suite.page());
    for (name, lines) in VERIFIED {
        let went = suite.succeeds(&format!("{BEFORE}{VERIFY}{lines}"));
        report.case(name, went.map(drop));
    }
    report.case("under way", suite.under_way());
    report.case("another process reads", suite.another_process());
    report.case("check", volume.check());
    for (name, lines, words) in REFUSED {
        let went = suite.fails(&format!("{BEFORE}{lines}"), words);
        report.case(&format!("refused: {name}"), went);
        report.case(&format!("closed after: {name}"), suite.is_closed());
    }
    report.case("another fio", suite.another_fio());
    report.case("check at the end", volume.check());
    Ok(())
}

struct Suite<'a> {
    volume: &'a Volume,
}

impl Suite<'_> {
    fn file(&self, name: &str) -> PathBuf {
        self.volume.scratch().join(name)
    }

    /// The engine, with the libdure of this source, or `$DURE_LIBRARY`.
    fn build(&self) -> Result<()> {
        let prefix = self.file("prefix");
        let libraries = match std::env::var_os("DURE_LIBRARY") {
            Some(library) => Path::new(&library).parent().map(Path::to_owned),
            None => {
                library::install(&library::build()?, &prefix, "lib")?;
                Some(prefix.join("lib"))
            }
        };
        let libraries = libraries.context("DURE_LIBRARY: the path of libdure.so.0")?;
        let mut build = self.builder();
        build
            .env("PKG_CONFIG_PATH", libraries.join("pkgconfig"))
            .arg("-o")
            .arg(self.file(ENGINE));
        self.volume.steps.run(build, LIMIT).map(drop)
    }

    fn builder(&self) -> Command {
        let mut build = Command::new("sh");
        build.arg(cargo::root().join("fio/build"));
        build.env("CARGO_TARGET_DIR", cargo::target());
        build
    }

    /// A source that is not that of the fio here is not used.
    fn another_source(&self) -> Result<()> {
        let folder = self.file("another");
        fs::create_dir(&folder)?;
        fs::write(folder.join("ioengines.h"), "")?;
        fs::write(folder.join("FIO-VERSION-GEN"), "DEF_VER=fio-1.0\n")?;
        let mut build = self.builder();
        build.arg("-o").arg(self.file("none.so")).arg(folder);
        let done = self.volume.steps.finish(build, LIMIT)?;
        expect_failure(&done, "is fio-1.0, and the fio that is installed is")
    }

    fn fio(&self, job: &str, more: &[&str]) -> Result<Done> {
        let path = self.file("job.fio");
        fs::write(&path, job)?;
        let mut fio = tools::command("fio");
        fio.current_dir(self.volume.scratch());
        fio.arg("--output-format=json").args(more).arg(path);
        self.volume.steps.finish(fio, LIMIT)
    }

    /// What fio says of a job that does not fail.
    fn succeeds(&self, job: &str) -> Result<Value> {
        let out = self.fio(job, &[])?.success()?;
        let begin = out.find('{').context("no JSON")?;
        let value: Value = serde_json::from_str(&out[begin..])?;
        for job in value["jobs"].as_array().context("no jobs")? {
            let calls = ["read", "write", "trim"].map(|kind| job[kind]["total_ios"].as_u64());
            ensure!(
                calls.iter().flatten().sum::<u64>() > 0,
                "a job did nothing: {job}"
            );
            ensure!(job["error"] == 0, "{job}");
        }
        Ok(value)
    }

    fn fails(&self, job: &str, words: &str) -> Result<()> {
        expect_failure(&self.fio(job, &[])?, words)
    }

    /// The job on the page for users.
    fn page(&self) -> Result<()> {
        let page = fs::read_to_string(cargo::root().join("docs/user/fio.md"))?;
        let job = page.split("```fio\n").nth(1).context("no job")?;
        let job = job.split("```").next().unwrap_or_default();
        self.succeeds(job).map(drop)
    }

    /// fio has as many reads under way as it was told to.
    fn under_way(&self) -> Result<()> {
        let value = self.succeeds(&format!("{BEFORE}rw=randread\niodepth=32\n"))?;
        let level = value["jobs"][0]["iodepth_level"]["32"].as_f64();
        ensure!(level > Some(50.0), "of requests at depth 32: {level:?} %");
        Ok(())
    }

    /// What one process wrote another one verifies, and misses what was trimmed.
    fn another_process(&self) -> Result<()> {
        let job = format!("{BEFORE}{VERIFY}filename=kept\nrw=randwrite\n");
        self.succeeds(&format!("{job}do_verify=0\n"))?;
        let again = format!("{job}verify_only=1\n");
        self.succeeds(&again)?;
        let trim = "rw=trim\nfilename=kept\nsize=64k\noffset=1M\n";
        self.succeeds(&format!("{BEFORE}{trim}"))?;
        self.fails(&again, "verify: bad magic header 0,")
    }

    fn is_closed(&self) -> Result<()> {
        let mut info = self.volume.dure("info");
        info.arg("--journal").arg(self.volume.image());
        let said = self.volume.steps.run(info, LIMIT)?;
        ensure!(
            said.contains("clean: the next mount reads no log"),
            "{said}"
        );
        Ok(())
    }

    /// An engine that was built for another fio is none.
    fn another_fio(&self) -> Result<()> {
        let done = self.volume.steps.run(version(), LIMIT)?;
        let is = format!("{}\0", done.trim());
        let mut engine = fs::read(self.file(ENGINE))?;
        let places: Vec<usize> = (0..engine.len() - is.len())
            .filter(|at| engine[*at..].starts_with(is.as_bytes()))
            .collect();
        ensure!(
            !places.is_empty(),
            "the engine does not say for which fio it is"
        );
        for at in places {
            engine[at..at + is.len() - 1].fill(b'0');
        }
        fs::write(self.file("other.so"), engine)?;
        let job = BEFORE.replace(ENGINE, "./other.so") + "rw=read\n";
        let done = self.fio(&job, &[])?;
        expect_failure(&done, "build it again")?;
        expect_failure(&done, "bad ioops version")
    }
}

fn version() -> Command {
    let mut fio = tools::command("fio");
    fio.arg("--version");
    fio
}

/// A failure, not by a signal, that says so.
fn expect_failure(done: &Done, words: &str) -> Result<()> {
    let said = format!("{}{}", done.err(), done.out);
    match done.status.code() {
        Some(1..) if said.contains(words) => Ok(()),
        _ => bail!("{} without '{words}': {said}", done.status),
    }
}
