//! The extension, through the shell `sqlite3` and through the library, as they are installed.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod child;
mod connections;
mod killed;
mod library;
mod power;
mod program;
mod shell;
