//! Node images: a header and granules, each granule with its version in front.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{Error, Result};
use crate::format::inode::{AttributesRecord, InodeData, InodeRecord};
use crate::units::{BLOCK_BYTES, BlockNo, Ino, Nid, to_usize};

/// "NODE".
pub const MAGIC: u32 = 0x4544_4f4e;
/// Bytes of [`NodeHeaderV1`].
pub const HEADER_BYTES: usize = 64;
/// Bytes of the version in front of each granule.
pub const VERSION_BYTES: usize = 8;
/// No kind of node has more granules.
pub const GRANULES_MAX: usize = 16;

/// What a node holds. The codes are persistent and never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum NodeKind {
    /// Eight inodes: the attributes of each, then the data of each.
    Inode,
    /// Eight hash buckets of a directory.
    Bucket,
    /// 5 x 64 slots of a file's block map.
    Leaf,
    /// 7 x 64 nids of a file's block map.
    Index,
    /// A piece of an extended attribute stream or a long symlink.
    Blob,
    /// Orphan and intent slots of a partition.
    Orphan,
}

impl NodeKind {
    /// All kinds.
    pub const ALL: [NodeKind; 6] = [
        NodeKind::Inode,
        NodeKind::Bucket,
        NodeKind::Leaf,
        NodeKind::Index,
        NodeKind::Blob,
        NodeKind::Orphan,
    ];

    /// Persistent number; 0 is no node.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            NodeKind::Inode => 1,
            NodeKind::Bucket => 2,
            NodeKind::Leaf => 3,
            NodeKind::Index => 4,
            NodeKind::Blob => 5,
            NodeKind::Orphan => 6,
        }
    }

    /// From the persistent number.
    #[must_use]
    pub fn from_code(code: u8) -> Option<NodeKind> {
        NodeKind::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// Granules of such a node.
    #[must_use]
    pub const fn granules(self) -> usize {
        match self {
            NodeKind::Inode => 2 * INODES,
            NodeKind::Bucket => 8,
            NodeKind::Leaf => 5,
            NodeKind::Index | NodeKind::Orphan => 7,
            NodeKind::Blob => 1,
        }
    }

    /// Payload bytes of granule `index`, version not counted.
    #[must_use]
    pub const fn payload(self, index: usize) -> usize {
        match self {
            NodeKind::Inode if index < INODES => size_of::<AttributesRecord>(),
            NodeKind::Inode => size_of::<InodeData>(),
            NodeKind::Bucket => 496,
            NodeKind::Leaf => 768,
            NodeKind::Index | NodeKind::Orphan => 512,
            NodeKind::Blob => 4024,
        }
    }

    /// Offset of granule `index`'s version in the image; with the number of granules, their end.
    #[must_use]
    pub const fn offset(self, index: usize) -> usize {
        // Granules of a kind have the same size, but for inodes, which have two.
        let (first, rest) = match self {
            NodeKind::Inode if index > INODES => (INODES, index - INODES),
            _ => (index, 0),
        };
        HEADER_BYTES
            + first * (VERSION_BYTES + self.payload(0))
            + rest * (VERSION_BYTES + self.payload(INODES))
    }
}

/// Inodes in a node.
const INODES: usize = to_usize(Ino::PER_NODE);

const _: () = {
    let mut i = 0;
    while i < NodeKind::ALL.len() {
        let kind = NodeKind::ALL[i];
        assert!(kind.offset(kind.granules()) <= BLOCK_BYTES);
        assert!(kind.granules() <= GRANULES_MAX);
        i += 1;
    }
};

/// Start of every node image.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct NodeHeaderV1 {
    /// [`MAGIC`].
    pub magic: U32,
    /// CRC32C of the image with this field zero, seeded by the volume.
    pub crc: U32,
    /// The node.
    pub nid: U64,
    /// Own block.
    pub address: U64,
    /// The checkpoint that wrote it.
    pub checkpoint: U64,
    /// [`NodeKind::code`].
    pub kind: u8,
    /// Number of granules.
    pub granules: u8,
    /// Written zero.
    pub reserved: [u8; 6],
    /// The inode whose data, names or attributes the node holds; 0 for inode and orphan nodes, and
    /// where none was given.
    pub owner: U64,
    /// Written zero.
    pub reserved2: [u8; 16],
}
const _: () = assert!(size_of::<NodeHeaderV1>() == HEADER_BYTES);
/// The current version.
pub type NodeHeader = NodeHeaderV1;

/// A parsed, verified image: versions and payloads.
#[derive(Debug, Clone)]
pub struct NodeImage {
    /// What it holds.
    pub kind: NodeKind,
    /// The inode it belongs to until it is freed; `Ino(0)`: none.
    pub owner: Ino,
    /// As on the medium, but that the header and what follows the granules is zero.
    block: Box<[u8]>,
}

impl NodeImage {
    /// An image with zero payloads, all granules at `version`, that belongs to no inode.
    #[must_use]
    pub fn fresh(kind: NodeKind, version: u64) -> NodeImage {
        let mut image = NodeImage {
            kind,
            owner: Ino(0),
            block: vec![0; BLOCK_BYTES].into_boxed_slice(),
        };
        (0..kind.granules()).for_each(|index| image.set_version(index, version));
        image
    }

    /// Like [`NodeImage::fresh`], but it belongs to the inode `owner`.
    #[must_use]
    pub fn fresh_of(kind: NodeKind, version: u64, owner: Ino) -> NodeImage {
        NodeImage {
            owner,
            ..NodeImage::fresh(kind, version)
        }
    }

    /// Version of a granule.
    ///
    /// # Panics
    /// If there is no such granule, as in the other functions that take one.
    #[must_use]
    pub fn version(&self, granule: usize) -> u64 {
        let version = self.block[self.place(granule)..].first_chunk();
        u64::from_le_bytes(*version.expect("granules lie in the block"))
    }

    /// Sets it.
    pub fn set_version(&mut self, granule: usize, version: u64) {
        let at = self.place(granule);
        self.block[at..at + VERSION_BYTES].copy_from_slice(&version.to_le_bytes());
    }

    /// Versions of all granules.
    pub fn versions(&self) -> impl ExactSizeIterator<Item = u64> {
        (0..self.kind.granules()).map(|granule| self.version(granule))
    }

    /// Payload of a granule.
    #[must_use]
    pub fn payload(&self, granule: usize) -> &[u8] {
        &self.block[self.place(granule) + VERSION_BYTES..][..self.kind.payload(granule)]
    }

    /// Payload of a granule, to be changed.
    pub fn payload_mut(&mut self, granule: usize) -> &mut [u8] {
        let at = self.place(granule) + VERSION_BYTES;
        &mut self.block[at..][..self.kind.payload(granule)]
    }

    /// The inode at place `index` of a node of inodes.
    #[must_use]
    pub fn inode(&self, index: u8) -> InodeRecord {
        let place = Ino::new(Nid(0), index);
        let payload = |granule: u8| self.payload(usize::from(granule));
        let attributes = AttributesRecord::read_from_bytes(payload(place.index()));
        let data = InodeData::read_from_bytes(payload(place.data_index()));
        InodeRecord::of_granules(
            attributes.expect("attributes are 112 bytes"),
            data.expect("data of an inode is 376 bytes"),
        )
    }

    /// Payloads of all granules.
    pub fn payloads(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.kind.granules()).map(|granule| self.payload(granule))
    }

    fn place(&self, granule: usize) -> usize {
        assert!(granule < self.kind.granules(), "no granule {granule}");
        self.kind.offset(granule)
    }

    /// The bytes to write to `address`.
    ///
    /// # Panics
    /// If `block` is not one block long.
    pub fn seal(&self, block: &mut [u8], nid: Nid, address: BlockNo, checkpoint: u64, seed: u32) {
        assert_eq!(block.len(), BLOCK_BYTES, "a node image is one block");
        block.copy_from_slice(&self.block);
        let mut header = NodeHeader {
            magic: U32::new(MAGIC),
            crc: U32::new(0),
            nid: U64::new(nid.0),
            address: U64::new(address.0),
            checkpoint: U64::new(checkpoint),
            kind: self.kind.code(),
            granules: u8::try_from(self.kind.granules()).expect("a node has at most 16 granules"),
            reserved: [0; 6],
            owner: U64::new(self.owner.0),
            reserved2: [0; 16],
        };
        block[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        header.crc = U32::new(dure_block::crc32c::crc32c_append(seed, block));
        block[..HEADER_BYTES].copy_from_slice(header.as_bytes());
    }

    /// Parses and verifies the image of `nid` read from `address`.
    ///
    /// # Errors
    /// `Corrupt`, naming the field and the block.
    pub fn open(block: &[u8], nid: Nid, address: BlockNo, seed: u32) -> Result<NodeImage> {
        let at = address.0;
        let header = NodeHeader::read_from_bytes(&block[..HEADER_BYTES])
            .expect("the header has the size of its structure");
        Error::expect_eq(
            "node magic",
            at,
            u64::from(MAGIC),
            u64::from(header.magic.get()),
        )?;
        let mut zeroed = header;
        zeroed.crc = U32::new(0);
        let sum = dure_block::crc32c::crc32c_append(
            dure_block::crc32c::crc32c_append(seed, zeroed.as_bytes()),
            &block[HEADER_BYTES..],
        );
        Error::expect_eq(
            "node checksum",
            at,
            u64::from(header.crc.get()),
            u64::from(sum),
        )?;
        Error::expect_eq("node id", at, nid.0, header.nid.get())?;
        Error::expect_eq("node address", at, at, header.address.get())?;
        let kind = NodeKind::from_code(header.kind).ok_or(Error::Corrupt {
            what: "node kind".into(),
            at,
            want: 1,
            got: u64::from(header.kind),
        })?;
        let want = crate::units::to_u64(kind.granules());
        Error::expect_eq("node granule count", at, want, u64::from(header.granules))?;
        let mut image = NodeImage {
            kind,
            owner: Ino(header.owner.get()),
            block: block.into(),
        };
        image.block[..HEADER_BYTES].fill(0);
        image.block[kind.offset(kind.granules())..].fill(0);
        for (index, version) in image.versions().enumerate() {
            let what = || format!("version of granule {index} of node {nid}");
            Error::expect_count(what, at, version)?;
        }
        Ok(image)
    }

    /// The greatest version in an image that is not verified yet; `None` if it is of no kind.
    ///
    /// # Panics
    /// If `block` is not one block long.
    #[must_use]
    pub fn peek_version(block: &[u8]) -> Option<u64> {
        assert_eq!(block.len(), BLOCK_BYTES, "a node image is one block");
        let (header, _) = NodeHeader::ref_from_prefix(block).ok()?;
        let kind = NodeKind::from_code(header.kind)?;
        let versions = (0..kind.granules()).map(|index| {
            let at = kind.offset(index);
            let version = block[at..]
                .first_chunk()
                .expect("granules lie in the block");
            u64::from_le_bytes(*version)
        });
        versions.max()
    }

    /// The greatest version of any granule.
    #[must_use]
    pub fn version_max(&self) -> u64 {
        self.versions().max().expect("every node has granules")
    }
}
