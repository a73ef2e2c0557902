//! What the library adds to the file system, through its public calls.

mod calls;
mod convenience;
mod mount;
mod pages;
mod rules;
