//! Mount options as text, for programs that pass them on.

use std::time::Duration;

use dure_fs::{AccessTime, MountOptions};

/// The least `cache=`.
const CACHE_MIN: u64 = 1 << 20;

/// Options as text: `word,key=value`, those of `dure mount -o` that are of the file system. The last
/// of equal ones counts.
///
/// # Errors
/// What is wrong with a word, and what is allowed.
///
/// ```
/// let options = dure::mount_options("ro,cache=64M,commit=0.5")?;
/// assert!(options.read_only && options.cache_bytes == 64 << 20);
/// # Ok::<(), String>(())
/// ```
pub fn mount_options(words: &str) -> Result<MountOptions, String> {
    let mut options = MountOptions::default();
    for word in words.split(',').filter(|word| !word.is_empty()) {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        match (key, value) {
            ("ro", "") => options.read_only = true,
            ("rw", "") => options.read_only = false,
            ("noatime", "") => options.access_time = AccessTime::Never,
            ("relatime", "") => options.access_time = AccessTime::Relative,
            ("strictatime", "") => options.access_time = AccessTime::Always,
            ("nodiratime", "") => options.directory_access_time = Some(AccessTime::Never),
            ("cache", _) => options.cache_bytes = cache(value)?,
            ("commit", _) => options.commit_interval = seconds(value)?,
            _ => {
                if !options.set_policy(key, value)? {
                    return Err(format!("unknown option '{key}'"));
                }
            }
        }
    }
    Ok(options)
}

fn seconds(value: &str) -> Result<Duration, String> {
    match value.parse() {
        Ok(seconds) if (0.001..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!("commit={value}: it is 0.001 to 3600 seconds")),
    }
}

/// Bytes, with an optional unit K, M, G or T.
fn cache(value: &str) -> Result<u64, String> {
    let units = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];
    let of_unit = |(unit, shift): &(char, u32)| Some((value.strip_suffix(*unit)?, *shift));
    let (digits, shift) = units.iter().find_map(of_unit).unwrap_or((value, 0));
    let bytes = digits.parse::<u64>().ok();
    match bytes.and_then(|bytes| bytes.checked_mul(1 << shift)) {
        Some(bytes) if bytes >= CACHE_MIN => Ok(bytes),
        _ => Err(format!("cache={value}: it is a size of at least 1M")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_set_what_they_name() {
        let options = mount_options("ro,cache=64M,commit=0.5,,noatime,journal=single").unwrap();
        assert!(options.read_only && options.cache_bytes == 64 << 20);
        assert_eq!(options.commit_interval, Duration::from_millis(500));
        assert_eq!(options.access_time, AccessTime::Never);
        assert!(!mount_options("ro,rw").unwrap().read_only);
    }

    #[test]
    fn other_words_are_refused_with_a_reason() {
        for words in [
            "nothing",
            "ro=1",
            "cache=1K",
            "cache=x",
            "commit=0",
            "journal=three",
        ] {
            assert!(mount_options(words).is_err(), "{words}");
        }
    }
}
