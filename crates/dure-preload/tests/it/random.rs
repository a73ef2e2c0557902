//! Random calls on one file by both ways, compared with a model after each.

use std::fs::File;
use std::os::unix::fs::FileExt;

use dure_sync::random;

use crate::run::run;

/// Bytes of the file at most.
const BYTES: usize = 64 << 10;

/// Pseudo-random numbers, of xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap() % end
    }
}

#[test]
fn both_ways_and_mappings_agree_with_a_model() {
    run("random", 1000);
}

fn bytes(random: &mut Random) -> Vec<u8> {
    let len = 1 + random.below(9000);
    let byte = u8::try_from(random.below(256)).unwrap();
    vec![byte; len]
}

fn offset(at: usize) -> u64 {
    u64::try_from(at).unwrap()
}

pub(crate) fn part() {
    let seed = random::u64() | 1;
    eprintln!("seed {seed}");
    let mut random = Random(seed);
    let mut options = File::options();
    let file = options
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open("file")
        .unwrap();
    let mut model: Vec<u8> = Vec::new();
    for step in 0..3000 {
        let at = random.below(BYTES - 9000);
        match random.below(8) {
            0..=1 => {
                let bytes = bytes(&mut random);
                file.write_all_at(&bytes, offset(at)).unwrap();
                put(&mut model, at, &bytes);
            }
            2..=3 => {
                let bytes = bytes(&mut random);
                assert_eq!(
                    rustix::io::pwrite(&file, &bytes, offset(at)).unwrap(),
                    bytes.len()
                );
                put(&mut model, at, &bytes);
            }
            4 => {
                file.set_len(offset(at)).unwrap();
                model.resize(at, 0);
            }
            5 => {
                rustix::fs::ftruncate(&file, offset(at)).unwrap();
                model.resize(at, 0);
            }
            6 => store(&file, &mut model, &mut random),
            _ => file.sync_data().unwrap(),
        }
        let mut read = vec![0; BYTES];
        let count = match step % 2 {
            0 => file.read_at(&mut read, 0).unwrap(),
            _ => rustix::io::pread(&file, &mut read, 0).unwrap(),
        };
        read.truncate(count);
        let differs = read.iter().zip(&model).position(|(a, b)| a != b);
        assert!(
            read == model,
            "seed {seed}, step {step}: {count} bytes, {differs:?}"
        );
    }
}

fn put(model: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    model.resize(model.len().max(at + bytes.len()), 0);
    model[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Stores a byte through a mapping, and reads another.
fn store(file: &File, model: &mut [u8], random: &mut Random) {
    if model.is_empty() {
        return;
    }
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    let fd = std::os::fd::AsRawFd::as_raw_fd(file);
    let (len, at, other) = (
        model.len(),
        random.below(model.len()),
        random.below(model.len()),
    );
    // SAFETY: a new mapping of a file that nobody makes smaller meanwhile.
    unsafe {
        let mapped = libc::mmap(std::ptr::null_mut(), len, access, flags, fd, 0);
        assert_ne!(mapped, libc::MAP_FAILED);
        let bytes = mapped.cast::<u8>();
        assert_eq!(*bytes.add(other), model[other]);
        *bytes.add(at) = 0xa5;
        if random.below(2) == 0 {
            assert_eq!(libc::munmap(mapped, len), 0);
        } else {
            // The library sees what is still only in the mapping.
            let mut byte = [0];
            file.read_exact_at(&mut byte, offset(at)).unwrap();
            assert_eq!(byte, [0xa5]);
            assert_eq!(libc::munmap(mapped, len), 0);
        }
    }
    model[at] = 0xa5;
}
