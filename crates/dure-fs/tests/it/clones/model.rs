//! Random scripts of clones, writes and truncates, live, after an unmount, and wherever the power is cut.

use std::collections::BTreeMap;

use dure_block::crash::{CrashImages, Selection};
use dure_block::ram::RamDevice;
use dure_block::record::RecordDevice;
use dure_block::share;
use dure_fs::{
    AllocateMode, FileSystem, MountOptions, RecordPolicy, SetAttributes, Stamp, StoreRules,
    SyncScope, VolumeRules,
};
use dure_sync::Arc;
use dure_sync::random::Seeded;

use super::{P, PAGES, file, read, size};
use crate::snapshots::{expect_sound, formatted, options};

/// Names of files.
const FILES: u64 = 6;
/// What each file has.
pub(super) type Model = BTreeMap<String, Vec<u8>>;

#[track_caller]
pub(super) fn expect(fs: &FileSystem, model: &Model) {
    for (name, data) in model {
        let found = read(fs, name);
        let differs = found.iter().zip(data).position(|(a, b)| a != b);
        assert!(
            found == *data,
            "{name}: {} of {} bytes, differ at {differs:?}",
            found.len(),
            data.len()
        );
    }
}

/// One change, of the volume and of the model; the file that it changed.
fn step(fs: &FileSystem, random: &mut Seeded, model: &mut Model) -> Option<String> {
    let name = format!("f{}", random.below(FILES));
    let data = model.entry(name.clone()).or_default();
    let inode = file(fs, &name);
    let offset = random.below(PAGES * P);
    match random.below(8) {
        0..=2 => {
            let mut offset = offset.min(data.len() as u64 + 3 * P);
            let mut bytes =
                vec![random.next_u64().to_le_bytes()[0] | 1; size(random.below(5 * P) + 1)];
            // Sometimes what another file may have, too.
            if random.coin() {
                offset -= offset % P;
                bytes = vec![1; size((random.below(5) + 1) * P)];
            }
            fs.write(&inode, offset, &bytes, Stamp::Set).expect("room");
            let end = size(offset) + bytes.len();
            data.resize(data.len().max(end), 0);
            data[size(offset)..end].copy_from_slice(&bytes);
        }
        3 => {
            let set = SetAttributes {
                size: Some(offset),
                ..SetAttributes::default()
            };
            fs.set_attributes(&inode, &set).expect("room");
            data.resize(size(offset), 0);
        }
        4 => {
            let (mode, len) = match random.coin() {
                true => (AllocateMode::Punch, random.below(9 * P) + 1),
                false => (AllocateMode::ZeroKeepSize, random.below(3 * P) + 1),
            };
            fs.allocate(&inode, mode, offset, len).expect("room");
            let end = data.len().min(size(offset + len));
            data[size(offset).min(end)..end].fill(0);
        }
        5 if random.below(3) == 0 => {
            let root = fs.root().expect("a root");
            fs.unlink(&root, name.as_bytes()).expect("it is there");
            drop(inode);
            model.remove(&name);
        }
        6 => return clone_step(fs, random, model, &name),
        _ => {
            dedupe_step(fs, random, model, &name);
            // The file is as it was: what of it is durable must stay so.
            return None;
        }
    }
    Some(name)
}

/// Lets a file share what is the same in another one; the content of both stays.
fn dedupe_step(fs: &FileSystem, random: &mut Seeded, model: &Model, name: &str) {
    let other = format!("f{}", random.below(FILES));
    let (Some(source), Some(data)) = (model.get(&other), model.get(name)) else {
        return;
    };
    if other == name {
        return;
    }
    let from = random.below(3) * P;
    let to = if random.coin() {
        from
    } else {
        random.below(3) * P
    };
    let most = source.len().saturating_sub(size(from));
    let len = most.min(data.len().saturating_sub(size(to)));
    let (ours, theirs) = (
        &source[size(from).min(source.len())..],
        &data[size(to).min(data.len())..],
    );
    let equal = ours.iter().zip(theirs).take_while(|(a, b)| a == b).count() as u64;
    let (from_inode, to_inode) = (file(fs, &other), file(fs, name));
    let found = fs.dedupe_range((&from_inode, from), (&to_inode, to), len as u64);
    let found = found.expect("a good device");
    assert!(
        found.same <= equal,
        "{found:?} of {equal} bytes that are equal"
    );
    let whole = equal.min(len as u64) / P * P;
    assert!(found.same >= whole, "{found:?} of {equal}");
    assert!(
        !found.differs || found.same + P > equal,
        "{found:?} of {equal}"
    );
}

/// Clones some pages of another file.
fn clone_step(
    fs: &FileSystem,
    random: &mut Seeded,
    model: &mut Model,
    name: &str,
) -> Option<String> {
    let other = format!("f{}", random.below(FILES));
    let source = model.get(&other)?.clone();
    let data = model.entry(name.to_owned()).or_default();
    let whole = random.coin();
    let from = if whole {
        0
    } else {
        random.below(PAGES / 2) * P
    };
    let to = if whole {
        0
    } else {
        random.below(PAGES / 2) * P
    };
    let len = if whole {
        source.len() as u64
    } else {
        (random.below(30) + 1) * P
    };
    let (from_inode, to_inode) = (file(fs, &other), file(fs, name));
    let done = fs.clone_range((&from_inode, from), (&to_inode, to), len);
    let done = done.expect("a good device");
    let all = len.min((source.len() as u64).saturating_sub(from));
    assert!(
        done <= all && (done == all || done.is_multiple_of(P)),
        "{done} of {all}"
    );
    if done > 0 {
        let (start, end) = (size(to), size(to + done));
        data.resize(data.len().max(end), 0);
        data[start..end].copy_from_slice(&source[size(from)..size(from + done)]);
    }
    Some(name.to_owned())
}

/// What logs whole images, too, what logs no data, and what may lose data that was not synced.
fn policy(seed: u64) -> MountOptions {
    let mut options = options();
    match seed % 4 {
        1 => options.records = RecordPolicy::Image,
        2 => options.log_data_pages = 0,
        3 => options.data = dure_fs::DataMode::Writeback,
        _ => {}
    }
    options
}

#[test]
fn files_that_share_blocks_are_as_a_model_has_them() {
    for seed in 0..8 {
        let random = &mut Seeded::new(seed);
        let ram = formatted(4096);
        let mut fs = FileSystem::open(share(ram.clone()), policy(seed)).expect("it mounts");
        let mut model = Model::new();
        for round in 0..40 {
            for _ in 0..12 {
                step(&fs, random, &mut model);
                if random.below(4) == 0 {
                    let name = format!("f{}", random.below(FILES));
                    if model.contains_key(&name) {
                        fs.fsync(&file(&fs, &name), SyncScope::Data).expect("good");
                    }
                }
            }
            expect(&fs, &model);
            match random.below(6) {
                0 => drop(fs.create_snapshot(&format!("s{round}")).expect("room")),
                1 => {
                    let all = fs.snapshots();
                    if let Some(one) = all.get(random.index(all.len().max(1))) {
                        fs.delete_snapshot(&one.name).expect("it is there");
                    }
                }
                2 => fs.checkpoint_now().expect("a good device"),
                3 => {
                    fs.sync().expect("a good device");
                    let crashed = Arc::new(RamDevice::from_image("crashed", &ram.snapshot()));
                    let again = FileSystem::open(share(crashed.clone()), policy(seed));
                    let again = again.expect("it recovers");
                    expect(&again, &model);
                    again.close().expect("a good device");
                    expect_sound(&crashed);
                }
                _ => {}
            }
            if random.below(4) == 0 {
                fs.close().expect("a good device");
                expect_sound(&ram);
                fs = FileSystem::open(share(ram.clone()), policy(seed)).expect("it mounts");
                expect(&fs, &model);
            }
        }
        for name in model.keys() {
            fs.unlink(&fs.root().expect("a root"), name.as_bytes())
                .expect("there");
        }
        fs.sync().expect("a good device");
        assert_eq!(fs.blocks_shared(), 0, "seed {seed}");
        fs.close().expect("a good device");
        expect_sound(&ram);
    }
}

/// Runs a script with these rules, cuts the power at every write of it, and returns what is wrong
/// first: a file that was synced and not changed since, or a volume that is not sound.
pub(super) fn crash_everywhere(seed: u64, rules: StoreRules) -> (u32, Option<String>) {
    let ram = formatted(2048);
    let base = ram.snapshot();
    let record = RecordDevice::new(share(ram));
    let log = record.log();
    let mount = MountOptions {
        volume_rules: VolumeRules {
            store: rules,
            ..VolumeRules::default()
        },
        ..policy(seed)
    };
    let fs = FileSystem::open(share(record), mount).expect("it mounts");
    let random = &mut Seeded::new(seed);
    let mut model = Model::new();
    // From each step of the log on: what has to be there.
    let mut durable = vec![(0, Model::new())];
    for round in 0..14 {
        for _ in 0..random.below(5) + 1 {
            // From the begin of its change on a file may be old or new.
            let mut known = durable.last().expect("one").1.clone();
            let at = log.step();
            if let Some(name) = step(&fs, random, &mut model) {
                known.remove(&name);
                durable.push((at, known));
            }
        }
        match round % 4 {
            0 => fs.checkpoint_now().expect("a good device"),
            1 => drop(fs.create_snapshot(&format!("s{round}"))),
            _ => {}
        }
        fs.sync().expect("a good device");
        durable.push((log.step(), model.clone()));
    }
    let images = CrashImages::new(base, &log);
    let mut states = 0;
    for at in images.frontiers() {
        let point = images.at(at);
        let must = durable.iter().rfind(|(from, _)| *from <= at).expect("one");
        for choice in point.choices(Selection::default()).take(3) {
            let image = point.image(&choice).snapshot();
            let crashed = Arc::new(RamDevice::from_image("crashed", &image));
            states += 1;
            if let Some(wrong) = look(&crashed, &must.1) {
                return (states, Some(format!("step {at}: {wrong}")));
            }
        }
    }
    (states, None)
}

/// What is wrong with a volume after a crash.
pub(super) fn look(ram: &Arc<RamDevice>, must: &Model) -> Option<String> {
    // The check says of a crashed volume what the recovery will make of it.
    let report = dure_check::check(share(ram.clone()), &dure_check::CheckOptions::default());
    let report = report.expect("a superblock");
    let unclean = |kind: &dure_check::IssueKind| {
        use dure_check::IssueKind as K;
        matches!(
            kind,
            K::NotClean { .. } | K::PairSlotBad { .. } | K::SuperblockCopy { .. }
        )
    };
    let mut issues = report.issues().iter();
    if let Some(issue) = issues.find(|issue| !unclean(&issue.kind)) {
        return Some(format!("before the mount: {issue:?}"));
    }
    let fs = match FileSystem::open(share(ram.clone()), options()) {
        Ok(fs) => fs,
        Err(error) => return Some(error.to_string()),
    };
    for (name, data) in must {
        if read(&fs, name) != *data {
            return Some(format!("{name} is not as it was synced"));
        }
    }
    // Blocks that were given away too early are written now.
    for n in 0..20 {
        let _ = fs.write(
            &file(&fs, &format!("new{n}")),
            0,
            &[9; 16 << 12],
            Stamp::Set,
        );
    }
    if let Err(error) = fs.close() {
        return Some(error.to_string());
    }
    let check = dure_check::CheckOptions {
        data: dure_check::Data::Verify,
        ..dure_check::CheckOptions::default()
    };
    let report = dure_check::check(share(ram.clone()), &check).expect("a superblock");
    let issue = report.issues().first()?;
    Some(format!("{issue:?}"))
}

#[test]
fn a_crash_leaves_files_that_share_blocks_whole() {
    let mut all = 0;
    for seed in 0..4 {
        let (states, wrong) = crash_everywhere(seed, StoreRules::default());
        assert_eq!(wrong, None, "seed {seed}");
        all += states;
    }
    assert!(all > 300, "{all} states");
}
