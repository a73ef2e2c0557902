//! Events as text: of blkparse, and of the kernel's tracefs.
//!
//! **Structure.** A line is an event, or something else that is left out and counted.
//! **Invariants.** A text without a single event is an error. **On a crash** nothing is kept.

use anyhow::{Result, bail};

use super::event::{Action, Direction, Event};

/// The events of a text.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) events: Vec<Event>,
    /// Lines that are no event of a request with data.
    pub(crate) others: usize,
}

/// Reads lines with `line`.
///
/// # Errors
/// None of them is an event.
pub(crate) fn read(text: &str, line: fn(&str) -> Option<Event>) -> Result<Read> {
    let mut events = Vec::new();
    let mut others = 0;
    for words in text.lines().filter(|line| !line.trim().is_empty()) {
        match line(words) {
            Some(event) => events.push(event),
            None => others += 1,
        }
    }
    if events.is_empty() {
        bail!("no event of a request among {others} lines");
    }
    Ok(Read { events, others })
}

/// A line as blkparse writes it unless told otherwise:
/// `8,0    3       11     0.009507758   697  C   W 223490 + 8 [0]`.
pub(crate) fn blkparse_line(line: &str) -> Option<Event> {
    let mut words = line.split_ascii_whitespace();
    let device = device(words.next()?)?;
    let core = words.next()?.parse().ok()?;
    let _sequence: u64 = words.next()?.parse().ok()?;
    // Times begin with 0, which is no stamp.
    let ns = nanoseconds(words.next()?)? + 1;
    let _pid: u64 = words.next()?.parse().ok()?;
    let action = match words.next()? {
        "Q" => Action::Queue,
        "M" => Action::BackMerge,
        "F" => Action::FrontMerge,
        "G" => Action::GetRequest,
        "I" => Action::Insert,
        "D" => Action::Issue,
        "C" => Action::Complete,
        _ => return None,
    };
    let direction = direction(words.next()?)?;
    let (sector, sectors) = range(words)?;
    Some(Event {
        ns,
        core,
        device,
        action,
        direction,
        sector,
        sectors,
    })
}

/// A line as tracefs shows it:
/// `dd-7154  [000] ..... 16199.806533: block_bio_queue: 254,0 RA 12580504 + 32 [dd]`.
pub(crate) fn tracefs_line(line: &str) -> Option<Event> {
    // The name of a task may have any characters.
    let at = line.find(": block_")?;
    let (head, tail) = (&line[..at], &line[at + 2..]);
    let mut head = head.rsplit(' ').filter(|word| !word.is_empty());
    let ns = nanoseconds(head.next()?)?;
    let core = head.find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))?;
    let mut words = tail.split_ascii_whitespace();
    let action = match words.next()?.trim_end_matches(':') {
        "block_bio_queue" => Action::Queue,
        "block_bio_backmerge" => Action::BackMerge,
        "block_bio_frontmerge" => Action::FrontMerge,
        "block_getrq" => Action::GetRequest,
        "block_rq_insert" => Action::Insert,
        "block_rq_issue" => Action::Issue,
        "block_rq_complete" | "block_bio_complete" => Action::Complete,
        _ => return None,
    };
    let device = device(words.next()?)?;
    let direction = direction(words.next()?)?;
    // Of requests: their bytes, and the bytes of a command in parentheses.
    let from = tail
        .find(')')
        .map_or(words, |end| tail[end + 1..].split_ascii_whitespace());
    let (sector, sectors) = range(from)?;
    Some(Event {
        ns,
        core: core.parse().ok()?,
        device,
        action,
        direction,
        sector,
        sectors,
    })
}

fn device(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once(',')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// `S + N`, of a request with data.
fn range<'t>(mut words: impl Iterator<Item = &'t str>) -> Option<(u64, u64)> {
    let sector = words.next()?.parse().ok()?;
    let plus = words.next()? == "+";
    let sectors = words.next()?.parse().ok()?;
    (plus && sectors > 0).then_some((sector, sectors))
}

fn direction(rwbs: &str) -> Option<Direction> {
    let letters = rwbs.trim_start_matches('F');
    match letters.chars().next()? {
        'R' => Some(Direction::Read),
        'W' => Some(Direction::Write),
        'D' => Some(Direction::Discard),
        _ => None,
    }
}

/// Seconds with a fraction, exactly.
fn nanoseconds(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.split_once('.')?;
    let digits = u32::try_from(fraction.len()).ok()?;
    let scale = 10_u64.pow(9_u32.checked_sub(digits)?);
    let fraction: u64 = fraction.parse().ok()?;
    let seconds: u64 = seconds.parse().ok()?;
    seconds
        .checked_mul(1_000_000_000)?
        .checked_add(fraction * scale)
}
