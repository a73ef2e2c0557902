use clap::Parser;
use std::process::Command;

use super::*;
use event::{Action, BLOCK_SECTORS, Direction};

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    trace: Trace,
}

fn report_of(line: &str) -> Result<(Report, Vec<Event>)> {
    let words = std::iter::once("trace").chain(line.split(' '));
    report(&Line::try_parse_from(words)?.trace.source)
}

fn phase<'r>(report: &'r Report, name: &str) -> Option<&'r PhaseRow> {
    report.phases.iter().find(|row| row.phase == name)
}

const BLKPARSE: &str = "\
  8,0    1        1     0.000000000   697  Q   W 1000 + 8 [fio]
  8,0    1        2     0.000001000   697  G   W 1000 + 8 [fio]
  8,0    1        3     0.000001500   697  P   N [fio]
  8,0    1        4     0.000002000   697  Q   W 1008 + 8 [fio]
  8,0    1        5     0.000002400   697  M   W 1008 + 8 [fio]
  8,0    1        6     0.000003000   697  I   W 1000 + 16 [fio]
  8,0    0        1     0.000007000   697  D   W 1000 + 16 [fio]
  8,0    0        2     0.000010000     0  C   W 1000 + 16 [0]
  8,0    0        3     0.000011000   697  Q   R 4000 + 8 [fio]
CPU0 (8,0):
";

#[test]
fn a_text_of_blkparse_has_the_phases_of_btt() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text");
    std::fs::write(&path, BLKPARSE).unwrap();
    let (report, events) = report_of(&format!("blkparse {}", path.display())).unwrap();
    assert_eq!((events.len(), report.other_lines), (8, 2));
    assert_eq!((report.bios, report.merged, report.incomplete), (2, 1, 1));
    let times: Vec<_> = report
        .phases
        .iter()
        .map(|row| (row.phase, row.n, row.min_ns, row.max_ns))
        .collect();
    let want = [
        ("Q2Q", 1, 2000, 2000),
        ("Q2G", 1, 1000, 1000),
        ("plug", 1, 0, 0),
        ("tag", 1, 1000, 1000),
        ("G2I", 1, 2000, 2000),
        ("Q2M", 1, 400, 400),
        ("I2D", 1, 4000, 4000),
        ("D2C", 1, 3000, 3000),
        ("Q2C", 2, 8000, 10000),
    ];
    assert_eq!(times, want);
    let queue = &report.queues[0];
    assert_eq!(
        (queue.cores.as_slice(), queue.dispatched),
        ([0].as_slice(), 1)
    );
    std::fs::write(&path, "nothing\n").unwrap();
    let error = report_of(&format!("blkparse {}", path.display())).unwrap_err();
    assert!(format!("{error:#}").contains("no event"), "{error:#}");
}

#[test]
fn lines_of_the_kernel_are_understood() {
    let line = " lto 25j: [x]-7152    [001] ..s.. 16199.806876: block_rq_complete: 254,0 RA () 125 + 32 be,0,4 [0]";
    let event = text::tracefs_line(line).unwrap();
    let want = Event {
        ns: 16_199_806_876_000,
        core: 1,
        device: (254, 0),
        action: Action::Complete,
        direction: Direction::Read,
        sector: 125,
        sectors: 32,
    };
    assert_eq!(event, want);
    let issue = "dd-1 [000] ...1. 1.000001: block_rq_issue: 254,0 WS 4096 () 8 + 8 none,0,0 [dd]";
    let issue = text::tracefs_line(issue).unwrap();
    assert_eq!(
        (issue.action, issue.direction),
        (Action::Issue, Direction::Write)
    );
    let flush = "dd-1 [000] ...1. 1.000001: block_rq_issue: 254,0 FF 0 () 0 + 0 none,0,0 [dd]";
    assert!(text::tracefs_line(flush).is_none(), "it has no data");
}

/// What was traced, as events and back: the same phases, of merged requests too. No two jobs use the
/// same blocks, whose events could not be told apart.
#[test]
fn events_tell_of_the_same_phases_as_records() {
    for how in ["--rw read", "--rw write --merge", "--rw write --jobs 2"] {
        let line = format!("run --device ram --size 4M --seconds 0.02 --iodepth 8 {how}");
        let (report, events) = report_of(&line).unwrap();
        let again = Report::new(String::new(), &event::gather(&events), 0, Vec::new());
        assert_eq!(again.bios, report.bios, "{how}");
        assert_eq!(again.merged, report.merged, "{how}");
        assert_eq!(how.contains("merge"), report.merged > 0, "{how}");
        for (one, other) in again.phases.iter().zip(&report.phases) {
            assert_eq!((one.phase, one.n), (other.phase, other.n), "{how}");
            if one.phase == "Q2C" {
                assert_eq!((one.min_ns, one.max_ns), (other.min_ns, other.max_ns));
            }
        }
        assert!(events.iter().all(|event| event.sector % BLOCK_SECTORS == 0));
        let all: usize = report.queues.iter().map(|queue| queue.completed).sum();
        assert_eq!(all, report.bios - report.merged, "{how}");
    }
}

/// A line of btt's table: name, average in seconds, number.
fn btt_line(text: &str, name: &str) -> Option<(f64, u64)> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    let mut words = line.split_ascii_whitespace().skip(2);
    let average = words.next()?.parse().ok()?;
    Some((average, words.nth(1)?.parse().ok()?))
}

#[test]
fn blkparse_and_btt_accept_what_is_written() {
    for how in ["--rw read --jobs 2", "--rw write --merge"] {
        let line = format!("run --device ram --size 16M --seconds 0.02 --iodepth 8 {how}");
        let (report, events) = report_of(&line).unwrap();
        let folder = tempfile::tempdir().unwrap();
        blktrace::write(&folder.path().join("own"), &events).unwrap();
        let blkparse = Command::new("blkparse")
            .args(["-i", "own", "-d", "merged"])
            .current_dir(folder.path())
            .output();
        let Ok(blkparse) = blkparse else {
            eprintln!("SKIPPED: blkparse is not installed (Debian: blktrace)");
            return;
        };
        assert!(blkparse.status.success(), "{blkparse:?}");
        let text = folder.path().join("text");
        std::fs::write(&text, &blkparse.stdout).unwrap();
        let (read, _) = report_of(&format!("blkparse {}", text.display())).unwrap();
        assert_eq!(
            (read.bios, read.merged),
            (report.bios, report.merged),
            "{how}"
        );
        let btt = Command::new("btt")
            .args(["-i", "merged"])
            .current_dir(folder.path())
            .output()
            .unwrap();
        let table = String::from_utf8_lossy(&btt.stdout);
        for name in ["Q2Q", "Q2G", "I2D", "D2C", "Q2C", "Q2M"] {
            let Some(ours) = phase(&report, name) else {
                continue;
            };
            let (average, n) = btt_line(&table, name).unwrap_or_else(|| panic!("{name}: {table}"));
            let read = phase(&read, name).unwrap();
            assert_eq!(read.n, ours.n, "{how} {name}");
            assert!((read.mean_ns - ours.mean_ns).abs() < 1.5, "{how} {name}");
            assert!(n > 0, "{how} {name}");
            let ratio = average * 1e9 / ours.mean_ns;
            assert!(
                (0.9..1.1).contains(&ratio),
                "{how} {name}: {ratio}\n{table}"
            );
        }
    }
}
