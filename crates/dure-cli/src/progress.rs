//! Progress bars: on a terminal only, on standard error.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar over `total` units of `what`, hidden when standard error is no terminal.
pub(crate) fn bar(total: u64, what: &'static str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg} [{bar:40}] {percent}% {eta} left")
        .expect("the template is right");
    ProgressBar::new(total)
        .with_style(style.progress_chars("=> "))
        .with_message(what)
}

/// A counter for work whose end is not known.
pub(crate) fn counter(what: &'static str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style =
        ProgressStyle::with_template("{spinner} {msg} {human_pos}").expect("the template is right");
    ProgressBar::new_spinner()
        .with_style(style)
        .with_message(what)
}
