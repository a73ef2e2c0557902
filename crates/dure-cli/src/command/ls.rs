//! `dure ls`.

use std::path::Path;

use anyhow::{Context, Result};
use dure::{FileKind, Metadata, Session};
use dure_bench::say;

use crate::args::Ls;
use crate::exit;
use crate::volume::{self, Access};

pub(crate) fn run(args: &Ls) -> Result<u8> {
    let volume = volume::open(&args.volume, Access::Read)?;
    let session = volume.root();
    let several = args.paths.len() > 1 || args.recursive;
    for path in &args.paths {
        let at = || args.volume.display().to_string();
        list(&session, path, args, several).with_context(at)?;
    }
    Ok(exit::OK)
}

fn list(session: &Session, path: &Path, args: &Ls, header: bool) -> Result<()> {
    let metadata = session.symlink_metadata(path)?;
    if !metadata.is_dir() {
        show(session, path, &path.to_string_lossy(), &metadata, args);
        return Ok(());
    }
    if header {
        say!("{}:", path.display());
    }
    let mut names = Vec::new();
    for entry in session.read_dir(path)? {
        names.push(entry?.file_name().to_owned());
    }
    names.sort();
    let mut below = Vec::new();
    for name in names {
        let child = path.join(&name);
        let metadata = session.symlink_metadata(&child)?;
        show(session, &child, &name.to_string_lossy(), &metadata, args);
        if metadata.is_dir() {
            below.push(child);
        }
    }
    if args.recursive {
        for directory in below {
            say!("");
            list(session, &directory, args, true)?;
        }
    }
    Ok(())
}

fn show(session: &Session, path: &Path, name: &str, metadata: &Metadata, args: &Ls) {
    if !args.long {
        say!("{name}");
        return;
    }
    let target = match metadata.is_symlink().then(|| session.read_link(path)) {
        Some(Ok(target)) => format!(" -> {}", target.display()),
        _ => String::new(),
    };
    say!(
        "{} {:>3} {:>5} {:>5} {:>12} {} {name}{target}",
        mode_text(metadata),
        metadata.nlink(),
        metadata.uid(),
        metadata.gid(),
        metadata.len(),
        date(metadata.modified().secs),
    );
}

fn mode_text(metadata: &Metadata) -> String {
    let kind = match metadata.kind() {
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
        FileKind::CharacterDevice => 'c',
        FileKind::BlockDevice => 'b',
        FileKind::File => '-',
    };
    let mode = metadata.mode();
    let mut text = String::from(kind);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, mode & special != 0) {
            (true, true) => letter,
            (false, true) => letter.to_ascii_uppercase(),
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// Seconds since 1970 as `2026-11-21 09:30`, in UTC (civil-from-days, by Howard Hinnant).
fn date(secs: i64) -> String {
    let (days, rest) = (secs.div_euclid(86_400), secs.rem_euclid(86_400));
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 {
        month_index + 3
    } else {
        month_index - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}",
        rest / 3600,
        rest % 3600 / 60
    )
}

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn dates_are_right_before_1970_and_after_2038() {
        assert_eq!(date(0), "1970-01-01 00:00");
        assert_eq!(date(-1), "1969-12-31 23:59");
        assert_eq!(date(951_826_200), "2000-02-29 12:10");
        assert_eq!(date(4_102_444_800), "2100-01-01 00:00");
    }
}
