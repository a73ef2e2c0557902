//! Options as text: `word,key=value`, those of `dure mount -o` that are of the file system.

use dure::{FormatOptions, MountOptions, MountPoint};

use crate::answer::{Failure, Outcome};

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
    dure::mount_options(words).or_else(refused)
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

/// How a volume that is open is mounted, too.
pub(crate) fn of_mount_point(words: &str) -> Outcome<MountPoint> {
    let mut options = MountPoint::default();
    for (key, value) in pairs(words) {
        match (key, value) {
            ("allow_other", "") => options.allow_other = true,
            ("ro", "") => options.read_only = true,
            ("source", _) => value.clone_into(&mut options.source),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_set_what_they_name() {
        assert!(of_mount("ro").unwrap().read_only);
        let options = of_format("journals=4,label=a b,uid=7").unwrap();
        assert_eq!((options.journals, options.owner.uid), (Some(4), 7));
        assert_eq!(options.label, "a b");
        let options = of_mount_point("ro,source=rice").unwrap();
        assert!(options.read_only && !options.allow_other && options.source == "rice");
    }

    #[test]
    fn other_words_are_refused_with_a_reason() {
        let failure = of_mount("nothing").unwrap_err();
        assert_eq!(failure.errno(), libc::EINVAL);
        for words in ["journals=", "size=4", "uid=-1"] {
            assert!(of_format(words).is_err(), "{words}");
            assert!(of_mount_point(words).is_err(), "{words}");
        }
    }
}
