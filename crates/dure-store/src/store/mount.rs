//! Mounting and unmounting a store.

use dure_block::Device;
use dure_journal::recovery::Scan;
use dure_journal::{Journal, JournalConfig, Records, RingStart};
use dure_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use dure_sync::{Arc, CoreId, Mutex, OnceLock};
use zerocopy::little_endian::{U32, U64};

use super::harden::LateOperations;
use super::recovered::{RecoveryStatistics, Stopwatch};
use super::snapshots::header_of;
use super::trim::TrimGate;
use super::{Store, StoreCounters, flags};
use crate::backlog::Backlog;
use crate::census::{self, Census};
use crate::checkpoint::crew::Crew;
use crate::checkpoint::{CheckpointState, Target, Writer};
use crate::data_log::DataLog;
use crate::error::{Error, Result};
use crate::format::sit::SegmentUse;
use crate::format::volume::{STATE_CLEAN, STATE_DIRTY, STATE_UNLOGGED, VolumeHeader};
use crate::frames::{Frame, FramePool};
use crate::headers::{read_header, read_layout};
use crate::layout::Layout;
use crate::media::{Region, VolumeMedia};
use crate::members::stamps;
use crate::node::cache::NodeCache;
use crate::node::nat::Nat;
use crate::node::{Node, NodeRef};
use crate::options::{Absorb, Durability, FlushRule, RecordPolicy, StoreOptions, StoreShares};
use crate::packs::{Packs, PairIndex, Table};
use crate::placement::Placement;
use crate::recovery::replay::Replayed;
use crate::recovery::{self, Medium};
use crate::settle::Settler;
use crate::snapshot::{Snapshots, View};
use crate::space::{OpClass, Space};
use crate::units::{BLOCK_BYTES, BlockNo, Nid, Run, to_usize};

/// A mount in the making.
#[derive(Debug)]
pub struct Mount {
    region: Arc<Region>,
    layout: Layout,
    /// The volume header and its generation.
    header: (VolumeHeader, u64),
    options: StoreOptions,
    threads: usize,
    nat: Arc<Nat>,
    snapshots: Arc<Snapshots>,
    /// The snapshot that is mounted; `None`: the volume.
    view: Option<Arc<View>>,
}

impl Mount {
    /// Reads what every mount needs first from `device`.
    ///
    /// # Errors
    /// `NotDure`, `Unsupported`, `Corrupt`, `TooSmall` when the device is shorter than the volume,
    /// `Unlogged` when there is nothing to recover it from, or a failed read.
    pub fn begin(device: Arc<dyn Device>, options: StoreOptions) -> Result<Mount> {
        let region = Region::open_with(device.clone(), options.queues);
        let layout = read_layout(&region)?;
        if !options.read_only {
            layout.superblock.expect_writable()?;
            stamps::are_stamped(&region, &layout)?;
        }
        let region = match layout.superblock.media().len() {
            1 => region,
            _ => region.on_nodes(device, &layout.nodes(), options.numa.topology()),
        };
        let header = read_header(&region, &layout)?;
        if let Some(name) = &options.snapshot {
            let snapshots = Arc::new(Snapshots::read(&region, &layout, &header.0)?);
            let packs = Arc::new(Packs::read(&region, &layout, &header.0)?);
            let view = Arc::new(View::of(&snapshots, name)?);
            let tables = (packs, snapshots);
            return Ok(Mount::of_snapshot((region, layout), tables, view, options));
        }
        if header.0.state.get() == STATE_UNLOGGED {
            return Err(Error::Unlogged);
        }
        Mount::new(region, layout, header, options)
    }

    pub(super) fn new(
        region: Arc<Region>,
        layout: Layout,
        header: (VolumeHeader, u64),
        options: StoreOptions,
    ) -> Result<Mount> {
        let threads = options
            .recovery_threads
            .unwrap_or_else(dure_sync::core_count)
            .max(1);
        let packs = Arc::new(Packs::read(&region, &layout, &header.0)?);
        let snapshots = match Snapshots::read(&region, &layout, &header.0) {
            // What writes nothing needs none of them.
            Err(_) if options.read_only => Snapshots::default(),
            read => read?,
        };
        let snapshots = Arc::new(snapshots);
        let nat = Arc::new(Nat::new(region.clone(), &layout, packs));
        Ok(Mount {
            region,
            layout,
            header,
            options,
            threads,
            nat,
            snapshots,
            view: None,
        })
    }

    /// The mount of a snapshot: read-only, and without a log.
    pub(super) fn of_snapshot(
        (region, layout): (Arc<Region>, Layout),
        (packs, snapshots): (Arc<Packs>, Arc<Snapshots>),
        view: Arc<View>,
        options: StoreOptions,
    ) -> Mount {
        let nat = Nat::new(region.clone(), &layout, packs).of_snapshot(view.clone());
        Mount {
            region,
            layout,
            header: (header_of(&view.info), 0),
            options: StoreOptions {
                read_only: true,
                ..options
            },
            threads: 1,
            nat: Arc::new(nat),
            snapshots,
            view: Some(view),
        }
    }

    /// What the volume lies on.
    pub fn media(&self) -> VolumeMedia {
        let [logs, _] = self.layout.areas(SegmentUse::Log);
        let beside = !logs.is_empty() && logs.end == self.layout.nvm_segments;
        let end = self.layout.main
            + u64::from(self.layout.nvm_segments) * u64::from(self.layout.segment_blocks);
        let mapped = self.region.is_nvm_before(BlockNo(end));
        match (self.region.is_nvm(), beside && mapped) {
            (true, _) => VolumeMedia::Nvm,
            (false, true) => VolumeMedia::NvmBesideDevice,
            (false, false) => VolumeMedia::Device,
        }
    }

    /// Says when what calls do is durable.
    pub fn set_durability(&mut self, durability: Durability) {
        self.options.durability = durability;
    }

    /// Lets data lie in persistent memory first.
    pub fn set_absorb(&mut self, absorb: Absorb) {
        self.options.absorb = Some(absorb);
        self.options.flush = FlushRule::Two;
    }

    /// Where everything lies.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Completes the mount; after a crash it recovers the volume first. `frames` is the memory of
    /// pages.
    ///
    /// # Errors
    /// `Corrupt`, `LogHole`, or a failed read or write.
    pub fn run(self, shares: StoreShares, frames: Arc<FramePool>) -> Result<Store> {
        let mut state = CheckpointState::new(self.header.0, self.header.1);
        if let Some(view) = self.view.clone() {
            self.count(&mut state.header)?;
            let space = Arc::new(self.space_of(&view)?);
            let placement = self.placement(space, shares.logged_pages, frames);
            return self.store((placement, state), None, None, shares);
        }
        let dirty = state.header.state.get() == STATE_DIRTY;
        let mut watch = Stopwatch::start(self.threads);
        // A clean volume's logs are empty, but the rings are needed all the same.
        let mut logs = recovery::read_logs(
            &self.region,
            (&self.layout, &state.header),
            self.options.rules,
            self.options.recover,
            self.threads,
        )?;
        watch.scanned(&logs);
        let space = Arc::new(self.load_space()?);
        for ring in logs.rings() {
            for segment in &ring.start.segments {
                space.mark_log(BlockNo(segment.number()))?;
            }
        }
        let mut replayed = None;
        if dirty {
            let found = self.recover(&mut logs, &space)?;
            watch.applied(&logs, &found);
            replayed = Some(found);
        }
        self.count(&mut state.header)?;
        let placement = self.placement(space.clone(), shares.logged_pages, frames);
        if self.options.read_only {
            space.count_pinned();
            let recovered = dirty.then_some(watch.statistics);
            return self.store((placement, state), replayed, recovered, shares);
        }
        recovery::first_nodes::read(&self.base(), replayed.as_ref())?;
        // What the logs made live.
        space.expect_dead(&self.snapshots.own())?;
        space.expect_dead(&space.own_of_shared())?;
        space.check_shared()?;
        let mut bad = Vec::new();
        if let Some(replayed) = replayed {
            bad = self.write_recovered(&mut state, &placement, replayed)?;
            flags::mend_superblocks(&self.region, &self.layout.superblock);
        }
        self.begin_epoch(&mut state, &logs)?;
        watch.written();
        space.lift_fences();
        for first in bad {
            // Not used again before the next mount.
            space.fence(Run { first, count: 1 })?;
        }
        let (epoch, first_number) = (state.header.epoch.get(), state.header.first_number.get());
        let rings = logs.rings().iter().map(|ring| ring.start.clone()).collect();
        let recovered = dirty.then_some(watch.statistics);
        // What recovery has freed and taken is known now.
        space.count_pinned();
        self.writer(&space, 0).keeper(CoreId::new(0)).hold(false);
        space.end_shared(CoreId::new(0));
        let store = self.store((placement, state), None, recovered, shares)?;
        start_journal(&store, epoch, first_number, rings)?;
        // What was read so far: the whole SIT, and what the recovery needed of the NAT.
        store.mend_noted(&store.lock_checkpoint());
        Ok(store)
    }

    fn placement(&self, space: Arc<Space>, pages: u64, frames: Arc<FramePool>) -> Placement {
        let cores = to_usize(u64::from(self.layout.journals));
        let data_log = Arc::new(DataLog::new(pages, cores, frames));
        Placement::new(self.region.clone(), space, data_log, &self.options)
    }

    /// Recovery up to the point where it writes: the recovered state, and the space map that fits
    /// it. What a checkpoint that was cut short has written does not count: the tables are as the
    /// last one left them, and the logs have the rest.
    pub(super) fn recover(&self, logs: &mut Scan, space: &Arc<Space>) -> Result<Replayed> {
        let base = self.base();
        let replayed = recovery::recover(
            &base,
            logs,
            self.threads,
            self.options.store_rules.data_check.holds(),
        )?;
        recovery::liveness::mend(&base, space, &replayed)?;
        Ok(replayed)
    }

    /// Counts nodes and inodes anew if those of the header are impossible.
    fn count(&self, header: &mut VolumeHeader) -> Result<()> {
        if census::is_counted(header, &self.layout) {
            return Ok(());
        }
        (header.nodes, header.inodes) = (U64::ZERO, U64::ZERO);
        self.nat.census()?.apply(header);
        Ok(())
    }

    /// The space map as the last checkpoint left it.
    pub(super) fn load_space(&self) -> Result<Space> {
        let packs = self.nat.packs.clone();
        let space = Space::load(self.region.clone(), &self.layout, packs.clone())?;
        let place = (&*self.region, &self.layout);
        match self.snapshots.pin(place, &space, &packs) {
            Err(_) if self.options.read_only => {}
            pinned => pinned?,
        }
        match space.load_shared(&self.header.0) {
            Err(_) if self.options.read_only => {}
            loaded => loaded?,
        }
        Ok(space.on(&self.options.numa))
    }

    /// The space map as a snapshot has it.
    fn space_of(&self, view: &View) -> Result<Space> {
        let (table, packs) = (Table::Sit, &self.nat.packs);
        let tables = (&self.layout, &**packs);
        let pairs = packs.written(table).filter_map(|index| {
            let pair = PairIndex { table, index };
            let found = view.read(&self.region, tables, pair).transpose()?;
            let index = u32::try_from(index).expect("SIT pairs are u32");
            Some(found.map(|(at, payload)| (index, at, payload)))
        });
        Space::from_pairs(self.region.clone(), &self.layout, packs.clone(), pairs)
    }

    fn writer<'v>(&'v self, space: &'v Space, checkpoint: u64) -> Writer<'v> {
        Writer {
            region: &self.region,
            layout: &self.layout,
            nat: &self.nat,
            space,
            snapshots: &self.snapshots,
            checkpoint,
            rules: &self.options.store_rules,
            journal: None,
        }
    }

    /// Writes what recovery found; returns the blocks that did not take their pages. The logs stay
    /// valid until `begin_epoch` has started the new epoch.
    fn write_recovered(
        &self,
        state: &mut CheckpointState,
        placement: &Placement,
        mut replayed: Replayed,
    ) -> Result<Vec<BlockNo>> {
        let space = &*placement.space;
        let checkpoint = state.header.checkpoint.get() + 1;
        let writer = self.writer(space, checkpoint);
        // Before anything is written: a mount that is refused has changed nothing.
        let changed = replayed.nodes.iter().filter(|(_, node)| node.changed);
        writer.check_images(changed.map(|(nid, _)| *nid))?;
        // Before the first flush of the checkpoint: the logs, which have this data too, are emptied
        // by the volume header after it.
        let bad = recovery::replace::place_pages(&self.base(), placement, &mut replayed)?;
        let changed = replayed.nodes.into_iter().filter(|(_, node)| node.changed);
        let targets: Vec<(Nid, Target)> = changed
            .map(|(nid, node)| match node.image {
                Some(image) => (nid, Target::Image(image)),
                None => (nid, Target::Tombstone(node.tombstone)),
            })
            .collect();
        let core = CoreId::new(0);
        let images = targets
            .iter()
            .filter(|(_, target)| matches!(target, Target::Image(_)))
            .count();
        let blocks = u32::try_from(images).expect("fewer nodes than 2^32");
        reserve_images(space, core, blocks)?;
        writer.write(core, state, targets)?;
        space.images_released();
        writer.keeper(core).end();
        space.end_shared(core);
        Ok(bad)
    }

    /// The medium, for recovery.
    fn base(&self) -> Medium<'_> {
        Medium {
            region: &self.region,
            layout: &self.layout,
            nat: &self.nat,
        }
    }

    /// The one write that empties all logs and opens the volume for writing.
    fn begin_epoch(&self, state: &mut CheckpointState, logs: &Scan) -> Result<()> {
        let first_number = state.header.first_number.get().max(logs.max_number() + 1);
        // Crash scenario with the state of a volume that has a log: the mount after the crash finds
        // empty logs and takes the last checkpoint for all there was, with half of an operation in
        // it, and with pages whose blocks others have used since.
        let without_log = self.options.records == RecordPolicy::None;
        let is_marked = without_log && self.options.store_rules.mark_unlogged.holds();
        let change = |header: &mut VolumeHeader| {
            header.first_number = U64::new(first_number);
            header.epoch = U64::new(header.epoch.get() + 1);
            header.state = U32::new(if is_marked {
                STATE_UNLOGGED
            } else {
                STATE_DIRTY
            });
            header.mounts = U32::new(header.mounts.get().wrapping_add(1));
        };
        let rules = &self.options.store_rules;
        state.turn(&self.region, &self.layout, rules, change)
    }

    fn store(
        self,
        (placement, state): (Placement, CheckpointState),
        unwritten: Option<Replayed>,
        recovered: Option<RecoveryStatistics>,
        shares: StoreShares,
    ) -> Result<Store> {
        let projects = self.layout.superblock.has_projects();
        let inodes_found = self.inodes(&state.header, unwritten.as_ref())?;
        let cores = to_usize(u64::from(self.layout.journals));
        let store = Store {
            data_log: placement.data_log.clone(),
            nodes: NodeCache::new(shares.nodes, cores),
            late: LateOperations::default(),
            owners: Backlog::new(cores, shares.owners),
            record_bytes_max: shares.record_bytes,
            layout: self.layout,
            region: self.region,
            options: self.options,
            journal: OnceLock::new(),
            space: placement.space.clone(),
            placement,
            nat: self.nat,
            snapshots: self.snapshots,
            checkpoint: Mutex::new(state),
            crew: Crew::default(),
            checkpoint_number: AtomicU64::new(0),
            stopped: OnceLock::new(),
            closed: AtomicBool::new(false),
            counters: StoreCounters::default(),
            recovered,
            inodes_found,
            projects: AtomicBool::new(projects),
            trims: TrimGate::default(),
            stuck_at: AtomicU64::new(u64::MAX),
            above: OnceLock::new(),
        };
        // A read-only mount keeps the recovered nodes in memory, dirty for ever, so never evicted.
        let core = CoreId::new(0);
        let (nodes, data) = unwritten
            .map(|replayed| (replayed.nodes, replayed.data))
            .unwrap_or_default();
        let mut room = store.data_log.room_beyond(core, data.len());
        for (block, page) in data {
            let mut frame = Frame::zeroed();
            frame.bytes_mut().copy_from_slice(&page.bytes);
            store.data_log.insert(&mut room, block, frame);
        }
        drop(room);
        for (nid, node) in nodes {
            if let (Some(image), true) = (node.image, node.changed) {
                let node = NodeRef::new(Node::new(nid, image, store.options.node_lock));
                store.nodes.make_dirty(core, &node);
                store.nodes.insert_new(&node);
            }
        }
        Ok(store)
    }

    /// Inodes in use: those of the NAT, and what a read-only mount has found in the logs.
    fn inodes(&self, header: &VolumeHeader, unwritten: Option<&Replayed>) -> Result<i64> {
        let mut census = Census::default();
        let nodes = unwritten.iter().flat_map(|replayed| &replayed.nodes);
        for (nid, node) in nodes.filter(|(_, node)| node.changed) {
            let image = node.image.as_ref();
            let after = image.map_or(Census::default(), |image| Census::of_image(*nid, image));
            census.change(Census::of_entry(*nid, &self.nat.entry(*nid)?), after);
        }
        let written = i64::try_from(header.inodes.get()).unwrap_or(i64::MAX);
        Ok(written.saturating_add(census.inodes))
    }
}

/// Blocks for the images of recovered nodes. There are enough: each node that was dirty before the
/// crash held one. But they may be among those that records name, if operations still in the logs
/// had freed them; recovery uses these last.
///
/// Crash scenario: such a block has an image by now and recovery begins again. The tables still
/// count as they were, and in the recovered state, which is the same, no slot names the block: no
/// task looks for data in it.
fn reserve_images(space: &Space, core: CoreId, blocks: u32) -> Result<()> {
    if space.reserve(core, blocks, OpClass::Delete) {
        return Ok(());
    }
    space.lift_fences();
    if space.reserve(core, blocks, OpClass::Delete) {
        return Ok(());
    }
    Err(Error::NoSpace {
        what: "blocks for recovered nodes",
    })
}

fn start_journal(
    store: &Store,
    epoch: u64,
    first_number: u64,
    journals: Vec<RingStart>,
) -> Result<()> {
    let settler = Settler {
        space: store.space.clone(),
        nat: store.nat.clone(),
        data_log: store.data_log.clone(),
        cores: to_usize(u64::from(store.layout.journals)),
        alloc: store.options.alloc,
        core: store.options.core.clone(),
    };
    let config = JournalConfig {
        epoch,
        first_number,
        order: store.options.order,
        records: match store.options.records {
            RecordPolicy::Delta => Records::Delta,
            RecordPolicy::Image => Records::Image {
                image_bytes_max: u32::try_from(BLOCK_BYTES).expect("a block has 4096 bytes"),
            },
            RecordPolicy::None => Records::None,
        },
        seed: store.layout.crc_seed,
        segment_blocks: store.layout.segment_blocks,
        journals,
        rules: store.options.rules,
    };
    let medium = match store.options.absorb {
        // Data was flushed before a record could name it.
        Some(_) => store.region.log_medium().never_flushed(),
        None => store.region.log_medium(),
    };
    let journal = Journal::start(medium, Arc::new(settler), config)?;
    if let Some(events_per_core) = store.options.trace {
        journal.trace().start(events_per_core);
    }
    store.set_journal(journal);
    Ok(())
}

impl Store {
    /// Whether nothing can be written any more because the mount is read-only, or was ended.
    pub fn is_closed(&self) -> bool {
        // Acquire: pairs with the Release in `close`.
        self.options.read_only || self.closed.load(Ordering::Acquire)
    }

    /// Unmounts a store into which everything has been written back: checkpoints it and marks the
    /// volume clean. Later changes are refused as read-only.
    ///
    /// # Errors
    /// Whatever committing or the checkpoint reports; the volume is then as after a crash, with
    /// everything synced intact.
    pub fn close(&self) -> Result<()> {
        self.close_keeping(|| true)
    }

    /// Like [`Store::close`]; `is_kept` says at the end whether what was written for the next mount
    /// only ([`Store::mounts`]) still holds.
    ///
    /// # Errors
    /// Those of [`Store::close`].
    pub fn close_keeping(&self, is_kept: impl FnOnce() -> bool) -> Result<()> {
        self.give_logs_back()?;
        let mut state = self.lock_checkpoint();
        self.checkpoint_locked(&mut state)?;
        if state.replaced {
            // Nothing is logged any more, so this one finds all data in its blocks and leaves empty
            // logs.
            self.checkpoint_locked(&mut state)?;
        }
        // Release: pairs with the Acquire in `is_closed`; a task that sees the volume closed sees
        // it checkpointed.
        self.closed.store(true, Ordering::Release);
        let rules = &self.options.store_rules;
        let skipped = u32::from(!is_kept());
        let clean = |header: &mut VolumeHeader| {
            header.state = U32::new(STATE_CLEAN);
            header.mounts = U32::new(header.mounts.get().wrapping_add(skipped));
        };
        let turned = state.turn(&self.region, &self.layout, rules, clean);
        turned.inspect_err(|error| self.stop(error))
    }
}
