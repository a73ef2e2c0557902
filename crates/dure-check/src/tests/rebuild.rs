//! A part of a volume is destroyed; the rebuild brings back every file that no destroyed block
//! belonged to, byte by byte, and leaves a volume that checks clean. Before it, a rescue reads out
//! the same. A rebuild that is cut off can be done again.
//!
//! A sample runs with the other tests, a larger one in CI; `DURE_REPAIR_CASES=N` runs N cases, from seed
//! `DURE_REPAIR_SEED` on.

use std::collections::{BTreeMap, BTreeSet};

use dure_block::crash::{CrashImages, Selection, Tear};
use dure_block::ram::RamDevice;
use dure_block::record::{Effect, RecordDevice};
use dure_block::{Device, Io, Lba, WriteFlags, share};
use dure_fs::{Background, FileSystem, MountOptions, NewInode, Stamp, SyncScope};
use dure_store::error::Error;
use dure_store::layout::FormatOptions;
use dure_store::media::Region;
use dure_store::read_layout;
use dure_store::units::{BLOCK_BYTES, Ino, to_u64, to_usize};
use dure_sync::{Arc, amount};

use super::aged::{Base, Case, Content, Left, base, files, mount};
use crate::context::Context;
use crate::{CheckOptions, Data, Issue, IssueKind, Repair, Report, check};

const REBUILD: CheckOptions<'_> = CheckOptions {
    repair: Repair::Full,
    data: Data::Verify,
    progress: None,
    threads: Some(1),
    recover: dure_fs::Recover::Whole,
};

/// Runs one case; files that were not hit, and those that were lost. None: there was no room.
fn run(case: &Case<'_>) -> Option<(usize, usize)> {
    super::rescue::compare(case);
    let damaged = case.device.snapshot();
    match check(share(Arc::clone(&case.device)), &REBUILD) {
        Ok(report) => Some(verify(case, &case.device, &report, (Run::First, &case.at))),
        Err(Error::NoSpace { .. }) => {
            let at = &case.at;
            assert_eq!(case.base.left, Left::Full, "{at}");
            // At most a copy of the superblock was written.
            let same = case.device.snapshot() == damaged;
            assert!(
                same || case.what == "superblock" || case.what == "20 MiB",
                "{at}"
            );
            super::rescue::compare(case);
            None
        }
        Err(error) => panic!("{}: {error}", case.at),
    }
}

/// Which rebuild of a volume it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Run {
    First,
    /// The one before it was cut off, and has perhaps mended everything but said nothing.
    Again,
}

impl Run {
    /// Whether this may not be there afterwards: a slot that the power cut has torn, beside the one
    /// that counts, stays until it is its turn.
    fn minds(self, issue: &Issue) -> bool {
        self == Run::First || !matches!(issue.kind, IssueKind::PairSlotBad { .. })
    }
}

/// Looks at what a rebuild has left on `device`.
fn verify(
    case: &Case<'_>,
    device: &Arc<RamDevice>,
    report: &Report,
    (run, at): (Run, &str),
) -> (usize, usize) {
    let names_whole = case.names_whole();
    let content = |issue: &&Issue| matches!(issue.kind, IssueKind::DataChecksum { .. });
    let issues = report.issues().iter();
    let left = issues.filter(|issue| !issue.repaired && !content(issue));
    let left: Vec<String> = left
        .filter(|i| run.minds(i))
        .map(ToString::to_string)
        .collect();
    assert_eq!(left, Vec::<String>::new(), "{at}");
    assert_clean(device, run, at);
    let fs = mount(device);
    let found = files(&fs);
    let (mut whole, mut lost) = (0, 0);
    for (ino, want) in &case.base.files {
        let got = found.get(ino);
        let same = got.is_some_and(|got| got.bytes == want.bytes);
        if case.hit(*ino) {
            lost += 1;
            let named = same || case.is_older(*ino) || is_named(report, *ino, want);
            assert!(
                named || run == Run::Again,
                "{at}: {ino:?} is lost without a word"
            );
            continue;
        }
        if case.is_older(*ino) {
            continue;
        }
        whole += 1;
        let Some(got) = got else {
            panic!("{at}: {ino:?} {:?} is gone", want.paths);
        };
        assert!(same, "{at}: {ino:?} has other bytes");
        let rest = |of: &Content| (of.kind, of.mode, of.xattrs.clone());
        assert_eq!(rest(got), rest(want), "{at}");
        if names_whole {
            assert_eq!(got.paths, want.paths, "{at}");
        }
    }
    fs.close().unwrap();
    assert_clean(device, run, at);
    (whole, lost)
}

fn assert_clean(device: &Arc<RamDevice>, run: Run, at: &str) {
    let after = check(share(Arc::clone(device)), &CheckOptions::default()).unwrap();
    let issues = after.issues().iter().filter(|issue| run.minds(issue));
    let left: Vec<String> = issues.map(ToString::to_string).collect();
    assert_eq!(left, Vec::<String>::new(), "{at}");
}

/// Whether the report says that something of `ino` is lost.
fn is_named(report: &Report, ino: Ino, want: &Content) -> bool {
    let page =
        |issue: &Issue| matches!(issue.kind, IssueKind::DataChecksum { ino: of, .. } if of == ino);
    let mut losses = report.losses().iter();
    !report.lost().is_empty()
        || report.issues().iter().any(page)
        || losses.any(|loss| {
            let path = loss.path.as_ref();
            loss.ino.nid() == ino.nid() || path.is_some_and(|path| want.paths.contains(path))
        })
}

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap())
}

/// Bases, and the seeds of cases on them.
fn cases(some: u64) -> ([Base; 5], std::ops::Range<u64>) {
    let cases = setting("DURE_REPAIR_CASES").unwrap_or(some);
    let from = setting("DURE_REPAIR_SEED").unwrap_or(1);
    let bases = [
        base(11, 1, Left::Clean),
        base(12, 4, Left::Clean),
        base(13, 4, Left::Dirty),
        base(14, 2, Left::Full),
        base(15, 2, Left::Kept),
    ];
    (bases, from..from + cases)
}

#[test]
fn what_no_destroyed_block_belonged_to_is_there_again() {
    let (bases, seeds) = cases(amount::either(10, 30));
    let mut table: BTreeMap<(Left, &str), [usize; 4]> = BTreeMap::new();
    for seed in seeds {
        let case = Case::new(&bases[to_usize(seed % 5)], seed);
        let done = run(&case);
        let (whole, lost) = done.unwrap_or_default();
        let row = table.entry((case.base.left, case.what)).or_default();
        let one = [1, usize::from(done.is_none()), whole, lost];
        *row = std::array::from_fn(|n| row[n] + one[n]);
    }
    for ((left, what), [cases, refused, whole, lost]) in table {
        eprintln!(
            "{left:?}, {what}: {cases} cases, {refused} without room, {whole} files whole, {lost} \
             files hit"
        );
    }
}

/// The blocks of images that the NAT of the medium names.
fn named_blocks(device: &Arc<RamDevice>) -> BTreeSet<u64> {
    let region = Region::open(share(Arc::clone(device)));
    let layout = read_layout(&region).expect("a copy of the superblock is left");
    let mut context = Context::new(&REBUILD, region, layout, Report::default());
    crate::rebuild::named_blocks(&mut context)
}

/// Whatever of a rebuild has reached the medium when it is cut off: the next one brings back as
/// much as the first would have.
#[test]
fn a_rebuild_that_is_cut_off_is_done_again() {
    let (bases, seeds) = cases(amount::either(5, 10));
    let mut states = 0;
    for seed in seeds {
        let case = Case::new(&bases[to_usize(seed % 5)], seed);
        let image = case.device.snapshot();
        let named = named_blocks(&case.device);
        let record = RecordDevice::new(share(Arc::clone(&case.device)));
        let log = record.log();
        if check(share(record), &REBUILD).is_err() {
            continue;
        }
        for entry in log.entries() {
            if let Effect::Write { lba, data, .. } = &entry.effect {
                let mut blocks = lba.number()..lba.number() + to_u64(data.len());
                let old = blocks.find(|block| named.contains(block));
                assert_eq!(old, None, "{}: an old entry names a new image", case.at);
            }
        }
        let images = CrashImages::new(image, &log);
        for step in images.frontiers() {
            let point = images.at(step);
            let choices = point.choices(TORN);
            let every = (choices.count() / STATES_MAX).max(1);
            for (n, choice) in point.choices(TORN).enumerate().step_by(every) {
                let image = point.image(&choice).snapshot();
                let device = Arc::new(RamDevice::from_image("cut", &image));
                let report = check(share(Arc::clone(&device)), &REBUILD);
                let at = format!("{}, cut at step {step}, choice {n}", case.at);
                let report = report.unwrap_or_else(|error| panic!("{at}: {error}"));
                verify(&case, &device, &report, (Run::Again, &at));
                states += 1;
            }
        }
    }
    eprintln!("{states} states");
    assert!(states > 20, "only {states} states");
}

/// States between two flushes, about.
const STATES_MAX: usize = 6;

/// Blocks may be torn: their sectors are old or new.
const TORN: Selection = Selection {
    exhaustive_max: 4,
    random: 16,
    seed: 1,
    tear: Tear::Sectors,
};

/// A transaction in the logs whose page is destroyed falls, and with it what only it says: a
/// rebuild says so.
#[test]
fn transactions_that_a_rebuild_leaves_out_are_counted() {
    let used = Arc::new(RamDevice::new("used", 64 * 256));
    FileSystem::format(share(Arc::clone(&used)), &FormatOptions::default()).unwrap();
    let options = MountOptions {
        background: Background::None,
        log_data_pages: 0,
        ..MountOptions::default()
    };
    let fs = FileSystem::open(share(Arc::clone(&used)), options).unwrap();
    fs.checkpoint_now().unwrap();
    let new = NewInode {
        mode: 0o100_644,
        ..NewInode::default()
    };
    let file = fs.create(&fs.root().unwrap(), b"file", &new).unwrap();
    let page = [0xa7; BLOCK_BYTES];
    fs.write(&file, 0, &page, Stamp::Set).unwrap();
    fs.fsync(&file, SyncScope::All).unwrap();
    let crashed = RamDevice::from_image("crashed", &used.snapshot());
    drop(file);
    fs.close().unwrap();

    let region = Region::open(share(Arc::new(RamDevice::from_image(
        "read",
        &used.snapshot(),
    ))));
    let layout = read_layout(&region).unwrap();
    let bytes = crashed.snapshot().to_bytes();
    let is_page = |block: &&[u8]| **block == page;
    let at = bytes
        .chunks(BLOCK_BYTES)
        .position(|block| is_page(&block))
        .unwrap();
    let destroy = |first: u64, blocks: usize| {
        let zeroes = vec![0; blocks * BLOCK_BYTES];
        let parts: &[&[u8]] = &[&zeroes];
        let (lba, flags) = (Lba::new(first), WriteFlags::NONE);
        crashed.execute(Io::Write { lba, parts, flags }).unwrap();
    };
    destroy(to_u64(at), 1);
    destroy(layout.nat_pair(0), 2);
    let report = check(share(Arc::new(crashed)), &REBUILD).unwrap();
    let said = report
        .lost()
        .iter()
        .any(|lost| lost.contains("1 of 1 transactions"));
    assert!(said, "{:?}", report.lost());
}
