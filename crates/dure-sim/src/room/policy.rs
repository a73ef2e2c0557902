//! How the volume of a point is mounted.

use std::fmt;
use std::str::FromStr;

use dure_fs::{Background, MountOptions, PageCaching};

/// Options of `dure mount -o`, and what of the volume is in persistent memory: all of it
/// (`nvm=emulated`), or its tables, logs and nodes (`node_log=nvm`), with the drive for the rest.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    text: String,
    mount: MountOptions,
    is_nvm: bool,
    node_log_in_nvm: bool,
}

impl Policy {
    /// Whether files are used where they lie.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.mount.page_cache == Some(PageCaching::None)
    }

    pub(super) fn is_nvm(&self) -> bool {
        self.is_nvm
    }

    pub(super) fn has_node_log_in_nvm(&self) -> bool {
        self.node_log_in_nvm
    }

    /// What asks for persistent memory, if anything does.
    pub(super) fn needs_persistent(&self) -> Option<&'static str> {
        match (self.is_nvm, self.node_log_in_nvm) {
            (true, _) => Some("nvm=emulated"),
            (_, true) => Some("node_log=nvm"),
            _ => None,
        }
    }

    /// The options of the mount, with a cache for so many cores and nothing in the background.
    pub(super) fn mount(&self, cores: u16, hw_queues: Option<u32>) -> MountOptions {
        let mut mount = MountOptions {
            background: Background::None,
            recovery_threads: Some(1),
            cache_bytes: (1 << 30) + u64::from(cores) * (16 << 20),
            ..self.mount.clone()
        };
        if let Some(queues) = hw_queues {
            mount.hw_queues = queues;
        }
        mount
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = if self.text.is_empty() {
            "default"
        } else {
            &self.text
        };
        f.write_str(text)
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Policy, String> {
        let mut policy = Policy::default();
        if text != "default" {
            text.clone_into(&mut policy.text);
        }
        for option in policy.text.clone().split(',').filter(|one| !one.is_empty()) {
            let (key, value) = option.split_once('=').unwrap_or((option, ""));
            match (key, value) {
                ("nvm", "emulated") => policy.is_nvm = true,
                ("node_log", "nvm") => policy.node_log_in_nvm = true,
                ("node_log", _) => {
                    return Err(format!("{option}: node_log=nvm is what can be simulated"));
                }
                ("nvm", _) => {
                    return Err(format!("{option}: nvm=emulated is what can be simulated"));
                }
                _ => {
                    if !policy.mount.set_policy(key, value)? {
                        return Err(format!(
                            "{option}: no option of `dure mount -o` has that name"
                        ));
                    }
                }
            }
        }
        if policy.is_direct() && !policy.is_nvm {
            return Err("page_cache=none: it needs nvm=emulated".to_owned());
        }
        if policy.is_nvm && policy.node_log_in_nvm {
            return Err("nvm=emulated,node_log=nvm: the whole volume is there already".to_owned());
        }
        Ok(policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_that_is_none_is_named() {
        let refused = |text: &str| text.parse::<Policy>().unwrap_err();
        assert!(refused("journal=per-cpu").contains("journal=per-cpu"));
        assert!(refused("data=journal,jornal=jbd2").starts_with("jornal=jbd2: "));
        assert!(refused("nvm=real").starts_with("nvm=real: "));
        assert!(refused("node_log=block").starts_with("node_log=block: "));
        assert!(refused("nvm=emulated,node_log=nvm").contains("there already"));
        assert!(refused("page_cache=none").contains("nvm=emulated"));
        let policy: Policy = "nvm=emulated,page_cache=none".parse().unwrap();
        assert!(policy.is_direct() && policy.is_nvm());
        assert_eq!("default".parse::<Policy>().unwrap().to_string(), "default");
    }
}
