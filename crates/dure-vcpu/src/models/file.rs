//! The file of a machine.
//!
//! **Problem.** A cost without a source cannot be judged, and one that is misspelt would silently
//! be another. **Structure.** TOML: a title, sections, and in them each figure with its value and
//! its source: `hold_ns = { value = 10, source = "..." }`. **Invariants.** A figure that is missing,
//! unknown, out of range or without a source is refused, and the error names the file and the
//! figure. **Crash.** Nothing is kept.

use std::fmt::Write;

use toml::{Table, Value};

use super::figure::{FIGURES, Figure};
use super::generic::GENERIC;
use super::{CostModel, PersistentCosts};

/// A drive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Device {
    /// Time of a read.
    pub read_ns: u64,
    /// Time of a write.
    pub write_ns: u64,
    /// Time of a flush.
    pub flush_ns: u64,
    /// Hardware queues.
    pub queues: u64,
    /// Requests that it serves at once.
    pub parallel: u64,
    /// MB that all requests together move in a second.
    pub mb_s: u64,
}

/// Persistent memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Persistent {
    /// Modules of each socket.
    pub modules_per_socket: u64,
    /// Modules over which a page's neighbours are spread: 1 if they are used one after the other.
    pub interleaved: u64,
    /// MB that a module gives in a second.
    pub read_mb_s: u64,
    /// MB that a module takes in a second.
    pub write_mb_s: u64,
    /// What a copy from or to it takes more than one in memory.
    pub latency_ns: u64,
}

/// A machine as its file describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Its name on the command line.
    pub name: String,
    /// What it is.
    pub title: String,
    /// Sockets.
    pub sockets: u64,
    /// Cores of each.
    pub cores_per_socket: u64,
    /// Time of an instruction, in picoseconds, when nothing is shared.
    pub instruction_ps: u64,
    /// The same in calls that make or remove something: they go through memory that no cache has.
    pub instruction_new_ps: u64,
    /// The costs of a run.
    pub costs: CostModel,
    /// Its drive.
    pub device: Option<Device>,
    /// Its persistent memory.
    pub persistent: Option<Persistent>,
    /// Where each figure comes from, by its place in [`FIGURES`].
    pub sources: Vec<String>,
}

macro_rules! known {
    ($($name:literal),*) => {
        [$(($name, include_str!(concat!($name, ".toml")))),*]
    };
}

/// The files that are part of the program.
const KNOWN: [(&str, &str); 9] = known!(
    "4x20-6138",
    "8x15-8870v2",
    "8x15-8870v2-nvm",
    "8x24-8890v4",
    "2x28-8280m",
    "2x28-8280m-single",
    "983zet-host",
    "null-block-host",
    "2x64-9554"
);

impl Machine {
    /// Names of the machines whose files are part of the program.
    pub fn names() -> impl Iterator<Item = &'static str> {
        KNOWN.iter().map(|(name, _)| *name)
    }

    /// A machine whose file is part of the program.
    ///
    /// # Panics
    /// If that file is wrong, which a test excludes.
    #[must_use]
    pub fn named(name: &str) -> Option<Machine> {
        let (name, text) = KNOWN.iter().find(|(known, _)| *known == name)?;
        Some(Machine::parse(name, text).unwrap_or_else(|error| panic!("{error}")))
    }

    /// Reads the text of a file; errors call it `name`.
    ///
    /// # Errors
    /// What is wrong with which figure.
    pub fn parse(name: &str, text: &str) -> Result<Machine, String> {
        let at = |what: String| format!("machine {name}: {what}");
        let table: Table = text.parse().map_err(|error| at(format!("{error}")))?;
        let title = table.get("title").and_then(Value::as_str);
        let title = title.ok_or_else(|| at("it has no title".to_owned()))?;
        let has = |section: &str| table.contains_key(section);
        let mut machine = Machine {
            name: name.to_owned(),
            title: title.to_owned(),
            sockets: 0,
            cores_per_socket: 0,
            instruction_ps: 0,
            instruction_new_ps: 0,
            costs: GENERIC,
            device: has("device").then(Device::default),
            persistent: has("persistent").then(Persistent::default),
            sources: Vec::new(),
        };
        refuse_unknown(&table).map_err(at)?;
        for figure in &FIGURES {
            let source = machine.read(figure, &table).map_err(at)?;
            machine.sources.push(source);
        }
        machine.derive();
        if let Some(persistent) = &machine.persistent
            && persistent.interleaved > persistent.modules_per_socket
        {
            let what = "persistent.interleaved: more modules than a socket has";
            return Err(at(what.to_owned()));
        }
        Ok(machine)
    }

    /// A machine without a drive and persistent memory, of figures with names and sources; the times
    /// of an instruction, if they are none of them, are still to be entered.
    ///
    /// # Errors
    /// As [`Machine::parse`].
    pub fn of_figures(title: &str, figures: &[(&str, u64, String)]) -> Result<Machine, String> {
        let mut table = Table::new();
        table.insert("title".to_owned(), Value::String(title.to_owned()));
        let unknown = ["cores.instruction_ps", "cores.instruction_new_ps"]
            .map(|name| (name, 1, "not yet known".to_owned()));
        for (name, value, source) in unknown.iter().chain(figures) {
            let (section, key) = name.split_once('.').unwrap_or((name, ""));
            let value = i64::try_from(*value).map_err(|error| format!("{name}: {error}"))?;
            let mut entry = Table::new();
            entry.insert("value".to_owned(), Value::Integer(value));
            entry.insert("source".to_owned(), Value::String(source.clone()));
            let section = table
                .entry(section.to_owned())
                .or_insert_with(|| Value::Table(Table::new()));
            let section = section.as_table_mut().expect("it was made so");
            section.insert(key.to_owned(), Value::Table(entry));
        }
        Machine::parse("this", &table.to_string())
    }

    /// Reads one figure; returns its source, nothing if the machine has no such section.
    fn read(&mut self, figure: &Figure, table: &Table) -> Result<String, String> {
        let Some(place) = (figure.place)(self) else {
            return Ok(String::new());
        };
        let Figure {
            name, least, most, ..
        } = figure;
        let (section, key) = name.split_once('.').expect("a figure is in a section");
        let entry = table.get(section).and_then(|section| section.get(key));
        let entry = entry.ok_or_else(|| format!("{name} is missing"))?;
        let source = entry.get("source").and_then(Value::as_str).unwrap_or("");
        if source.trim().is_empty() {
            return Err(format!("{name} has no source"));
        }
        let value = entry.get("value").and_then(Value::as_integer);
        let value = value.and_then(|value| u64::try_from(value).ok());
        let value = value.filter(|value| (*least..=*most).contains(value));
        *place = value.ok_or_else(|| format!("{name}: its value is not in {least}..={most}"))?;
        let fields = entry.as_table().map_or(0, Table::len);
        if fields != 2 {
            return Err(format!("{name}: it has a value and a source, nothing else"));
        }
        Ok(source.to_owned())
    }

    /// Enters what follows from figures.
    fn derive(&mut self) {
        self.costs.is_numa = true;
        self.costs.cores_per_socket = usize::try_from(self.cores_per_socket).expect("1024 at most");
        let memory_mb_s = self.costs.copy_memory_mb_s;
        self.costs.persistent = self.persistent.as_ref().map(|modules| PersistentCosts {
            latency_ns: modules.latency_ns,
            read_mb_s: memory_mb_s.min(modules.read_mb_s * modules.interleaved),
            write_mb_s: memory_mb_s.min(modules.write_mb_s * modules.interleaved),
            socket_read_mb_s: modules.read_mb_s * modules.modules_per_socket,
            socket_write_mb_s: modules.write_mb_s * modules.modules_per_socket,
        });
    }

    /// All cores.
    #[must_use]
    pub fn cores(&self) -> usize {
        usize::try_from(self.sockets * self.cores_per_socket).expect("65,536 at most")
    }

    /// This machine with one figure multiplied by `up / down`, within its range; `None` if it has no
    /// such figure.
    #[must_use]
    pub fn scaled(&self, figure: &Figure, (up, down): (u64, u64)) -> Option<Machine> {
        let mut machine = self.clone();
        let value = (figure.place)(&mut machine)?;
        *value = (*value * up / down).clamp(figure.least, figure.most);
        machine.derive();
        Some(machine)
    }

    /// The value of a figure; `None` if it has no such figure.
    #[must_use]
    pub fn value(&self, figure: &Figure) -> Option<u64> {
        (figure.place)(&mut self.clone()).copied()
    }

    /// Its file.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut text = format!("title = {}\n", quoted(&self.title));
        let mut before = "";
        for (figure, source) in FIGURES.iter().zip(&self.sources) {
            let Some(value) = self.value(figure) else {
                continue;
            };
            let (section, key) = figure
                .name
                .split_once('.')
                .expect("a figure is in a section");
            if section != before {
                let _ = write!(text, "\n[{section}]\n");
                before = section;
            }
            let source = quoted(source);
            let _ = writeln!(text, "{key} = {{ value = {value}, source = {source} }}");
        }
        text
    }
}

fn quoted(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}

/// Refuses sections and keys that are none.
fn refuse_unknown(table: &Table) -> Result<(), String> {
    for (section, entries) in table.iter().filter(|(key, _)| *key != "title") {
        let Some(entries) = entries.as_table() else {
            return Err(format!("{section} is not a section"));
        };
        for key in entries.keys() {
            let name = format!("{section}.{key}");
            if !FIGURES.iter().any(|figure| figure.name == name) {
                return Err(format!("{name} is not a figure"));
            }
        }
        let known = |figure: &Figure| figure.name.split('.').next() == Some(section.as_str());
        if !FIGURES.iter().any(known) {
            return Err(format!("{section} is not a section"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> String {
        Machine::named("4x20-6138").unwrap().to_toml()
    }

    fn refused(text: &str) -> String {
        Machine::parse("x.toml", text).unwrap_err()
    }

    #[test]
    fn every_known_file_is_right_and_comes_back_the_same() {
        for name in Machine::names() {
            let machine = Machine::named(name).unwrap();
            assert_eq!(Machine::parse(name, &machine.to_toml()), Ok(machine));
        }
        assert_eq!(Machine::named("4x20-6138").unwrap().cores(), 80);
        assert_eq!(Machine::named("8x24-8890v4").unwrap().cores(), 192);
        assert!(Machine::named("nothing").is_none());
    }

    #[test]
    fn a_figure_that_is_not_right_is_named() {
        let line = |name: &str| {
            let text = text();
            let found = text.lines().find(|line| line.starts_with(name));
            found.unwrap().to_owned()
        };
        let hold = line("hold_ns");
        let with = |other: &str| refused(&text().replace(&hold, other));
        assert_eq!(with(""), "machine x.toml: lines.hold_ns is missing");
        let sourceless = "machine x.toml: lines.hold_ns has no source";
        assert_eq!(with("hold_ns = 10"), sourceless);
        assert_eq!(with("hold_ns = { value = 10, source = ' ' }"), sourceless);
        assert!(
            with("hold_ns = { value = -1, source = 'a' }").contains("lines.hold_ns: its value")
        );
        assert!(with("hold_ns = { value = 1, source = 'a', b = 1 }").contains("nothing else"));
        let more = format!("{hold}\nheld_ns = {{ value = 1, source = 'a' }}");
        assert!(with(&more).contains("lines.held_ns is not a figure"));
        assert!(refused(&format!("{}\n[cash]\n", text())).contains("cash is not a section"));
        assert!(refused("title = ").starts_with("machine x.toml: "));
    }

    #[test]
    fn a_cost_can_be_scaled() {
        let machine = Machine::named("4x20-6138").unwrap();
        let hold = FIGURES.iter().find(|f| f.name == "lines.hold_ns").unwrap();
        let double = machine.scaled(hold, (2, 1)).unwrap();
        assert_eq!(double.costs.hold_ns, 2 * machine.costs.hold_ns);
        assert_eq!(double.costs.locked_ns, machine.costs.locked_ns);
    }
}
