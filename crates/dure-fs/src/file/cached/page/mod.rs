//! Pages of files in memory.
//!
//! **Problem.** Reads and overwrites must not reach the device, memory must stay within the mount's
//! `cache=` bound, and no core may wait for another one's pages. **Structure.** Each file has a
//! sparse [`PageStore`] in its inode state; [frames](dure_store::frames) are recycled per core; the [`CacheBudget`]
//! counts the memory of all of them. **Invariants.** Credit for a page is taken before its frame
//! is, and given back with the page. **On a crash** pages are gone: what was not written back was
//! never promised.

mod budget;
mod content;
mod store;
#[cfg(test)]
mod tests;

pub(crate) use budget::CacheBudget;
pub(crate) use content::Page;
pub(crate) use store::{Origin, PageStore};
