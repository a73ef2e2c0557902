//! What the tests of all benches do: every workload for 20 ms on a volume in memory, on a
//! directory, and as a plain copy, by itself and together with other workers.

use std::path::Path;

use dure_block::ram::RamDevice;
use dure_block::share;
use dure_fs::{FileSystem, FormatOptions};

use crate::measure::{Bench, Crew, Plan, Point, Worker, run};
use crate::report::{self, Columns};
use crate::target::Target;

pub(crate) fn plan(cores: &[usize]) -> Plan {
    Plan {
        cores: cores.to_vec(),
        repeat: 2,
        run_ns: 20_000_000,
        warm_up_ns: 1_000_000,
    }
}

fn volume() -> Target {
    let device = share(RamDevice::new("ram", 2048 << 8));
    FileSystem::format(device.clone(), &FormatOptions::default()).unwrap();
    Target::volume("ram", "journal=single", device).unwrap()
}

/// A volume, a directory (in memory, if there is such a place) and a plain copy.
pub(crate) fn targets() -> (tempfile::TempDir, Vec<Target>) {
    let memory = Path::new("/dev/shm");
    let directory = if memory.is_dir() {
        tempfile::tempdir_in(memory).unwrap()
    } else {
        tempfile::tempdir().unwrap()
    };
    let text = format!("dir:{}", directory.path().display());
    let directory_target = Target::open(&text).unwrap();
    let copy = Target::open("copy").unwrap();
    (directory, vec![volume(), directory_target, copy])
}

/// Runs on all; every worker checks what it did, and nothing stays behind.
pub(crate) fn works<B: Bench<Subject = Target>>(
    bench: &B,
    name: &'static str,
    workloads: &[B::Workload],
) {
    let (directory, targets) = targets();
    let points = run(bench, workloads, &targets, &plan(&[1, 2])).unwrap();
    let of_files = points.iter().filter(|point| point.target != "copy");
    assert_eq!(of_files.count(), workloads.len() * 2 * 2);
    for point in &points {
        let shown = format!("{} {} {}", point.workload, point.target, point.cores);
        assert_eq!(point.runs.len(), 2, "{shown}");
        assert!(point.runs.iter().all(|run| run.works > 0), "{shown}");
        assert!(!point.latencies.is_empty(), "{shown}");
    }
    reports(name, &points);
    tables_fit(&points);
    for target in targets {
        target.close().unwrap();
    }
    let left = std::fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(left, 0, "a closed target leaves nothing behind");
}

/// The JSON has what programs rely on.
fn reports(name: &'static str, points: &[Point]) {
    let text = report::json(name, points).unwrap();
    let rows: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), points.len());
    for row in rows.as_array().unwrap() {
        assert_eq!(row["bench"], name);
        for number in [
            "threads",
            "cores",
            "ops_per_second",
            "min",
            "max",
            "n",
            "seconds",
            "p50_ns",
            "p99_ns",
        ] {
            assert!(row[number].as_f64().unwrap() > 0.0, "{number} in {row}");
        }
        for text in ["target", "workload", "policy", "workers"] {
            assert!(row[text].is_string(), "{text} in {row}");
        }
        assert!(
            row.as_object().unwrap().values().all(|v| !v.is_object()),
            "flat"
        );
    }
}

/// A table keeps to a terminal's width unless all columns are wanted, and shows cores where they
/// are not as many as the threads.
fn tables_fit(points: &[Point]) {
    let width = |table: &comfy_table::Table| {
        let lines = table.to_string();
        lines.lines().map(|line| line.chars().count()).max()
    };
    let usual = report::table(points, Columns::Usual);
    assert!(width(&usual) <= Some(100), "{usual}");
    let all = report::table(points, Columns::All).to_string();
    assert!(all.contains("device flushes/op"), "{all}");
    let differ = points.iter().any(|point| point.cores != point.workers);
    assert_eq!(usual.to_string().contains("cores"), differ, "{usual}");
}

#[test]
fn an_unknown_policy_is_refused_by_name() {
    for (policy, said) in [
        ("journal=many", "journal=many"),
        ("colour=blue", "colour=blue"),
        ("fast", "fast"),
    ] {
        let error = Target::open(&format!("dure:/dev/null,{policy}")).unwrap_err();
        assert!(format!("{error:#}").contains(said), "{error:#}");
    }
    assert!(Target::open("ext4").is_err());
    for kind in ["dure", "dir"] {
        let error = Target::open(&format!("{kind}:/is/not/there")).unwrap_err();
        assert!(format!("{error:#}").contains("there is nothing at /is/not/there; name a"));
        let error = Target::open(&format!("{kind}:")).unwrap_err();
        assert!(format!("{error:#}").contains("no path is named; name a"));
    }
}

#[test]
fn two_runs_do_not_share_a_directory() {
    let (directory, targets) = targets();
    let text = format!("dir:{}", directory.path().display());
    let error = format!("{:#}", Target::open(&text).unwrap_err());
    assert!(error.contains("another bench"), "{error}");
    drop(targets);
    let left = std::fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(left, 0, "nor does a run that failed leave anything");
    Target::open(&text).unwrap().close().unwrap();
}

/// Claims operations it does not do.
struct Liar;

impl Worker for Liar {
    fn operate(&mut self) -> anyhow::Result<Option<u64>> {
        Ok(Some(1))
    }

    fn check(&mut self) -> anyhow::Result<()> {
        anyhow::bail!("nothing was done")
    }
}

struct Lie;

impl Bench for Lie {
    type Subject = Target;
    type Workload = ();

    fn name(&self, (): ()) -> &'static str {
        "lie"
    }

    fn crew(&self, _: &Target, (): (), cores: usize) -> anyhow::Result<Option<Crew>> {
        Crew::threads(cores, cores, None, |_| Ok(Box::new(Liar))).map(Some)
    }
}

#[test]
fn a_workload_that_does_nothing_is_found_out() {
    let targets = [Target::open("copy").unwrap()];
    let error = run(&Lie, &[()], &targets, &plan(&[1])).unwrap_err();
    assert_eq!(format!("{error:#}"), "lie on copy: nothing was done");
}

/// `--target dure:DIR,preset=NAME`: on the medium it is for, or refused by its name.
#[test]
fn a_target_can_have_a_preset() {
    let (directory, _targets) = targets();
    let open =
        |policies: &str| Target::open(&format!("dure:{},{policies}", directory.path().display()));
    for policies in [
        "preset=jbd2",
        "preset=pnova-locks,nvm=emulated,numa=local",
        "preset=hybridf2fs-locks,node_log=nvm,drive=nvme",
    ] {
        open(policies).unwrap().close().unwrap();
    }
    for (policies, says) in [
        (
            "preset=nova-locks",
            "preset=nova-locks: it sets page_cache=none",
        ),
        ("preset=jbd2,flush=one", "preset=jbd2 sets flush=two"),
        ("preset=ext5", "preset=ext5: it is jbd2 or"),
        ("node_log=block", "node_log= takes nvm"),
        (
            "nvm=emulated,node_log=nvm",
            "nvm= and node_log=nvm: give one",
        ),
        ("drive=floppy", "drive= takes one of nvme, "),
    ] {
        let why = format!("{:#}", open(policies).err().unwrap());
        assert!(why.contains(says), "{policies}: {why}");
    }
    let image = directory.path().join("image");
    std::fs::write(&image, [0; 4096]).unwrap();
    let text = format!("dure:{},node_log=nvm", image.display());
    let why = format!("{:#}", Target::open(&text).err().unwrap());
    assert!(why.contains("node_log= is for a temporary volume"), "{why}");
}

/// With its logs in persistent memory an fsync of a small file asks nothing of the drive.
#[test]
fn the_node_log_of_a_temporary_volume_is_in_persistent_memory() {
    let (directory, _targets) = targets();
    let flushes = |policies: &str| {
        let target = format!("dure:{}{policies}", directory.path().display());
        let target = Target::open(&target).unwrap();
        let suite = crate::fxmark::Suite::of(&plan(&[1]));
        let workloads = [crate::fxmark::Workload::Dwsl];
        let points = run(
            &suite,
            &workloads,
            std::slice::from_ref(&target),
            &plan(&[1]),
        )
        .unwrap();
        target.close().unwrap();
        let device = points[0].per_work(|counts| counts.device_flushes);
        device.unwrap()
    };
    assert!(flushes("") > 0.5);
    assert!(flushes(",node_log=nvm") < 0.1);
}
