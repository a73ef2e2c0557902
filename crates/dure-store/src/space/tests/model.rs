//! The space against a naive model: sets of blocks.

use proptest::prelude::*;

use super::*;
use crate::units::BlockNo;

#[derive(Debug, Clone)]
enum Step {
    Data {
        core: u16,
        want: u32,
    },
    /// Data for which blocks were promised.
    Promised {
        core: u16,
        want: u32,
    },
    Promise(u64),
    Node {
        core: u16,
    },
    Release(usize),
    Live(usize),
    Free(usize),
    EarlyFree(usize),
    LateLive(usize),
    MoveImage(usize),
    ReleaseImages,
    TakeLog,
    Clean(usize),
    Remount,
}

fn step() -> impl Strategy<Value = Step> {
    let any = any::<usize>();
    prop_oneof![
        8 => (0..5_u16, 1..100_u32).prop_map(|(core, want)| Step::Data { core, want }),
        3 => (0..5_u16, 1..100_u32).prop_map(|(core, want)| Step::Promised { core, want }),
        1 => (0..200_u64).prop_map(Step::Promise),
        2 => (0..5_u16).prop_map(|core| Step::Node { core }),
        2 => any.prop_map(Step::Release),
        6 => any.prop_map(Step::Live),
        5 => any.prop_map(Step::Free),
        2 => any.prop_map(Step::EarlyFree),
        2 => any.prop_map(Step::LateLive),
        2 => any.prop_map(Step::MoveImage),
        1 => Just(Step::ReleaseImages),
        1 => Just(Step::TakeLog),
        1 => any.prop_map(Step::Clean),
        1 => Just(Step::Remount),
    ]
}

/// What ought to be.
#[derive(Default)]
struct Model {
    placed: Vec<Run>,
    live: Vec<Run>,
    /// Freed by valid handles, placement not settled.
    early: Vec<Run>,
    images: Vec<BlockNo>,
    replaced: Vec<BlockNo>,
    logs: Vec<SegNo>,
    checkpoint: u64,
}

fn pick<T>(list: &mut Vec<T>, index: usize) -> Option<T> {
    (!list.is_empty()).then(|| list.swap_remove(index % list.len()))
}

fn blocks_of(runs: &[Run]) -> impl Iterator<Item = u64> {
    runs.iter()
        .flat_map(|run| run.first.0..run.first.0 + u64::from(run.count))
}

impl Model {
    fn live_blocks(&self) -> BTreeSet<u64> {
        blocks_of(&self.live)
            .chain(self.images.iter().map(|block| block.0))
            .collect()
    }

    fn allocated(&self) -> BTreeSet<u64> {
        let mut all = self.live_blocks();
        all.extend(blocks_of(&self.placed).chain(blocks_of(&self.early)));
        all.extend(self.replaced.iter().map(|block| block.0));
        all
    }

    fn take(&mut self, space: &Space, run: Run) {
        let before = self.allocated();
        assert!(
            blocks_of(&[run]).all(|block| !before.contains(&block)),
            "{run:?} given twice"
        );
        let segment = space.locate(run.first).0;
        assert!(!self.logs.contains(&segment), "{run:?} is in a log");
        assert_eq!(
            segment,
            space
                .locate(BlockNo(run.first.0 + u64::from(run.count) - 1))
                .0
        );
        self.placed.push(run);
    }

    fn data(&mut self, space: &Space, core: CoreId, want: u32, class: OpClass) {
        let before = space.statistics();
        let promised = match class {
            OpClass::Promised => before.promised,
            _ => 0,
        };
        let possible = before.available + promised >= u64::from(want);
        assert_eq!(space.reserve(core, want, class), possible);
        if before.available >= u64::from(want) || !possible {
            let left = space.statistics().promised;
            assert!(left >= before.promised, "promised blocks come last");
        }
        let mut rest = if possible { want } else { 0 };
        // Sizes are as random as any choice.
        let temperature = match want % 3 {
            0 => Temperature::Hot,
            1 => Temperature::Warm,
            _ => Temperature::Cold,
        };
        while rest > 0 {
            let run = space.alloc_data(core, temperature, rest).expect("reserved");
            assert!(run.count >= 1 && run.count <= rest);
            self.take(space, run);
            rest -= run.count;
        }
    }

    fn node(&mut self, space: &Space, core: CoreId) {
        if space.reserve(core, 1, OpClass::Delete) {
            let block = space.alloc_node(core).expect("reserved");
            self.take(space, one(block));
            self.placed.pop();
            space.image_moved(BlockNo::NONE, block).unwrap();
            self.images.push(block);
        } else {
            let statistics = space.statistics();
            assert_eq!(statistics.available + statistics.kept, 0);
        }
    }

    fn move_image(&mut self, space: &Space, index: usize) {
        if !space.reserve(core(0), 1, OpClass::Delete) {
            return;
        }
        let Some(old) = pick(&mut self.images, index) else {
            return space.unreserve(core(0), 1);
        };
        self.replaced.push(old);
        let new = space.alloc_node(core(0)).expect("reserved");
        self.take(space, one(new));
        self.placed.pop();
        space.image_moved(old, new).unwrap();
        self.images.push(new);
    }

    /// Through the medium: what is not live is free afterwards.
    fn remount(&mut self, space: Space) -> Space {
        self.checkpoint += 1;
        write(&space, self.checkpoint);
        let Space {
            layout,
            region,
            packs,
            ..
        } = space;
        let space = Space::load(region, &layout, packs).unwrap();
        // One ring is shorter by now; only the journal headers know.
        self.logs.pop();
        for segment in &self.logs {
            space.mark_log(layout.segment_start(*segment)).unwrap();
        }
        self.placed.clear();
        self.early.clear();
        self.replaced.clear();
        let live = self.live_blocks();
        let main = layout.main..layout.main + space.statistics().total;
        for block in main {
            assert_eq!(
                space.is_live(BlockNo(block)),
                live.contains(&block),
                "block {block}"
            );
        }
        space
    }

    fn apply(&mut self, space: &Space, step: Step) {
        match step {
            Step::Data { core, want } => {
                self.data(space, CoreId::new(core), want, OpClass::Normal);
            }
            Step::Promised { core, want } => {
                self.data(space, CoreId::new(core), want, OpClass::Promised);
            }
            Step::Promise(blocks) => {
                let before = space.statistics();
                let room = before.available + before.promised;
                assert_eq!(space.promise(blocks), blocks.min(room));
            }
            Step::Node { core } => self.node(space, CoreId::new(core)),
            Step::Release(index) => {
                if let Some(run) = pick(&mut self.placed, index) {
                    space.release(run);
                    space.unreserve(core(1), run.count);
                }
            }
            Step::Live(index) => {
                if let Some(run) = pick(&mut self.placed, index) {
                    space.settle([Effect::Live(run)]);
                    self.live.push(run);
                }
            }
            Step::Free(index) => {
                if let Some(run) = pick(&mut self.live, index) {
                    space.settle([Effect::Free(run)]);
                }
            }
            Step::EarlyFree(index) => {
                if let Some(run) = pick(&mut self.placed, index) {
                    space.settle([Effect::Free(run)]);
                    self.early.push(run);
                }
            }
            Step::LateLive(index) => {
                if let Some(run) = pick(&mut self.early, index) {
                    space.settle([Effect::Live(run)]);
                }
            }
            Step::MoveImage(index) => self.move_image(space, index),
            Step::ReleaseImages => {
                space.images_released();
                self.replaced.clear();
            }
            Step::TakeLog => {
                let segment = space.alloc_log_segment(CoreId::new(0));
                if let Some(segment) = segment {
                    let first = space.layout.segment_start(segment);
                    self.take(space, Run { first, count: 32 });
                    self.placed.pop();
                    self.logs.push(segment);
                }
            }
            Step::Clean(index) => {
                let segment = SegNo(u32::try_from(index % 10).unwrap());
                if space.begin_cleaning(segment) {
                    self.data(space, core(0), 3, OpClass::Normal);
                    space.end_cleaning(segment);
                }
            }
            Step::Remount => unreachable!("needs the space itself"),
        }
    }

    fn compare(&self, space: &Space) {
        let statistics = space.statistics();
        let logs = u64::try_from(self.logs.len()).unwrap();
        let allocated = u64::try_from(self.allocated().len()).unwrap();
        let live = u64::try_from(self.live_blocks().len()).unwrap();
        let anybody = statistics.available + statistics.kept + statistics.promised;
        assert_eq!(anybody, statistics.total - allocated - 32 * logs);
        assert_eq!(statistics.free, statistics.total - live - 32 * logs);
        assert_eq!(u64::from(statistics.segments_log), logs);
        let SpaceStatistics {
            segments_free,
            segments_data,
            segments_node,
            ..
        } = statistics;
        let others = segments_free + segments_data + segments_node;
        assert_eq!(u64::from(others) + logs, u64::from(space.layout.segments));
    }
}

/// Everything that is left, to the last block; none twice.
fn drain(space: &Space, model: &mut Model, want: u32) {
    space.promise(0);
    let statistics = space.statistics();
    let mut left = statistics.available + statistics.kept;
    while left > 0 {
        let want = want.min(u32::try_from(left).unwrap());
        assert!(space.reserve(core(3), want, OpClass::Delete));
        let run = space
            .alloc_data(core(3), Temperature::Warm, want)
            .expect("reserved");
        space.unreserve(core(3), want - run.count);
        model.take(space, run);
        left -= u64::from(run.count);
    }
    assert!(!space.reserve(core(0), 1, OpClass::Delete));
    assert!(space.alloc_data(core(0), Temperature::Warm, 1).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn does_what_the_model_does(
        partitions in 1..4_u32,
        steps in proptest::collection::vec(step(), 1..200),
        last in prop_oneof![Just(1_u32), 2..40_u32],
    ) {
        let mut space = empty(partitions);
        let mut model = Model::default();
        for step in steps {
            if let Step::Remount = step {
                space = model.remount(space);
            } else {
                model.apply(&space, step);
            }
            model.compare(&space);
        }
        drain(&space, &mut model, last);
    }
}
