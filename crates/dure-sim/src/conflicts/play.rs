//! A pair on two virtual cores.

use dure::Volume;
use dure_block::ram::RamDevice;
use dure_block::share;
use dure_fs::{Background, FormatOptions, MountOptions};
use dure_sync::atomic::{AtomicU32, Ordering};
use dure_sync::sim::{self, Config, Detail, SharedLine};
use dure_sync::{CoreId, Mutex, thread};

use super::act::{JOINT, Side};
use super::plan::{Plan, Planned, Stage};
use super::survey::Options;
use crate::model::{Mounted, agree};

const CORES: u16 = 2;
/// Blocks of the device.
const BLOCKS: u64 = 16384;
/// No other lock is held with it.
const RANK: u8 = 1;

/// The result of a pair.
#[derive(Debug)]
pub(super) struct Played {
    /// The lines both cores used, one of them for writing, in the call that counts.
    pub(super) lines: Vec<SharedLine>,
    /// Calls whose answer was not that of the model.
    pub(super) wrong: Vec<String>,
}

fn volume(mount: &MountOptions) -> Volume {
    let device = share(RamDevice::new("conflicts", BLOCKS));
    let format = FormatOptions {
        journals: Some(u32::from(CORES)),
        uuid: Some([7; 16]),
        ..FormatOptions::default()
    };
    let mount = MountOptions {
        background: Background::None,
        // Room for more inodes than the calls make: the number of shards depends on it, and decides
        // which inodes share one.
        cache_bytes: 64 << 20,
        recovery_threads: Some(1),
        ..mount.clone()
    };
    Volume::create_on(device, &format, mount).expect("a volume in memory is made")
}

/// A barrier for both cores.
struct Meeting {
    come: AtomicU32,
}

impl Meeting {
    /// Waits until both have arrived `times` times.
    fn wait(&self, times: u32) {
        self.come.fetch_add(1, Ordering::AcqRel);
        while self.come.load(Ordering::Acquire) < times * u32::from(CORES) {
            thread::yield_now();
        }
    }
}

/// What the two cores share besides the volume.
struct Common {
    meeting: Meeting,
    joint: Mutex<RANK, Option<dure::File>>,
    wrong: Mutex<RANK, Vec<String>>,
    beside: Option<fn()>,
}

impl Common {
    fn check(&self, mounted: &mut Mounted, planned: &Planned) {
        let answer = mounted.apply(&planned.step);
        self.compare(planned, &answer);
    }

    fn compare(&self, planned: &Planned, answer: &crate::model::Outcome) {
        if !agree(&planned.answer, answer) {
            let cut = |text: String| text.chars().take(200).collect::<String>();
            self.wrong.lock().push(format!(
                "{:?}: model {}, dure {}",
                planned.step.operation,
                cut(format!("{:?}", planned.answer)),
                cut(format!("{answer:?}"))
            ));
        }
    }

    fn stage(&self, side: Side, mounted: &mut Mounted, stage: &Stage, counts: bool) {
        match stage {
            Stage::Alone(who, steps) if *who == side => {
                steps
                    .iter()
                    .for_each(|planned| self.check(mounted, planned));
            }
            Stage::Alone(..) => {}
            Stage::Share => match side {
                Side::First => *self.joint.lock() = mounted.share(JOINT),
                Side::Second => {
                    while self.joint.lock().is_none() {
                        thread::yield_now();
                    }
                    mounted.adopt(JOINT, self.joint.lock().take().expect("it was there"));
                }
            },
            Stage::Together(both) => {
                let planned = &both[side.index()];
                sim::watch_task(counts);
                let answer = mounted.apply(&planned.step);
                if let Some(beside) = self.beside {
                    beside();
                }
                sim::watch_task(false);
                self.compare(planned, &answer);
            }
        }
    }
}

/// Plays a pair.
pub(super) fn play(plan: &Plan, options: &Options, detail: Detail) -> Played {
    let (plan, mount, beside) = (plan.clone(), options.mount.clone(), options.beside);
    let body = move || {
        sim::watch_begin(detail);
        let volume = volume(&mount);
        let common = Common {
            meeting: Meeting {
                come: AtomicU32::new(0),
            },
            joint: Mutex::new(None),
            wrong: Mutex::new(Vec::new()),
            beside,
        };
        let count = plan.stages.len();
        thread::scope(|scope| {
            for side in [Side::First, Side::Second] {
                let (common, plan, session) = (&common, &plan, volume.root());
                let core = CoreId::new(u16::try_from(side.index()).expect("0 or 1"));
                scope.spawn_on(core, move || {
                    let mut mounted = Mounted::new(&session);
                    for (index, stage) in plan.stages.iter().enumerate() {
                        common
                            .meeting
                            .wait(u32::try_from(index + 1).expect("few stages"));
                        common.stage(side, &mut mounted, stage, index + 1 == count);
                    }
                    // Descriptors stay open until the other core's call has ended, too.
                    common
                        .meeting
                        .wait(u32::try_from(count + 1).expect("few stages"));
                });
            }
        });
        let lines = sim::watch_end();
        let wrong = common.wrong.into_inner();
        Played { lines, wrong }
    };
    sim::run(Config::min_clock(usize::from(CORES)), body).value
}
