//! Everything the check can find: what an issue is, and how bad.
//!
//! **Problem.** "The volume is corrupt" is no help: a user wants to know which structure, where,
//! and what it should be; a test wants to compare. **Structure.** [`IssueKind`] is plain data, one
//! variant per inconsistency, in the table of [`kinds`]; its severity is a function of the variant;
//! `Display` is one line. **Invariants.** Names and meanings of variants are stable: scripts match
//! on [`IssueKind::name`].

use std::fmt;

/// How bad an issue is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Nothing is lost: space or speed is wasted, or a hint is wrong.
    Warning,
    /// Something on the volume is wrong or lost.
    Error,
    /// The check could not go on.
    Fatal,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Warning => "warning",
            Severity::Error => "error",
            Severity::Fatal => "fatal",
        })
    }
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    /// What was found, and where.
    pub kind: IssueKind,
    /// Whether a repair has corrected it.
    pub repaired: bool,
}

impl fmt::Display for Issue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done = if self.repaired { " (repaired)" } else { "" };
        write!(f, "{}: {}{done}", self.kind.severity(), self.kind)
    }
}

/// Defines the issues: name, severity, fields, and the text of the line.
macro_rules! issues {
    ($( $(#[$doc:meta])* $severity:ident $name:ident { $( $(#[$fdoc:meta])* $field:ident: $type:ty ),* $(,)? }
        => $line:literal $(, $argument:expr)*; )*) => {
        /// An inconsistency of a volume.
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum IssueKind {
            $( $(#[$doc])* $name { $( $(#[$fdoc])* $field: $type ),* }, )*
        }

        impl IssueKind {
            /// How bad it is.
            #[must_use]
            pub fn severity(&self) -> Severity {
                match self { $( IssueKind::$name { .. } => Severity::$severity, )* }
            }

            /// The name of the variant; stable.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self { $( IssueKind::$name { .. } => stringify!($name), )* }
            }

            /// All names, in the order of the passes.
            pub const NAMES: &[&str] = &[ $( stringify!($name), )* ];
        }

        impl fmt::Display for IssueKind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self { $( IssueKind::$name { $( $field ),* } => write!(f, $line $(, $argument)*), )* }
            }
        }
    };
}

impl IssueKind {
    /// Whether something is lost that another place on the volume says as well.
    pub(crate) fn is_lost_copy(&self) -> bool {
        matches!(
            self,
            IssueKind::SuperblockCopy { .. }
                | IssueKind::PairCopyBad { .. }
                | IssueKind::MediumHead { .. }
                | IssueKind::MediumStamp { .. }
        )
    }
}

mod kinds;

pub use kinds::IssueKind;
