//! Each policy, by itself and under schedules.

use super::*;
use crate::format::node::{NodeImage, NodeKind};
use crate::node::Node;
use crate::units::{Mark, Nid};

fn node(policy: NodeLock) -> Node {
    Node::new(Nid(9), NodeImage::fresh(NodeKind::Bucket, 1), policy)
}

#[test]
fn names_are_those_of_the_option() {
    assert_eq!(
        NodeLock::ALL.map(NodeLock::name),
        ["mutex", "rwsem", "optimistic"]
    );
    assert_eq!(NodeLock::default(), NodeLock::Optimistic);
}

#[test]
fn sets_of_granules() {
    let some = Granules::default().with(7).with(0).with(3);
    assert_eq!(some.iter().collect::<Vec<_>>(), [0, 3, 7]);
    assert_eq!(Granules::default().iter().count(), 0);
    assert_eq!(Granules::first(8).iter().count(), 8);
    assert_eq!(Granules::first(1), Granules::one(0));
}

#[test]
fn what_is_stored_is_seen_every_way() {
    for policy in NodeLock::ALL {
        let node = node(policy);
        let mark = Mark::new(dure_journal::JournalId::new(0).unwrap(), 4);
        {
            let mut held = node.hold(Granules::one(2).with(5));
            held.store(2, 7, [(100, &[3; 20][..]), (120, &[3; 30])]);
            held.set_last_writer(5, mark);
            assert_eq!((held.version(2), held.version(5)), (7, 1));
            assert_eq!(held.payload(2)[99..101], [0, 3]);
        }
        assert_eq!(node.look(2, |bytes| (bytes.len(), bytes[149])), (496, 3));
        assert_eq!(node.look_at(2, 148..152, <[u8]>::to_vec), [3, 3, 0, 0]);
        assert_eq!(node.copy_of(2)[100..150], [3; 50]);
        assert_eq!(node.read(2).version(), 7);
        assert_eq!(node.last_writer(5), mark);
        assert_eq!(node.look(5, |bytes| bytes.iter().max().copied()), Some(0));
        let image = node.copy();
        assert!(image.versions().eq([1, 1, 7, 1, 1, 1, 1, 1]));
        assert_eq!(image.payload(2)[..], node.copy_of(2)[..]);
    }
}

#[test]
#[should_panic(expected = "versions only grow")]
fn a_version_does_not_go_back() {
    node(NodeLock::Optimistic)
        .hold_all()
        .store(0, 1, [(0, &[1][..])]);
}

#[cfg(dure_backend = "sim")]
mod schedules {
    use dure_sync::sim::{Config, seeds, try_run};
    use dure_sync::thread;

    use super::*;

    /// Two change two granules each, one of them in common; others look. No task sees half of a
    /// change, nor an older content after a newer one.
    fn meet(policy: NodeLock, seed: u64) {
        let config = [Config::random, Config::stall, Config::priority];
        let config = config[usize::try_from(seed % 3).unwrap()](4, seed);
        let run = try_run(config, move || {
            let node = node(policy);
            thread::scope(|scope| {
                for writer in 0..2 {
                    let node = &node;
                    scope.spawn(move || {
                        for _ in 0..4 {
                            let mut held = node.hold(Granules::one(writer).with(2));
                            for index in [writer, 2] {
                                let version = held.version(index) + 1;
                                let bytes = [u8::try_from(version).unwrap(); 496];
                                let parts = [(0, &bytes[..8]), (8, &bytes[8..])];
                                held.store(index, version, parts);
                            }
                        }
                    });
                }
                for reader in 0..2 {
                    let node = &node;
                    scope.spawn(move || {
                        let mut last = 0;
                        for _ in 0..8 {
                            let seen = node.look(2 * reader, |bytes| {
                                assert!(bytes.iter().all(|&byte| byte == bytes[0]), "torn");
                                bytes[0]
                            });
                            assert!(seen >= last, "an older content");
                            last = seen;
                        }
                    });
                }
            });
            assert_eq!(node.look(2, |bytes| bytes[495]), 9);
        });
        if let Err(failure) = run {
            panic!("{policy:?} seed={seed}: {failure}");
        }
    }

    #[test]
    fn sim_granules_are_seen_whole() {
        for policy in NodeLock::ALL {
            for seed in seeds(100) {
                meet(policy, seed);
            }
        }
    }
}
