//! The `dure` command.
fn main() {}
