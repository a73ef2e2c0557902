//! One linear space of blocks, on one device or on several of different kinds.
//!
//! **Problem.** Code that reads and writes a volume need not know where a block lies, but what it
//! costs to make it durable differs: a device with a cache needs a flush, persistent memory a fence after
//! each copy, and a flush of a device without writes is milliseconds for nothing. **Structure.** A
//! [`Media`] is made from a device and what it is put together from ([`crate::linear`]): a queue
//! for each, or the blocks themselves if they are in persistent memory. This is the only place that
//! asks for the kind. What lies on a device before its run is read and written without a queue, and
//! durable when a write returns.
//!
//! **Invariants.** A flush covers all writes that were complete before it began, on every device
//! ([`since_flush`]).
//! **On a crash** each block of a device written since its last flush has its old or its new
//! content, or both in sectors; one of persistent memory, while its write has not returned, any
//! words of 8 bytes of each.

use dure_pmem::LINE_BYTES;
use dure_sync::{Arc, Topology};

pub use nodes::NodeCounters;
use nodes::Nodes;
use pace::{Copy, Pace};
pub use pace::{Modules, NvmModel};
use since_flush::SinceFlush;
pub use under_way::UnderWay;

use crate::linear::{Part, bytes, pieces};
use crate::nvm::NvmBlocks;
use crate::{
    BLOCK_BYTES, BlockBuf, Counters, Device, Error, Io, Lba, Op, Queue, QueueConfig, Result,
    WriteFlags, blocks_of,
};

/// The blocks of a volume.
#[derive(Debug)]
pub struct Media {
    places: Vec<Place>,
    blocks: u64,
    /// The media, for what lies on each before its run.
    heads: Vec<Part>,
    nodes: Option<Nodes>,
}

/// A run of blocks of the space.
#[derive(Debug)]
struct Place {
    first: Lba,
    start: Lba,
    blocks: u64,
    medium: Medium,
}

#[derive(Debug)]
enum Medium {
    /// Behind a queue.
    Blocks {
        queue: Arc<Queue>,
        since: Box<SinceFlush>,
    },
    /// In persistent memory.
    Nvm {
        blocks: NvmBlocks,
        /// If it is emulated and to be as slow as a model.
        pace: Option<Box<Pace>>,
    },
}

impl Media {
    /// The blocks of `device`; each device that it is put together from behind queues of its own.
    #[must_use]
    pub fn open(device: Arc<dyn Device>, config: QueueConfig) -> Arc<Media> {
        let parts = match device.parts() {
            // A run of one device is a device like others.
            [] | [_] => vec![Part::whole(Arc::clone(&device))],
            parts => parts.to_vec(),
        };
        let place = |part: Part| Place {
            first: part.first,
            start: part.start,
            blocks: part.blocks,
            medium: match part.device.nvm_blocks() {
                Some(blocks) => Medium::Nvm {
                    pace: Pace::of(&blocks),
                    blocks,
                },
                None => Medium::of(Queue::new(part.device, config)),
            },
        };
        let heads = device.heads().to_vec();
        Media::of(parts.into_iter().map(place).collect(), heads)
    }

    /// Like [`Media::open`], counting what cores copy from and to media of their own NUMA node, and
    /// of others; of a medium whose node is `None` nothing is counted.
    ///
    /// # Panics
    /// If there are not as many nodes as media.
    #[must_use]
    pub fn open_on_nodes(
        device: Arc<dyn Device>,
        config: QueueConfig,
        nodes: &[Option<u32>],
        topology: Arc<Topology>,
    ) -> Arc<Media> {
        let mut media = Media::open(device, config);
        assert_eq!(
            nodes.len(),
            media.places.len(),
            "each medium is on a node, or none"
        );
        let own = Arc::get_mut(&mut media).expect("nobody else has it yet");
        own.nodes = Some(Nodes::new(nodes, topology));
        media
    }

    /// What was copied so far; `None` if it is not counted.
    #[must_use]
    pub fn node_counters(&self) -> Option<NodeCounters> {
        self.nodes.as_ref().map(Nodes::counters)
    }

    /// The blocks behind `queue`.
    #[must_use]
    pub fn behind(queue: Arc<Queue>) -> Arc<Media> {
        let place = Place {
            first: Lba::new(0),
            start: Lba::new(0),
            blocks: queue.info().blocks,
            medium: Medium::of(queue),
        };
        Media::of(vec![place], Vec::new())
    }

    fn of(places: Vec<Place>, heads: Vec<Part>) -> Arc<Media> {
        let blocks = places.iter().map(|place| place.blocks).sum();
        Arc::new(Media {
            places,
            blocks,
            heads,
            nodes: None,
        })
    }

    /// How many devices the space is put together from, whose blocks before their runs can be read
    /// and written; 0 if it is one device.
    #[must_use]
    pub fn heads(&self) -> usize {
        self.heads.len()
    }

    /// Reads blocks of the `medium`-th device from its block `at` on, which lie before its run.
    ///
    /// # Errors
    /// A failed read; a range that is not before the run.
    pub fn read_head(&self, medium: usize, at: Lba, out: &mut [u8]) -> Result<()> {
        let device = self.head(medium, Op::Read, at, out.len())?;
        device.execute(Io::Read { lba: at, out })
    }

    /// Writes blocks of the `medium`-th device from its block `at` on, which lie before its run.
    /// Durable on return.
    ///
    /// # Errors
    /// Those of [`Media::read_head`].
    pub fn write_head(&self, medium: usize, at: Lba, data: &[u8]) -> Result<()> {
        let device = self.head(medium, Op::Write, at, data.len())?;
        let (parts, flags) = (&[data][..], WriteFlags::NONE);
        let lba = at;
        device.execute(Io::Write { lba, parts, flags })?;
        device.execute(Io::Flush)
    }

    fn head(&self, medium: usize, op: Op, lba: Lba, len: usize) -> Result<&dyn Device> {
        let part = &self.heads[medium];
        let (blocks, start) = (blocks_of(len), part.start.number());
        if lba
            .number()
            .checked_add(blocks)
            .is_some_and(|end| end <= start)
        {
            return Ok(&*part.device);
        }
        Err(Error::OutOfRange {
            device: part.device.info().name.clone(),
            op,
            lba,
            blocks,
            device_blocks: start,
        })
    }

    /// Number of blocks.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Whether a read is a copy of memory, for which no task needs to wait.
    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        self.queues().all(|queue| queue.info().in_memory)
    }

    /// Whether all of it is in persistent memory: each write is durable when it returns.
    #[must_use]
    pub fn is_nvm(&self) -> bool {
        self.queues().next().is_none()
    }

    /// Whether all blocks before `end` are in persistent memory: each write there is durable when it
    /// returns.
    #[must_use]
    pub fn is_nvm_before(&self, end: Lba) -> bool {
        let mut before = self.places.iter().filter(|place| place.first < end);
        before.all(|place| matches!(place.medium, Medium::Nvm { .. }))
    }

    /// The requests so far. Copies to and from persistent memory are none.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for queue in self.queues() {
            sum.add(&queue.counters());
        }
        sum
    }

    /// The queues, in the order of the space.
    pub fn queues(&self) -> impl Iterator<Item = &Arc<Queue>> {
        self.places.iter().filter_map(|place| match &place.medium {
            Medium::Blocks { queue, .. } => Some(queue),
            Medium::Nvm { .. } => None,
        })
    }

    /// Reads whole blocks from `lba` on.
    ///
    /// # Errors
    /// A failed read; a range that is not in the space.
    pub fn read(&self, lba: Lba, out: &mut [u8]) -> Result<()> {
        for (index, at, skip, count) in self.pieces(Op::Read, lba, blocks_of(out.len()))? {
            let out = &mut out[bytes(skip)..][..bytes(count)];
            self.copying((index, at), Copy::Read(out.len()), |medium| match medium {
                Medium::Blocks { queue, .. } => queue.read(at, out),
                Medium::Nvm { blocks, .. } => blocks.read(at, out),
            })?;
        }
        Ok(())
    }

    /// Counts a copy by `run` from or to a block of the medium of a place, and makes it take what the
    /// model says.
    #[inline]
    fn copying(
        &self,
        (place, at): (usize, Lba),
        copy: Copy,
        run: impl FnOnce(&Medium) -> Result<()>,
    ) -> Result<()> {
        let nodes = self.nodes.as_ref();
        let is_remote = nodes.is_some_and(|nodes| nodes.count(place, copy));
        let medium = &self.places[place].medium;
        match medium {
            Medium::Nvm {
                pace: Some(pace), ..
            } => pace.around(at, copy, is_remote, || run(medium)),
            Medium::Nvm { pace: None, .. } | Medium::Blocks { .. } => run(medium),
        }
    }

    /// Fills `out` with bytes of one block, from its byte `within` on: in persistent memory a copy
    /// of only these bytes.
    ///
    /// # Errors
    /// Those of [`Media::read`].
    pub fn read_part(&self, (lba, within): (Lba, usize), out: &mut [u8]) -> Result<()> {
        assert!(within + out.len() <= BLOCK_BYTES, "a part of one block");
        for (index, at, _, _) in self.pieces(Op::Read, lba, 1)? {
            self.copying((index, at), Copy::Read(out.len()), |medium| match medium {
                Medium::Blocks { queue, .. } => {
                    let mut block = BlockBuf::zeroed(1);
                    queue.read(at, block.as_mut_slice())?;
                    out.copy_from_slice(&block.as_slice()[within..][..out.len()]);
                    Ok(())
                }
                Medium::Nvm { blocks, .. } => blocks.read_part((at, within), out),
            })?;
        }
        Ok(())
    }

    /// Writes whole blocks from `lba` on. Durable after the next flush.
    ///
    /// # Errors
    /// Those of [`Media::read`]; some of the blocks may have been written.
    pub fn write(&self, lba: Lba, data: &[u8]) -> Result<()> {
        self.append(lba, data, data.len())
    }

    /// Like [`Media::write`], where only the first `used` bytes of `data` count, and zeroes follow
    /// them: persistent memory keeps what it had behind their last cache line.
    ///
    /// # Errors
    /// Those of [`Media::write`].
    pub fn append(&self, lba: Lba, data: &[u8], used: usize) -> Result<()> {
        for (index, at, skip, count) in self.pieces(Op::Write, lba, blocks_of(data.len()))? {
            let (begin, whole) = (bytes(skip), bytes(skip + count));
            let end = used.next_multiple_of(LINE_BYTES).clamp(begin, whole);
            self.copying(
                (index, at),
                Copy::Write(end - begin),
                |medium| match medium {
                    Medium::Blocks { queue, since } => {
                        let written = queue.write(at, &data[begin..whole], WriteFlags::NONE);
                        if self.places.len() > 1 {
                            since.wrote();
                        }
                        written
                    }
                    Medium::Nvm { .. } if begin == end => Ok(()),
                    Medium::Nvm { blocks, .. } => blocks.write(at, &[&data[begin..end]]),
                },
            )?;
        }
        Ok(())
    }

    /// Makes durable what was written before the call.
    ///
    /// # Errors
    /// A failed flush: nothing is known then of any write to that device since the last one.
    pub fn flush(&self) -> Result<()> {
        for place in &self.places {
            match &place.medium {
                Medium::Blocks { queue, since } if self.places.len() > 1 => since.flush(queue)?,
                Medium::Blocks { queue, .. } => queue.flush()?,
                // Each write was fenced before it returned.
                Medium::Nvm { .. } => {}
            }
        }
        Ok(())
    }

    /// Tells the devices that have something to gain from it that the content of these blocks is
    /// not needed. Returns of how many blocks that was.
    ///
    /// # Errors
    /// A failed discard; a range that is not in the space.
    pub fn discard(&self, lba: Lba, blocks: u64) -> Result<u64> {
        let mut told = 0;
        for (index, at, _, count) in self.pieces(Op::Discard, lba, blocks)? {
            match &self.places[index].medium {
                Medium::Blocks { queue, .. } if queue.info().discard => {
                    queue.discard(at, count)?;
                    told += count;
                }
                Medium::Blocks { .. } | Medium::Nvm { .. } => {}
            }
        }
        Ok(told)
    }

    /// Whether a discard frees anything on one of the devices.
    #[must_use]
    pub fn discards(&self) -> bool {
        self.queues().any(|queue| queue.info().discard)
    }

    fn pieces(
        &self,
        op: Op,
        lba: Lba,
        blocks: u64,
    ) -> Result<impl Iterator<Item = (usize, Lba, u64, u64)>> {
        let end = lba.number().checked_add(blocks);
        // A queue says by itself what it is asked too much.
        if self.places.len() > 1 && end.is_none_or(|end| end > self.blocks) {
            return Err(Error::OutOfRange {
                device: "the media of the volume".into(),
                op,
                lba,
                blocks,
                device_blocks: self.blocks,
            });
        }
        let only = (self.places.len() == 1).then_some((0, lba, 0, blocks));
        let places = self.places.iter().map(|p| (p.first, p.start, p.blocks));
        let several = pieces(places, lba, if only.is_some() { 0 } else { blocks });
        Ok(only.into_iter().chain(several))
    }
}

impl Medium {
    fn of(queue: Arc<Queue>) -> Medium {
        let since = Box::new(SinceFlush::new());
        Medium::Blocks { queue, since }
    }
}

mod nodes;
mod pace;
mod since_flush;
mod under_way;

#[cfg(test)]
mod tests;
