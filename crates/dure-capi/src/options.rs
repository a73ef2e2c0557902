//! Options as text: `word,key=value`, those of `dure mount -o` that are of the file system.

use std::time::Duration;

use dure::{AccessTime, FormatOptions, MountOptions};

use crate::answer::{Failure, Outcome};

/// The least `cache=`.
const CACHE_MIN: u64 = 1 << 20;

fn refused<T>(why: String) -> Outcome<T> {
    Err(Failure::Said(libc::EINVAL, why))
}

/// Keys and values; the last of equal ones counts.
fn pairs(words: &str) -> impl Iterator<Item = (&str, &str)> {
    let words = words.split(',').filter(|word| !word.is_empty());
    words.map(|word| word.split_once('=').unwrap_or((word, "")))
}

/// How a volume is mounted.
pub(crate) fn of_mount(words: &str) -> Outcome<MountOptions> {
    let mut options = MountOptions::default();
    for (key, value) in pairs(words) {
        match (key, value) {
            ("ro", "") => options.read_only = true,
            ("rw", "") => options.read_only = false,
            ("noatime", "") => options.access_time = AccessTime::Never,
            ("relatime", "") => options.access_time = AccessTime::Relative,
            ("strictatime", "") => options.access_time = AccessTime::Always,
            ("nodiratime", "") => options.directory_access_time = Some(AccessTime::Never),
            ("cache", _) => options.cache_bytes = cache(value)?,
            ("commit", _) => options.commit_interval = seconds(value)?,
            _ => match options.set_policy(key, value) {
                Ok(true) => {}
                Ok(false) => return refused(format!("unknown option '{key}'")),
                Err(why) => return refused(why),
            },
        }
    }
    Ok(options)
}

/// What mkfs decides.
pub(crate) fn of_format(words: &str) -> Outcome<FormatOptions> {
    let mut options = FormatOptions::default();
    for (key, value) in pairs(words) {
        match key {
            "journals" => options.journals = Some(number(key, value)?),
            "segment_blocks" => options.segment_blocks = Some(number(key, value)?),
            "label" => value.clone_into(&mut options.label),
            "uid" => options.owner.uid = number(key, value)?,
            "gid" => options.owner.gid = number(key, value)?,
            _ => return refused(format!("unknown option '{key}'")),
        }
    }
    Ok(options)
}

fn number(key: &str, value: &str) -> Outcome<u32> {
    match value.parse() {
        Ok(number) => Ok(number),
        Err(_) => refused(format!("{key}={value}: it is a number")),
    }
}

fn seconds(value: &str) -> Outcome<Duration> {
    match value.parse() {
        Ok(seconds) if (0.001..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => refused(format!("commit={value}: it is 0.001 to 3600 seconds")),
    }
}

/// Bytes, with an optional unit K, M, G or T.
fn cache(value: &str) -> Outcome<u64> {
    let units = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];
    let of_unit = |(unit, shift): &(char, u32)| Some((value.strip_suffix(*unit)?, *shift));
    let (digits, shift) = units.iter().find_map(of_unit).unwrap_or((value, 0));
    let bytes = digits.parse::<u64>().ok();
    match bytes.and_then(|bytes| bytes.checked_mul(1 << shift)) {
        Some(bytes) if bytes >= CACHE_MIN => Ok(bytes),
        _ => refused(format!("cache={value}: it is a size of at least 1M")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_set_what_they_name() {
        let options = of_mount("ro,cache=64M,commit=0.5,,noatime,journal=single").unwrap();
        assert!(options.read_only && options.cache_bytes == 64 << 20);
        assert_eq!(options.commit_interval, Duration::from_millis(500));
        assert_eq!(options.access_time, AccessTime::Never);
        let options = of_format("journals=4,label=a b,uid=7").unwrap();
        assert_eq!((options.journals, options.owner.uid), (Some(4), 7));
        assert_eq!(options.label, "a b");
        assert!(!of_mount("ro,rw").unwrap().read_only);
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
            let failure = of_mount(words).unwrap_err();
            assert_eq!(failure.errno(), libc::EINVAL, "{words}");
        }
        for words in ["journals=", "size=4", "uid=-1"] {
            assert!(of_format(words).is_err(), "{words}");
        }
    }
}
