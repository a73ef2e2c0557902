//! The table of all inconsistencies, in the order of the passes.
//!
//! **Structure.** Per kind: severity, name, what it names, and its line. **Invariants.** A name is
//! never given to another inconsistency.

use std::fmt;

use dure_block::count::Count;
use dure_store::format::node::NodeKind;
use dure_store::units::{GranuleId, Ino, Nid};

use super::Severity;
use crate::owner::{BlockUse, NodeUse, PairName};

issues! {
    /// One copy of the superblock is not usable; the other one counts.
    Error SuperblockCopy {
        /// Its block.
        at: u64,
        /// What is wrong with it.
        why: String,
    } => "superblock at block {at} is bad, the other copy counts: {why}";

    /// Both copies are valid but say different things.
    Error SuperblockCopiesDiffer {
        /// First byte that differs.
        offset: usize,
    } => "the two superblocks differ from byte {offset} on; the first one counts";

    /// A medium of the volume has lost what says which it is; its stamp says so, too.
    Error MediumHead {
        /// Which medium, from 1.
        medium: usize,
        /// Where it was when the volume was made.
        path: String,
    } => "medium {medium}, which was {path}: its head is destroyed; the other media have what it said";

    /// A medium has lost what says which mount it took part in: an old copy would not be noticed.
    Error MediumStamp {
        /// Which medium, from 1.
        medium: usize,
        /// Where it was when the volume was made.
        path: String,
    } => "medium {medium}, which was {path}: its stamp is destroyed";

    /// The medium ends before the volume.
    Fatal DeviceTooSmall {
        /// Blocks there are.
        have: u64,
        /// Blocks the superblock says.
        need: u64,
    } => "the volume has {need} blocks of 4 KiB but the device only {have}; the end of the image is missing";

    /// The device refused to read.
    Error Unreadable {
        /// First block.
        at: u64,
        /// The device's words.
        why: String,
    } => "block {at} cannot be read: {why}";

    /// A field that must be zero is not.
    Error ReservedNotZero {
        /// Which structure.
        what: String,
        /// Block number.
        at: u64,
    } => "{what} at block {at}: reserved bytes must be zero";

    /// The current slot of a pair is not valid; of a mirrored pair, no slot is.
    Error PairLost {
        /// The pair.
        pair: PairName,
        /// The block of the slot, or the first of the mirrored pair.
        at: u64,
    } => "{pair} at block {at}: what counts is damaged; its content is lost";

    /// One slot of a mirrored pair holds something that is not valid: a torn write, or damage.
    /// Another slot is current.
    Warning PairSlotBad {
        /// The pair.
        pair: PairName,
        /// Block of the slot.
        at: u64,
    } => "{pair}: the slot at block {at} is not valid (torn by a crash, or damaged); the other one counts";

    /// One of the two copies of a pair does not verify, cannot be read, or is not as the other.
    Error PairCopyBad {
        /// The pair.
        pair: PairName,
        /// Block of the copy.
        at: u64,
    } => "{pair}: the copy at block {at} is damaged; the other one counts";

    /// A counter is so large that increments could overflow it.
    Error CountTooLarge {
        /// Which counter.
        what: String,
        /// Block number.
        at: u64,
        /// Its value.
        got: u64,
    } => "{what} at block {at} is {got}: no volume has counted that far";

    /// A pair says it is another one.
    Error PairMisplaced {
        /// The pair.
        pair: PairName,
        /// Its first block.
        at: u64,
        /// What it says.
        got: u64,
    } => "{pair} at block {at} says it has number {got}";

    /// The volume header is lost.
    Fatal VolumeHeaderLost {
        /// First block of its pair.
        at: u64,
    } => "volume header at block {at}: neither slot is valid; epoch and state of the volume are lost";

    /// A field of the volume header cannot be.
    Fatal VolumeHeaderField {
        /// The field.
        field: &'static str,
        /// Its value.
        got: u64,
        /// What it must be.
        must: &'static str,
    } => "volume header: {field} is {got}, must be {must}";

    /// The volume header counts wrongly.
    Warning HeaderCount {
        /// What it counts.
        field: &'static str,
        /// How many there are by the NAT.
        want: u64,
        /// What the header says.
        got: u64,
    } => "volume header: it counts {got} {field}, the NAT has {want}";

    /// The volume was not unmounted; its state was built from images and logs.
    Warning NotClean {
        /// Complete transactions found in the logs.
        transactions: u64,
    } => "the volume was not unmounted cleanly; the check looked at what a mount will recover from {}", Count::of(*transactions, "transaction");

    /// The table of snapshots, or a list of kept pairs, is damaged: which blocks they need is
    /// unknown, and a mount for writing refuses the volume.
    Error SnapshotsLost {
        /// What is wrong.
        why: String,
    } => "the snapshots are damaged: {why}; a repair gives all of them up";

    /// A snapshot does not show all that it did.
    Error SnapshotBad {
        /// Its name.
        name: String,
        /// What is wrong.
        why: String,
    } => "snapshot {name} is damaged: {why}; delete it, or, if the volume cannot be mounted, repair it, which gives up all snapshots";

    /// The volume was mounted without a log and not unmounted: a mount refuses it.
    Error Unlogged {} => "the volume was mounted with journal=none and was not unmounted: what was written since \
        the last checkpoint is lost, and pages of files may be, too";

    /// The logs of a volume that was not unmounted cannot be replayed.
    Fatal ReplayFailed {
        /// Why.
        why: String,
    } => "the logs cannot be replayed: {why}";

    /// The logs have lost something durable; the check was told to go on with the rest.
    Error LogHole {
        /// What, and where.
        why: String,
    } => "{why}; the check looked at the rest";

    /// A pack, which says which slots of many pairs are current, cannot be used.
    Fatal PackBad {
        /// What is wrong.
        why: String,
    } => "which slots of the tables count cannot be read: {why}";

    /// A journal header is lost or cannot be.
    Error JournalHeaderBad {
        /// Which journal.
        journal: u32,
        /// First block of its pair.
        at: u64,
        /// What is wrong.
        why: String,
    } => "header of journal {journal} at block {at}: {why}";

    /// A journal header is of an epoch the volume has not reached.
    Error JournalEpoch {
        /// Which journal.
        journal: u32,
        /// Its epoch.
        got: u64,
        /// The volume's.
        volume: u64,
    } => "header of journal {journal}: epoch {got}, but the volume is in epoch {volume}";

    /// A journal thinks segments have another size.
    Error JournalSegmentBlocks {
        /// Which journal.
        journal: u32,
        /// Its size.
        got: u32,
        /// The volume's.
        want: u32,
    } => "header of journal {journal}: log segments of {got} blocks, the volume has {want}";

    /// A log segment is not a segment of the main area.
    Error LogSegmentOutside {
        /// Which journal.
        journal: u32,
        /// Block it starts at.
        block: u64,
    } => "journal {journal}: its log segment at block {block} is not a segment of the main area";

    /// A NAT entry names a block outside the main area.
    Error NatBlockOutside {
        /// The node.
        nid: Nid,
        /// The block.
        block: u64,
    } => "NAT entry of node {nid}: block {block} is outside the main area";

    /// A NAT entry of a live node has no known kind, or that of a free one has one.
    Error NatKind {
        /// The node.
        nid: Nid,
        /// Code found.
        got: u8,
    } => "NAT entry of node {nid}: kind {got} is impossible";

    /// A NAT entry counts free inodes wrongly.
    Warning NatFreeInodes {
        /// The node.
        nid: Nid,
        /// Free granules of the image.
        want: u8,
        /// What the entry says.
        got: u8,
    } => "NAT entry of node {nid}: {got} free inodes, its image has {want}";

    /// Two owners claim one block.
    Error BlockShared {
        /// The block.
        block: u64,
        /// The second owner.
        by: BlockUse,
    } => "block {block} is used by {by} and by something else";

    /// The lists of blocks that clones share are damaged: a mount for writing refuses the volume.
    Error SharedLost {
        /// What is wrong.
        why: String,
    } => "the lists of shared blocks are damaged: {why}; a repair writes them anew";

    /// Several slots name a block, and no list has it: it would be free when the first lets go.
    Error SharedMissing {
        /// The block.
        block: u64,
        /// The second owner.
        by: BlockUse,
    } => "block {block} is used by {by} and by something else, and is in no list of shared blocks";

    /// Slots name a block, and the list that has it lacks them: it would be free too early.
    Error SharedUnlisted {
        /// The block.
        block: u64,
        /// How many slots.
        count: u64,
    } => "block {block}: the list of those who share it lacks {}", Count::of(*count, "slot");

    /// A list says that slots name a block, and they do not: it would never be free.
    Error SharedStale {
        /// The block.
        block: u64,
        /// How many slots.
        count: u64,
    } => "block {block}: the list of those who share it has {} too many", Count::of(*count, "slot");

    /// A node image is not what it must be.
    Error NodeBad {
        /// The node.
        nid: Nid,
        /// Where its image lies.
        block: u64,
        /// What is wrong.
        why: String,
    } => "image of node {nid} at block {block}: {why}";

    /// The NAT and the image disagree about the kind.
    Error NodeKindMismatch {
        /// The node.
        nid: Nid,
        /// Kind in the NAT.
        nat: NodeKind,
        /// Kind of the image.
        image: NodeKind,
    } => "node {nid}: the NAT says {nat:?}, the image says {image:?}";

    /// The NAT and the image disagree about the version: one of them is stale.
    Error NodeVersion {
        /// The node.
        nid: Nid,
        /// Version in the NAT.
        nat: u64,
        /// Greatest version in the image.
        image: u64,
    } => "node {nid}: the NAT is at version {nat}, the image at {image}; one of them is stale";

    /// Something refers to a node that has no image.
    Error NodeMissing {
        /// The node.
        nid: Nid,
        /// What refers to it.
        by: NodeUse,
    } => "node {nid}, named by {by}, does not exist";

    /// Something refers to a node of the wrong kind.
    Error NodeWrongKind {
        /// The node.
        nid: Nid,
        /// What refers to it.
        by: NodeUse,
        /// What it is.
        got: NodeKind,
    } => "node {nid}, named by {by}, is of kind {got:?}";

    /// A node names another inode as its owner than the one that refers to it.
    Error NodeOwner {
        /// The node.
        nid: Nid,
        /// What refers to it.
        by: NodeUse,
        /// The owner it names.
        got: Ino,
    } => "node {nid}, named by {by}, says it belongs to inode {got}";

    /// A node is used twice.
    Error NodeShared {
        /// The node.
        nid: Nid,
        /// The second owner.
        by: NodeUse,
    } => "node {nid} is used by {by} and by something else";

    /// Nothing refers to a node.
    Warning NodeLeaked {
        /// The node.
        nid: Nid,
        /// What it is.
        kind: NodeKind,
    } => "node {nid} ({kind:?}) belongs to nothing; its space is lost";

    /// The root directory is missing.
    Error RootMissing {} => "inode 1 is not a directory: the volume has no root";

    /// An inode says it has another number.
    Error InodeNumber {
        /// Where it lies.
        ino: Ino,
        /// What it says.
        got: u64,
    } => "inode {ino} says it has number {got}";

    /// A field of an inode cannot be.
    Error InodeField {
        /// The inode.
        ino: Ino,
        /// The field.
        field: &'static str,
        /// Its value.
        got: u64,
        /// What it must be.
        must: &'static str,
    } => "inode {ino}: {field} is {got:#x}, must be {must}";

    /// An inode has a project on a volume that has none.
    Error InodeProject {
        /// The inode.
        ino: Ino,
        /// What it says.
        project: u32,
    } => "inode {ino} is of project {project}, but the volume has no projects";

    /// An inode counts its blocks wrongly.
    Error InodeBlocks {
        /// The inode.
        ino: Ino,
        /// Slots with a block.
        want: u64,
        /// What it says.
        got: u64,
    } => "inode {ino}: has {want} blocks but counts {got}";

    /// An inode counts its names wrongly.
    Error LinkCount {
        /// The inode.
        ino: Ino,
        /// Names found.
        want: u32,
        /// What it says.
        got: u32,
    } => "inode {ino}: has {want} names but a link count of {got}";

    /// An inode without a name is not in an orphan slot: its space is lost.
    Error InodeDetached {
        /// The inode.
        ino: Ino,
    } => "inode {ino} has no name and is in no orphan slot";

    /// A bucket's entries do not lie one behind the other in its used bytes.
    Error BucketLayout {
        /// The directory.
        directory: Ino,
        /// The bucket.
        bucket: GranuleId,
        /// Byte of the entry area where it goes wrong.
        offset: usize,
    } => "directory {directory}, bucket {bucket}: no sound entry at byte {offset}";

    /// A number in a bucket's header is wrong.
    Error BucketCount {
        /// The directory.
        directory: Ino,
        /// The bucket.
        bucket: GranuleId,
        /// Which number.
        field: &'static str,
        /// What it should be.
        want: u64,
        /// What it is.
        got: u64,
    } => "directory {directory}, bucket {bucket}: {field} is {got}, should be {want}";

    /// A directory's trie has more levels than the hash has bits.
    Error BucketTooDeep {
        /// The directory.
        directory: Ino,
        /// The bucket.
        bucket: GranuleId,
    } => "directory {directory}, bucket {bucket}: has a child below the last level";

    /// A name has bytes that no name has.
    Error NameInvalid {
        /// The directory.
        directory: Ino,
        /// The name, escaped.
        name: String,
    } => "directory {directory}: \"{name}\" cannot be a name";

    /// A name is there twice.
    Error NameTwice {
        /// The directory.
        directory: Ino,
        /// The name, escaped.
        name: String,
    } => "directory {directory}: \"{name}\" is there twice";

    /// A name is in a bucket its hash does not lead to: lookups do not find it.
    Error NameMisplaced {
        /// The directory.
        directory: Ino,
        /// The bucket it is in.
        bucket: GranuleId,
        /// The name, escaped.
        name: String,
    } => "directory {directory}, bucket {bucket}: the hash of \"{name}\" leads elsewhere";

    /// Two entries of one hash group have the same ordinal: a readdir cookie is not unique.
    Error OrdinalTwice {
        /// The directory.
        directory: Ino,
        /// The second name, escaped.
        name: String,
    } => "directory {directory}: \"{name}\" has the readdir cookie of another entry";

    /// A name leads to an inode that does not exist.
    Error EntryDangling {
        /// The directory.
        directory: Ino,
        /// The name, escaped.
        name: String,
        /// The inode.
        ino: u64,
    } => "directory {directory}: \"{name}\" leads to inode {ino}, which does not exist";

    /// An entry's type is not that of the inode.
    Error EntryType {
        /// The directory.
        directory: Ino,
        /// The name, escaped.
        name: String,
        /// The inode's type, `st_mode >> 12`.
        want: u8,
        /// The entry's.
        got: u8,
    } => "directory {directory}: \"{name}\" has type {got}, its inode type {want}";

    /// A directory has two names.
    Error DirectoryTwice {
        /// The directory with two names.
        ino: Ino,
        /// Where the second one is.
        directory: Ino,
    } => "directory {ino} has a second name, in directory {directory}";

    /// A directory's parent is not where its name is.
    Error ParentPointer {
        /// The directory.
        ino: Ino,
        /// Where its name is.
        want: Ino,
        /// What it says.
        got: u64,
    } => "directory {ino}: its name is in directory {want} but its parent says {got}";

    /// Directories that contain each other and have no parent outside the cycle.
    Error DirectoryCycle {
        /// One of them.
        ino: Ino,
    } => "directory {ino} is its own ancestor and cannot be reached from the root";

    /// A slot has unknown flags, or flags without a block.
    Error SlotBad {
        /// The file.
        ino: Ino,
        /// Page of the file.
        page: u64,
    } => "file {ino}, page {page}: its slot has impossible flags";

    /// A slot names a block outside the main area.
    Error SlotOutside {
        /// The file.
        ino: Ino,
        /// Page of the file.
        page: u64,
        /// The block.
        block: u64,
    } => "file {ino}, page {page}: block {block} is outside the main area";

    /// A written page lies behind the end of the file.
    Error SlotBeyondEnd {
        /// The file.
        ino: Ino,
        /// The first such page.
        page: u64,
    } => "file {ino}: page {page} is written but lies behind the end of the file";

    /// A blob chain ends too early or goes on too long.
    Error BlobLength {
        /// Whose chain.
        by: NodeUse,
        /// Nodes its length needs.
        want: u64,
        /// Nodes found.
        got: u64,
    } => "{by}: its length needs {want} nodes, the chain has {got}";

    /// The extended attribute stream cannot be read.
    Error XattrStream {
        /// The inode.
        ino: Ino,
        /// Byte of the stream.
        offset: usize,
    } => "inode {ino}: no sound extended attribute at byte {offset} of the stream";

    /// The limits of users and groups cannot be read: a mount does without.
    Error QuotaLimits {
        /// Why.
        why: String,
    } => "{why}: no limit counts until one is set, which writes all anew";

    /// What users and groups have was stored wrongly when the volume was unmounted.
    Error QuotaUsage {
        /// What is wrong.
        why: String,
    } => "usage that the last unmount has stored: {why}";

    /// The target of a symlink holds NUL.
    Error LinkTarget {
        /// The symlink.
        ino: Ino,
    } => "symlink {ino}: its target holds NUL";

    /// A time in a bucket that cannot be.
    Error BucketTime {
        /// The directory.
        directory: Ino,
        /// The bucket.
        bucket: GranuleId,
        /// Its nanoseconds.
        got: u32,
    } => "directory {directory}, bucket {bucket}: {got} nanoseconds, must be below 1000000000";

    /// An orphan slot names an inode that does not exist.
    Error OrphanVanished {
        /// Orphan granule.
        granule: GranuleId,
        /// Slot in it.
        slot: usize,
        /// The inode.
        ino: u64,
    } => "orphan slot {slot} of {granule}: inode {ino} does not exist";

    /// An orphan slot's inode has names, or lacks the flag.
    Error OrphanMismatch {
        /// The inode.
        ino: Ino,
        /// What does not fit.
        why: &'static str,
    } => "orphan inode {ino}: {why}";

    /// An inode is flagged as orphan but in no orphan slot.
    Error OrphanUnlisted {
        /// The inode.
        ino: Ino,
    } => "inode {ino} is flagged as orphan but in no orphan slot: nobody will free it";

    /// A live block is not live in the SIT: it would be overwritten.
    Error SitMissing {
        /// The segment.
        segment: u32,
        /// How many blocks.
        count: u32,
        /// The first of them.
        first: u64,
    } => "segment {segment}: {} from {first} on, free in the SIT", Count::of(*count, "used block");

    /// Blocks are live in the SIT but belong to nothing.
    Warning SitLeak {
        /// The segment.
        segment: u32,
        /// How many blocks.
        count: u32,
        /// The first of them.
        first: u64,
    } => "segment {segment}: {} from {first} on, live in the SIT without an owner", Count::of(*count, "block");

    /// A SIT entry counts its bits wrongly.
    Error SitCount {
        /// The segment.
        segment: u32,
        /// Bits set.
        want: u32,
        /// What it says.
        got: u32,
    } => "SIT entry of segment {segment}: {want} bits are set but it counts {got}";

    /// A SIT entry has an impossible use or bits behind the segment.
    Error SitField {
        /// The segment.
        segment: u32,
        /// Which field.
        field: &'static str,
        /// Its value.
        got: u64,
    } => "SIT entry of segment {segment}: {field} is {got:#x}";

    /// Summary entries do not name the owner.
    Warning SummaryWrong {
        /// The segment.
        segment: u32,
        /// How many blocks.
        count: u32,
        /// The first of them.
        first: u64,
    } => "segment {segment}: the summary names the wrong owner of {} from {first} on", Count::of(*count, "block");

    /// A page does not match its checksum.
    Error DataChecksum {
        /// The file.
        ino: Ino,
        /// Page of the file.
        page: u64,
        /// Its block.
        block: u64,
        /// The slot's checksum.
        want: u32,
        /// That of the block.
        got: u32,
    } => "file {ino}, page {page}: block {block} has checksum {got:#010x}, its slot {want:#010x}";
}
