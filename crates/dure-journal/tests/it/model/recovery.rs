//! Recovery in the model.

use super::crash::Medium;
use super::image;
use super::rules::{Data, NodeReuse, Records, Rules};
use super::state::{
    BUFFERS, CORES, Kind, Nat, Operation, State, TIDS, TORN, TxId, TxSet, data_code,
};

/// What recovery arrives at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Recovered {
    /// By buffer: the true version.
    pub(crate) version: [u8; BUFFERS],
    pub(crate) survivors: TxSet,
}

/// Recovers from `medium`.
///
/// # Errors
/// What makes the volume unusable.
pub(crate) fn recover(state: &State, medium: &Medium, rules: &Rules) -> Result<Recovered, String> {
    let mut complete = scan(state, medium);
    match rules.data {
        Data::CheckAll => {
            let before = complete;
            for id in TxId::all().filter(|id| before.has(*id)) {
                if operations_of(state, id)
                    .any(|(index, operation)| slots_fail(medium, index, operation, None))
                {
                    complete.remove(id);
                }
            }
        }
        Data::CheckNewestOnce => check_newest(state, medium, &mut complete),
        _ => {}
    }
    loop {
        let survivors = survivors(state, medium, rules, complete);
        let base = base(medium, rules)?;
        let version = match rules.records {
            Records::Delta => apply(state, rules, survivors, base)?,
            Records::Image => {
                let mut version = base;
                let half = halves(state, medium, complete, survivors);
                image::apply(state, rules, (survivors, half), &mut version)?;
                version
            }
        };
        match failing_slot(state, medium, rules, survivors, version)? {
            None => return Ok(Recovered { version, survivors }),
            Some(id) => complete.remove(id),
        }
    }
}

/// The complete transactions of each log: a prefix from the tail on.
fn scan(state: &State, medium: &Medium) -> TxSet {
    let mut complete = TxSet::default();
    for core in 0..CORES {
        if medium.tail[core] < state.reused[core] {
            // The transaction at the tail was overwritten: the scan finds nothing it can use.
            continue;
        }
        for tid in usize::from(medium.tail[core])..TIDS {
            let id = TxId::new(core, tid);
            if !medium.log.has(id) {
                break;
            }
            complete.add(id);
        }
    }
    complete
}

/// Transactions at the end of their logs of which the first piece is there, and all that it names.
fn halves(state: &State, medium: &Medium, complete: TxSet, survivors: TxSet) -> TxSet {
    let mut halves = TxSet::default();
    for id in TxId::all().filter(|id| medium.half.has(*id)) {
        let behind = |id: TxId| id.tid() < usize::from(medium.tail[id.core()]);
        let mut before = (0..id.tid()).map(|tid| TxId::new(id.core(), tid));
        let is_end = before.all(|id| complete.has(id) || behind(id));
        let marks = state.tx(id).needs();
        let mut marked = TxId::all().filter(|mark| marks.has(*mark));
        if is_end && marked.all(|mark| survivors.has(mark) || behind(mark)) {
            halves.add(id);
        }
    }
    halves
}

fn operations_of(state: &State, id: TxId) -> impl Iterator<Item = (usize, &Operation)> {
    state
        .operations
        .iter()
        .enumerate()
        .filter(move |(_, operation)| operation.tx == id)
}

/// Whether a data block that the operation's slots name holds something else.
fn slots_fail(medium: &Medium, index: usize, operation: &Operation, only: Option<usize>) -> bool {
    operation
        .buffers()
        .filter(|buffer| only.is_none_or(|only| only == *buffer))
        .any(|buffer| medium.data[usize::from(operation.block[buffer])] != data_code(index, buffer))
}

/// Rule B4: the newest slot of each buffer in any complete transaction, once.
fn check_newest(state: &State, medium: &Medium, complete: &mut TxSet) {
    let before = *complete;
    for buffer in 0..BUFFERS {
        let newest = state
            .operations
            .iter()
            .enumerate()
            .filter(|(_, operation)| before.has(operation.tx) && operation.writes(buffer))
            .max_by_key(|(_, operation)| operation.version[buffer]);
        if let Some((index, operation)) = newest
            && slots_fail(medium, index, operation, Some(buffer))
        {
            complete.remove(operation.tx);
        }
    }
}

/// The greatest subset of `complete` that is closed under marks.
fn survivors(state: &State, medium: &Medium, rules: &Rules, complete: TxSet) -> TxSet {
    let behind_tail = |id: &TxId| id.tid() < usize::from(medium.tail[id.core()]);
    let mut satisfied = TxSet::default();
    TxId::all()
        .filter(behind_tail)
        .for_each(|id| satisfied.add(id));
    let mut alive = complete;
    loop {
        let mut next = alive;
        for id in TxId::all().filter(|id| alive.has(*id) && !behind_tail(id)) {
            let open = TxSet(state.tx(id).needs().0 & !satisfied.0);
            if !open.within(next) {
                next.remove(id);
            }
        }
        if next == alive {
            break;
        }
        alive = next;
    }
    if !rules.skip_invalid {
        for core in 0..CORES {
            let from = usize::from(medium.tail[core]);
            let end = (from..TIDS)
                .find(|tid| !alive.has(TxId::new(core, *tid)))
                .unwrap_or(TIDS);
            (end..TIDS).for_each(|tid| alive.remove(TxId::new(core, tid)));
        }
    }
    alive
}

/// Versions of the images, or of the homes.
pub(crate) fn base(medium: &Medium, rules: &Rules) -> Result<[u8; BUFFERS], String> {
    if rules.in_place {
        return Ok(medium.home);
    }
    let nat = match medium.nat {
        [Some(a), Some(b)] => {
            if a.generation > b.generation {
                a
            } else {
                b
            }
        }
        [Some(one), None] | [None, Some(one)] => one,
        [None, None] => return Err("no valid NAT slot".into()),
    };
    let Nat { version, .. } = nat;
    for (buffer, version) in version.iter().enumerate() {
        if !medium.image[buffer][usize::from(*version)] {
            return Err(format!("the NAT names a torn image of buffer {buffer}"));
        }
    }
    Ok(version)
}

/// The version that an image of true version `version` says it has.
fn stored_version(state: &State, buffer: usize, version: u8, rules: &Rules) -> u8 {
    let writer = state
        .operations
        .iter()
        .find(|operation| operation.writes(buffer) && operation.version[buffer] == version);
    match writer {
        _ if version == 0 => 0,
        None => 0,
        Some(free)
            if free.kind == Kind::Free && rules.node_reuse == NodeReuse::FreeForgetsVersion =>
        {
            0
        }
        Some(operation) => operation.stored[buffer],
    }
}

/// Applies the deltas of the survivors to the base.
fn apply(
    state: &State,
    rules: &Rules,
    survivors: TxSet,
    mut version: [u8; BUFFERS],
) -> Result<[u8; BUFFERS], String> {
    for (buffer, version) in version.iter_mut().enumerate() {
        let logged = state
            .operations
            .iter()
            .filter(|operation| survivors.has(operation.tx) && operation.writes(buffer));
        if rules.in_place {
            // Whole buffers: the newest one counts.
            if let Some(newest) = logged.map(|operation| operation.version[buffer]).max() {
                *version = newest;
            }
            if *version == TORN {
                return Err(format!("the home of buffer {buffer} is torn and in no log"));
            }
            continue;
        }
        let mut deltas: Vec<(u8, u8, u8)> = logged
            .map(|operation| {
                let stored = operation.stored[buffer];
                let order = if rules.by_version {
                    stored
                } else {
                    state.tx(operation.tx).sequence
                };
                (order, stored, operation.version[buffer])
            })
            .collect();
        deltas.sort_unstable();
        let image = stored_version(state, buffer, *version, rules);
        for (_, _, truth) in deltas.into_iter().filter(|(_, stored, _)| *stored > image) {
            if rules.node_reuse == NodeReuse::FreeForgetsVersion && truth == *version {
                // The free itself once more: harmless.
                continue;
            }
            if truth != *version + 1 {
                return Err(format!(
                    "buffer {buffer}: delta {truth} applied to version {version}"
                ));
            }
            *version = truth;
        }
    }
    Ok(version)
}

/// A surviving slot whose data block holds something else. `Ok(Some(..))`: its transaction is
/// incomplete, and recovery starts over without it.
fn failing_slot(
    state: &State,
    medium: &Medium,
    rules: &Rules,
    survivors: TxSet,
    version: [u8; BUFFERS],
) -> Result<Option<TxId>, String> {
    if rules.data == Data::None {
        return Ok(None);
    }
    let mut failing = None;
    for buffer in (0..BUFFERS).filter(|buffer| version[*buffer] > 0) {
        let (index, operation) = state
            .operations
            .iter()
            .enumerate()
            .find(|(_, operation)| {
                operation.writes(buffer) && operation.version[buffer] == version[buffer]
            })
            .expect("every version has a writer");
        if !slots_fail(medium, index, operation, Some(buffer)) {
            continue;
        }
        if !survivors.has(operation.tx) {
            return Err(format!("checkpointed slot {buffer} names lost data"));
        }
        failing = Some((buffer, operation.tx));
    }
    let repeats = matches!(
        rules.data,
        Data::CheckSurvivors | Data::CheckSurvivorsReuseEarly
    );
    match failing {
        Some((buffer, _)) if !repeats => Err(format!("slot {buffer}: data lost or overwritten")),
        other => Ok(other.map(|(_, id)| id)),
    }
}
