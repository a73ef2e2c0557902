//! Soft and hard limits, and the grace time.

use dure_store::format::quota::Bounds;
use dure_sync::atomic::{AtomicI64, Ordering};
use dure_sync::clock::{self, Timestamp};
use dure_sync::thread;

use super::*;

const BOB: Subject = Subject {
    kind: QuotaKind::User,
    id: 7,
};

fn owner(uid: u32) -> Owner {
    Owner {
        uid,
        gid: 100,
        project: 0,
    }
}

fn blocks(blocks: u64) -> Usage {
    Usage { blocks, inodes: 0 }
}

fn limits(soft: u64, hard: u64) -> Limits {
    let bounds = Bounds {
        soft,
        hard,
        since: 0,
    };
    Limits {
        blocks: bounds,
        inodes: Bounds::default(),
        grace: 60,
    }
}

fn quotas(soft: u64, hard: u64) -> Quotas {
    let quotas = Quotas::new(2, &[(BOB, limits(soft, hard))], None);
    quotas.usage_is_known();
    quotas
}

fn of(quotas: &Quotas, subject: Subject) -> Quota {
    let all = quotas.list();
    *all.iter().find(|one| one.subject == subject).unwrap()
}

fn at(secs: i64) {
    clock::pretend_wall(Some(Timestamp { secs, nanos: 0 }));
}

#[test]
fn a_soft_limit_may_be_exceeded_for_the_grace_time() {
    at(1000);
    let quotas = quotas(10, 20);
    quotas.charge(owner(7), blocks(10)).unwrap();
    assert_eq!(of(&quotas, BOB).limits.blocks.since, 0);
    quotas.charge(owner(7), blocks(2)).unwrap();
    assert_eq!(of(&quotas, BOB).limits.blocks.since, 1000);
    at(1060);
    quotas.charge(owner(7), blocks(1)).unwrap();
    at(1061);
    let refused = quotas.charge(owner(7), blocks(1)).unwrap_err();
    assert_eq!(refused.errno(), libc::EDQUOT);
    assert!(refused.to_string().contains("user 7"), "{refused}");
    quotas.release(owner(7), blocks(3));
    assert_eq!(
        of(&quotas, BOB).limits.blocks.since,
        0,
        "it is not exceeded"
    );
    quotas.charge(owner(7), blocks(10)).unwrap();
    assert_eq!(of(&quotas, BOB).limits.blocks.since, 1061);
    quotas.charge(owner(7), blocks(1)).unwrap_err();
    assert_eq!(
        of(&quotas, BOB).usage,
        blocks(20),
        "never above the hard one"
    );
    clock::pretend_wall(None);
}

#[test]
fn what_a_group_refuses_is_not_counted_for_the_user() {
    let group = Subject {
        kind: QuotaKind::Group,
        id: 100,
    };
    let quotas = Quotas::new(2, &[(group, limits(0, 5))], None);
    quotas.charge(owner(7), blocks(5)).unwrap();
    let refused = quotas.charge(owner(8), blocks(1)).unwrap_err();
    assert!(refused.to_string().contains("group 100"), "{refused}");
    assert_eq!(quotas.list().len(), 2, "user 8 has nothing");
}

#[test]
fn limits_can_be_set_below_what_is_used_and_lifted() {
    let quotas = quotas(0, 0);
    quotas.charge(owner(7), blocks(50)).unwrap();
    quotas.limit(BOB, &limits(0, 20)).unwrap();
    quotas.charge(owner(7), blocks(1)).unwrap_err();
    quotas.release(owner(7), blocks(31));
    quotas.charge(owner(7), blocks(1)).unwrap();
    quotas.charge(owner(7), blocks(1)).unwrap_err();
    quotas.limit(BOB, &limits(10, 0)).unwrap();
    assert_ne!(
        of(&quotas, BOB).limits.blocks.since,
        0,
        "above it from now on"
    );
    quotas.lift_all();
    quotas.charge(owner(7), blocks(1000)).unwrap();
    quotas.limit(BOB, &limits(11, 10)).unwrap_err();
}

/// Threads take and give, far from the limit and at it: never more than the limit is used, and all of
/// it can be.
#[test]
fn tasks_of_one_user_never_have_more_than_the_hard_limit() {
    for hard in [3, 100, 5000] {
        let quotas = quotas(0, hard);
        let used = AtomicI64::new(0);
        let hard_signed = i64::try_from(hard).unwrap();
        thread::scope(|scope| {
            for thread in 0..4_u16 {
                let (quotas, used) = (&quotas, &used);
                scope.spawn_on(CoreId::new(thread), move || {
                    let mut own = 0;
                    for turn in 0..2000_u64 {
                        let some = 1 + (turn * 7 + u64::from(thread)) % 3;
                        if quotas.charge(owner(7), blocks(some)).is_ok() {
                            let some = i64::try_from(some).unwrap();
                            let now = used.fetch_add(some, Ordering::SeqCst) + some;
                            assert!(now <= hard_signed, "{now} of {hard}");
                            own += some;
                        }
                        if turn % 5 == 0 && own > 0 {
                            used.fetch_sub(own, Ordering::SeqCst);
                            quotas.release(owner(7), blocks(u64::try_from(own).unwrap()));
                            own = 0;
                        }
                    }
                });
            }
        });
        let left = hard - u64::try_from(used.load(Ordering::SeqCst)).unwrap();
        (0..left).for_each(|_| quotas.charge(owner(7), blocks(1)).unwrap());
        quotas.charge(owner(7), blocks(1)).unwrap_err();
        assert_eq!(of(&quotas, BOB).usage, blocks(hard));
    }
}

/// What the last one of an owner's accounts refuses, none of them counts.
#[test]
fn what_a_project_refuses_counts_for_nobody() {
    at(1000);
    let project = Subject {
        kind: QuotaKind::Project,
        id: 3,
    };
    let quotas = Quotas::new(2, &[(project, limits(0, 5))], None);
    let of_project = Owner {
        project: 3,
        ..owner(7)
    };
    quotas.charge(of_project, blocks(5)).unwrap();
    let before = quotas.list();
    let refused = quotas.charge(of_project, blocks(1)).unwrap_err();
    assert!(refused.to_string().contains("project 3"), "{refused}");
    assert_eq!(quotas.list(), before);
    quotas.charge(owner(7), blocks(1)).unwrap();
    assert_eq!(of(&quotas, project).usage, blocks(5), "not of it");
    assert_eq!(quotas.of(BOB).unwrap().0, blocks(6));
}
