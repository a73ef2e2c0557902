//! Times as numbers, and their order.
//!
//! **Problem.** Times that many cores write are atomic words. **Structure.** Functions between a
//! [`Time`] and nanoseconds. **Invariants.** A time of a clock is the same there and back.
//! **On a crash** nothing.

use dure_store::format::inode::Time;

/// Nanoseconds of a second.
pub(super) const SECOND_NANOS: u64 = 1_000_000_000;

/// Nanoseconds since 1970 of a clock reading; 0 before 1970 and after 2554, which no clock shows.
#[inline]
pub(crate) fn nanos(time: Time) -> u64 {
    u64::try_from(time.secs.get())
        .ok()
        .and_then(|secs| secs.checked_mul(SECOND_NANOS))
        .and_then(|nanos| nanos.checked_add(u64::from(time.nanos.get())))
        .unwrap_or(0)
}

/// The time that is `nanos` ns after 1970.
pub(crate) fn time(nanos: u64) -> Time {
    let secs = i64::try_from(nanos / SECOND_NANOS).expect("2^64 ns are less than 2^34 s");
    Time {
        secs: secs.into(),
        nanos: u32::try_from(nanos % SECOND_NANOS)
            .expect("the rest is below a second")
            .into(),
    }
}

/// Order of times.
fn order(time: Time) -> (i64, u32) {
    (time.secs.get(), time.nanos.get())
}

/// The later of two times.
#[inline]
pub(crate) fn latest(a: Time, b: Time) -> Time {
    if order(b) > order(a) { b } else { a }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: i64) -> Time {
        Time {
            secs: secs.into(),
            nanos: 0.into(),
        }
    }

    #[test]
    fn times_before_1970_are_earlier() {
        assert_eq!(latest(at(-10), at(-9)), at(-9));
        assert_eq!(latest(at(-10), at(3)), at(3));
        assert_eq!(latest(at(1 << 40), at(3)), at(1 << 40));
    }
}
