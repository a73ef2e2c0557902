//! CRC32C (Castagnoli), the checksum of every structure and every page on a dure volume.
//!
//! One implementation for all crates, and a fast one: a small fsync sums a page twice, for its slot
//! and with its transaction.

use crc_fast::{CrcAlgorithm, Digest};

/// CRC32C of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c_append(0, bytes)
}

/// CRC32C of the bytes whose CRC32C is `crc`, followed by `bytes`. Any other `crc` acts as a seed.
#[must_use]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!crc));
    digest.update(bytes);
    u32::try_from(digest.finalize()).expect("a CRC32 has 32 bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3720, B.4.
    #[test]
    fn the_examples_of_iscsi() {
        let rising: Vec<u8> = (0..32).collect();
        let falling: Vec<u8> = (0..32).rev().collect();
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(&rising), 0x46dd_794e);
        assert_eq!(crc32c(&falling), 0x113f_db5c);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    /// Bit by bit, for lengths and starts that take every path through the fast code.
    #[test]
    fn it_is_the_same_in_pieces_and_bit_by_bit() {
        let slow = |seed: u32, bytes: &[u8]| {
            !bytes.iter().fold(!seed, |crc, byte| {
                (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
                    (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 }
                })
            })
        };
        let bytes: Vec<u8> = (0..9000_u32)
            .map(|n| ((n * n) >> 3).to_le_bytes()[0])
            .collect();
        for len in (0..300).chain([495, 496, 511, 4091, 4096, 4100, 8192, 8999]) {
            let seed = 0x1234_5678_u32.wrapping_mul(u32::try_from(len).unwrap());
            let bytes = &bytes[len % 7..len.max(len % 7)];
            assert_eq!(crc32c_append(seed, bytes), slow(seed, bytes), "{len}");
            let (first, second) = bytes.split_at(bytes.len() / 3);
            let pieces = crc32c_append(crc32c_append(seed, first), second);
            assert_eq!(pieces, slow(seed, bytes), "{len} in pieces");
        }
    }
}
