//! stub
#![expect(missing_docs, unused, reason = "stub")]
use crate::error::Result;
use crate::file::FileState;
use crate::format::inode::InodeRecord;
use crate::namespace::FileKind;
use crate::node::Node;
use crate::op::Op;
use crate::ranks::{INODE, WRITEBACK};
use crate::units::Ino;
use dure_sync::{Arc, Mutex, RwLock};
use zerocopy::{FromBytes, FromZeros, IntoBytes};
#[derive(Debug)]
pub(crate) struct InodeCache(pub(crate) Mutex<80, std::collections::BTreeMap<u64, Arc<Inode>>>);
impl InodeCache {
    pub(crate) fn new() -> Self {
        InodeCache(Mutex::default())
    }
}
#[derive(Debug)]
pub(crate) struct InodePools;
impl InodePools {
    pub(crate) fn new(c: usize) -> Self {
        InodePools
    }
}
#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) ino: Ino,
    pub(crate) kind: FileKind,
    pub(crate) node: Arc<Node>,
    pub(crate) index: u8,
    pub(crate) writeback: Mutex<WRITEBACK, ()>,
    pub(crate) state: RwLock<INODE, InodeState>,
}
#[derive(Debug)]
pub(crate) struct InodeState {
    pub(crate) record: InodeRecord,
    pub(crate) file: FileState,
}
#[derive(Debug, Clone)]
pub struct InodeRef(Arc<Inode>);
impl InodeRef {
    pub(crate) fn inode(&self) -> &Arc<Inode> {
        &self.0
    }
    pub fn kind(&self) -> FileKind {
        self.0.kind
    }
}
#[derive(Debug, Clone)]
pub(crate) struct OrphanPlace;
impl OrphanPlace {
    pub(crate) fn clear(&self, op: &mut Op<'_>) {}
}
#[derive(Debug)]
pub(crate) struct FreeSlot;
impl FreeSlot {
    pub(crate) fn fill(&self, op: &mut Op<'_>, ino: Ino, intent: u64) {}
    pub(crate) fn used(self) -> OrphanPlace {
        OrphanPlace
    }
}
#[derive(Debug)]
pub(crate) struct Orphans;
impl Orphans {
    pub(crate) fn give(&self, place: OrphanPlace) {}
}
impl crate::volume::Volume {
    pub(crate) fn finish_orphans(&self) -> crate::error::Result<()> {
        Ok(())
    }
    pub(crate) fn orphan_slot(&self) -> Result<FreeSlot> {
        Ok(FreeSlot)
    }
    pub(crate) fn give_orphan(&self, place: OrphanPlace) {}
    /// Test stub: inode 2..8 as regular files.
    pub(crate) fn file_inode(&self, ino: u64) -> Result<InodeRef> {
        let ino = Ino(ino);
        if let Some(inode) = self.inodes.0.lock().get(&ino.0) {
            return Ok(InodeRef(inode.clone()));
        }
        let node = self.node(ino.nid(), crate::format::node::NodeKind::Inode)?;
        let mut record = InodeRecord::read_from_bytes(&node.read(ino.index()).payload[..]).unwrap();
        if record.is_free() {
            let mut op = self.op(crate::space::OpClass::Normal, 1)?;
            record = InodeRecord::new_zeroed();
            record.ino = ino.0.into();
            record.mode = 0o100_644.into();
            record.nlink = 1.into();
            op.edit(&node, ino.index())
                .copy_from_slice(record.as_bytes());
            op.finish();
        }
        let inode = Arc::new(Inode {
            ino,
            kind: FileKind::File,
            node,
            index: ino.index(),
            writeback: Mutex::new(()),
            state: RwLock::new(InodeState {
                record,
                file: FileState::new(&record),
            }),
        });
        self.inodes.0.lock().insert(ino.0, inode.clone());
        Ok(InodeRef(inode))
    }
}
