//! What only the inside can see.

use super::intervals::Intervals;
use super::range::{Claim, Units};
use super::*;

fn claim(first: u64, last: u64, access: Access) -> Claim {
    Claim {
        units: Units { first, last },
        access,
    }
}

/// Whether all of `claims` are granted, in order of arrival, in the way that a list would say.
#[test]
fn intervals_grant_what_a_list_would_grant() {
    let mut tree = Intervals::new();
    // (claim, node, granted), in order of arrival.
    let mut list: Vec<(Claim, intervals::NodeIndex, Option<Arc<waiter::Waiter>>)> = Vec::new();
    let mut number = 1_u64;
    let mut draw = |below: u64| {
        number = number
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (number >> 33) % below
    };
    let mut granted_later = 0;
    for _ in 0..20_000 {
        let blocked = |list: &[(Claim, _, _)], at: usize| {
            let wanted: Claim = list[at].0;
            list[..at]
                .iter()
                .any(|(earlier, _, _)| wanted.conflicts(*earlier))
        };
        if list.len() < 40 && draw(2) == 0 {
            let first = draw(100);
            let access = [Access::Shared, Access::Exclusive][usize::from(draw(2) == 0)];
            let last = if draw(8) == 0 {
                u64::MAX
            } else {
                first + draw(20)
            };
            let wanted = claim(first, last, access);
            let entered = tree.enter(wanted);
            list.push((wanted, entered.node, entered.waiter));
            let at = list.len() - 1;
            assert_eq!(list[at].2.is_some(), blocked(&list, at), "{wanted:?}");
        } else if let Some(at) = list.iter().position(|(_, _, waiter)| waiter.is_none()) {
            let at = at + usize::from(list.get(at + 1).is_some_and(|next| next.2.is_none()));
            let (_, node, _) = list.remove(at);
            for waiter in tree.leave(node) {
                let told = list
                    .iter_mut()
                    .find(|(_, _, other)| other.as_ref().is_some_and(|o| Arc::ptr_eq(o, &waiter)));
                told.expect("only those who wait are told").2 = None;
                granted_later += 1;
            }
            for at in 0..list.len() {
                assert_eq!(list[at].2.is_some(), blocked(&list, at), "{:?}", list[at].0);
            }
        }
        assert_eq!(tree.len(), list.len());
    }
    assert!(granted_later > 1_000, "{granted_later}");
}
