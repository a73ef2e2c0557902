//! The medium as a dump reads it.

use dure_block::Device;
use dure_store::error::{Error, Result};
use dure_store::format::nat::{NatBlock, NatEntry, place_of};
use dure_store::format::node::NodeImage;
use dure_store::format::pair_kind;
use dure_store::format::superblock::SuperBlock;
use dure_store::format::volume::{SlotCode, VolumeHeader};
use dure_store::layout::Layout;
use dure_store::media::Region;
use dure_store::packs::{Packs, PairIndex, Table};
use dure_store::pair;
use dure_store::units::{BLOCK_BYTES, BlockNo, Nid};
use dure_sync::Arc;
use zerocopy::FromBytes;

/// The volume on a device.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) region: Arc<Region>,
    pub(super) layout: Layout,
}

impl Source {
    pub(super) fn open(device: Arc<dyn Device>) -> Result<Source> {
        let region = Region::open(device);
        let last = region.blocks().saturating_sub(1);
        let read = |at: u64| {
            let mut block = [0; BLOCK_BYTES];
            region.read(BlockNo(at), &mut block)?;
            SuperBlock::open(&block, at)
        };
        let superblock = match read(0) {
            Err(error @ (Error::Unsupported { .. } | Error::Medium { .. })) => return Err(error),
            Err(first) => read(last).map_err(|last| Error::of_superblocks(first, last))?,
            Ok(superblock) => superblock,
        };
        let layout = Layout::from_superblock(superblock)?;
        Ok(Source { region, layout })
    }

    pub(super) fn block(&self, at: u64) -> Result<Vec<u8>> {
        let mut block = vec![0; BLOCK_BYTES];
        self.region.read(BlockNo(at), &mut block)?;
        Ok(block)
    }

    /// The current slot of the named pair at `first`; `None` when it was never written.
    pub(super) fn pair(&self, first: u64, kind: u32, code: SlotCode) -> Result<Option<Vec<u8>>> {
        let SlotCode::Slot(slot) = code else {
            return Ok(None);
        };
        pair::read_slot(&self.region, first, slot, kind, self.layout.crc_seed).map(Some)
    }

    /// The code of a pair of the NAT or the SIT.
    pub(super) fn code(&self, pair: PairIndex) -> Result<SlotCode> {
        let packs = Packs::read(&self.region, &self.layout, &self.header()?)?;
        Ok(packs.code(pair))
    }

    pub(super) fn header(&self) -> Result<VolumeHeader> {
        let at = self.layout.volume_header;
        let seed = self.layout.crc_seed;
        let newest = pair::read_newest(&self.region, at, pair_kind::VOLUME, seed)?;
        let newest = newest.ok_or_else(|| Error::Corrupt {
            what: "volume header: never written".into(),
            at,
            want: 1,
            got: 0,
        })?;
        Ok(VolumeHeader::read_from_bytes(&newest.payload).expect("a pair's payload has this size"))
    }

    /// The NAT entry of a node.
    ///
    /// # Errors
    /// `BadOption` for a nid the volume does not have.
    pub(super) fn entry(&self, nid: Nid) -> Result<NatEntry> {
        if nid.0 >= self.layout.nids() {
            let why = format!(
                "{nid} is not below {}, the number of nodes",
                self.layout.nids()
            );
            return Err(Error::BadOption {
                option: "node",
                why,
            });
        }
        let (index, within) = place_of(nid);
        let table = Table::Nat;
        let code = self.code(PairIndex { table, index })?;
        let Some(payload) = self.pair(self.layout.nat_pair(index), pair_kind::NAT, code)? else {
            return Ok(NatEntry::default());
        };
        let block = NatBlock::read_from_bytes(&payload).expect("a pair's payload has this size");
        Ok(block.entries[within])
    }

    /// The image the NAT names; `None` when there is none.
    pub(super) fn image(&self, nid: Nid) -> Result<Option<(BlockNo, NodeImage)>> {
        let block = self.entry(nid)?.block();
        if block.is_none() {
            return Ok(None);
        }
        let bytes = self.block(block.0)?;
        Ok(Some((
            block,
            NodeImage::open(&bytes, nid, block, self.layout.crc_seed)?,
        )))
    }
}
