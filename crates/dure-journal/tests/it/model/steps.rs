//! What can happen next in a state.

use super::image;
use super::rules::{Data, NodeReuse, Records, Rules};
use super::state::{
    BUFFERS, CORES, Checkpoint, DATA_BLOCKS, Kind, Nat, Operation, Phase, Reached, State, TIDS,
    TxId, TxSet, data_code,
};

/// One step, for telling a counter-example.
#[derive(Debug, Clone, Copy)]
#[expect(dead_code, reason = "printed, never read")]
pub(crate) enum Step {
    Operate {
        core: usize,
        operation: Operation,
    },
    WriteTransaction {
        core: usize,
        tid: usize,
        marks: TxSet,
    },
    /// The running transactions of these become closed.
    Close {
        closed: TxSet,
    },
    /// Validity is looked for.
    Walk {
        found: TxSet,
    },
    Flush,
    CopyBuffer {
        buffer: usize,
        version: u8,
    },
    WriteImage {
        buffer: usize,
        version: usize,
    },
    HomeDone {
        buffer: usize,
    },
    WriteNat(Nat),
    WriteHeader {
        core: usize,
        tail: u8,
    },
    ReuseLog {
        core: usize,
        below: u8,
    },
}

/// Every step and the state behind it.
pub(crate) fn successors(state: &State, rules: &Rules) -> Vec<(Step, State)> {
    let valid = state.valid_by(rules);
    let mut next = Vec::new();
    operations(state, rules, valid, &mut next);
    match rules.records {
        Records::Delta => commits(state, rules, &mut next),
        Records::Image => image::commits(state, rules, &mut next),
    }
    flush(state, &mut next);
    (0..BUFFERS).for_each(|buffer| checkpoint(state, rules, valid, buffer, &mut next));
    tails(state, rules, valid, &mut next);
    reuse(state, rules, &mut next);
    next
}

fn kinds(reuse: NodeReuse, writes: u8) -> &'static [Kind] {
    if writes.count_ones() != 1 {
        return &[Kind::Write];
    }
    match reuse {
        NodeReuse::Never => &[Kind::Write],
        NodeReuse::VersionContinues | NodeReuse::VersionRestarts => &[Kind::Write, Kind::Recreate],
        NodeReuse::FreeForgetsVersion | NodeReuse::FreeKeepsVersion => &[Kind::Write, Kind::Free],
    }
}

fn operations(state: &State, rules: &Rules, valid: TxSet, next: &mut Vec<(Step, State)>) {
    if state.operations.len() >= rules.operations {
        return;
    }
    for core in 0..rules.cores {
        let sets = rules.write_sets_of.map_or(rules.write_sets, |of| of[core]);
        for writes in sets.iter().copied() {
            for kind in kinds(rules.node_reuse, writes) {
                if let Some((operation, after)) = operate(state, rules, valid, core, writes, *kind)
                {
                    next.push((Step::Operate { core, operation }, after));
                }
            }
        }
    }
}

/// One operation of `core`; `None` if it is not possible here.
fn operate(
    state: &State,
    rules: &Rules,
    valid: TxSet,
    core: usize,
    writes: u8,
    kind: Kind,
) -> Option<(Operation, State)> {
    let tid = usize::from(state.running[core]);
    let dead = (0..BUFFERS).any(|buffer| writes >> buffer & 1 == 1 && state.freed[buffer]);
    if tid >= TIDS || dead {
        return None;
    }
    let mut after = state.clone();
    let me = TxId::new(core, tid);
    let index = state.operations.len();
    let zero = [0; BUFFERS];
    let mut operation = Operation {
        tx: me,
        writes,
        kind,
        version: zero,
        stored: zero,
        block: zero,
    };
    after.transactions[core][tid].used = true;
    mark_last_writers(&mut after, rules, valid, me, writes);
    if rules.records == Records::Image {
        image::file(&mut after, rules, me, writes);
    }
    for buffer in (0..BUFFERS).filter(|buffer| writes >> buffer & 1 == 1) {
        after.last_writer[buffer] = Some(me);
        after.version[buffer] += 1;
        if kind == Kind::Recreate && rules.node_reuse == NodeReuse::VersionRestarts {
            after.stored[buffer] = 0;
        }
        after.stored[buffer] += 1;
        after.freed[buffer] |= kind == Kind::Free;
        operation.version[buffer] = after.version[buffer];
        operation.stored[buffer] = after.stored[buffer];
        if rules.data != Data::None {
            let block = free_block(state, rules, valid, &operation, buffer)?;
            operation.block[buffer] = u8::try_from(block).unwrap();
            after.data_written[block] = Some(data_code(index, buffer));
        }
    }
    after.operations.push(operation);
    Some((operation, after))
}

/// Marks of those whose changes must be there, too.
fn mark_last_writers(state: &mut State, rules: &Rules, valid: TxSet, me: TxId, writes: u8) {
    let held = match rules.records {
        Records::Image if rules.mark_whole_node => image::with_nodes(writes),
        _ => writes,
    };
    for buffer in (0..BUFFERS).filter(|buffer| held >> buffer & 1 == 1) {
        if let Some(last) = state.last_writer[buffer].filter(|last| *last != me) {
            let committed = state.tx(last).reached == Reached::Durable;
            let done = valid.has(last) || (!rules.marks_until_valid && committed);
            let kept = rules.marks && (rules.self_marks || last.core() != me.core());
            if kept && !done {
                state.tx_mut(me).marks.add(last);
            }
        }
    }
}

/// The first data block that no slot needs. A slot's block is free when the operation that
/// replaced the slot is valid.
fn free_block(
    state: &State,
    rules: &Rules,
    valid: TxSet,
    new: &Operation,
    new_buffer: usize,
) -> Option<usize> {
    let mut live = [false; DATA_BLOCKS];
    for buffer in 0..BUFFERS {
        for old in state.operations.iter().filter(|old| old.writes(buffer)) {
            let replaces = |operation: &&Operation| {
                operation.writes(buffer) && operation.version[buffer] == old.version[buffer] + 1
            };
            let replaced_by = state.operations.iter().chain([new]).find(replaces);
            let free = replaced_by
                .is_some_and(|by| rules.data == Data::CheckSurvivorsReuseEarly || valid.has(by.tx));
            live[usize::from(old.block[buffer])] |= !free;
        }
    }
    for buffer in new.buffers().take_while(|buffer| *buffer < new_buffer) {
        live[usize::from(new.block[buffer])] = true;
    }
    live.iter().position(|live| !live)
}

fn commits(state: &State, rules: &Rules, next: &mut Vec<(Step, State)>) {
    for core in 0..CORES {
        let tid = usize::from(state.running[core]);
        if tid >= TIDS || !state.transactions[core][tid].used {
            continue;
        }
        let id = TxId::new(core, tid);
        let data_open = state
            .operations
            .iter()
            .filter(|operation| operation.tx == id)
            .any(|operation| {
                operation.buffers().any(|buffer| {
                    state.data_written[usize::from(operation.block[buffer])].is_some()
                })
            });
        if rules.data == Data::TwoFlushes && data_open {
            continue;
        }
        let mut after = state.clone();
        after.sequence += 1;
        after.running[core] += 1;
        let tx = &mut after.transactions[core][tid];
        let marks = tx.marks;
        tx.reached = Reached::Written;
        tx.sequence = after.sequence;
        next.push((Step::WriteTransaction { core, tid, marks }, after));
    }
}

/// Moves what is pending to what is durable; says whether there was anything.
fn settle<T: Copy>(pending: &mut Option<T>, durable: &mut T) -> bool {
    pending.take().map(|value| *durable = value).is_some()
}

fn flush(state: &State, next: &mut Vec<(Step, State)>) {
    let mut after = state.clone();
    let written = after
        .transactions
        .iter_mut()
        .flatten()
        .map(|tx| &mut tx.reached)
        .chain(after.images.iter_mut().flatten())
        .filter(|reached| **reached == Reached::Written);
    let mut any = false;
    for reached in written {
        *reached = Reached::Durable;
        any = true;
    }
    for core in 0..CORES {
        any |= settle(&mut after.tail_written[core], &mut after.tail_durable[core]);
    }
    for buffer in 0..BUFFERS {
        any |= settle(
            &mut after.home_written[buffer],
            &mut after.home_durable[buffer],
        );
    }
    for block in 0..DATA_BLOCKS {
        any |= settle(
            &mut after.data_written[block],
            &mut after.data_durable[block],
        );
    }
    for slot in 0..2 {
        if let Some(nat) = after.nat_written[slot].take() {
            after.nat_durable[slot] = Some(nat);
            any = true;
        }
    }
    if any {
        next.push((Step::Flush, after));
    }
}

/// The next step of the checkpoint of one buffer.
fn checkpoint(
    state: &State,
    rules: &Rules,
    valid: TxSet,
    buffer: usize,
    next: &mut Vec<(Step, State)>,
) {
    let now = state.checkpoints[buffer];
    let version = usize::from(now.version);
    let mut after = state.clone();
    let step = &mut after.checkpoints[buffer];
    match now.phase {
        Phase::Idle => {
            let covered = if rules.in_place {
                state.home_durable[buffer]
            } else {
                state.nat_memory[buffer]
            };
            if state.checkpoints_begun >= rules.checkpoints || state.version[buffer] <= covered {
                return;
            }
            after.checkpoints_begun += 1;
            *step = Checkpoint {
                phase: Phase::Copied,
                version: state.version[buffer],
                last_writer: state.last_writer[buffer],
            };
            if !rules.nat_unstaged {
                after.nat_memory[buffer] = state.version[buffer];
            }
            next.push((
                Step::CopyBuffer {
                    buffer,
                    version: state.version[buffer],
                },
                after,
            ));
        }
        Phase::Copied => {
            if rules.image_waits_for_valid && now.last_writer.is_some_and(|last| !valid.has(last)) {
                return;
            }
            step.phase = Phase::ImageWritten;
            if rules.in_place {
                after.home_written[buffer] = Some(now.version);
            } else {
                after.images[buffer][version] = Reached::Written;
            }
            next.push((Step::WriteImage { buffer, version }, after));
        }
        Phase::ImageWritten if rules.in_place => {
            if state.home_written[buffer].is_none() {
                step.phase = Phase::Idle;
                next.push((Step::HomeDone { buffer }, after));
            }
        }
        Phase::ImageWritten => {
            let flushed = state.images[buffer][version] == Reached::Durable;
            let busy = state.nat_written.iter().any(Option::is_some);
            if (rules.flush_image_before_nat && !flushed) || (rules.nat_serial && busy) {
                return;
            }
            step.phase = Phase::Idle;
            after.nat_memory[buffer] = now.version;
            after.nat_generation += 1;
            let generation = after.nat_generation;
            let nat = Nat {
                generation,
                version: after.nat_memory,
            };
            after.nat_written[usize::from(generation % 2)] = Some(nat);
            next.push((Step::WriteNat(nat), after));
        }
    }
}

/// The versions of the newest NAT slot that a tail may rely on.
fn nat_for_tails(state: &State, rules: &Rules) -> [u8; BUFFERS] {
    let written = state
        .nat_written
        .iter()
        .filter(|_| !rules.flush_nat_before_header);
    let slots = state.nat_durable.iter().chain(written).flatten();
    slots
        .max_by_key(|nat| nat.generation)
        .map_or([0; BUFFERS], |nat| nat.version)
}

fn tails(state: &State, rules: &Rules, valid: TxSet, next: &mut Vec<(Step, State)>) {
    let nat = nat_for_tails(state, rules);
    for core in 0..CORES {
        if state.tail_written[core].is_some() {
            continue;
        }
        let may_pass = |tid: u8| {
            let id = TxId::new(core, tid.into());
            state.tx(id).reached == Reached::Durable
                && valid.has(id)
                && image::is_covered(state, rules, &nat, id)
                && state
                    .operations
                    .iter()
                    .filter(|operation| operation.tx == id)
                    .all(|operation| is_covered(state, rules, &nat, operation))
        };
        let tail = state.tail_durable[core];
        let last = u8::try_from(TIDS).unwrap();
        let moved = (tail..last).find(|tid| !may_pass(*tid)).unwrap_or(last);
        if moved > tail {
            let mut after = state.clone();
            after.tail_written[core] = Some(moved);
            next.push((Step::WriteHeader { core, tail: moved }, after));
        }
    }
}

/// Whether what the operation wrote is elsewhere, so that the log may forget it.
fn is_covered(state: &State, rules: &Rules, nat: &[u8; BUFFERS], operation: &Operation) -> bool {
    operation.buffers().all(|buffer| {
        let there = if rules.in_place {
            state.home_durable[buffer]
        } else {
            nat[buffer]
        };
        let version = operation.version[buffer];
        // In place and unversioned: an older version in another log would overwrite it.
        let older_are_gone = || {
            state
                .operations
                .iter()
                .filter(|other| other.writes(buffer) && other.version[buffer] < version)
                .all(|other| {
                    let before = other.tx.core() == operation.tx.core()
                        && other.tx.tid() <= operation.tx.tid();
                    before || state.behind_tail(other.tx)
                })
        };
        there >= version && (!rules.reclaim_order || older_are_gone())
    })
}

fn reuse(state: &State, rules: &Rules, next: &mut Vec<(Step, State)>) {
    for core in 0..CORES {
        let durable = state.tail_durable[core];
        let limit = if rules.flush_header_before_reuse {
            durable
        } else {
            state.tail_written[core].unwrap_or(durable)
        };
        if limit > state.reused[core] {
            let mut after = state.clone();
            after.reused[core] = limit;
            next.push((Step::ReuseLog { core, below: limit }, after));
        }
    }
}
