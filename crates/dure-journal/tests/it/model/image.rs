//! `Records::Image`: whole nodes, copied when a transaction is committed.
//!
//! An operation *files* the nodes it changes in its core's running transaction, unless the running
//! one of the other core has them. A commit *closes* the running transactions of its closure; each
//! closed one is then written with the copies it has and the present content of its other nodes.

use super::rules::Rules;
use super::state::{BUFFERS, CORES, NODE, NODES, Promise, Reached, State, TIDS, TxId, TxSet};
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
                    state.tx_mut(owner).marks.add(me);
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

/// What `root` depends on, itself too.
fn closure(state: &State, valid: TxSet, root: TxId) -> TxSet {
    let mut all = TxSet::default();
    all.add(root);
    loop {
        let before = all;
        for id in TxId::all().filter(|id| before.has(*id)) {
            let marks = state.tx(id).marks;
            TxId::all()
                .filter(|mark| marks.has(*mark) && !valid.has(*mark))
                .for_each(|mark| all.add(mark));
        }
        if all == before {
            return all;
        }
    }
}

/// Closing, and writing what is closed.
pub(crate) fn commits(state: &State, rules: &Rules, valid: TxSet, next: &mut Vec<(Step, State)>) {
    for core in 0..CORES {
        let tid = usize::from(state.running[core]);
        if tid < TIDS && state.transactions[core][tid].used {
            next.push(close(state, rules, valid, TxId::new(core, tid)));
        }
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
            let marks = tx.marks;
            next.push((Step::WriteTransaction { core, tid, marks }, after));
        }
    }
}

fn close(state: &State, rules: &Rules, valid: TxSet, root: TxId) -> (Step, State) {
    let mut after = state.clone();
    let mut all = closure(state, valid, root);
    if !rules.close_together {
        // The others go on; whoever waits for the root waits for what is closed already.
        let open = |id: &TxId| *id != root && state.is_running(*id);
        TxId::all().filter(open).for_each(|id| all.remove(id));
    }
    let mut closed = TxSet::default();
    for id in TxId::all().filter(|id| all.has(*id) && state.is_running(*id)) {
        closed.add(id);
        after.running[id.core()] += 1;
    }
    let closure = all;
    after.promises[root.core()] = Some(Promise { root, closure });
    let root = root.core();
    (Step::Close { root, closed }, after)
}

/// Whether the images in a transaction's log are elsewhere, so that the log may forget them.
pub(crate) fn is_covered(state: &State, nat: &[u8; BUFFERS], id: TxId) -> bool {
    let copy = state.tx(id).copy;
    (0..BUFFERS).all(|buffer| nat[buffer] >= copy[buffer])
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
pub(crate) fn apply(
    state: &State,
    rules: &Rules,
    (survivors, half): (TxSet, TxSet),
    version: &mut [u8; BUFFERS],
) {
    let mut order: Vec<TxId> = TxId::all()
        .filter(|id| survivors.has(*id) || (half.has(*id) && !rules.pieces_mark))
        .collect();
    order.sort_by_key(|id| state.tx(*id).sequence);
    for id in order {
        let tx = state.tx(id);
        let first = tx.copied & tx.copied.wrapping_neg();
        let there = if survivors.has(id) { tx.copied } else { first };
        for node in (0..NODES).filter(|node| there >> node & 1 == 1) {
            for buffer in (0..BUFFERS).filter(|buffer| NODE[node] >> buffer & 1 == 1) {
                let newer = tx.copy[buffer] > version[buffer] || !rules.by_version;
                if newer && tx.copy[buffer] > 0 {
                    version[buffer] = tx.copy[buffer];
                }
            }
        }
    }
}
