//! The journal's rules, searched exhaustively in a small model.
//!
//! **Problem.** Crash tests try what somebody thought of. **Structure.** Two cores, two buffers and
//! a few operations (`DURE_MODEL_OPS`, default 3): every interleaving of operation, commit, flush,
//! checkpoint, tail advance and log reuse ([`steps`]), and for each state every subset of the
//! writes that are not flushed ([`crash`]), recovered ([`recovery`]) and judged ([`search`]).
//! `image` is what differs with compound transactions, `state` is the machine, `rules` says what a case
//! leaves out, `cases` lists them.
//!
//! **Invariants.** (a) What was durable with all it depends on is there. (b) An operation is there
//! wholly or not at all. (c) A recovery that is cut off and repeated gives the same state. (d) What
//! is durable with all it depends on becomes valid, so that its log space comes back. (e) With
//! images: when all that a commit has closed, and what that depends on, is durable, the commit may
//! return: it is valid.
//!
//! **Cases.** The letters are those of docs/design/journal-model.md. A case that must fail is a
//! canary: the rule it leaves out is needed.

mod cases;
mod crash;
mod image;
mod recovery;
mod rules;
mod search;
mod state;
mod steps;
