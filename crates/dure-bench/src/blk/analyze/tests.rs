use std::path::Path;

use clap::Parser;

use super::cause::Cause;
use super::sweep::Point;
use super::*;
use crate::blk::phases::PhaseRow;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    analyze: Analyze,
}

fn report_of(line: &str) -> Report {
    let words = std::iter::once("analyze").chain(line.split(' '));
    analyze(&Line::try_parse_from(words).unwrap().analyze).unwrap()
}

/// A job that has more requests under way than there are tags; with enough the device is left.
#[test]
fn too_few_tags_are_the_cause_and_said_so() {
    let report = report_of(
        "--device null --delay 2000 --cores 1 --iodepth 32 --seconds 0.1 --size 64M \
         --hw-queues 1 --nr-requests 4,64",
    );
    let [few, many] = report.series.as_slice() else {
        panic!("two series: {report:?}");
    };
    assert_eq!(
        (few.cause, many.cause),
        (Cause::Tags, Cause::Device),
        "{report:?}"
    );
    assert!(many.iops_max > 4.0 * few.iops_max);
    assert!(few.why.contains("too few tags"), "{}", few.why);
    let text = report.text();
    assert!(
        text.contains("use in process, 1 hardware queue of 64 tags"),
        "{text}"
    );
    assert!(
        text.contains("avoid in process, 1 hardware queue of 4 tags"),
        "{text}"
    );
}

/// As published measurements show it: many jobs, each with one request, and few tags.
#[test]
fn with_fewer_tags_than_jobs_q2g_dominates_and_is_said_to() {
    let line = |tags| {
        report_of(&format!(
            "--device null --delay 2000 --cores 8 --seconds 0.2 --size 64M --hw-queues 1 \
             --nr-requests {tags}"
        ))
    };
    let (few, many) = (line(1), line(64));
    let last = |report: &Report| report.series[0].points.last().unwrap().clone();
    assert!(last(&few).share("Q2G") > 60.0, "{few:?}");
    assert!(
        last(&few).share("Q2G") > 2.0 * last(&few).share("D2C"),
        "{few:?}"
    );
    assert!(last(&many).share("Q2G") < 10.0, "{many:?}");
    let series = &few.series[0];
    assert_eq!(series.cause, Cause::QueueSharing, "{series:?}");
    assert!(series.why.contains("Q2G is"), "{}", series.why);
    assert!(
        few.advice[1].contains("raise nr_requests"),
        "{:?}",
        few.advice
    );
    assert!(last(&many).iops > 3.0 * last(&few).iops);
}

/// null that is interrupted lacks tags; one whose requests wait in the plug does not, whatever Q2G is.
#[test]
fn tags_are_told_from_the_plug() {
    let few = report_of(
        "--device null --irqmode 2 --completion-nsec 500000 --cores 8 --iodepth 16 --seconds 0.1 \
         --size 64M --hw-queues 1 --nr-requests 4",
    );
    assert_eq!(few.series[0].cause, Cause::Tags, "{few:?}");
    assert!(few.text().contains("a lack of tags"), "{}", few.text());
    let plug = report_of(
        "--device null --cores 8 --iodepth 16 --seconds 0.1 --size 64M --hw-queues 1 \
         --nr-requests 4 --merge --rw randwrite",
    );
    let last = plug.series[0].points.last().unwrap();
    assert!(
        last.share("Q2G") > 25.0 && last.share("plug") > 25.0,
        "{plug:?}"
    );
    let cause = plug.series[0].cause;
    assert!(
        !matches!(cause, Cause::Tags | Cause::QueueSharing),
        "{plug:?}"
    );
}

/// A few requests that wait for tags do not make tags the cause of a Q2G that is time in the plug.
#[test]
fn the_plug_is_a_cause_of_its_own() {
    let row = |(phase, share)| PhaseRow {
        phase,
        n: 1,
        min_ns: 1,
        mean_ns: 1.0,
        max_ns: 1,
        share: Some(share),
    };
    let point = |phases: [(&'static str, f64); 4], tag_waits_share| Point {
        engine: "in process",
        hw_queues: 1,
        nr_requests: 4,
        jobs: 1,
        iops: 1000.0,
        p50_ns: 1,
        p99_ns: 1,
        cpu_ns_per_request: 1.0,
        cpu_share: 0.1,
        tag_waits_share,
        phases: phases.map(row).to_vec(),
    };
    let cause = |plug, tag, waits| {
        let phases = [("Q2G", plug + tag), ("plug", plug), ("tag", tag)];
        let [q2g, plug, tag] = phases;
        let d2c = ("D2C", 100.0 - q2g.1);
        let load = sweep::FixedLoad {
            iodepth: 16,
            cores: 2,
        };
        let points = vec![point([q2g, plug, tag, d2c], waits)];
        super::cause::series(points, load)[0].cause
    };
    assert_eq!(cause(60.0, 5.0, 0.05), Cause::Plug);
    assert_eq!(cause(60.0, 5.0, 0.5), Cause::Plug);
    assert_eq!(cause(5.0, 60.0, 0.05), Cause::Tags);
    assert_eq!(cause(1.0, 8.0, 0.5), Cause::Tags);
    assert_eq!(cause(0.1, 2.0, 0.2), Cause::Device);
    assert_eq!(cause(10.0, 20.0, 0.05), Cause::Device);
}

/// Two jobs that each fit into the tags of a queue do not both: with a queue for each they do.
#[test]
fn jobs_that_share_a_queue_are_told_apart_from_too_few_tags() {
    if dure_sync::core_count() < 2 {
        eprintln!("SKIPPED: one core has one hardware queue");
        return;
    }
    let report = report_of(
        "--device null --delay 5000 --cores 2 --iodepth 16 --seconds 0.2 --size 64M \
         --hw-queues 1 --nr-requests 16",
    );
    assert_eq!(report.series[0].points.len(), 2);
    assert_eq!(report.series[0].cause, Cause::QueueSharing, "{report:?}");
    let apart = report_of(
        "--device null --delay 5000 --cores 2 --iodepth 16 --seconds 0.2 --size 64M \
         --hw-queues 2 --nr-requests 16",
    );
    let last = &apart.series[0].points[1];
    assert!(last.tag_waits_share < 0.01, "{last:?}");
}

#[test]
fn a_device_in_memory_is_bound_by_the_core_and_shown_in_all_forms() {
    let report = report_of(
        "--device null --cores 1 --iodepth 32 --seconds 0.3 --size 64M --rw randwrite --nr-requests 64",
    );
    let series = &report.series[0];
    assert_eq!(series.points[0].jobs, 1);
    assert!(series.points[0].cpu_ns_per_request > 0.0);
    let json = serde_json::to_string(&report).unwrap();
    for key in [
        "\"cause\"",
        "\"why\"",
        "\"advice\"",
        "\"iops_max\"",
        "\"phases\"",
    ] {
        assert!(json.contains(key), "{key}");
    }
    let chart = chart::svg(&report).unwrap();
    assert!(chart.starts_with("<svg") && chart.contains("IOPS over jobs"));
    let page = page::html(&report, &chart);
    assert!(page.contains("<svg") && page.contains("Advice") && page.ends_with("</html>\n"));
    for outside in ["href=", "src=", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}: the page has all in it");
    }
}

/// A loop device, while it is needed.
struct Loop(String);

impl Loop {
    /// `None` where none can be made or used: loop devices are root's.
    fn of(image: &Path) -> Option<Loop> {
        std::fs::write(image, vec![7; 4 << 20]).unwrap();
        let output = std::process::Command::new("losetup")
            .args(["--find", "--show"])
            .arg(image)
            .output()
            .ok()?;
        let device = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if !output.status.success() || device.is_empty() {
            return None;
        }
        let device = Loop(device);
        let opens = std::fs::File::open(&device.0).is_ok();
        (opens && fio::is_installed()).then_some(device)
    }

    fn analyzed(&self, options: &str) -> Report {
        report_of(&format!("--device {} --cores 1 {options}", self.0))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let detached = std::process::Command::new("losetup")
            .args(["-d", &self.0])
            .status();
        assert!(detached.unwrap().success());
    }
}

const NO_LOOP: &str = "SKIPPED: no loop device can be made here, or fio is not installed";

/// A block device is measured by fio, and its tags are put back.
#[test]
fn a_block_device_is_measured_by_fio_with_tags_of_the_kernel() {
    let folder = tempfile::tempdir().unwrap();
    let Some(device) = Loop::of(&folder.path().join("image")) else {
        return eprintln!("{NO_LOOP}");
    };
    let before = sysfs::settings(&device.0);
    let report = device.analyzed("--seconds 0.1 --engine psync --nr-requests 16");
    let after = sysfs::settings(&device.0);
    assert_eq!(after, before, "settings are put back");
    assert_eq!(report.kernel, before);
    let [series] = report.series.as_slice() else {
        panic!("one series: {report:?}");
    };
    assert_eq!(series.engine, "fio psync");
    assert!(series.nr_requests == 16 || before.iter().all(|(name, _)| *name != "nr_requests"));
    assert!(series.iops_max > 0.0 && series.points[0].share("D2C") > 0.0);
}

/// A tracefs of the test's own.
struct Tracefs(tempfile::TempDir);

impl Tracefs {
    fn mounted() -> Option<Tracefs> {
        let place = tempfile::tempdir().unwrap();
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tracefs", "tracefs"]).arg(place.path());
        let status = mount.stderr(std::process::Stdio::null()).status();
        if !status.is_ok_and(|status| status.success()) {
            return None;
        }
        let tracefs = Tracefs(place);
        let has_events = tracefs.0.path().join("events/block").is_dir();
        has_events.then_some(tracefs)
    }
}

impl Drop for Tracefs {
    fn drop(&mut self) {
        let status = std::process::Command::new("umount")
            .arg(self.0.path())
            .status();
        assert!(status.unwrap().success());
    }
}

/// The tags that are missing are the kernel's: only its trace shows it.
#[test]
fn too_few_tags_of_the_kernel_are_the_cause_and_said_so() {
    let folder = tempfile::tempdir().unwrap();
    let Some(tracefs) = Tracefs::mounted() else {
        return eprintln!("SKIPPED: no tracefs with events of block devices can be mounted here");
    };
    let Some(device) = Loop::of(&folder.path().join("image")) else {
        return eprintln!("{NO_LOOP}");
    };
    let analyzed =
        || device.analyzed("--seconds 0.4 --engine io_uring --iodepth 64 --nr-requests 4");
    let mut few = analyzed();
    if few.series[0].nr_requests != 4 {
        return eprintln!("SKIPPED: the loop driver does not take nr_requests");
    }
    // A loop device is so fast that few of fio's requests wait, each for many: what else runs here
    // hides it now and then.
    let shows = |few: &Report| {
        let Series { points, cause, .. } = &few.series[0];
        *cause == Cause::Tags && points[0].share("Q2G") > 25.0
    };
    for _ in 0..20 {
        if shows(&few) {
            break;
        }
        few = analyzed();
    }
    assert!(shows(&few), "{few:?}");
    let enough = device.analyzed("--seconds 0.4 --engine io_uring --iodepth 2 --nr-requests 64");
    let point = &enough.series[0].points[0];
    assert!(point.share("Q2G") < point.share("D2C"), "{enough:?}");
    assert_ne!(enough.series[0].cause, Cause::Tags, "{enough:?}");
    drop(tracefs);
}
