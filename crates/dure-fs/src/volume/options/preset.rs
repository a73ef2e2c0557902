//! Presets: the policies that make dure do what a published system does.
//!
//! **Problem.** A comparison with a published system needs several options, and one that is forgotten
//! measures something else. **Structure.** [`Preset`] has a name and words of `-o`. Its name says how
//! far it goes: `jbd2`, `zjournal` and `nvram-lfs` are the mechanism; `-locks` are the locks of a
//! system only, on dure's log and formats. **Invariants.** A policy that says otherwise than the
//! preset is refused, before or behind it; so is a volume that the preset cannot be had on. **On a
//! crash** as its policies say; a preset breaks no promise.

use dure_store::error::Error;

use super::MountOptions;

/// Policies with a name.
#[derive(Debug, PartialEq, Eq)]
pub struct Preset {
    /// The name, as the option is written.
    option: &'static str,
    words: &'static [(&'static str, &'static str)],
}

/// All presets. docs/design/policies.md says where each comes from.
const PRESETS: [Preset; 7] = [
    Preset {
        option: "preset=jbd2",
        words: &[
            ("journal", "jbd2"),
            ("data", "journal"),
            ("fsync", "all"),
            ("flush", "two"),
            ("log-data", "0"),
        ],
    },
    Preset {
        option: "preset=zjournal",
        words: &[
            ("journal", "zjournal"),
            ("data", "journal"),
            ("fsync", "all"),
            ("flush", "two"),
            ("log-data", "0"),
        ],
    },
    Preset {
        option: "preset=f2fs-locks",
        words: &[
            ("range_lock", "rwsem"),
            ("node_lock", "mutex"),
            ("submit_lock", "all"),
        ],
    },
    Preset {
        option: "preset=hybridf2fs-locks",
        words: &[
            ("range_lock", "bitmap"),
            ("range_lock_wait", "queue"),
            ("node_lock", "rwsem"),
        ],
    },
    Preset {
        option: "preset=nova-locks",
        words: &[
            ("page_cache", "none"),
            ("durability", "strict"),
            ("range_lock", "rwsem"),
            ("numa", "first"),
        ],
    },
    Preset {
        option: "preset=pnova-locks",
        words: &[
            ("page_cache", "none"),
            ("durability", "strict"),
            ("range_lock", "segment"),
            ("segment_size", "4K"),
            ("range_lock_wait", "queue"),
            ("numa", "local"),
        ],
    },
    Preset {
        option: "preset=nvram-lfs",
        words: &[
            ("page_cache", "nvram"),
            ("nvram_absorb", "move"),
            ("nvram_low", "cached"),
        ],
    },
];

/// The words that policies were set by.
#[derive(Clone, Debug, Default)]
pub struct Said {
    preset: Option<&'static Preset>,
    words: Vec<(String, String)>,
}

impl Said {
    /// The preset, if there is one.
    #[must_use]
    pub fn preset(&self) -> Option<&'static Preset> {
        self.preset
    }

    /// Refuses a policy that says otherwise than the preset.
    pub(super) fn allows(&self, key: &str, value: &str) -> Result<(), String> {
        self.preset
            .map_or(Ok(()), |preset| preset.allows(key, value))
    }

    /// A policy was set.
    pub(super) fn note(&mut self, key: &str, value: &str) {
        self.words.push((key.to_owned(), value.to_owned()));
    }

    /// That an option cannot be had, told of the preset that sets it, if one does.
    pub(crate) fn explained(&self, error: Error) -> Error {
        match self.preset {
            Some(preset) => preset.explained(error),
            None => error,
        }
    }
}

impl Preset {
    /// The names of all.
    pub fn names() -> impl Iterator<Item = &'static str> {
        PRESETS.iter().map(Preset::name)
    }

    fn named(name: &str) -> Option<&'static Preset> {
        PRESETS.iter().find(|preset| preset.name() == name)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.option.trim_start_matches("preset=")
    }

    /// Its policies.
    #[must_use]
    pub fn words(&self) -> &'static [(&'static str, &'static str)] {
        self.words
    }

    /// Refuses a policy that says otherwise.
    fn allows(&self, key: &str, value: &str) -> Result<(), String> {
        let own = self.words.iter().find(|(own, _)| *own == key);
        match own {
            Some((_, own)) if *own != value => Err(format!(
                "{key}={value}: {} sets {key}={own}; leave one of the two out",
                self.option
            )),
            _ => Ok(()),
        }
    }

    /// That an option cannot be had is told of the preset that sets it.
    fn explained(&self, error: Error) -> Error {
        let is_own = |option: &str| {
            let words = self.words.iter();
            option
                .split_once('=')
                .is_some_and(|option| words.clone().any(|own| *own == option))
        };
        match error {
            Error::BadOption { option, why } if is_own(option) => Error::BadOption {
                option: self.option,
                why: format!("it sets {option}, and {why}"),
            },
            other => other,
        }
    }
}

impl MountOptions {
    /// Sets the policies of the preset `name`.
    pub(super) fn set_preset(&mut self, name: &str) -> Result<(), String> {
        let preset = Preset::named(name).ok_or_else(|| {
            let names: Vec<_> = Preset::names().collect();
            format!("preset={name}: it is {}", names.join(" or "))
        })?;
        if let Some(before) = self.said.preset.filter(|before| *before != preset) {
            return Err(format!("{} and {}: give one", before.option, preset.option));
        }
        for (key, value) in &self.said.words {
            preset.allows(key, value)?;
        }
        for (key, value) in preset.words {
            self.set_word(key, value)?;
        }
        self.said.preset = Some(preset);
        Ok(())
    }
}
