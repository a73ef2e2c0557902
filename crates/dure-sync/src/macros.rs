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
#[cfg(not(any(dure_backend = "loom", dure_backend = "sim")))]
#[macro_export]
macro_rules! task_local {
    ($($declarations:tt)*) => { ::std::thread_local! { $($declarations)* } };
}

/// Declares a static of which every task (thread, virtual task) has its own value.
///
/// The syntax is that of `thread_local!`; the value is reached through `NAME.with(|value| ..)`.
#[cfg(dure_backend = "sim")]
#[macro_export]
macro_rules! task_local {
    ($($(#[$meta:meta])* $vis:vis static $name:ident: $ty:ty = $make:expr;)*) => {$(
        $(#[$meta])*
        $vis static $name: $crate::TaskLocal<$ty> = {
            ::std::thread_local! { static OUTSIDE: $ty = $make; }
            fn make() -> $ty {
                $make
            }
            $crate::TaskLocal::new(make, OUTSIDE)
        };
    )*};
}

/// Declares a static of which every thread of a model has its own value.
///
/// The syntax is that of `thread_local!`; the value is reached through `NAME.with(|value| ..)`.
#[cfg(dure_backend = "loom")]
#[macro_export]
macro_rules! task_local {
    ($($(#[$meta:meta])* $vis:vis static $name:ident: $ty:ty = $make:expr;)*) => {$(
        $crate::loom_for_task_local::thread_local! { $(#[$meta])* $vis static $name: $ty = $make; }
    )*};
}
