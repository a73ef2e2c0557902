//! Whether a file or device holds nothing.
//!
//! **Problem.** "Not a dure volume" has two next steps: make one, if nothing is there; by no means
//! make one, if a damaged volume is. **Structure.** One function, which skips holes and reads the
//! rest. **Invariants.** Only what was read to its end counts as zeros. **Crash.** Nothing.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::io::Errno;

/// More is not read for the sake of a message.
const READ_MAX: u64 = 1 << 30;
const STEP: usize = 1 << 20;

/// How many bytes `path` has, if all of them are zeros.
pub(crate) fn bytes_of_zeros(path: &Path) -> Option<u64> {
    let kind = std::fs::metadata(path).ok()?;
    if !kind.is_file() && !crate::volume::is_block_device(path) {
        return None;
    }
    let mut file = File::open(path).ok()?;
    let len = file.seek(SeekFrom::End(0)).ok()?;
    let mut buffer = vec![0; STEP];
    let (mut at, mut was_read) = (0, 0);
    while at < len {
        match rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(at)) {
            Ok(data) => at = data,
            // A hole up to the end.
            Err(Errno::NXIO) => break,
            // It knows no holes.
            Err(_) => {}
        }
        let got = file.read_at(&mut buffer, at).ok()?;
        at += u64::try_from(got).ok()?;
        was_read += u64::try_from(got).ok()?;
        let is_zero = buffer[..got].iter().all(|byte| *byte == 0);
        if got == 0 || !is_zero || was_read > READ_MAX {
            return None;
        }
    }
    Some(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_told_from_data_and_from_what_is_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        assert_eq!(bytes_of_zeros(&path), None);
        let file = File::create(&path).unwrap();
        assert_eq!(bytes_of_zeros(&path), Some(0));
        file.set_len(3 << 20).unwrap();
        assert_eq!(bytes_of_zeros(&path), Some(3 << 20));
        file.write_at(&[0; 5000], 1 << 20).unwrap();
        assert_eq!(bytes_of_zeros(&path), Some(3 << 20));
        file.write_at(&[1], (3 << 20) - 1).unwrap();
        assert_eq!(bytes_of_zeros(&path), None);
        assert_eq!(bytes_of_zeros(folder.path()), None);
        assert_eq!(bytes_of_zeros(Path::new("/dev/zero")), None);
    }
}
