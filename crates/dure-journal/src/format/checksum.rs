//! CRC32C over a structure whose own checksum field counts as zero, and of what zeroes follow.

/// CRC32C of `bytes`, seeded, with the four bytes from `field` on taken as zero.
pub(super) fn crc_without_field(seed: u32, bytes: &[u8], field: usize) -> u32 {
    let (before, rest) = bytes.split_at(field);
    let after = &rest[4..];
    let crc = dure_block::crc32c::crc32c_append(seed, before);
    let crc = dure_block::crc32c::crc32c_append(crc, &[0; 4]);
    dure_block::crc32c::crc32c_append(crc, after)
}

/// The checksum of what `crc` is the checksum of, with `count` zeroes behind it. Most of a block is
/// such: a transaction of one operation is a few hundred bytes.
pub(super) fn crc_of_zeroes(mut crc: u32, count: usize) -> u32 {
    let rest = count % RUN;
    crc = dure_block::crc32c::crc32c_append(crc, &[0; RUN][..rest]);
    let mut runs = count / RUN;
    while runs > 0 {
        let now = runs.min(RUNS.len() - 1);
        crc = !times(!crc, RUNS[now]);
        runs -= now;
    }
    crc
}

/// Zeroes of a run.
const RUN: usize = 64;
/// The factors that so many runs of zeroes are.
const RUNS: [u32; 65] = factors();

/// A checksum is a polynomial over the numbers modulo 2, taken modulo this one (Castagnoli's), and a
/// zero byte behind the content multiplies it with x to the eighth (Mark Adler, `crc32_combine` of
/// zlib). The highest bit has the lowest power.
const POLYNOMIAL: u32 = 0x82f6_3b78;
const ONE: u32 = 1 << 31;

const fn factors() -> [u32; 65] {
    let mut run = ONE;
    let mut bits = 0;
    while bits < RUN * 8 {
        run = times_x(run);
        bits += 1;
    }
    let mut factors = [ONE; 65];
    let mut runs = 1;
    while runs < factors.len() {
        factors[runs] = times(factors[runs - 1], run);
        runs += 1;
    }
    factors
}

const fn times_x(a: u32) -> u32 {
    let carry = (a & 1).wrapping_neg();
    (a >> 1) ^ (POLYNOMIAL & carry)
}

const fn times(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = 32;
    while bit > 0 {
        bit -= 1;
        product ^= b & ((a >> bit) & 1).wrapping_neg();
        b = times_x(b);
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroes_need_not_be_read() {
        let zeroes = [0; 9_000];
        for seed in [0, 1, 0x8000_0000, 0xdead_beef, u32::MAX] {
            for count in (0..4_200).chain([8_191, 8_192, 8_193, 9_000]) {
                let read = dure_block::crc32c::crc32c_append(seed, &zeroes[..count]);
                assert_eq!(crc_of_zeroes(seed, count), read, "{count} behind {seed:#x}");
            }
        }
    }
}
