//! What is simulated, and what comes out.

use std::path::Path;

use super::instructions::of_work;
use super::{Machine, Policy, Work};

/// The most cores of a point: a volume has so many journals at most.
pub const CORES_MAX: usize = 1000;

/// What is planted into each operation, to see that the report finds it.
#[derive(Debug, Clone, Copy)]
pub struct Planted {
    /// Called within each operation.
    pub act: fn(),
}

/// A point to simulate.
#[derive(Debug, Clone)]
pub struct Plan {
    /// On which machine.
    pub machine: Machine,
    /// What its cores do.
    pub work: Work,
    /// How many of them work, the first ones.
    pub cores: usize,
    /// The seed of what is random: names, and when each core begins.
    pub seed: u64,
    /// Only in tests of the report.
    pub planted: Option<Planted>,
}

impl Plan {
    /// Whether it can be simulated.
    ///
    /// # Errors
    /// What cannot.
    pub fn check(&self) -> Result<(), String> {
        let name = &self.machine.name;
        let all = self.machine.cores();
        let workers = self.cores + usize::from(self.work.has_background());
        if self.cores == 0 {
            return Err("0 cores: at least one works".to_owned());
        }
        if workers > all {
            return Err(format!("{workers} cores: machine {name} has {all}"));
        }
        if workers > CORES_MAX {
            return Err(format!(
                "{workers} cores: a volume has {CORES_MAX} journals at most"
            ));
        }
        if of_work(&self.work).is_none() {
            let name = self.work.name();
            return Err(format!("{name}: `cargo xtask cost` counts no such call"));
        }
        let needs = self.work.policy().and_then(Policy::needs_persistent);
        if let Some(option) = needs.filter(|_| self.machine.persistent.is_none()) {
            return Err(format!("{option}: machine {name} has no persistent memory"));
        }
        Ok(())
    }
}

/// Where time goes.
#[derive(Debug, Clone, PartialEq)]
pub struct Cause {
    /// compute, copies, kernel, asleep, "line ...", "lock ...", "condition ..." or device.
    pub name: String,
    /// Of the time of all cores, 0 to 1.
    pub share: f64,
    /// Moves of the line per operation, if it is one.
    pub lines_per_op: f64,
}

/// What came out.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Operations a second, of all cores together, simulated.
    pub ops_per_second: f64,
    /// Time of an operation on a core.
    pub ns_per_op: f64,
    /// Moves of cache lines between cores per operation.
    pub lines_per_op: f64,
    /// Where time goes, most first.
    pub causes: Vec<Cause>,
    /// What bounds it: the largest cause that an operation on one core does not have, or, if
    /// none has a tenth of the time, what that has.
    pub bottleneck: String,
    /// Operations that were simulated.
    pub operations: u64,
    /// Picoseconds of computing at each operation on memory.
    pub pace_ps: u64,
    /// A digest of the run: equal for equal runs of one program.
    pub hash: u64,
}

/// The machine with a name that is known, or of a file.
///
/// # Errors
/// Neither exists, or the file is wrong.
pub fn machine(name: &str) -> Result<Machine, String> {
    if let Some(machine) = Machine::named(name) {
        return Ok(machine);
    }
    let path = Path::new(name);
    if path.components().count() == 1 && !path.exists() {
        let known: Vec<&str> = Machine::names().collect();
        let known = known.join(", ");
        return Err(format!(
            "{name}: neither a file nor a known machine: {known}"
        ));
    }
    let text = std::fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
    Machine::parse(name, &text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::room::Workload;

    fn plan(cores: usize) -> Plan {
        Plan {
            machine: machine("4x20-6138").unwrap(),
            work: Work::Calls(Workload::Dwol, Policy::default()),
            cores,
            seed: 1,
            planted: None,
        }
    }

    #[test]
    fn what_cannot_be_simulated_is_named() {
        let refused = |plan: Plan| plan.check().unwrap_err();
        assert_eq!(plan(80).check(), Ok(()));
        assert_eq!(refused(plan(81)), "81 cores: machine 4x20-6138 has 80");
        assert!(refused(plan(0)).starts_with("0 cores"));
        let mut large = plan(1001);
        large.machine.sockets = 64;
        assert!(refused(large).contains("1000 journals"));
        let mut uncounted = plan(1);
        uncounted.work = Work::Calls(Workload::Dwtl, Policy::default());
        assert!(refused(uncounted).starts_with("DWTL: "));
        let mut memory = plan(1);
        memory.work = Work::Calls(Workload::Dwol, "nvm=emulated".parse().unwrap());
        assert!(refused(memory).contains("no persistent memory"));
        let unknown = machine("4x20").unwrap_err();
        assert!(unknown.starts_with("4x20: neither a file nor a known machine: 4x20-6138, "));
        let missing = machine("/nowhere.toml").unwrap_err();
        assert!(missing.starts_with("/nowhere.toml: "));
    }
}
