//! What else may begin in block 0.
//!
//! **Problem.** The last block of a volume has a second superblock, for when the first is lost. A
//! device on which another file system was made since still has it: a mount, or a repair, that
//! believed it would write into that file system. **Structure.** The signatures of what may begin
//! in a device's first block. **Invariants.** A block with one of them is not taken for a lost
//! superblock. **On a crash** nothing is needed: this only reads.

/// Where a signature is in block 0, and whose.
const SIGNATURES: [(usize, &[u8], &str); 11] = [
    (0, b"XFSB", "XFS"),
    (0, b"LUKS\xba\xbe", "LUKS"),
    (0, b"hsqs", "squashfs"),
    (3, b"NTFS    ", "NTFS"),
    (3, b"EXFAT   ", "exFAT"),
    (54, b"FAT", "FAT"),
    (82, b"FAT32", "FAT32"),
    (512, b"EFI PART", "a partition table"),
    (512, b"LABELONE", "LVM"),
    (1024, &[0x10, 0x20, 0xf5, 0xf2], "F2FS"),
    (4086, b"SWAPSPACE2", "swap space"),
];
/// The magic of ext2, ext3 and ext4; two bytes say little, so the revision behind them has to be
/// right, too.
const EXT: (usize, [u8; 2]) = (1080, [0x53, 0xef]);
const EXT_REVISION: usize = 1100;

/// Whose block this is, if it is the first one of something that is known.
pub(super) fn name(block: &[u8]) -> Option<&'static str> {
    let has = |at: usize, bytes: &[u8]| block.get(at..).is_some_and(|rest| rest.starts_with(bytes));
    let (at, magic) = EXT;
    let revisions = [[0, 0, 0, 0], [1, 0, 0, 0]];
    if has(at, &magic) && revisions.iter().any(|bytes| has(EXT_REVISION, bytes)) {
        return Some("ext2, ext3 or ext4");
    }
    let mut known = SIGNATURES.iter();
    known
        .find(|(at, bytes, _)| has(*at, bytes))
        .map(|(_, _, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_signature_is_known_where_it_belongs() {
        for (at, bytes, whose) in SIGNATURES {
            let mut block = vec![0; 4096];
            assert_eq!(name(&block), None);
            block[at..at + bytes.len()].copy_from_slice(bytes);
            assert_eq!(name(&block), Some(whose));
            assert_eq!(name(&block[..at + bytes.len() - 1]), None, "a torn block");
        }
        let mut block = vec![0xee; 4096];
        block[1080..1082].copy_from_slice(&EXT.1);
        assert_eq!(name(&block), None, "by chance");
        block[1100..1104].copy_from_slice(&[1, 0, 0, 0]);
        assert_eq!(name(&block), Some("ext2, ext3 or ext4"));
    }
}
