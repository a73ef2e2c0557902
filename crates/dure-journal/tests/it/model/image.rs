//! `Records::Image`: whole nodes, copied when a transaction is committed.
//!
//! An operation *files* the nodes it changes in its core's running transaction, unless the running
//! one of another core has them: then the two mark each other. A commit *closes* the running
//! transaction of one core; it is then written with the copies it has and the present content of its
//! other nodes. A *walk* finds later what is valid.

use super::rules::{Fsync, Rules};
use super::state::{BUFFERS, NODE, NODES, Promise, Reached, State, TIDS, TORN, TxId, TxSet};
use super::steps::Step;

fn nodes_of(buffers: u8) -> impl Iterator<Item = usize> {
    (0..NODES).filter(move |node| NODE[*node] & buffers != 0)
}

/// All buffers of the nodes of these.
pub(crate) fn with_nodes(buffers: u8) -> u8 {
    nodes_of(buffers).fold(0, |all, node| all | NODE[node])
}

/// Copies a node as it is now for a transaction.
fn copy(state: &mut State, id: TxId, node: usize) {
    let versions = state.version;
    let tx = state.tx_mut(id);
    tx.copied |= 1 << node;
    for buffer in (0..BUFFERS).filter(|buffer| NODE[node] >> buffer & 1 == 1) {
        tx.copy[buffer] = versions[buffer];
    }
}

/// Files the nodes of an operation of running transaction `me`, before it changes them.
pub(crate) fn file(state: &mut State, rules: &Rules, me: TxId, writes: u8) {
    for node in nodes_of(writes) {
        match state.owner[node] {
            Some(owner) if state.is_running(owner) => {
                if owner != me && rules.two_way {
                    state.tx_mut(me).marks.add(owner);
                    share(state, rules, me, owner);
                }
                continue;
            }
            Some(owner) if rules.freeze => {
                let tx = state.tx(owner);
                if tx.reached == Reached::Memory && tx.copied >> node & 1 == 0 {
                    copy(state, owner, node);
                }
            }
            _ => {}
        }
        state.owner[node] = Some(me);
        state.tx_mut(me).filed |= 1 << node;
    }
}

/// Gives `owner` the two-way mark of `me`. A core has one word there: its newest transaction counts.
fn share(state: &mut State, rules: &Rules, me: TxId, owner: TxId) {
    let before = state.tx(owner).shared;
    let replaced = (0..me.tid()).map(|tid| TxId::new(me.core(), tid));
    for old in replaced.filter(|old| before.has(*old)) {
        state.tx_mut(owner).shared.remove(old);
        if rules.pass_on {
            state.tx_mut(me).marks.add(old);
        }
    }
    state.tx_mut(owner).shared.add(me);
}

/// Closing, writing what is closed, and looking for validity.
pub(crate) fn commits(state: &State, rules: &Rules, next: &mut Vec<(Step, State)>) {
    let mut running = TxSet::default();
    for core in 0..rules.cores {
        let tid = usize::from(state.running[core]);
        if tid < TIDS && state.transactions[core][tid].used {
            running.add(TxId::new(core, tid));
        }
    }
    for id in TxId::all().filter(|id| running.has(*id)) {
        let mut one = TxSet::default();
        one.add(id);
        match rules.fsync {
            Fsync::ClosedAtOnce => next.push(close(state, rules, id, running)),
            _ => next.push(close(state, rules, id, one)),
        }
    }
    let found = TxSet(state.found.0 | state.search_valid(rules).0);
    if found != state.found {
        let mut after = state.clone();
        after.found = found;
        next.push((Step::Walk { found }, after));
    }
    for core in 0..rules.cores {
        let tid = usize::from(state.running[core]);
        let closed = (0..tid).find(|tid| state.transactions[core][*tid].reached == Reached::Memory);
        if let Some(tid) = closed {
            let id = TxId::new(core, tid);
            let mut after = state.clone();
            let open = state.tx(id).filed & !state.tx(id).copied;
            (0..NODES)
                .filter(|node| open >> node & 1 == 1)
                .for_each(|node| copy(&mut after, id, node));
            after.sequence += 1;
            let sequence = after.sequence;
            let tx = after.tx_mut(id);
            tx.reached = Reached::Written;
            tx.sequence = sequence;
            let marks = tx.needs();
            next.push((Step::WriteTransaction { core, tid, marks }, after));
        }
    }
}

/// Closes `closed`, one of which an fsync needs: `root`.
fn close(state: &State, rules: &Rules, root: TxId, closed: TxSet) -> (Step, State) {
    let mut after = state.clone();
    for id in TxId::all().filter(|id| closed.has(*id)) {
        after.running[id.core()] += 1;
    }
    if rules.fsync != Fsync::Valid {
        let mut closure = TxSet::default();
        TxId::all()
            .filter(|id| state.tx(*id).used)
            .for_each(|id| closure.add(id));
        after.promises[root.core()] = Some(Promise { root, closure });
    }
    (Step::Close { closed }, after)
}

/// Whether the images in a transaction's log are elsewhere, so that the log may forget them.
pub(crate) fn is_covered(state: &State, rules: &Rules, nat: &[u8; BUFFERS], id: TxId) -> bool {
    let copy = state.tx(id).copy;
    (0..BUFFERS).all(|buffer| {
        let there = match rules.in_place {
            true => state.home_durable[buffer],
            false => nat[buffer],
        };
        // In place and unversioned: an older image in another log would overwrite it.
        let is_older = |other: &TxId| {
            (1..copy[buffer]).contains(&state.tx(*other).copy[buffer])
                && !state.behind_tail(*other)
                && (other.core() != id.core() || other.tid() > id.tid())
        };
        there >= copy[buffer] && !(rules.reclaim_order && TxId::all().any(|other| is_older(&other)))
    })
}

/// (e) A commit whose closure is durable may return: its root is valid.
///
/// # Errors
/// The promise that was not kept.
pub(crate) fn judge_promises(state: &State, valid: TxSet) -> Result<(), String> {
    for promise in state.promises.iter().flatten() {
        let durable = |id: TxId| state.tx(id).reached == Reached::Durable || state.behind_tail(id);
        let mut closure = TxId::all().filter(|id| promise.closure.has(*id));
        if closure.all(durable) && !valid.has(promise.root) {
            return Err(format!(
                "(e) {promise:?} is durable, and its root is not valid"
            ));
        }
    }
    Ok(())
}

/// The versions that recovery takes from the logged images of `survivors`; `half`: transactions of
/// which only the first piece is there.
///
/// # Errors
/// A torn home that no image replaces.
pub(crate) fn apply(
    state: &State,
    rules: &Rules,
    (survivors, half): (TxSet, TxSet),
    version: &mut [u8; BUFFERS],
) -> Result<(), String> {
    let mut order: Vec<TxId> = TxId::all()
        .filter(|id| survivors.has(*id) || (half.has(*id) && !rules.pieces_mark))
        .collect();
    order.sort_by_key(|id| state.tx(*id).sequence);
    let mut placed = [false; BUFFERS];
    for id in order {
        let tx = state.tx(id);
        let first = tx.copied & tx.copied.wrapping_neg();
        let there = if survivors.has(id) { tx.copied } else { first };
        for node in (0..NODES).filter(|node| there >> node & 1 == 1) {
            for buffer in (0..BUFFERS).filter(|buffer| NODE[node] >> buffer & 1 == 1) {
                // A home has no version: the newest image in the logs replaces it.
                let home = rules.in_place && !placed[buffer];
                let newer = tx.copy[buffer] > version[buffer] || home || !rules.by_version;
                if newer && tx.copy[buffer] > 0 {
                    placed[buffer] = true;
                    version[buffer] = tx.copy[buffer];
                }
            }
        }
    }
    match version.iter().position(|version| *version == TORN) {
        Some(buffer) => Err(format!("the home of buffer {buffer} is torn and in no log")),
        None => Ok(()),
    }
}
