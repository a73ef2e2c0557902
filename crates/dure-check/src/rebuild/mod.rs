//! Rebuilds a volume whose structures are lost from what is left of it.
//!
//! **Problem.** A medium that rots, or a slip of `dd`, takes a table or 20 MiB with it. Every node
//! image says which node it is, whose, and how new, so nearly everything that was not hit can be
//! found again.
//!
//! **Structure.** `salvage` reads what is left (`belief`: which image of a node); `mend` runs the passes of the check over it and
//! corrects in memory what they find (`edit`, `directories`, `maps`), until they find nothing;
//! `write` writes it as a checkpoint of a new epoch; `rescue` reads it out instead, and writes nothing. **Invariants.** Nothing is written before the
//! passes are content with what will be written: a volume that cannot be rebuilt stays as it is.
//! **Crash.** Images go to blocks that nothing is left of, tables to slots that do not count, and
//! one write of the volume header makes them count. Before it, a rebuild starts over from the same
//! images.

mod belief;
mod directories;
mod edit;
mod maps;
mod mend;
mod names;
mod rescue;
mod salvage;
mod write;

use dure_store::error::Result;
use dure_store::layout::Layout;
use dure_store::media::Region;
use dure_sync::Arc;

use crate::context::Context;
use crate::issue::Issue;
use crate::loss::Loss;
use crate::options::{CheckOptions, Data, Repair};
use crate::report::Report;

pub use rescue::{Each, NAMELESS, Rescue};

/// What a rebuild did.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rebuilt {
    /// What is lost of files and directories.
    pub(crate) losses: Vec<Loss>,
    /// What is lost that belongs to none.
    pub(crate) lost: Vec<String>,
    /// Why nothing was written.
    pub(crate) left: Vec<Issue>,
}

/// All passes over the tables and nodes in memory.
fn examine(context: &mut Context<'_>) {
    crate::journals::check(context);
    crate::passes::run(context);
}

/// Rebuilds the volume of `layout`.
///
/// # Errors
/// No room for the images that must be written; a failed write or flush.
pub(crate) fn run(
    region: Arc<Region>,
    layout: Layout,
    options: &CheckOptions<'_>,
) -> Result<Rebuilt> {
    let options = CheckOptions {
        repair: Repair::Full,
        data: Data::Verify,
        ..*options
    };
    let mut context = Context::new(&options, region, layout, Report::default());
    let salvage = salvage::load(&mut context);
    let mut edit = edit::Edit::new(&mut context, salvage.version_max);
    let left = mend::run(&mut edit);
    let mut rebuilt = Rebuilt {
        left,
        lost: salvage.lost.clone(),
        losses: Vec::new(),
    };
    if rebuilt.left.is_empty() {
        rebuilt.losses = names::losses(&mut edit);
        write::run(&mut edit, salvage)?;
    }
    Ok(rebuilt)
}

#[cfg(test)]
pub(crate) use self::tests::{blocks_of, named_blocks, salvaged};

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use dure_store::format::node::NodeKind;
    use dure_store::units::Ino;

    use super::{edit, maps, salvage};
    use crate::context::Context;

    /// Reads all tables into `context`.
    pub(crate) fn salvaged(context: &mut Context<'_>) {
        salvage::load(context);
        super::examine(context);
    }

    /// The blocks of images that the NAT of the medium names.
    pub(crate) fn named_blocks(context: &mut Context<'_>) -> BTreeSet<u64> {
        let layout = context.layout.clone();
        let salvage = salvage::load(context);
        salvage.named_blocks(&layout).map(|block| block.0).collect()
    }

    /// The blocks of every inode: its node, the nodes that name it as owner, and its pages.
    pub(crate) fn blocks_of(context: &mut Context<'_>) -> BTreeMap<Ino, BTreeSet<u64>> {
        let mut blocks: BTreeMap<Ino, BTreeSet<u64>> = BTreeMap::new();
        let mut edit = edit::Edit::new(context, 1);
        for pair in edit.context.pairs_in_use() {
            for nid in edit.context.live_in_pair(pair) {
                // 0: it is in the logs only.
                let block = edit.context.entry(nid).block().0;
                let image = edit.context.image(nid).expect("a sound volume");
                if image.kind == NodeKind::Inode {
                    for ino in Ino::all_of(nid) {
                        blocks.entry(ino).or_default().insert(block);
                    }
                } else {
                    blocks.entry(image.owner).or_default().insert(block);
                }
            }
        }
        let inodes: Vec<Ino> = edit.context.inodes.all().map(|(ino, _)| ino).collect();
        for ino in inodes {
            for found in maps::walk(&mut edit, ino) {
                if let maps::Found::Slot(_, slot) = found {
                    blocks.entry(ino).or_default().insert(slot.block().0);
                }
            }
        }
        for blocks in blocks.values_mut() {
            blocks.remove(&0);
        }
        blocks
    }
}
