//! The whole file system on a simulated machine: many cores, every schedule, every crash.
//!
//! **Problem.** A race between two calls may be harmless in memory and still leave a medium that
//! recovery turns into a state no caller asked for. **Structure.** [`Base`] is a small volume, made
//! once. [`play`] mounts it on recording media and lets each virtual core run a `script` of
//! random calls under the schedule of a seed; each core notes what it did and what was promised.
//!
//! **Invariants.** Names and files have one owner, except those whose key says otherwise; every
//! object has an identity of its own (its uid), so a value tells which call it came from. A seed
//! decides everything. **Crash.** The model of it is `dure_block::crash`.
//!
//! # Checking
//! `history` gathers the notes and says which recovered values are legal, `content` does so for the
//! bytes of files, `tree` reads a volume, and `cut` cuts the power and recovers.

mod content;
mod cut;
mod history;
mod script;
mod tree;
mod trial;

use dure_block::overlay::OverlayRam;
use dure_block::ram::{Image, RamDevice};
use dure_block::record::{LostFlushes, LostStores, RecordLog};
use dure_block::share;
use dure_check::{CheckOptions, check};
use dure_fs::{
    Absorbed, Background, DirectoryRule, Durability, FileSystem, FlushRule, FormatOptions,
    MountOptions, NewInode, NvramAbsorb, PageCaching, RangeRule, Rules, Stamp, StoreRules,
    TableCopies, VolumeRules, WorkerActivity,
};
use dure_sync::atomic::AtomicU64;
use dure_sync::clock::{Timestamp, pretend_wall};
use dure_sync::sim::{Config, try_run};
use dure_sync::{Arc, CoreId, random, thread};

pub use crate::media::On;
use crate::media::{Raw, Recorder, Sizes, format};
use cut::Cutter;
use history::{DATA, History, LOG, PRIVATE, SHARED};
pub use script::Scene;
use script::{Core, Promises, Shape};
pub use trial::{Trial, play_each, play_under};

/// The most cores a run has.
pub const CORES_MAX: u16 = 8;
/// Blocks of the volume, or of its disk.
const VOLUME_BLOCKS: u64 = 2048;
/// Blocks of persistent memory of a volume that has a disk, too.
const NVM_BLOCKS: u64 = 1280;

/// When volumes are made and recovered, outside of simulated machines.
const START: Timestamp = Timestamp {
    secs: 1_700_000_000,
    nanos: 0,
};

/// A fresh volume in memory with two journals, and segments so short that they fill.
///
/// # Panics
/// If `blocks` are too few for a volume.
#[must_use]
pub fn small_volume(blocks: u64) -> Arc<RamDevice> {
    small_volume_with(blocks, TableCopies::One)
}

/// The same, with so many copies of NAT and SIT.
///
/// # Panics
/// If the device is too small.
#[must_use]
pub fn small_volume_with(blocks: u64, table_copies: TableCopies) -> Arc<RamDevice> {
    let ram = Arc::new(RamDevice::new("ram", blocks));
    let format = FormatOptions {
        journals: Some(2),
        segment_blocks: Some(32),
        table_copies,
        ..FormatOptions::default()
    };
    FileSystem::format(share(Arc::clone(&ram)), &format).expect("the device is large enough");
    ram
}

/// Options of a small cache, without threads: for counts of lines, which workers would move.
#[must_use]
pub fn quiet() -> MountOptions {
    MountOptions {
        background: Background::None,
        cache_bytes: 2 << 20,
        recovery_threads: Some(1),
        ..MountOptions::default()
    }
}

/// Mounts a small volume with these.
///
/// # Panics
/// If it cannot be mounted.
#[must_use]
pub fn mount_small(ram: &Arc<RamDevice>, volume_rules: VolumeRules) -> FileSystem {
    let options = MountOptions {
        volume_rules,
        ..quiet()
    };
    FileSystem::open(share(Arc::clone(ram)), options).expect("a small volume is mounted")
}

/// Checks a volume that was unmounted.
///
/// # Panics
/// If there is anything to say about it.
pub fn assert_whole(ram: Arc<RamDevice>) {
    let report = check(share(ram), &CheckOptions::default()).expect("it can be read");
    assert_eq!(report.issues(), [], "after unmount");
}

/// What is played, and how hard it is looked at.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The machine.
    pub config: Config,
    /// Cores that run scripts, at most [`CORES_MAX`].
    pub cores: u16,
    /// Calls of each core.
    pub calls: u32,
    /// What the calls are about.
    pub scene: Scene,
    /// Crash points.
    pub cuts: u32,
    /// The journal's rules.
    pub rules: Rules,
    /// The store's rules, in the run.
    pub store_rules: StoreRules,
    /// Flushes that the disk loses, in the run: a canary.
    pub lost_flushes: LostFlushes,
    /// Instructions that persistent memory loses, in the run: a canary.
    pub lost_stores: LostStores,
    /// Policies other than the default ones: what `-o` would say.
    pub policies: &'static [(&'static str, &'static str)],
}

/// What a run has shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls that did something.
    pub calls: u64,
    /// Promises: fsync and sync.
    pub promises: u64,
    /// Crashes recovered from, those of recoveries included.
    pub crashes: u64,
    /// Visible operations of the machine.
    pub steps: u64,
    /// Calls refused for lack of room.
    pub no_space: u64,
    /// Rounds of workers in the background, and pages they wrote back.
    pub rounds: u64,
    /// The pages.
    pub worker_pages: u64,
    /// Blocks of persistent memory that dirty pages had taken in the end.
    pub absorbed: u64,
    /// Pages moved from there to the disk.
    pub moved: u64,
}

impl Counts {
    /// Adds another run.
    pub fn add(&mut self, other: Counts) {
        self.calls += other.calls;
        self.promises += other.promises;
        self.crashes += other.crashes;
        self.steps += other.steps;
        self.no_space += other.no_space;
        self.rounds += other.rounds;
        self.worker_pages += other.worker_pages;
        self.absorbed += other.absorbed;
        self.moved += other.moved;
    }
}

/// A fresh volume with the directories and files that all scripts expect.
#[derive(Debug, Clone)]
pub struct Base {
    image: Arc<Image>,
    media: Raw,
}

impl Base {
    /// Formats a volume with that many journals on such media.
    ///
    /// # Panics
    /// If the volume cannot be made: there is nothing to test then.
    #[must_use]
    pub fn new(media: On, journals: u32) -> Base {
        // On one core at a fixed time, so that the volume is the same each time.
        let make = move || {
            pretend_wall(Some(START));
            random::pretend(Some(1));
            Base::make(media, journals)
        };
        let task = thread::spawn_on("base", CoreId::new(0), make);
        task.join().expect("a volume can be made")
    }

    fn make(media: On, journals: u32) -> Base {
        let sizes = Sizes {
            blocks: VOLUME_BLOCKS,
            nvm_blocks: NVM_BLOCKS,
            journals,
        };
        let (ram, media) = format(media, sizes).expect("the media are large enough");
        let volume = media.volume(&share(Arc::clone(&ram)));
        let volume = volume.expect("its media are those of one volume");
        let fs = FileSystem::open(volume, mount_options(0, Rules::default(), &[]))
            .expect("a fresh volume mounts");
        populate(&fs).expect("a fresh volume has room");
        fs.close().expect("a RAM disk does not fail");
        Base {
            image: Arc::new(ram.snapshot()),
            media,
        }
    }
}

fn populate(fs: &FileSystem) -> dure_fs::Result<()> {
    let new = |entity: u32, mode| NewInode {
        mode,
        uid: entity,
        ..NewInode::default()
    };
    let root = fs.root()?;
    let shared = fs.mkdir(&root, b"shared", &new(SHARED, 0o755))?;
    let data = fs.create(&shared, b"data", &new(DATA, 0o100_644))?;
    for page in 0..=u64::from(CORES_MAX) {
        fs.write(&data, page * 4096, &[0; 4096], Stamp::Set)?;
    }
    fs.create(&shared, b"log", &new(LOG, 0o100_644))?;
    for core in 0..CORES_MAX {
        let name = format!("c{core}");
        fs.mkdir(
            &root,
            name.as_bytes(),
            &new(PRIVATE + u32::from(core), 0o755),
        )?;
    }
    Ok(())
}

/// How all volumes here are mounted; `variety` picks what may differ between runs.
fn mount_options(
    variety: u64,
    rules: Rules,
    policies: &[(&'static str, &'static str)],
) -> MountOptions {
    let mut options = MountOptions {
        cache_bytes: if variety % 5 == 4 { 128 << 10 } else { 2 << 20 },
        flush: (variety % 7 == 6).then_some(FlushRule::Two),
        rules,
        ..quiet()
    };
    if variety % 3 == 1 {
        options.volume_rules.ranges = RangeRule::AtOnce;
    }
    if variety % 4 >= 2 {
        options.volume_rules.directories = DirectoryRule::AtOnce;
    }
    for (key, value) in policies {
        assert_eq!(options.set_policy(key, value), Ok(true), "{key}={value}");
    }
    options
}

/// What is left of the machine when it stops.
struct Played {
    log: Arc<RecordLog>,
    history: History,
    live: Result<(), String>,
    workers: Vec<WorkerActivity>,
    absorbed: Option<Absorbed>,
}

/// Runs one seed: scripts, live check, crashes.
///
/// # Errors
/// The first violation, panic, deadlock or hang, with what replays it.
pub fn play(base: &Base, plan: &Plan) -> Result<Counts, String> {
    let seed = plan.config.seed;
    let replay = |what: String| {
        let Plan { cores, config, .. } = plan;
        let name = thread_name();
        format!(
            "seed={seed} cores={cores} schedule={:?}: {what}\nreplay: cargo xtask sim -p dure-sim --seed {seed} -- {name}",
            config.schedule
        )
    };
    let (machine, volume) = (plan.clone(), base.clone());
    let run = try_run(plan.config.clone(), move || on_machine(&volume, &machine))
        .map_err(|failure| failure.to_string())?;
    let Played {
        log,
        history,
        live,
        workers,
        absorbed,
    } = run.value;
    live.map_err(|what| replay(format!("in memory: {what}")))?;
    let mut options = mount_options(seed, plan.rules, plan.policies);
    options.core = Some(Arc::default());
    let mut cutter = Cutter::new(base, &log, &history, options, seed);
    // What a recovery writes depends on the seed, and on neither time nor randomness of the machine.
    pretend_wall(Some(START));
    random::pretend(Some(seed));
    let cut = (0..plan.cuts).try_for_each(|_| cutter.cut());
    pretend_wall(None);
    random::pretend(None);
    cut.map_err(replay)?;
    let (calls, promises, no_space) = history.counts();
    Ok(Counts {
        calls,
        promises,
        crashes: cutter.crashes(),
        steps: run.report.steps,
        no_space,
        rounds: workers.iter().map(|worker| worker.rounds).sum(),
        worker_pages: workers.iter().map(|worker| worker.pages).sum(),
        absorbed: absorbed.map_or(0, |absorbed| absorbed.blocks),
        moved: absorbed.map_or(0, |absorbed| absorbed.moved),
    })
}

/// The name of the test: its harness names the thread after it.
fn thread_name() -> String {
    std::thread::current().name().unwrap_or("sim_").to_owned()
}

/// What is durable when a call returns, by these options.
fn promises_of(options: &MountOptions) -> Promises {
    match (options.page_cache, options.durability, options.nvram.absorb) {
        (Some(PageCaching::None), Some(Durability::Posix), _) => Promises::Synced,
        (Some(PageCaching::None), _, _) => Promises::EachCall,
        (Some(PageCaching::Nvram), _, None | Some(NvramAbsorb::All | NvramAbsorb::Move)) => {
            Promises::Data
        }
        _ => Promises::Synced,
    }
}

/// The scripts, and the check of what they left in memory.
fn on_machine(base: &Base, plan: &Plan) -> Played {
    let seed = plan.config.seed;
    let log = Arc::new(RecordLog::default());
    let mut options = mount_options(seed, plan.rules, plan.policies);
    options.volume_rules.store = plan.store_rules;
    let promises = promises_of(&options);
    let recorder = Recorder {
        lost_flushes: plan.lost_flushes,
        lost_stores: plan.lost_stores,
        ..Recorder::FAITHFUL
    };
    let volume = share(OverlayRam::new("volume", Arc::clone(&base.image)));
    let device = recorder.volume(base.media, &volume, &log);
    let device = device.expect("a clean volume is recorded");
    let options = Trial::new(seed, plan.cores).with_workers(options);
    let fs = FileSystem::open(device, options).expect("a clean volume mounts");
    let clock = AtomicU64::new(1);
    let notes = thread::scope(|scope| {
        let tasks: Vec<_> = (0..plan.cores)
            .map(|core| {
                let (fs, log, clock) = (&fs, &log, &clock);
                let shape = Shape {
                    core,
                    cores: plan.cores,
                    calls: plan.calls,
                    seed,
                    scene: plan.scene,
                    promises,
                };
                scope.spawn_on(CoreId::new(core), move || {
                    Core::new(fs, log, clock, shape).run()
                })
            })
            .collect();
        let joined = tasks.into_iter().map(|task| task.join());
        joined
            .map(|notes| notes.expect("a panic has ended the run"))
            .collect()
    });
    let history = History::new(notes);
    let live = tree::read(&fs).and_then(|found| history.check(&found, history::CrashMoment::Live));
    if seed % 4 == 3 {
        fs.close().expect("a RAM disk does not fail");
    }
    let activity = fs.activity();
    Played {
        log,
        history,
        live,
        workers: activity.workers,
        absorbed: activity.absorbed,
    }
}
