//! CRC32C over a structure whose own checksum field counts as zero.

/// CRC32C of `bytes`, seeded, with the four bytes from `field` on taken as zero.
pub(super) fn crc_without_field(seed: u32, bytes: &[u8], field: usize) -> u32 {
    let (before, rest) = bytes.split_at(field);
    let after = &rest[4..];
    let crc = dure_block::crc32c::crc32c_append(seed, before);
    let crc = dure_block::crc32c::crc32c_append(crc, &[0; 4]);
    dure_block::crc32c::crc32c_append(crc, after)
}
