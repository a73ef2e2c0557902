//! CRC32C over a structure whose own checksum field counts as zero.

/// CRC32C of `bytes`, seeded, with the four bytes from `field` on taken as zero.
pub(super) fn crc_without_field(seed: u32, bytes: &[u8], field: usize) -> u32 {
    let (before, rest) = bytes.split_at(field);
    let after = &rest[4..];
    let crc = dure_block::crc32c::crc32c_append(seed, before);
    let crc = dure_block::crc32c::crc32c_append(crc, &[0; 4]);
    dure_block::crc32c::crc32c_append(crc, after)
}

/// The checksum of what `crc` is the checksum of, with `count` zeroes behind it.
pub(super) fn crc_of_zeroes(mut crc: u32, count: usize) -> u32 {
    const ZEROES: [u8; 512] = [0; 512];
    let mut left = count;
    while left > 0 {
        let now = left.min(ZEROES.len());
        crc = dure_block::crc32c::crc32c_append(crc, &ZEROES[..now]);
        left -= now;
    }
    crc
}
