//! The passes over nodes, trees and space, in their order, once tables and logs are read: of a check,
//! and of a rebuild over what it has corrected in memory.

use crate::context::Context;
use crate::{names, nat, nodes, orphans, sit, summary, trees};

pub(crate) fn run(context: &mut Context<'_>) {
    nat::check(context);
    nodes::check(context);
    nodes::check_root(context);
    orphans::check(context);
    trees::check(context);
    names::check(context);
    names::check_leaks(context);
    sit::check(context);
    summary::finish(context);
}
