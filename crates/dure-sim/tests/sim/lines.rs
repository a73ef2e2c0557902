//! Calls on private files share no written cache line: two cores that work in directories of their
//! own, below one that they share, move no line between them. docs/design/scaling.md names what
//! still is shared.
//!
//! Runs with the sim backend only: `cargo xtask sim -p dure-sim`. The machine sees every atomic,
//! lock and counted reference; plain memory is seen as far as a lock protects it.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a panic is how a run fails; tests print what they have seen"
)]

use dure::{File, OpenOptions, Session, Volume};
use dure_block::nvm::NvmDevice;
use dure_block::ram::RamDevice;
use dure_block::{BLOCK_BYTES, Device, share};
use dure_fs::members::{Member, join};
use dure_fs::{Background, FileSystem, FormatOptions, MountOptions, NvmRegion, PageCaching};
use dure_pmem::Region;
use dure_sync::atomic::{AtomicU32, Ordering};
use dure_sync::sim::{Config, Report, run};
use dure_sync::{Arc, CoreId, thread};

const CORES: u16 = 2;
const PAGES: u64 = 16;
/// Calls before the lines are counted: what happens once is done then.
const WARM: u64 = 8;
/// Transfers that a run may have beyond another one: two runs of different lengths meet differently
/// at the start and at the end.
const TRANSFERS_MAX: u64 = 8;

fn mount(page_cache: PageCaching) -> MountOptions {
    MountOptions {
        background: Background::None,
        cache_bytes: 8 << 20,
        recovery_threads: Some(1),
        page_cache: Some(page_cache),
        ..MountOptions::default()
    }
}

fn volume() -> Volume {
    let device = share(RamDevice::new("lines", 8192));
    let format = FormatOptions {
        journals: Some(u32::from(CORES)),
        ..FormatOptions::default()
    };
    Volume::create_on(device, &format, mount(PageCaching::Dram)).unwrap()
}

/// For logs that have room for all of a run.
const NVM_BLOCKS: usize = 65536;

fn nvm() -> (Arc<dyn Device>, FormatOptions) {
    let region = Region::anonymous(NVM_BLOCKS * BLOCK_BYTES).unwrap();
    let format = FormatOptions {
        journals: Some(u32::from(CORES)),
        segment_blocks: Some(512),
        ..FormatOptions::default()
    };
    (share(NvmDevice::in_memory("lines", region)), format)
}

/// The same in persistent memory, without a page cache: each call is durable when it returns.
fn volume_in_nvm() -> Volume {
    let (device, format) = nvm();
    Volume::create_on(device, &format, mount(PageCaching::None)).unwrap()
}

/// The same on a disk, with dirty pages in persistent memory: each write is durable when it returns.
fn volume_beside_nvm() -> Volume {
    let (nvm, mut format) = nvm();
    let disk: Arc<dyn Device> = share(RamDevice::new("disk", 65536));
    format.nvm = vec![NvmRegion {
        device: nvm.clone(),
        path: "nvm".into(),
        node: 0,
    }];
    FileSystem::format(disk.clone(), &format).unwrap();
    let members = [nvm, disk].map(|device| Member {
        device,
        path: String::new(),
    });
    Volume::open_on(join(&members).unwrap(), mount(PageCaching::Nvram)).unwrap()
}

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
    /// The core, on a volume in persistent memory.
    OwnInNvm,
    /// The core, on a volume with dirty pages in persistent memory.
    OwnBesideNvm,
}

/// Each core calls `call` so many times, at the same time as the others.
fn play(maker: Maker, turns: u64, call: fn(&mut Private, u64)) -> Report {
    let body = move || {
        let volume = match maker {
            Maker::Own | Maker::First => volume(),
            Maker::OwnInNvm => volume_in_nvm(),
            Maker::OwnBesideNvm => volume_beside_nvm(),
        };
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
fn transfers(maker: Maker, call: fn(&mut Private, u64)) -> (u64, Report) {
    // Between 200 and 250 creates and unlinks 62 lines move, once: as many as a vector of 4 KiB has
    // that grows and leaves its memory to others. Up to 400 no more do. Both runs are longer than
    // that.
    let few = play(maker, 250, call);
    let many = play(maker, 400, call);
    (many.transfers.saturating_sub(few.transfers), many)
}

fn check(maker: Maker, what: &str, call: fn(&mut Private, u64)) {
    let (more, report) = transfers(maker, call);
    assert!(
        more <= TRANSFERS_MAX,
        "{what}: {more} transfers in 400 calls: {:#?}",
        report.hot_lines
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

/// In persistent memory without a page cache; each write and create is in the log when it returns.
#[test]
fn sim_lines_private_calls_in_nvm_write_no_shared_line() {
    check(Maker::OwnInNvm, "read", Private::read);
    check(Maker::OwnInNvm, "overwrite", Private::overwrite);
    check(Maker::OwnInNvm, "create and unlink", Private::create_unlink);
}

/// With dirty pages in persistent memory beside a disk; each write is in a block there, and in the
/// log, when it returns.
#[test]
fn sim_lines_private_calls_with_absorbed_data_write_no_shared_line() {
    check(Maker::OwnBesideNvm, "read", Private::read);
    check(Maker::OwnBesideNvm, "overwrite", Private::overwrite);
    check(
        Maker::OwnBesideNvm,
        "create and unlink",
        Private::create_unlink,
    );
}

/// Their records are granules of one node, which every change refers to.
#[test]
fn sim_lines_changes_of_inodes_of_one_node_are_apart() {
    check(Maker::First, "chmod", Private::chmod);
}

/// A directory that has grown, in which every core has names of its own.
struct Crowd {
    session: Session,
    core: u16,
}

impl Crowd {
    fn make(&self, path: &str) {
        let options = OpenOptions::new().write(true).create_new(true);
        drop(options.open(&self.session, path).unwrap());
    }

    fn create_unlink(&self, _turn: u64) {
        let path = format!("/crowd/own{}", self.core);
        self.make(&path);
        self.session.remove_file(&path).unwrap();
    }

    fn rename(&self, turn: u64) {
        let names = [0, 1].map(|n| format!("/crowd/own{}-{}", self.core, (turn + n) % 2));
        if !self.session.exists(&names[0]).unwrap() {
            self.make(&names[0]);
        }
        self.session.rename(&names[0], &names[1]).unwrap();
    }

    fn list(&self, _turn: u64) {
        let entries = self.session.read_dir("/crowd").unwrap();
        assert!(entries.count() >= CROWD);
    }
}

/// Files that make three levels of bucket nodes.
const CROWD: usize = 700;

fn crowd(turns: u64, call: fn(&Crowd, u64)) -> Report {
    let body = move || {
        let volume = volume();
        let root = volume.root();
        root.create_dir("/crowd").unwrap();
        let filler = Crowd {
            session: root,
            core: 0,
        };
        for n in 0..CROWD {
            filler.make(&format!("/crowd/there-{n:_>30}"));
        }
        let ready = AtomicU32::new(0);
        thread::scope(|scope| {
            for core in 0..CORES {
                let (ready, session) = (&ready, volume.root());
                scope.spawn_on(CoreId::new(core), move || {
                    let crowd = Crowd { session, core };
                    // They meet.
                    (0..20).for_each(|turn| call(&crowd, turn));
                    ready.fetch_add(1, Ordering::AcqRel);
                    while ready.load(Ordering::Acquire) < u32::from(CORES) {
                        thread::yield_now();
                    }
                    (0..turns).for_each(|turn| call(&crowd, turn));
                });
            }
        });
    };
    run(Config::min_clock(usize::from(CORES)), body).report
}

/// Lines that move per hundred calls.
fn crowd_lines(what: &str, call: fn(&Crowd, u64)) -> u64 {
    let (few, many) = (crowd(20, call), crowd(70, call));
    let more = many.transfers.saturating_sub(few.transfers);
    println!(
        "{what}: {more} transfers in 100 calls: {:#?}",
        many.hot_lines
    );
    more
}

#[test]
fn sim_lines_changes_of_a_grown_directory_move_few_lines() {
    let create = crowd_lines("create and unlink", Crowd::create_unlink);
    let rename = crowd_lines("rename", Crowd::rename);
    let list = crowd_lines("list", Crowd::list);
    // Now and then a bucket is split or a node freed. A listing of seven hundred entries reads a
    // hundred nodes and takes their granules' locks.
    assert!(create <= 100 && rename <= 100, "{create}, {rename}");
    assert!(list <= 90_000, "{list}");
}

/// The canary: changes of one directory do move lines.
#[test]
fn sim_lines_canary_a_shared_directory_is_seen() {
    let (more, _) = transfers(Maker::Own, |private, turn| {
        let mode = if turn.is_multiple_of(2) { 0o700 } else { 0o750 };
        private.session.set_permissions("/shared", mode).unwrap();
    });
    assert!(more > 400, "{more} transfers");
}
