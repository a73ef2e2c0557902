//! Run-length encoding of images: tokens of a length (u32, little endian) whose top bit tells a run
//! of one byte, which follows, from so many bytes as they are.

const RUN: u32 = 1 << 31;
/// Shorter runs stand among the other bytes.
const RUN_MIN: usize = 8;

fn run_at(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| **byte == bytes[0]).count()
}

fn put(out: &mut Vec<u8>, flag: u32, len: usize) {
    let len = u32::try_from(len).expect("images are small");
    assert!(len < RUN);
    out.extend((len | flag).to_le_bytes());
}

/// The encoding of `bytes`.
pub(crate) fn encode(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut plain = 0;
    let mut at = 0;
    while at < bytes.len() {
        let run = run_at(&bytes[at..]);
        if run < RUN_MIN {
            at += run;
            continue;
        }
        if plain < at {
            put(&mut out, 0, at - plain);
            out.extend(&bytes[plain..at]);
        }
        put(&mut out, RUN, run);
        out.push(bytes[at]);
        at += run;
        plain = at;
    }
    if plain < at {
        put(&mut out, 0, at - plain);
        out.extend(&bytes[plain..at]);
    }
    out
}

/// The inverse of [`encode`].
pub(crate) fn decode(mut encoded: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some((head, rest)) = encoded.split_first_chunk::<4>() {
        let token = u32::from_le_bytes(*head);
        let len = usize::try_from(token & !RUN).expect("64 bits");
        encoded = if token & RUN == 0 {
            let (plain, rest) = rest.split_at(len);
            out.extend(plain);
            rest
        } else {
            let (byte, rest) = rest.split_first().expect("a run has a byte");
            out.resize(out.len() + len, *byte);
            rest
        };
    }
    out
}
