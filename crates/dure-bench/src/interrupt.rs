//! Ctrl-C: what a bench or a demonstration made goes before the program does.
//!
//! **Problem.** A signal that ends the program at once leaves directories, mounts and devices.
//! **Structure.** The first SIGINT or SIGTERM is noted (`listen`); workers and long preparations
//! look for it now and then ([`check`]) and end with an error, so that everything is dropped as
//! after any error; [`run`] around the work then ends the program as the signal would have.
//! **Invariants.** A second signal ends the program at once, whatever stays behind. **Crash.** What
//! stays behind is removed by the next run in the same place.

use anyhow::{Context, Result, bail};
use dure_sync::atomic::{AtomicU32, Ordering};
use dure_sync::thread;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// The first signal, 0 before. Written once, read by all workers; publishes nothing, hence Relaxed.
static CAME: AtomicU32 = AtomicU32::new(0);

/// Fails once a signal has come.
///
/// # Errors
/// One has come: "interrupted".
#[inline]
pub fn check() -> Result<()> {
    if CAME.load(Ordering::Relaxed) != 0 {
        bail!("interrupted");
    }
    Ok(())
}

/// Runs `work`, and ends the program if a signal came meanwhile and the work has ended with an
/// error, with all it had made dropped.
///
/// # Errors
/// Those of the work.
pub fn run<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    listen()?;
    let ended = work();
    let signal = i32::try_from(CAME.load(Ordering::Relaxed)).expect("signals are few");
    if signal != 0 && ended.is_err() {
        crate::note!("dure: interrupted; what was made for it is removed");
        emulate_default_handler(signal).context("ending as the signal would have")?;
    }
    ended
}

fn listen() -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("signals")?;
    // Waits for signals for as long as the program lives.
    let _ = thread::spawn("dure-bench-signals", move || {
        for signal in signals.forever() {
            let came = u32::try_from(signal).expect("signals are numbered from 1");
            if CAME.swap(came, Ordering::Relaxed) != 0 {
                // Ends the program; should it not, the first signal still does, only later.
                let _ = emulate_default_handler(signal);
            }
        }
    });
    Ok(())
}
