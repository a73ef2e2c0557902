//! The passes over nodes, trees and space, in their order, once tables and logs are read: of a check,
//! and of a rebuild over what it has corrected in memory.

use crate::context::Context;
use crate::{clones, names, nat, nodes, orphans, quota, sit, summary, trees};

pub(crate) fn run(context: &mut Context<'_>) {
    let before = context.report.clone();
    once(context);
    if !context.shared.unlisted.is_empty() {
        // What came first to these blocks was not noted: if it is a slot too, they are shared.
        context.forget_owners();
        let first = std::mem::replace(&mut context.report, before);
        once(context);
        // These entries are gone since the first run.
        let gone = first.issues().iter().map(|issue| &issue.kind);
        let gone = gone.filter(|kind| nat::takes_out(kind) && !context.report.has(kind));
        let gone: Vec<_> = gone.cloned().collect();
        gone.into_iter().for_each(|kind| context.issue(kind));
    }
}

fn once(context: &mut Context<'_>) {
    nat::check(context);
    nodes::check(context);
    nodes::check_root(context);
    orphans::check(context);
    trees::check(context);
    quota::check(context);
    names::check(context);
    names::check_leaks(context);
    clones::compare(context);
    sit::check(context);
    summary::finish(context);
}
