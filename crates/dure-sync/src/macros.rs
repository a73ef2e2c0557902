//! Macros of the facade.
//!
//! **Problem.** loom's atomics have no `const` constructor, and `thread_local!` is shared by all
//! virtual tasks of a simulation. **Structure.** `const_unless_loom!` writes a constructor twice,
//! `task_local!` declares a value that each task of each backend has for itself.
//! **Invariants.** none. **Crash.** Nothing is kept.

/// Writes a `const fn`, or under loom the same function without `const`.
macro_rules! const_unless_loom {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty $body:block) => {
        #[cfg(not(dure_backend = "loom"))]
        $(#[$meta])*
        $vis const fn $name($($arg: $ty),*) -> $ret $body

        #[cfg(dure_backend = "loom")]
        $(#[$meta])*
        $vis fn $name($($arg: $ty),*) -> $ret $body
    };
}

/// Declares a static of which every task (thread, virtual task) has its own value.
///
/// The syntax is that of `thread_local!`; the value is reached through `NAME.with(|value| ..)`.
///
/// ```
/// use std::cell::Cell;
///
/// dure_sync::task_local! { static DEPTH: Cell<u32> = Cell::new(0); }
/// DEPTH.with(|depth| depth.set(depth.get() + 1));
/// assert_eq!(DEPTH.with(Cell::get), 1);
/// ```
#[macro_export]
macro_rules! task_local {
    ($($declaration:tt)*) => { $crate::task_local_parts! { $($declaration)* } };
}
