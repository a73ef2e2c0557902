//! The kernel's switch for requests through rings, which is off unless it was turned on.
//!
//! **Invariants.** It is the machine's: it concerns the mounts that come after, of every FUSE server
//! that asks for rings. **Crash.** It is off again after a boot, unless the package is installed.

use std::io;

/// A parameter of the kernel module.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// How it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switch {
    /// The kernel offers rings.
    On,
    /// It does not.
    Off,
    /// The kernel has none: it is older than Linux 6.14, or its module `fuse` is not loaded.
    Missing,
}

impl Switch {
    /// Looks.
    #[must_use]
    pub fn now() -> Switch {
        match std::fs::read_to_string(SWITCH) {
            Ok(text) if text.trim() == "Y" => Switch::On,
            Ok(_) => Switch::Off,
            Err(_) => Switch::Missing,
        }
    }

    /// Turns it on, for the whole machine.
    ///
    /// # Errors
    /// What to do: the kernel has none, or the caller is not root.
    pub fn turn_on() -> io::Result<()> {
        let told = |error: io::Error, why| Err(io::Error::new(error.kind(), why));
        match std::fs::write(SWITCH, "Y") {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                told(error, Switch::Missing.why_no_rings().to_owned())
            }
            Err(error) => {
                let why = format!("{SWITCH}: {error}; only root may turn FUSE over io_uring on");
                told(error, why)
            }
        }
    }

    /// Why the kernel offers no rings, when it does not.
    #[must_use]
    pub fn why_no_rings(self) -> &'static str {
        match self {
            Switch::Off => {
                "FUSE over io_uring is switched off on this machine; `dure mount --enable-rings`, as \
                 root, switches it on"
            }
            Switch::On | Switch::Missing => "this kernel has no FUSE over io_uring (Linux 6.14)",
        }
    }
}
