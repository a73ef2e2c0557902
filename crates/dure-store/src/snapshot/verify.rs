//! What is damaged of snapshots, for a check.
//!
//! **Structure.** Each snapshot by itself: the pairs that it shows, and the image of each node that its
//! NAT names, which its SIT must have as live. **Invariants.** Anything on the medium gives an error, in
//! time bounded by the tables' size. **Crash.** Nothing is written.

use zerocopy::FromBytes;

use super::{Snapshots, View};
use crate::error::{Error, Result};
use crate::format::nat::{ENTRIES, NatBlock, NatEntry};
use crate::format::node::NodeImage;
use crate::layout::Layout;
use crate::media::Region;
use crate::packs::{Packs, PairIndex, Table};
use crate::space::Pins;
use crate::units::{BLOCK_BYTES, Nid};
use dure_sync::Arc;

/// What is wrong with the snapshot of this name: the first `most` errors.
pub fn verify(
    snapshots: &Arc<Snapshots>,
    name: &str,
    medium: (&Region, &Layout, &Packs),
    most: usize,
) -> Vec<Error> {
    let view = match View::of(snapshots, name) {
        Ok(view) => view,
        Err(error) => return vec![error],
    };
    let (region, layout, packs) = medium;
    let mut errors = Vec::new();
    let mut live = Pins::default();
    let pairs = |table| {
        packs
            .written(table)
            .map(move |index| PairIndex { table, index })
    };
    for pair in pairs(Table::Sit) {
        let added = view.read(region, (layout, packs), pair).and_then(|found| {
            found.map_or(Ok(()), |(at, payload)| {
                live.add_pair(layout, pair.index, (at, &payload))
            })
        });
        errors.extend(added.err());
    }
    for pair in pairs(Table::Nat) {
        if errors.len() >= most {
            break;
        }
        match view.read(region, (layout, packs), pair) {
            Ok(None) => {}
            Ok(Some((_, payload))) => {
                let block = NatBlock::ref_from_bytes(&payload).expect("the size is a pair's");
                let nids = (pair.index * ENTRIES..).map(Nid);
                let images = nids.zip(&block.entries);
                let wrong = images.filter_map(|(nid, entry)| {
                    expect_image((region, layout), &live, nid, entry).err()
                });
                errors.extend(wrong.take(most));
            }
            Err(error) => errors.push(error),
        }
    }
    errors.truncate(most);
    errors
}

fn expect_image(
    (region, layout): (&Region, &Layout),
    live: &Pins,
    nid: Nid,
    entry: &NatEntry,
) -> Result<()> {
    let block = entry.block();
    if block.is_none() {
        return Ok(());
    }
    let place = layout.locate(block);
    if !place.is_some_and(|(segment, index)| live.contains(segment, index)) {
        return Err(Error::Corrupt {
            what: format!("image of node {nid}: live in the SIT of the snapshot"),
            at: block.0,
            want: 1,
            got: 0,
        });
    }
    let mut bytes = [0; BLOCK_BYTES];
    region.read(block, &mut bytes)?;
    NodeImage::open(&bytes, nid, block, layout.crc_seed).map(drop)
}
