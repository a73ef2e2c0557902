//! Which pairs of calls that commute write a common cache line.
//!
//! **Problem.** Calls that commute can be made to scale: no caller can tell their order. Each line
//! that two such calls share for writing is a place where the program, not the task, serialises.
//! **Structure.** `acts` has every call with every class of arguments, `act` is one of them,
//! `scene` the tree in which they run. `plan` asks the model whether a pair commutes, and lists the
//! steps; `play` does them on two virtual cores and reports the lines; `exception` gives them
//! names. **Invariants.** What is counted is the steady state: each core has made the same call on
//! similar arguments before, and has looked up what the counted call names; what cores share until
//! then is not counted. A pair whose answers
//! differ from the model's is an error, not a conflict. **Crash.** Nothing is kept.

mod act;
mod acts;
mod exception;
mod justified;
mod plan;
mod play;
mod scene;
mod survey;

pub(crate) use exception::Finder;

pub use act::{Act, Call, Side};
pub use acts::acts;
pub use exception::{Line, Place, Use};
pub use justified::REASONS;
pub use plan::{REAL_MEETINGS, REPEATS};
pub use survey::{Exception, Options, Survey, survey};
