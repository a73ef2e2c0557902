//! What the cores did, what was promised to them, and which values a crash may leave.
//!
//! **Structure.** A [`Key`] is a place that holds one value: a name in a directory, an extended
//! attribute, a page of the shared file. Cores note [`Event`]s; [`History`] turns them into the
//! [`Change`]s of each key. **Invariants.** A change is in the recovered state only if its call
//! began before the crash; it is legal unless another one that had to survive came after it as a
//! whole.

use std::collections::{BTreeMap, BTreeSet};

use super::content::FileHistory;
use super::tree::Found;

/// An object's identity for ever; it is its uid.
pub(super) type Entity = u32;

/// The shared directory.
pub(super) const SHARED: Entity = 1;
/// The file of which each core owns a page, and all share one.
pub(super) const DATA: Entity = 2;
/// The file that all append to.
pub(super) const LOG: Entity = 3;
/// Core n's own directory has this identity plus n.
pub(super) const PRIVATE: Entity = 10;
/// The root directory.
pub(super) const ROOT: Entity = 0;

/// Bytes of a record of the log.
pub(super) const RECORD_BYTES: usize = 512;

/// A place that holds one value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// A name in a directory; its value is an entity.
    Name(Entity, String),
    /// An attribute of an object; its value is a hash.
    Xattr(Entity, String),
    /// A page of [`DATA`]; its value is a hash.
    Page(u64),
}

/// When a call ran.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Moment {
    /// The clock of all cores, before.
    pub(super) start: u64,
    /// The clock of all cores, after.
    pub(super) end: u64,
    /// The step of the record log, before: nothing of the call is on the medium by then.
    pub(super) start_step: u64,
}

/// What a promise is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// One object: its content, and its names; of a directory also the names in it.
    Object(Entity),
    /// The content of one file.
    Content(Entity),
    /// Everything.
    All,
}

/// A note of a core.
#[derive(Debug, Clone)]
pub(super) enum Event {
    /// One atomic call.
    Call {
        moment: Moment,
        /// The object it is about.
        entity: Entity,
        /// What the keys hold after it.
        sets: Vec<(Key, Option<u64>)>,
    },
    /// A change of the content of a file that one core owns.
    Content {
        moment: Moment,
        entity: Entity,
        data: Vec<u8>,
        /// For a truncate: the new size.
        cut: Option<u64>,
    },
    /// A record appended to the log.
    Append {
        moment: Moment,
        offset: u64,
        hash: u64,
    },
    /// An fsync or sync has returned.
    Promise {
        /// The clock when it was called.
        start: u64,
        /// The step of the record log when it had returned.
        step: u64,
        scope: Scope,
    },
    /// A call was refused for lack of room.
    NoSpace,
}

/// The moment of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CrashMoment {
    /// In memory, after the last call.
    Live,
    /// After a crash at this step.
    Crash(u64),
}

impl CrashMoment {
    /// Whether a call may have left anything.
    pub(super) fn has_started(self, moment: Moment) -> bool {
        match self {
            CrashMoment::Live => true,
            // The base volume was there before the first step.
            CrashMoment::Crash(step) => moment.end == 0 || moment.start_step < step,
        }
    }

    /// Whether a call must have been kept.
    pub(super) fn must_hold(self, promised: Option<u64>) -> bool {
        match self {
            CrashMoment::Live => true,
            CrashMoment::Crash(step) => promised.is_some_and(|at| at <= step),
        }
    }
}

#[derive(Debug)]
struct Change {
    value: Option<u64>,
    moment: Moment,
    promised: Option<u64>,
}

#[derive(Debug)]
struct Record {
    hash: u64,
    moment: Moment,
    promised: Option<u64>,
}

/// All that happened.
#[derive(Debug, Default)]
pub(super) struct History {
    keys: BTreeMap<Key, Vec<Change>>,
    files: BTreeMap<Entity, FileHistory>,
    /// Appended records by offset.
    log: BTreeMap<u64, Record>,
    /// The steps at which promises were made.
    pub(super) promises: Vec<u64>,
    /// The promises, in the form that is searched.
    promised: Vec<Promise>,
    calls: u64,
    no_space: u64,
}

/// A promise, in the form that is searched.
#[derive(Debug, Clone, Copy)]
struct Promise {
    start: u64,
    step: u64,
    scope: Scope,
}

impl History {
    /// Gathers the notes of all cores.
    pub(super) fn new(notes: Vec<Vec<Event>>) -> History {
        let events: Vec<Event> = notes.into_iter().flatten().collect();
        let promises: Vec<Promise> = events
            .iter()
            .filter_map(|event| match *event {
                Event::Promise { start, step, scope } => Some(Promise { start, step, scope }),
                _ => None,
            })
            .collect();
        let mut history = History {
            promises: promises.iter().map(|promise| promise.step).collect(),
            promised: promises.clone(),
            ..History::default()
        };
        history.seed_base();
        for event in events {
            history.add(event, &promises);
        }
        history
    }

    /// What the base volume holds, promised since ever.
    fn seed_base(&mut self) {
        let mut name = |directory, name: &str, entity: Entity| {
            self.initial(Key::Name(directory, name.to_owned()), Some(entity.into()));
        };
        name(ROOT, "shared", SHARED);
        name(SHARED, "data", DATA);
        name(SHARED, "log", LOG);
        for core in 0..super::CORES_MAX {
            name(ROOT, &format!("c{core}"), PRIVATE + u32::from(core));
        }
        for page in 0..=u64::from(super::CORES_MAX) {
            self.initial(Key::Page(page), Some(hash(&[0; 4096])));
        }
    }

    fn initial(&mut self, key: Key, value: Option<u64>) {
        let change = Change {
            value,
            moment: Moment::default(),
            promised: Some(0),
        };
        self.keys.insert(key, vec![change]);
    }

    fn add(&mut self, event: Event, promises: &[Promise]) {
        let promised =
            |moment: Moment, covers: &dyn Fn(Entity) -> bool, content: Option<Entity>| {
                let of = promises.iter().filter(|promise| {
                    moment.end < promise.start
                        && match promise.scope {
                            Scope::All => true,
                            Scope::Object(entity) => covers(entity),
                            Scope::Content(entity) => content == Some(entity),
                        }
                });
                of.map(|promise| promise.step).min()
            };
        self.calls += 1;
        match event {
            Event::Call {
                moment,
                entity,
                sets,
            } => {
                let covers = |object: Entity| {
                    let is_in = |(key, _): &(Key, _)| matches!(key, Key::Name(directory, _) if *directory == object);
                    object == entity || sets.iter().any(is_in)
                };
                let is_page = |(key, _): &(Key, _)| matches!(key, Key::Page(_));
                let content = sets.iter().any(is_page).then_some(entity);
                let promised = promised(moment, &covers, content);
                for (key, value) in sets {
                    if !self.keys.contains_key(&key) {
                        self.initial(key.clone(), None);
                    }
                    let changes = self.keys.get_mut(&key).expect("it was inserted above");
                    changes.push(Change {
                        value,
                        moment,
                        promised,
                    });
                }
            }
            Event::Content {
                moment,
                entity,
                data,
                cut,
            } => {
                let promised = promised(moment, &|object| object == entity, Some(entity));
                let file = self.files.entry(entity).or_default();
                file.push(moment, data, cut, promised);
            }
            Event::Append {
                moment,
                offset,
                hash,
            } => {
                let promised = promised(moment, &|object| object == LOG, Some(LOG));
                let record = Record {
                    hash,
                    moment,
                    promised,
                };
                let before = self.log.insert(offset, record);
                assert!(before.is_none(), "two records were appended at {offset}");
            }
            Event::Promise { .. } => {}
            Event::NoSpace => self.no_space += 1,
        }
    }

    /// Calls that did something, promises, calls refused for lack of room.
    pub(super) fn counts(&self) -> (u64, u64, u64) {
        let promises = u64::try_from(self.promises.len()).expect("few");
        (self.calls - self.no_space, promises, self.no_space)
    }

    /// Whether `found` is a legal state.
    ///
    /// # Errors
    /// The first thing that is not.
    pub(super) fn check(&self, found: &Found, at: CrashMoment) -> Result<(), String> {
        let known: BTreeSet<&Key> = self.keys.keys().collect();
        if let Some((key, value)) = found.keys.iter().find(|(key, _)| !known.contains(key)) {
            return Err(format!("{key:?} is {value}, but nobody made it"));
        }
        for (key, changes) in &self.keys {
            if let Key::Xattr(entity, _) = key
                && !found.entities.contains(entity)
            {
                continue;
            }
            check_key(key, changes, found.keys.get(key).copied(), at)?;
        }
        for (entity, data) in &found.files {
            let file = self.files.get(entity);
            let checked = match file {
                Some(file) => file.check(data, at),
                None if data.is_empty() => Ok(()),
                None => Err(format!("{} bytes that nobody wrote", data.len())),
            };
            checked.map_err(|what| format!("content of {entity}: {what}"))?;
        }
        self.check_log(&found.log, at)
    }

    /// The promises made by then, for the text of a failure.
    pub(super) fn promises_by(&self, step: u64) -> String {
        let made = self.promised.iter().filter(|promise| promise.step <= step);
        made.map(|promise| format!("\n  {promise:?}")).collect()
    }

    /// Records are dense, and those that were promised are there.
    fn check_log(&self, log: &[u8], at: CrashMoment) -> Result<(), String> {
        let len = u64::try_from(log.len()).expect("small");
        let record_bytes = u64::try_from(RECORD_BYTES).expect("small");
        if len % record_bytes != 0 {
            return Err(format!("log of {len} bytes: part of a record"));
        }
        for (offset, bytes) in (0..).step_by(RECORD_BYTES).zip(log.chunks(RECORD_BYTES)) {
            let known = self.log.get(&offset);
            if !known
                .is_some_and(|record| record.hash == hash(bytes) && at.has_started(record.moment))
            {
                let zeroes = bytes.iter().all(|byte| *byte == 0);
                return Err(format!(
                    "log at {offset} of {len}: not what was appended (zeroes: {zeroes})"
                ));
            }
        }
        let lost =
            |(offset, record): &(&u64, &Record)| **offset >= len && at.must_hold(record.promised);
        match self.log.iter().find(lost) {
            Some((offset, record)) => Err(format!(
                "log has {len} bytes, the record at {offset} was promised: {record:?}"
            )),
            None => Ok(()),
        }
    }
}

fn check_key(
    key: &Key,
    changes: &[Change],
    value: Option<u64>,
    at: CrashMoment,
) -> Result<(), String> {
    let later = |change: &Change| {
        changes
            .iter()
            .any(|other| at.must_hold(other.promised) && change.moment.end < other.moment.start)
    };
    let legal = changes
        .iter()
        .any(|change| change.value == value && at.has_started(change.moment) && !later(change));
    if legal {
        return Ok(());
    }
    let lines: Vec<String> = changes.iter().map(|change| format!("{change:?}")).collect();
    Err(format!(
        "{key:?} holds {value:?} {at:?}; its changes:\n  {}",
        lines.join("\n  ")
    ))
}

/// A hash that represents the value.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}
