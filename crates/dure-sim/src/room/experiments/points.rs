//! Simulated points of figures, each once.

use std::collections::BTreeMap;

use super::{Line, Rate, Simulated};
use crate::room::{Kind, Point, point};

/// What tells one point from another: machine, kind of work, its text, cores.
type Key = (&'static str, Kind, &'static str, usize);

/// Points that were simulated.
#[derive(Debug, Default)]
pub struct Points(BTreeMap<Key, Point>);

impl Points {
    /// A point of a figure, simulated unless another figure had it.
    ///
    /// # Errors
    /// Those of [`point`].
    pub fn point(
        &mut self,
        figure: &Simulated,
        line: &'static Line,
        cores: usize,
    ) -> Result<&Point, String> {
        let key = (line.machine, figure.kind, line.policy, cores);
        if !self.0.contains_key(&key) {
            let done = point(&figure.plan(line, cores)?);
            let what = || format!("{} on {cores} cores", line.name);
            let done = done.map_err(|error| format!("{}: {error}", what()))?;
            self.0.insert(key, done);
        }
        Ok(&self.0[&key])
    }

    /// Its rate.
    ///
    /// # Errors
    /// Those of [`point`].
    pub fn rate(
        &mut self,
        figure: &Simulated,
        line: &'static Line,
        cores: usize,
    ) -> Result<Rate, String> {
        let ops_per_second = self.point(figure, line, cores)?.ops_per_second;
        Ok(Rate {
            line: line.name,
            cores,
            ops_per_second,
        })
    }
}
