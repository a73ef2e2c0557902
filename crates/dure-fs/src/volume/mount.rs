//! Mounting and unmounting.

use dure_block::{Device, Lba, Queue, QueueConfig};
use dure_journal::recovery::{COUNT_MAX, LogLayout, NUMBER_START_MAX, Scan};
use dure_journal::{Journal, JournalConfig, Records, RingStart, Rules};
use dure_sync::atomic::{AtomicBool, Ordering};
use dure_sync::{Arc, CachePadded, CoreId, Mutex, OnceLock};
use zerocopy::FromBytes;
use zerocopy::little_endian::{U32, U64};

use super::memory::{Backlog, Shares};
use super::recovered::{RecoveryStatistics, Stopwatch};
use super::{FileSystem, MountOptions, RecordPolicy, Settler, Volume, VolumeCounters, background};
use crate::checkpoint::census::{self, Census};
use crate::checkpoint::{CheckpointState, Target, Writer};
use crate::directory::known::KnownNames;
use crate::error::{Error, Result};
use crate::file::PageCache;
use crate::format::pair_kind;
use crate::format::superblock::SuperBlock;
use crate::format::volume::{STATE_CLEAN, STATE_DIRTY, VolumeHeader};
use crate::frames::Frame;
use crate::inode::{AccessTimes, InodeCache, InodePools, Orphans, ShownAttributes};
use crate::layout::Layout;
use crate::logged::LoggedBlocks;
use crate::namespace::KnownTargets;
use crate::node::cache::NodeCache;
use crate::node::nat::Nat;
use crate::node::{Node, NodeRef};
use crate::packs::Packs;
use crate::pair;
use crate::recovery::replay::Replayed;
use crate::recovery::{self, Base, Medium};
use crate::space::{OpClass, Space};
use crate::units::{BLOCK_BYTES, BlockNo, Nid, Run, to_usize};

impl FileSystem {
    /// Mounts the volume on `device`; after a crash it recovers it first.
    ///
    /// # Errors
    /// `NotDure`, `Unsupported`, `Corrupt`, `LogHole`, `TooSmall` when the device is shorter than the volume,
    /// or a failed read or write.
    pub fn open(device: Arc<dyn Device>, mut options: MountOptions) -> Result<FileSystem> {
        options.read_only = options.is_read_only();
        let queue = Queue::new(device, QueueConfig::default());
        let layout = read_layout(&queue)?;
        if !options.read_only && !layout.superblock.writable() {
            return Err(Error::Unsupported {
                what: "features that allow only a read-only mount".into(),
            });
        }
        let (header, generation) = read_header(&queue, &layout)?;
        let state = CheckpointState::new(header, generation);
        let mount = Mount::new(queue, layout, &header, options)?;
        let volume = mount.run(state)?;
        let file_system = FileSystem(Arc::new(volume));
        file_system.0.inodes.attach(&file_system.0);
        if !file_system.0.options.read_only {
            file_system.0.grow_to_least()?;
            file_system.0.finish_orphans()?;
            background::start(&file_system.0);
        }
        Ok(file_system)
    }

    /// Unmounts: everything is written back and checkpointed, and the volume is marked clean. Later
    /// calls on any clone are refused as read-only.
    ///
    /// # Errors
    /// Whatever writing back, committing or the checkpoint reports; the volume is then as after a
    /// crash, with everything synced intact.
    pub fn close(&self) -> Result<()> {
        let volume = &self.0;
        volume.background.stop();
        // Acquire: pairs with the Release below, of another caller.
        if volume.options.read_only || volume.closed.load(Ordering::Acquire) {
            return Ok(());
        }
        self.sync()?;
        volume.give_logs_back()?;
        let mut state = volume.checkpoint.lock();
        volume.checkpoint_locked(&mut state)?;
        if state.replaced {
            // Nothing is logged any more, so this one finds all in its place and leaves empty logs.
            volume.checkpoint_locked(&mut state)?;
        }
        // Release: whoever sees the volume closed sees it checkpointed.
        volume.closed.store(true, Ordering::Release);
        state.header.state = U32::new(STATE_CLEAN);
        let written = state.write(&volume.queue, &volume.layout);
        written
            .and_then(|()| Ok(volume.queue.flush()?))
            .inspect_err(|error| volume.stop(error))
    }
}

/// The superblock: the first copy, or the last when the first is damaged.
pub(crate) fn read_layout(queue: &Queue) -> Result<Layout> {
    let blocks = queue.info().blocks;
    if blocks < 2 {
        return Err(Error::NotDure);
    }
    let copy = |address: u64| {
        let mut block = [0; BLOCK_BYTES];
        queue.read(Lba::new(address), &mut block)?;
        SuperBlock::open(&block, address)
    };
    let superblock = match copy(0) {
        Ok(superblock) => superblock,
        Err(error @ (Error::Unsupported { .. } | Error::Block(_))) => return Err(error),
        Err(first) => copy(blocks - 1).map_err(|_| first)?,
    };
    let layout = Layout::from_superblock(superblock)?;
    if layout.total_blocks > blocks {
        let need = layout.total_blocks;
        return Err(Error::TooSmall {
            what: "the volume on it",
            have: blocks,
            need,
        });
    }
    Ok(layout)
}

/// The volume header and its generation.
pub(crate) fn read_header(queue: &Queue, layout: &Layout) -> Result<(VolumeHeader, u64)> {
    let first = layout.volume_header;
    let newest = pair::read_newest(queue, first, pair_kind::VOLUME, layout.crc_seed)?;
    let Some(newest) = newest else {
        let what = "volume header: never written".into();
        return Err(Error::Corrupt {
            what,
            at: first,
            want: 1,
            got: 0,
        });
    };
    let header = VolumeHeader::read_from_bytes(&newest.payload).expect("a whole payload");
    if let Some((field, got, _)) = impossible_count(&header) {
        return Err(Error::Corrupt {
            what: format!("volume header: {field}"),
            at: first,
            want: COUNT_MAX,
            got,
        });
    }
    let state = header.state.get();
    if state != STATE_CLEAN && state != STATE_DIRTY {
        let what = "volume header: state".into();
        return Err(Error::Corrupt {
            what,
            at: first,
            want: 1,
            got: u64::from(state),
        });
    }
    Ok((header, newest.generation))
}

/// The first counter of the header that nothing may count on from: its name, value, and what it
/// must be.
pub(crate) fn impossible_count(header: &VolumeHeader) -> Option<(&'static str, u64, &'static str)> {
    let epoch = header.epoch.get();
    let (number, checkpoint) = (header.first_number.get(), header.checkpoint.get());
    [
        ("epoch", epoch, 1..=COUNT_MAX, "from 1 to 2^62"),
        (
            "first number",
            number,
            1..=NUMBER_START_MAX,
            "from 1 to 2^53",
        ),
        ("checkpoint", checkpoint, 0..=COUNT_MAX, "at most 2^62"),
    ]
    .into_iter()
    .find(|(_, got, range, _)| !range.contains(got))
    .map(|(field, got, _, must)| (field, got, must))
}

/// Refuses logs whose numbers leave none for the next epoch.
pub(crate) fn check_numbers(logs: &Scan, layout: &Layout) -> Result<()> {
    let got = logs.max_number();
    if got < NUMBER_START_MAX {
        return Ok(());
    }
    Err(Error::Corrupt {
        what: "greatest handle number in the logs".into(),
        at: layout.journal_headers,
        want: NUMBER_START_MAX,
        got,
    })
}

/// What the journal's scan needs to know.
pub(crate) fn log_layout(layout: &Layout, header: &VolumeHeader, rules: Rules) -> LogLayout {
    LogLayout {
        seed: layout.crc_seed,
        segment_blocks: layout.segment_blocks,
        first_number: header.first_number.get(),
        device_blocks: layout.total_blocks,
        headers: (0..layout.journals)
            .map(|n| Lba::new(layout.journal_header(n)))
            .collect(),
        clean: header.state.get() == STATE_CLEAN,
        rules,
    }
}

/// A mount in the making.
pub(super) struct Mount {
    queue: Arc<Queue>,
    layout: Layout,
    options: MountOptions,
    threads: usize,
    nat: Arc<Nat>,
}

impl Mount {
    pub(super) fn new(
        queue: Arc<Queue>,
        layout: Layout,
        header: &VolumeHeader,
        options: MountOptions,
    ) -> Result<Mount> {
        let threads = options
            .recovery_threads
            .unwrap_or_else(dure_sync::core_count)
            .max(1);
        let packs = Arc::new(Packs::read(&queue, &layout, header)?);
        let nat = Arc::new(Nat::new(queue.clone(), &layout, packs));
        Ok(Mount {
            queue,
            layout,
            options,
            threads,
            nat,
        })
    }

    fn run(self, mut state: CheckpointState) -> Result<Volume> {
        let dirty = state.header.state.get() == STATE_DIRTY;
        let mut watch = Stopwatch::start(self.threads);
        // A clean volume's logs are empty, but the rings are needed all the same.
        let mut logs = recovery::read_logs(
            &self.queue,
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
        if self.options.read_only {
            let recovered = dirty.then_some(watch.statistics);
            return self.volume(space, state, replayed, recovered);
        }
        self.read_first_nodes()?;
        let mut bad = Vec::new();
        if let Some(replayed) = replayed {
            bad = self.write_recovered(&mut state, &space, replayed)?;
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
        let volume = self.volume(space, state, None, recovered)?;
        start_journal(&volume, epoch, first_number, rings)?;
        Ok(volume)
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
            self.options.volume_rules.data_check,
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
        Space::load(self.queue.clone(), &self.layout, packs)
    }

    /// What every mount for writing needs first, read before it writes: a mount that is refused has
    /// changed nothing.
    fn read_first_nodes(&self) -> Result<()> {
        let nids = 0..=u64::from(self.layout.journals);
        nids.map(Nid).try_for_each(|nid| {
            let entry = self.nat.entry(nid)?;
            if !entry.block().is_none() {
                self.base().image(nid, &entry)?;
            }
            Ok(())
        })
    }

    fn writer<'v>(&'v self, space: &'v Space, checkpoint: u64) -> Writer<'v> {
        Writer {
            queue: &self.queue,
            layout: &self.layout,
            nat: &self.nat,
            space,
            checkpoint,
            rules: &self.options.volume_rules,
            journal: None,
        }
    }

    /// Writes what recovery found; gives the blocks that did not take their pages. The logs stay
    /// valid until `begin_epoch` has turned the epoch.
    fn write_recovered(
        &self,
        state: &mut CheckpointState,
        space: &Space,
        mut replayed: Replayed,
    ) -> Result<Vec<BlockNo>> {
        let checkpoint = state.header.checkpoint.get() + 1;
        let writer = self.writer(space, checkpoint);
        // Before anything is written: a mount that is refused has changed nothing.
        writer.check_images(replayed.nodes.iter().filter(|(_, node)| node.changed))?;
        // Before the first flush of the checkpoint: the logs, which have this data too, are emptied
        // by the volume header after it.
        let bad = recovery::replace::place_pages(&self.base(), &self.queue, space, &mut replayed)?;
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
        writer.write(core, state, &targets)?;
        space.images_released();
        Ok(bad)
    }

    /// The medium, for recovery.
    fn base(&self) -> Medium<'_> {
        Medium {
            queue: &self.queue,
            layout: &self.layout,
            nat: &self.nat,
        }
    }

    /// The one write that empties all logs and opens the volume for writing.
    fn begin_epoch(&self, state: &mut CheckpointState, logs: &Scan) -> Result<()> {
        let header = &mut state.header;
        let first_number = header.first_number.get().max(logs.max_number() + 1);
        header.first_number = U64::new(first_number);
        header.epoch = U64::new(header.epoch.get() + 1);
        header.state = U32::new(STATE_DIRTY);
        header.mounts = U32::new(header.mounts.get().wrapping_add(1));
        header.mount = U64::new(dure_sync::random::u64());
        state.write(&self.queue, &self.layout)?;
        self.queue.flush()?;
        Ok(())
    }

    fn volume(
        self,
        space: Arc<Space>,
        state: CheckpointState,
        unwritten: Option<Replayed>,
        recovered: Option<RecoveryStatistics>,
    ) -> Result<Volume> {
        let inodes = self.inodes(&state.header, unwritten.as_ref())?;
        let cores = to_usize(u64::from(self.layout.journals));
        let shares = Shares::of(&self.options, self.layout.journals);
        let pages = PageCache::new(cores, shares.pages, shares.logged_pages);
        let logged = LoggedBlocks::new(shares.logged_pages, cores, pages.frames());
        let volume = Volume {
            logged: Arc::new(logged),
            pages,
            nodes: NodeCache::new(shares.nodes, cores),
            inodes: InodeCache::new(shares.inodes, cores),
            known_names: KnownNames::new(shares.table_bytes),
            shown: Arc::new(ShownAttributes::new(shares.table_bytes)),
            known_targets: KnownTargets::new(shares.target_bytes),
            owners: Backlog::new(cores, shares.owners),
            record_bytes_max: shares.record_bytes,
            inode_pools: InodePools::new(cores, self.options.alloc),
            orphans: Orphans::new(cores),
            access_times: AccessTimes::new(cores),
            layout: self.layout,
            queue: self.queue,
            options: self.options,
            journal: OnceLock::new(),
            space,
            nat: self.nat,
            checkpoint: Mutex::new(state),
            rename: CachePadded::new(Mutex::new(())),
            stopped: OnceLock::new(),
            closed: AtomicBool::new(false),
            counters: VolumeCounters::default(),
            background: background::Flusher::default(),
            recovered,
        };
        volume.counters.inodes.add(inodes);
        // A read-only mount keeps the recovered nodes in memory, dirty for ever, so never evicted.
        let core = dure_sync::CoreId::new(0);
        let (nodes, data) = unwritten
            .map(|replayed| (replayed.nodes, replayed.data))
            .unwrap_or_default();
        let mut room = volume.logged.room_beyond(core, data.len());
        for (block, page) in data {
            let mut frame = Frame::zeroed();
            frame.bytes_mut().copy_from_slice(&page.bytes);
            volume.logged.insert(&mut room, block, frame);
        }
        drop(room);
        for (nid, node) in nodes {
            if let (Some(image), true) = (node.image, node.changed) {
                let node = NodeRef::new(Node::new(nid, image, volume.options.node_lock));
                volume.nodes.make_dirty(core, &node);
                volume.nodes.insert_new(&node);
            }
        }
        Ok(volume)
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
/// Crash scenario: such a block has an image by now and recovery begins again. The tables still count
/// as they were, and in the recovered state, which is the same, no slot names the block: nobody looks
/// for data in it.
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
    volume: &Volume,
    epoch: u64,
    first_number: u64,
    journals: Vec<RingStart>,
) -> Result<()> {
    let settler = Settler {
        space: volume.space.clone(),
        nat: volume.nat.clone(),
        logged: volume.logged.clone(),
        cores: to_usize(u64::from(volume.layout.journals)),
        alloc: volume.options.alloc,
        core: volume.options.volume_rules.core.clone(),
    };
    let config = JournalConfig {
        epoch,
        first_number,
        order: volume.options.order,
        records: match volume.options.records {
            RecordPolicy::Delta => Records::Delta,
            RecordPolicy::Image => Records::Image {
                image_bytes_max: u32::try_from(BLOCK_BYTES).expect("4096"),
            },
        },
        seed: volume.layout.crc_seed,
        segment_blocks: volume.layout.segment_blocks,
        journals,
        rules: volume.options.rules,
    };
    let journal = Journal::start(volume.queue.clone(), Arc::new(settler), config)?;
    if let Some(events_per_core) = volume.options.trace {
        journal.trace().start(events_per_core);
    }
    volume.set_journal(journal);
    Ok(())
}
