//! Seeks beside calls that move what they look for: what they answer was so at a moment of the
//! call, and calls that leave it as it is share no line with them.
//!
//! Runs with the sim backend only: `cargo xtask sim -p dure-sim -- sim_seek`.

#![expect(clippy::unwrap_used, reason = "tests say what they expect")]

use dure_block::share;
use dure_fs::{
    AllocateMode, FileSystem, InodeRef, NewInode, SeekTarget, SetAttributes, Stamp, SyncScope,
    VolumeRules,
};
use dure_sim::conflicts::{Options, survey};
use dure_sim::schedules::{Trial, play_each, small_volume};
use dure_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use dure_sync::sim::Rng;
use dure_sync::{CoreId, thread};

const PAGE: u64 = 4096;
/// Pages that the file gets.
const PAGES: u64 = 12;

/// Something that a task moves and others look at. SeqCst: the order in which calls end and begin.
#[derive(Debug, Default)]
struct Moved {
    /// Where it was when the last call had ended.
    before: AtomicU64,
    /// Where it is when the running call has ended.
    after: AtomicU64,
}

impl Moved {
    fn at(place: u64) -> Moved {
        Moved {
            before: AtomicU64::new(place),
            after: AtomicU64::new(place),
        }
    }

    fn to(&self, place: u64, call: impl FnOnce()) {
        self.after.store(place, Ordering::SeqCst);
        call();
        self.before.store(place, Ordering::SeqCst);
    }

    /// `look` finds it between where it was when the call began and where it may be when it has
    /// ended.
    fn is_found(&self, what: &str, look: impl FnOnce() -> u64) -> u64 {
        let before = self.before.load(Ordering::SeqCst);
        let found = look();
        let after = self.after.load(Ordering::SeqCst);
        let between = before.min(after)..=before.max(after);
        assert!(
            between.contains(&found),
            "{what} is {found}, not of {between:?}"
        );
        found
    }
}

struct File {
    fs: FileSystem,
    inode: InodeRef,
    size: Moved,
    /// Where data begins: what comes before was punched.
    data: Moved,
    /// Where it ends.
    hole: Moved,
    done: AtomicBool,
}

impl File {
    fn new(trial: Trial) -> File {
        let fs = trial.mount(share(small_volume(2048)), VolumeRules::default());
        let new = NewInode {
            mode: 0o100_644,
            ..NewInode::default()
        };
        let inode = fs.create(&fs.root().unwrap(), b"file", &new).unwrap();
        fs.write(&inode, 0, &[1; 2 * 4096], Stamp::Set).unwrap();
        File {
            fs,
            inode,
            size: Moved::at(2 * PAGE),
            data: Moved::at(0),
            hole: Moved::at(2 * PAGE),
            done: AtomicBool::new(false),
        }
    }

    fn resize(&self, size: u64) {
        let set = SetAttributes {
            size: Some(size),
            ..SetAttributes::default()
        };
        self.fs.set_attributes(&self.inode, &set).unwrap();
    }

    /// The file grows by data at its end, or by a hole that is then filled.
    fn grow(&self, random: &mut Rng) {
        let (mut filled, mut size) = (2, 2 * PAGE);
        while filled < PAGES {
            let next = filled + 1 + random.below(2);
            let write = |from: u64, to: u64| {
                let bytes = vec![1; usize::try_from((to - from) * PAGE).unwrap()];
                let done = self.fs.write(&self.inode, from * PAGE, &bytes, Stamp::Set);
                assert_eq!(done.unwrap(), bytes.len());
            };
            if random.below(2) == 0 && size == filled * PAGE {
                // Data to the end, and then more of it: its end moves with the size.
                let to = next * PAGE;
                self.size
                    .to(to, || self.hole.to(to, || write(filled, next)));
                size = to;
            } else {
                if size < (next + 2) * PAGE {
                    size = (next + 2) * PAGE;
                    self.size.to(size, || self.resize(size));
                }
                self.hole.to(next * PAGE, || write(filled, next));
            }
            filled = next;
        }
    }

    /// The file loses its end, page by page.
    fn shrink(&self, random: &mut Rng) {
        let mut size = self.size.before.load(Ordering::SeqCst);
        let data = self.data.after.load(Ordering::SeqCst);
        loop {
            size -= PAGE * (1 + random.below(2));
            if size < data + 2 * PAGE {
                break;
            }
            let hole = self.hole.before.load(Ordering::SeqCst).min(size);
            self.size
                .to(size, || self.hole.to(hole, || self.resize(size)));
        }
    }

    /// Makes holes of the first pages, as long as there are two with data behind them.
    fn punch(&self) {
        let mut punched = 0;
        while !self.done.load(Ordering::SeqCst) {
            if (punched + 3) * PAGE <= self.hole.before.load(Ordering::SeqCst) {
                self.data.to((punched + 1) * PAGE, || {
                    let offset = punched * PAGE;
                    self.fs
                        .allocate(&self.inode, AllocateMode::Punch, offset, PAGE)
                        .unwrap();
                });
                punched += 1;
            }
            self.fs.fsync(&self.inode, SyncScope::Data).unwrap();
        }
    }

    /// Looks for all of it; `falls`: the end of the file moves down.
    fn look(&self, random: &mut Rng, falls: bool) {
        let mut last = self.size.before.load(Ordering::SeqCst);
        while !self.done.load(Ordering::SeqCst) {
            let size = self
                .size
                .is_found("the size", || self.fs.size(&self.inode).unwrap());
            assert!(
                if falls { size <= last } else { size >= last },
                "{size} follows {last}"
            );
            last = size;
            let seek = |from, target| self.fs.seek(&self.inode, from, target).unwrap();
            let data = self.data.is_found("the first data", || {
                seek(0, SeekTarget::Data).expect("there is some")
            });
            // Behind what may have been punched by now.
            let from = data + PAGE + random.below(PAGE);
            let hole = || seek(from, SeekTarget::Hole).expect("at the end at least");
            if random.below(2) == 0 {
                let before = self.hole.before.load(Ordering::SeqCst);
                let found = hole();
                let after = self.hole.after.load(Ordering::SeqCst);
                let punched = self.data.after.load(Ordering::SeqCst) > from;
                assert!(
                    punched || found >= before.min(after) && found <= before.max(after),
                    "a hole at {found}, not from {before} to {after}"
                );
            }
        }
    }
}

/// One core moves the end of the file and of its data, one its beginning, the others look.
fn seek_beside(trial: Trial) {
    let (seed, file) = (trial.seed, File::new(trial));
    let phase = |falls: bool| {
        file.done.store(false, Ordering::SeqCst);
        thread::scope(|scope| {
            let file = &file;
            for core in 1..4 {
                scope.spawn_on(CoreId::new(core), move || {
                    let mut random = Rng::new(seed ^ u64::from(core) << 32);
                    match core {
                        1 if !falls => file.punch(),
                        _ => file.look(&mut random, falls),
                    }
                });
            }
            scope.spawn_on(CoreId::new(0), move || {
                let mut random = Rng::new(seed);
                match falls {
                    false => file.grow(&mut random),
                    true => file.shrink(&mut random),
                }
                file.done.store(true, Ordering::SeqCst);
            });
        });
    };
    phase(false);
    phase(true);
    file.fs.close().unwrap();
}

#[test]
fn sim_seek_answers_what_was_so() {
    play_each(100, 4, seek_beside);
}

#[test]
fn sim_seek_shares_no_line_with_what_leaves_its_answer() {
    for pair in [
        "pwrite /a/f in a hole | lseek /a/f SEEK_END",
        "pwrite /a/f in a hole | lseek /a/f SEEK_HOLE",
        "pwrite /a/f behind the end | lseek /a/f SEEK_DATA",
        "truncate /a/f longer | lseek /a/f SEEK_HOLE",
        "rename /a/f /a/x | lseek /a/f SEEK_END",
        "lseek /a/f SEEK_DATA | fsync /a/f dirty",
    ] {
        let options = Options {
            only: pair.to_owned(),
            ..Options::default()
        };
        let found = survey(&options, |_, _| ());
        assert_eq!(found.wrong, Vec::<String>::new());
        let counts = (found.pairs, found.conflict_free);
        assert_eq!(counts, (1, 1), "{pair}: {:#?}", found.exceptions);
    }
}
