//! Calls on private files share no written cache line: two cores that work in directories of their
//! own, below one that they share, move no line between them. docs/design/scaling.md names what
//! still is shared.
//!
//! Runs with the sim backend only: `cargo xtask sim -p dure-sim`. The machine sees every atomic,
//! lock and counted reference; plain memory is seen as far as a lock protects it.

#![expect(clippy::unwrap_used, reason = "a panic is how a run fails")]

use dure::{File, OpenOptions, Session};
use dure_sync::atomic::{AtomicU32, Ordering};
use dure_sync::sim::{Config, Report, run};
use dure_sync::{CoreId, thread};

use crate::profiles::Profile;

const CORES: u16 = 2;
const PAGES: u64 = 16;
/// Calls before the lines are counted: what happens once is done then.
const WARM: u64 = 8;
/// Transfers that a run may have beyond another one: two runs of different lengths meet differently
/// at the start and at the end.
const TRANSFERS_MAX: u64 = 8;

/// What a core has for itself.
struct Private {
    session: Session,
    directory: String,
    file: File,
    page: Vec<u8>,
}

impl Private {
    /// Made on the core that uses it, as a program does.
    fn new(session: Session, core: u16) -> Private {
        let directory = format!("/shared/c{core}");
        session.create_dir(&directory).unwrap();
        let path = format!("{directory}/file");
        let options = OpenOptions::new().read(true).write(true).create(true);
        let file = options.open(&session, &path).unwrap();
        let page = vec![1; 4096];
        for number in 0..PAGES {
            file.write_all_at(&page, number * 4096).unwrap();
        }
        Private {
            session,
            directory,
            file,
            page,
        }
    }

    fn path(&self) -> String {
        format!("{}/file", self.directory)
    }

    fn offset(&self, turn: u64) -> u64 {
        turn % PAGES * 4096
    }

    fn read(&mut self, turn: u64) {
        let offset = self.offset(turn);
        self.file.read_exact_at(&mut self.page, offset).unwrap();
    }

    fn overwrite(&mut self, turn: u64) {
        self.file
            .write_all_at(&self.page, self.offset(turn))
            .unwrap();
    }

    fn overwrite_fsync(&mut self, turn: u64) {
        self.overwrite(turn);
        self.file.sync_all().unwrap();
    }

    fn stat(&mut self, _turn: u64) {
        assert!(self.session.metadata(self.path()).unwrap().is_file());
    }

    fn chmod(&mut self, turn: u64) {
        let mode = if turn.is_multiple_of(2) { 0o600 } else { 0o640 };
        self.session.set_permissions(self.path(), mode).unwrap();
    }

    fn miss(&mut self, _turn: u64) {
        let path = format!("{}/nothing", self.directory);
        assert!(!self.session.exists(path).unwrap());
    }

    fn open(&mut self, _turn: u64) {
        let options = OpenOptions::new().read(true);
        drop(options.open(&self.session, self.path()).unwrap());
    }

    /// What all cores open.
    fn open_shared(&mut self, _turn: u64) {
        let options = OpenOptions::new().read(true);
        drop(options.open(&self.session, "/shared").unwrap());
    }

    /// What somebody else has open meanwhile.
    fn open_shared_twice(&mut self, _turn: u64) {
        let options = OpenOptions::new().read(true);
        let first = options.open(&self.session, "/shared").unwrap();
        let second = options.open(&self.session, "/shared").unwrap();
        drop((first, second));
    }

    fn stat_through_link(&mut self, _turn: u64) {
        let path = self.path().replace("/shared", "/link");
        assert!(self.session.metadata(path).unwrap().is_file());
    }

    fn create_unlink(&mut self, _turn: u64) {
        let path = format!("{}/new", self.directory);
        let options = OpenOptions::new().write(true).create_new(true);
        drop(options.open(&self.session, &path).unwrap());
        self.session.remove_file(&path).unwrap();
    }
}

/// Who makes what a core has for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Maker {
    /// The core, as most programs do.
    Own,
    /// Core 0 for all of them: what is private then lies side by side.
    First,
}

/// Each core calls `call` so many times, at the same time as the others.
fn play(profile: Profile, maker: Maker, turns: u64, call: fn(&mut Private, u64)) -> Report {
    let body = move || {
        let volume = profile.volume(CORES);
        volume.root().create_dir("/shared").unwrap();
        volume.root().symlink("/shared", "/link").unwrap();
        let ready = AtomicU32::new(0);
        let make = |core| Private::new(volume.root(), core);
        let mut made: Vec<Option<Private>> = (0..CORES)
            .map(|core| (maker == Maker::First).then(|| make(core)))
            .collect();
        thread::scope(|scope| {
            for core in 0..CORES {
                let (ready, session) = (&ready, volume.root());
                let made = made[usize::from(core)].take();
                scope.spawn_on(CoreId::new(core), move || {
                    let mut private = made.unwrap_or_else(|| Private::new(session, core));
                    (0..WARM).for_each(|turn| call(&mut private, turn));
                    ready.fetch_add(1, Ordering::AcqRel);
                    while ready.load(Ordering::Acquire) < u32::from(CORES) {
                        thread::yield_now();
                    }
                    (0..turns).for_each(|turn| call(&mut private, turn));
                    private
                });
            }
        });
    };
    run(Config::min_clock(usize::from(CORES)), body).report
}

/// What `turns` more calls of each core move between them.
fn transfers(profile: Profile, maker: Maker, call: fn(&mut Private, u64)) -> (u64, Report) {
    // Between 200 and 250 creates and unlinks 62 lines move, once: as many as a vector of 4 KiB has
    // that grows and leaves its memory to others. Up to 400 no more do. Both runs are longer than
    // that.
    let few = play(profile, maker, 250, call);
    let many = play(profile, maker, 400, call);
    (many.transfers.saturating_sub(few.transfers), many)
}

fn check(maker: Maker, what: &str, call: fn(&mut Private, u64)) {
    check_in(Profile::Disk, maker, what, call);
}

fn check_in(profile: Profile, maker: Maker, what: &str, call: fn(&mut Private, u64)) {
    let (more, report) = transfers(profile, maker, call);
    assert!(
        more <= TRANSFERS_MAX,
        "{profile:?}: {what}: {more} transfers in 400 calls: {:#?}",
        report.hot_lines
    );
}

/// What every profile promises of files and names that one core uses.
fn check_private_calls(profile: Profile) {
    check_in(profile, Maker::Own, "read", Private::read);
    check_in(profile, Maker::Own, "overwrite", Private::overwrite);
    if profile.logs_to_nvm() {
        let call = Private::overwrite_fsync;
        check_in(profile, Maker::Own, "overwrite and fsync", call);
    }
    check_in(
        profile,
        Maker::Own,
        "create and unlink",
        Private::create_unlink,
    );
}

#[test]
fn sim_lines_a_private_read_writes_no_shared_line() {
    check(Maker::Own, "read", Private::read);
}

#[test]
fn sim_lines_a_private_overwrite_writes_no_shared_line() {
    check(Maker::Own, "overwrite", Private::overwrite);
}

#[test]
fn sim_lines_a_private_stat_writes_no_shared_line() {
    check(Maker::Own, "stat", Private::stat);
}

#[test]
fn sim_lines_a_private_miss_writes_no_shared_line() {
    check(Maker::Own, "lookup of a missing name", Private::miss);
}

#[test]
fn sim_lines_a_private_open_writes_no_shared_line() {
    check(Maker::Own, "open", Private::open);
}

#[test]
fn sim_lines_an_open_of_what_others_open_writes_no_shared_line() {
    check(Maker::Own, "open", Private::open_shared);
    check(Maker::Own, "open twice", Private::open_shared_twice);
}

#[test]
fn sim_lines_a_walk_through_a_shared_link_writes_no_shared_line() {
    check(
        Maker::Own,
        "stat through a link",
        Private::stat_through_link,
    );
}

#[test]
fn sim_lines_a_private_create_and_unlink_write_no_shared_line() {
    check(Maker::Own, "create and unlink", Private::create_unlink);
}

/// Reading, overwriting and looking at a file write its own lines only, whoever made it.
#[test]
fn sim_lines_files_that_one_core_made_are_apart() {
    check(Maker::First, "read", Private::read);
    check(Maker::First, "overwrite", Private::overwrite);
    check(Maker::First, "stat", Private::stat);
    check(Maker::First, "open", Private::open);
}

#[test]
fn sim_lines_private_calls_in_persistent_memory() {
    check_private_calls(Profile::Nvm);
}

/// Each write and create is in the log when it returns.
#[test]
fn sim_lines_private_calls_without_a_page_cache_strict() {
    check_private_calls(Profile::Strict);
}

#[test]
fn sim_lines_private_calls_without_a_page_cache_posix() {
    check_private_calls(Profile::Posix);
}

#[test]
fn sim_lines_private_calls_beside_persistent_memory() {
    check_private_calls(Profile::Hybrid);
}

/// The disk has the logs.
#[test]
fn sim_lines_private_calls_with_logs_on_the_disk() {
    check_private_calls(Profile::HybridBlockLog);
}

/// Each write is in a block in persistent memory, and in the log, when it returns.
#[test]
fn sim_lines_private_calls_with_absorbed_data() {
    check_private_calls(Profile::Nvram);
}

#[test]
fn sim_lines_private_calls_with_absorbed_syncs() {
    check_private_calls(Profile::NvramSync);
}

/// Their records are granules of one node, which every change refers to.
#[test]
fn sim_lines_changes_of_inodes_of_one_node_are_apart() {
    check(Maker::First, "chmod", Private::chmod);
}

/// The canary: changes of one directory do move lines, in every profile.
#[test]
fn sim_lines_canary_a_shared_directory_is_seen() {
    for profile in Profile::ALL {
        let (more, _) = transfers(profile, Maker::Own, |private, turn| {
            let mode = if turn.is_multiple_of(2) { 0o700 } else { 0o750 };
            private.session.set_permissions("/shared", mode).unwrap();
        });
        assert!(more > 10 * TRANSFERS_MAX, "{profile:?}: {more} transfers");
    }
}
