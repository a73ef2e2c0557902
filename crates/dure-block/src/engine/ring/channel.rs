//! What a ring asks of the interface that passes its requests to the kernel.

/// A completion, as the kernel tells it.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Arrived {
    /// Which flight.
    pub(crate) index: usize,
    /// Bytes done, or the negative error number.
    pub(crate) code: i32,
}

/// Whether completions are waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Take {
    /// Those that have arrived.
    Ready,
    /// At least one, unless a signal comes first.
    One,
}

/// What the kernel says when it does not do what it is asked for; with the negative error number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It cannot now: it lacks memory, or has too many completions to keep.
    Busy(i32),
    /// It refuses the first entry, which the channel has dropped.
    First(i32),
    /// It fails for good: it takes no entry, and tells of no completion.
    All(i32),
}

impl Refused {
    /// The negative error number.
    pub(crate) fn code(self) -> i32 {
        match self {
            Self::Busy(code) | Self::First(code) | Self::All(code) => code,
        }
    }
}

/// What passes requests to the kernel and completions back.
pub(crate) trait Channel {
    /// A request with what has to stay where it is while the kernel has it.
    type Flight;
    /// Entries on this side of the kernel.
    type Entries: Default;

    /// Adds the entry of flight `index`; false: there is no room before some have been passed.
    fn push(&self, entries: &mut Self::Entries, index: usize, flight: &mut Self::Flight) -> bool;

    /// Passes entries to the kernel, which may take fewer than all `pushed`; returns how many it
    /// took. If it refuses one it has taken none.
    fn pass(&self, entries: &mut Self::Entries, pushed: usize) -> Result<usize, Refused>;

    /// Takes completions; returns how many. Called by one task at a time.
    fn take(&self, take: Take, arrived: &mut [Arrived]) -> Result<usize, Refused>;

    /// The flight is about to be passed.
    fn dispatched(flight: &mut Self::Flight);

    /// Completes a flight.
    fn finish(&self, flight: Self::Flight, code: i32);

    /// Completes a flight whose memory the kernel may still use, with an error.
    fn abandon(&self, flight: Self::Flight, code: i32);
}
