//! Changes of attributes that do not fit one record of the log.
//!
//! **Problem.** A handle takes at most an eighth of a log segment: 16 KiB on the smallest volumes,
//! while an attribute may have 64 KiB. **Structure.** The whole new chain is written in several
//! handles, from its end on, as the attributes of a *carrier*: a file without a name, in an orphan
//! slot. Then one handle gives the chain to the inode, takes it from the carrier and frees the old
//! one. **Invariants.** Every handle edits the carrier, so each depends on the one before it. Nodes
//! written here name the inode they are for; the carrier names it in `parent`. **On a crash** the
//! attributes are old or new: until the last handle counts, what was written belongs to the
//! carrier, and the mount deletes it.

use dure_store::OpKind;
use dure_store::error::Result;
use dure_store::format::inode::AttributesRecord;
use dure_store::format::node::NodeKind;
use dure_store::space::OpClass;
use dure_store::units::{Ino, to_usize};

use super::Loaded;
use super::chain::{self, pieces_per_record};
use crate::inode::{Access, Attempt, Inode, InodeRef, LockedInodes};
use crate::xattr::Xattrs;
use zerocopy::little_endian::{U32, U64};

impl Xattrs {
    /// Makes `new` the attributes of an inode, which were `loaded`. `change` also makes the other
    /// changes of the attributes.
    pub(super) fn change_in_steps(
        &self,
        inode: &Inode,
        loaded: &Loaded,
        new: &[u8],
        change: impl Fn(&mut Vec<u8>, &mut AttributesRecord) -> Result<()>,
    ) -> std::result::Result<(), Attempt> {
        // Declared before the locks: its pin is dropped after them, and deletes it.
        let carrier = self.carry(new, inode.ino)?;
        let carrier = carrier.inode();
        let mut op = self
            .store
            .op(OpKind::Xattr, OpClass::Normal, 2 + loaded.chain.nodes())?;
        let rule = self.rule;
        let access = inode.attributes_access(rule);
        let _locked = LockedInodes::lock([(inode, access), (carrier, Access::Attributes)]);
        let mut attributes = inode.attributes();
        loaded.check(inode)?;
        let mut again = loaded.stream.clone();
        change(&mut again, &mut attributes)?;
        assert_eq!(again, new, "a change of a stream depends on it alone");
        let mut bare = carrier.attributes();
        (attributes.xattr_root, attributes.xattr_bytes) = (bare.xattr_root, bare.xattr_bytes);
        (bare.xattr_root, bare.xattr_bytes) = (U64::ZERO, U32::ZERO);
        bare.parent = U64::ZERO;
        assert_eq!(to_usize(u64::from(attributes.xattr_bytes.get())), new.len());
        loaded.chain.free(&mut op)?;
        attributes.ctime = op.time();
        inode.store_attributes(&mut op, &attributes);
        carrier.store_attributes(&mut op, &bare);
        let mark = inode.xattrs().change(|| op.finish());
        for inode in [inode, carrier] {
            inode.attributes_stored(rule, mark);
        }
        Ok(())
    }

    /// A carrier with a chain that holds `stream`, to be given to inode `owner`.
    fn carry(&self, stream: &[u8], owner: Ino) -> std::result::Result<InodeRef, Attempt> {
        let carrier = self.inodes.carrier()?;
        let inode = carrier.inode();
        let pieces: Vec<&[u8]> = chain::pieces(stream).collect();
        let (mut next, mut bytes) = (0, 0);
        for group in pieces.rchunks(pieces_per_record(&self.store)) {
            let nodes = u32::try_from(group.len()).expect("a stream has at most 128 KiB");
            let mut op = self.store.op(OpKind::Xattr, OpClass::Normal, 1 + nodes)?;
            let _held = inode.lock_attributes(Access::Attributes);
            for piece in group.iter().rev() {
                let node = op.new_node_of(NodeKind::Blob, owner)?;
                chain::fill(op.edit(&node, 0).all(), next, piece);
                next = node.nid.0;
                bytes += piece.len();
            }
            let mut attributes = inode.attributes();
            attributes.parent = U64::new(owner.0);
            attributes.xattr_root = U64::new(next);
            attributes.xattr_bytes =
                U32::new(u32::try_from(bytes).expect("a stream has at most 128 KiB"));
            inode.store_attributes(&mut op, &attributes);
            let mark = op.finish();
            inode.attributes_stored(self.rule, mark);
        }
        Ok(carrier)
    }
}
