//! Rules that tests leave out, to show that they would notice.
//!
//! **Problem.** A crash test that never fails proves nothing; yet no program may be able to weaken
//! what keeps its data. **Structure.** A [`Rule`] holds, or is [`LeftOut`]: a value that exists
//! only with the feature `canaries`, which only test builds enable. Each crate has a struct of its
//! rules. **Invariants.** Without the feature a rule takes no memory, and `holds` is a constant.
//! **Crash.** With a rule left out, data is lost: that is the purpose.

/// What leaves a rule out.
#[cfg(feature = "canaries")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeftOut;

/// What leaves a rule out: a type without values.
#[cfg(not(feature = "canaries"))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeftOut {}

/// Whether a rule holds.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// It does.
    #[default]
    Holds,
    /// A test wants to see what happens without it.
    LeftOut(LeftOut),
}

impl Rule {
    /// A rule that does not hold.
    #[cfg(feature = "canaries")]
    pub const LEFT_OUT: Rule = Rule::LeftOut(LeftOut);

    /// Whether it does.
    #[inline]
    #[must_use]
    pub const fn holds(self) -> bool {
        matches!(self, Rule::Holds)
    }
}
