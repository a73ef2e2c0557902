//! Paths that are walked while they change: whoever walks beside a change sees what was before it
//! or what is after it, and whoever begins after it sees what is after it.
//!
//! One core makes changes, each a step from one known state to the next; others walk. A walk that
//! began when `done` changes were over and ended when `started` had begun must come to what the
//! states between allow: it looks for the directory, then whether it may search it, then for the
//! name, each at a moment of its own, in this order. Runs with the sim backend only:
//! `cargo xtask sim -p dure-sim`.

#![expect(clippy::unwrap_used, reason = "a panic is how a run fails")]

use dure::{Credentials, OpenOptions, Session, Volume};
use dure_block::ram::RamDevice;
use dure_block::share;
use dure_fs::{AccessTime, FormatOptions, MountOptions};
use dure_sim::schedules::{Trial, play_each};
use dure_sync::atomic::{AtomicU64, Ordering};
use dure_sync::sim::Rng;
use dure_sync::{CoreId, thread};
use rustix::io::Errno;

const CHANGES: u64 = 40;
const PATH: &str = "/a/dir/name";
const ENOENT: i32 = Errno::NOENT.raw_os_error();
const EACCES: i32 = Errno::ACCESS.raw_os_error();

fn volume(trial: Trial, access_time: AccessTime) -> Volume {
    let device = share(RamDevice::new("paths", 1024));
    let format = FormatOptions {
        journals: Some(2),
        segment_blocks: Some(32),
        ..FormatOptions::default()
    };
    let mount = MountOptions {
        access_time,
        ..trial.options()
    };
    Volume::create_on(device, &format, mount).unwrap()
}

/// What a walk may end in: the length of the file, or an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Length(u64),
    Missing,
    Refused,
}

impl Outcome {
    fn of(result: dure::Result<u64>) -> Outcome {
        match result {
            Ok(length) => Outcome::Length(length),
            Err(error) if error.errno() == ENOENT => Outcome::Missing,
            Err(error) if error.errno() == EACCES => Outcome::Refused,
            Err(error) => panic!("{error}"),
        }
    }
}

/// What a walk meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    /// The directory is in its place.
    in_place: bool,
    /// Others may search it.
    open: bool,
    /// Length of the file at the name.
    length: Option<u64>,
}

impl State {
    fn encode(self) -> u64 {
        let length = self.length.map_or(0, |length| length + 1);
        length << 2 | u64::from(self.in_place) << 1 | u64::from(self.open)
    }

    fn decode(word: u64) -> State {
        State {
            in_place: word & 2 != 0,
            open: word & 1 != 0,
            length: (word >> 2).checked_sub(1),
        }
    }
}

const START: State = State {
    in_place: true,
    open: true,
    length: None,
};

/// Whether a walk can end so while these states follow each other.
fn allows(states: &[State], outcome: Outcome) -> bool {
    let found = states.iter().position(|state| state.in_place);
    if states.iter().any(|state| !state.in_place) && outcome == Outcome::Missing {
        return true;
    }
    let Some(found) = found else {
        return false;
    };
    let states = &states[found..];
    if outcome == Outcome::Refused {
        return states.iter().any(|state| !state.open);
    }
    let Some(entered) = states.iter().position(|state| state.open) else {
        return false;
    };
    let value = |state: &State| state.length.map_or(Outcome::Missing, Outcome::Length);
    states[entered..]
        .iter()
        .any(|state| value(state) == outcome)
}

/// The changes so far, told to those who walk.
struct Story {
    /// The state after each change. Written before `started` says that it is there.
    states: Vec<AtomicU64>,
    started: AtomicU64,
    done: AtomicU64,
}

impl Story {
    fn change(&self, state: State, change: impl FnOnce()) {
        let number = self.started.load(Ordering::Relaxed) + 1;
        self.states[usize::try_from(number).unwrap()].store(state.encode(), Ordering::Relaxed);
        // Release: pairs with the Acquire in `check`.
        self.started.store(number, Ordering::Release);
        change();
        self.done.store(number, Ordering::Release);
    }

    /// Walks, and compares with what there was meanwhile.
    fn check(&self, what: &str, walk: impl FnOnce() -> Outcome) {
        // Acquire: pairs with the Release in `change`.
        let done = self.done.load(Ordering::Acquire);
        let outcome = walk();
        let started = self.started.load(Ordering::Acquire);
        let between = done..=started;
        let states: Vec<State> = between
            .map(|number| &self.states[usize::try_from(number).unwrap()])
            .map(|state| State::decode(state.load(Ordering::Relaxed)))
            .collect();
        assert!(
            allows(&states, outcome),
            "{what}: {outcome:?} beside {states:?}"
        );
    }
}

/// The state of the tree, as its only writer knows it.
struct Writer<'s> {
    root: Session,
    story: &'s Story,
    rng: Rng,
    state: State,
}

impl Writer<'_> {
    fn dir(&self) -> &'static str {
        if self.state.in_place {
            "/a/dir"
        } else {
            "/away"
        }
    }

    fn step(&mut self) {
        let (dir, root, story) = (self.dir(), self.root.clone(), self.story);
        let name = format!("{dir}/name");
        let other = format!("{dir}/other");
        match (self.rng.below(8), self.state.length) {
            (0, _) => {
                self.state.in_place = !self.state.in_place;
                let to = self.dir();
                story.change(self.state, || root.rename(dir, to).unwrap());
            }
            (1, _) => {
                self.state.open = !self.state.open;
                let mode = if self.state.open { 0o755 } else { 0o700 };
                story.change(self.state, || root.set_permissions(dir, mode).unwrap());
            }
            (2 | 3, _) => {
                let length = self.rng.below(3000);
                root.write("/new", &vec![1; usize::try_from(length).unwrap()])
                    .unwrap();
                self.state.length = Some(length);
                story.change(self.state, || root.rename("/new", &name).unwrap());
            }
            (_, None) => {
                self.state.length = Some(0);
                let create = OpenOptions::new().write(true).create_new(true);
                story.change(self.state, || drop(create.open(&root, &name).unwrap()));
            }
            (4, Some(_)) => {
                self.state.length = None;
                story.change(self.state, || root.remove_file(&name).unwrap());
            }
            (5, Some(_)) => {
                self.state.length = None;
                story.change(self.state, || root.rename(&name, &other).unwrap());
                root.remove_file(&other).unwrap();
            }
            (6, Some(length)) => {
                let file = OpenOptions::new().write(true).open(&root, &name).unwrap();
                self.state.length = Some(length + 1);
                story.change(self.state, || file.write_all_at(b"x", length).unwrap());
            }
            (_, Some(_)) => {
                let length = self.rng.below(5000);
                self.state.length = Some(length);
                story.change(self.state, || root.truncate(&name, length).unwrap());
            }
        }
    }
}

fn look(story: &Story, user: &Session, seed: u64) {
    let mut rng = Rng::new(seed);
    while story.done.load(Ordering::Acquire) < CHANGES {
        match rng.below(4) {
            0 => story.check("open", || {
                let open = OpenOptions::new().read(true).open(user, PATH);
                // The length of an open file may change behind the walk: only the errors are
                // checked.
                match Outcome::of(open.map(|_| 0)) {
                    Outcome::Length(_) => Outcome::of(user.metadata(PATH).map(|m| m.len())),
                    failed => failed,
                }
            }),
            1 => story.check("lstat", || {
                Outcome::of(user.symlink_metadata(PATH).map(|m| m.len()))
            }),
            _ => story.check("stat", || Outcome::of(user.metadata(PATH).map(|m| m.len()))),
        }
    }
}

fn walk_beside_changes(trial: Trial) {
    let seed = trial.seed;
    let volume = volume(trial, AccessTime::Relative);
    let root = volume.root();
    root.create_dir_all("/a/dir").unwrap();
    let story = Story {
        states: (0..=CHANGES)
            .map(|_| AtomicU64::new(START.encode()))
            .collect(),
        started: AtomicU64::new(0),
        done: AtomicU64::new(0),
    };
    let user = volume.session(Credentials::user(1000, 1000, &[]));
    thread::scope(|scope| {
        for core in 1..3_u16 {
            let (story, user) = (&story, user.clone());
            scope.spawn_on(CoreId::new(core), move || {
                look(story, &user, seed * 8 + u64::from(core))
            });
        }
        let mut writer = Writer {
            root,
            story: &story,
            rng: Rng::new(seed),
            state: START,
        };
        for _ in 0..CHANGES {
            writer.step();
        }
    });
}

#[test]
fn sim_paths_walks_see_one_side_of_a_change() {
    play_each(200, 3, walk_beside_changes);
}

/// A name that is only ever replaced is always there.
fn replaced(trial: Trial) {
    let seed = trial.seed;
    let volume = volume(trial, AccessTime::Never);
    let root = volume.root();
    root.create_dir("/d").unwrap();
    root.write("/d/name", b"").unwrap();
    let rounds = 20;
    let done = AtomicU64::new(0);
    thread::scope(|scope| {
        for core in 1..3_u16 {
            let (done, session) = (&done, root.clone());
            scope.spawn_on(CoreId::new(core), move || {
                let mut rng = Rng::new(seed + u64::from(core));
                let mut before = 0;
                while done.load(Ordering::Acquire) < rounds {
                    let least = done.load(Ordering::Acquire);
                    let length = match rng.below(3) {
                        0 => session.metadata("/d/name").unwrap().len(),
                        1 => {
                            // Would make one of length 0 if the name were not there.
                            let create = OpenOptions::new().write(true).create(true);
                            let file = create.open(&session, "/d/name").unwrap();
                            file.metadata().unwrap().len()
                        }
                        _ => {
                            session.read("/d/name").unwrap();
                            continue;
                        }
                    };
                    assert!(
                        length >= least && length >= before,
                        "{length}, {least}, {before}"
                    );
                    before = length;
                }
            });
        }
        for round in 1..=rounds {
            let content = vec![7; usize::try_from(round).unwrap()];
            root.write("/new", &content).unwrap();
            root.rename("/new", "/d/name").unwrap();
            done.store(round, Ordering::Release);
        }
    });
}

#[test]
fn sim_paths_a_replaced_name_is_always_there() {
    play_each(150, 3, replaced);
}

/// Access times change under the shared lock.
fn read_and_stat(trial: Trial) {
    let seed = trial.seed;
    let volume = volume(trial, AccessTime::Always);
    let root = volume.root();
    root.write("/file", b"content").unwrap();
    let latest = AtomicU64::new(0);
    let rounds = 12;
    thread::scope(|scope| {
        for core in 1..3_u16 {
            let (latest, session) = (&latest, root.clone());
            scope.spawn_on(CoreId::new(core), move || {
                let mut rng = Rng::new(seed + u64::from(core));
                let accessed = |session: &Session| {
                    let time = session.metadata("/file").unwrap().accessed();
                    u64::try_from(time.secs).unwrap() * 1_000_000_000 + u64::from(time.nanos)
                };
                for _ in 0..rounds {
                    if rng.below(3) == 0 {
                        let nanos = std::time::Duration::from_nanos(rng.below(9_000_000));
                        thread::sleep(nanos);
                        session.read("/file").unwrap();
                        // What was shown once stays: times do not go back.
                        latest.fetch_max(accessed(&session), Ordering::AcqRel);
                    } else {
                        let least = latest.load(Ordering::Acquire);
                        let time = accessed(&session);
                        assert!(time >= least, "{time} after {least}");
                    }
                }
            });
        }
    });
}

#[test]
fn sim_paths_access_times_do_not_go_back() {
    play_each(150, 3, read_and_stat);
}

/// A symbolic link that is only ever replaced leads to what it did before or does now.
fn replaced_link(trial: Trial) {
    let seed = trial.seed;
    let policies = [AccessTime::Never, AccessTime::Relative, AccessTime::Always];
    let volume = volume(trial, policies[usize::try_from(seed / 3 % 3).unwrap()]);
    let root = volume.root();
    let rounds = 12;
    for round in 0..=rounds {
        root.create_dir(format!("/d{round}")).unwrap();
        let content = vec![7; usize::try_from(round).unwrap()];
        root.write(format!("/d{round}/name"), &content).unwrap();
    }
    root.symlink("/d0", "/link").unwrap();
    let done = AtomicU64::new(0);
    thread::scope(|scope| {
        for core in 1..3_u16 {
            let (done, session) = (&done, root.clone());
            scope.spawn_on(CoreId::new(core), move || {
                let mut rng = Rng::new(seed + u64::from(core));
                let mut before = 0;
                while done.load(Ordering::Acquire) < rounds {
                    let least = done.load(Ordering::Acquire);
                    let length = match rng.below(3) {
                        0 => session.metadata("/link/name").unwrap().len(),
                        1 => u64::try_from(session.read("/link/name").unwrap().len()).unwrap(),
                        _ => {
                            let target = session.read_link("/link").unwrap();
                            let number = target.to_str().unwrap().strip_prefix("/d");
                            number.unwrap().parse().unwrap()
                        }
                    };
                    assert!(
                        length >= least && length >= before,
                        "{length}, {least}, {before}"
                    );
                    before = length;
                }
            });
        }
        for round in 1..=rounds {
            root.symlink(format!("/d{round}"), "/new").unwrap();
            root.rename("/new", "/link").unwrap();
            done.store(round, Ordering::Release);
        }
    });
}

#[test]
fn sim_paths_a_replaced_link_leads_to_one_of_both() {
    play_each(150, 3, replaced_link);
}

/// Files that all cores open, while they lose their names: each goes with its last use.
fn last_uses(trial: Trial) {
    let seed = trial.seed;
    let volume = volume(trial, AccessTime::Relative);
    let root = volume.root();
    let in_use = || volume.statistics().inodes - volume.statistics().inodes_free;
    let before = in_use();
    let rounds = 4;
    let done = AtomicU64::new(0);
    thread::scope(|scope| {
        for core in 1..3_u16 {
            let (done, session) = (&done, root.clone());
            scope.spawn_on(CoreId::new(core), move || {
                let mut rng = Rng::new(seed + u64::from(core));
                let open = OpenOptions::new().read(true);
                let mut held = Vec::new();
                while done.load(Ordering::Acquire) < rounds {
                    match open.open(&session, "/file") {
                        Ok(file) => held.push(file),
                        Err(error) => assert_eq!(error.errno(), ENOENT, "{error}"),
                    }
                    if rng.below(3) == 0 {
                        held.clear();
                    }
                }
            });
        }
        let mut rng = Rng::new(seed);
        for round in 1..=rounds {
            root.write("/file", &vec![7; 5000]).unwrap();
            for _ in 0..rng.below(12) {
                root.metadata("/file").unwrap();
                drop(root.open("/file").unwrap());
            }
            if rng.below(2) == 0 {
                root.remove_file("/file").unwrap();
            } else {
                root.write("/other", b"").unwrap();
                root.rename("/other", "/file").unwrap();
                root.remove_file("/file").unwrap();
            }
            done.store(round, Ordering::Release);
        }
    });
    assert_eq!(in_use(), before, "all are gone");
}

#[test]
fn sim_paths_files_go_with_their_last_use() {
    play_each(200, 3, last_uses);
}
