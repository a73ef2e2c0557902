//! The recovered state does not depend on the number of threads.

use dure_block::{ram::RamDevice, share};
use dure_journal::Rules;
use dure_journal::recovery::scan;
use dure_sync::{Arc, CoreId, thread};

use super::*;
use crate::format::node::NodeKind;
use crate::headers::{log_layout, read_header, read_layout};
use crate::layout::FormatOptions;
use crate::media::Region;
use crate::node::nat::Nat;
use crate::packs::Packs;
use crate::recovery::Medium;
use crate::recovery::replay::replay;
use crate::space::OpClass;
use crate::store::OpKind;
use crate::store::tests::mounted;
use crate::store::{Store, make_volume};

const NODES: usize = 30;
const CHANGES: u64 = 400;

fn make(store: &Store) -> Nid {
    let mut op = store
        .op(OpKind::Write, OpClass::Normal, 1)
        .expect("there is room");
    let node = op.new_node(NodeKind::Blob).expect("there are nids");
    op.finish();
    node.nid
}

fn change(store: &Store, nid: Nid, number: u64) {
    let mut op = store
        .op(OpKind::Write, OpClass::Normal, 1)
        .expect("there is room");
    let node = store
        .node(nid, NodeKind::Blob.of_none())
        .expect("it is there");
    let at = usize::try_from(number % 400).unwrap() * 8;
    op.edit(&node, 0)
        .part(at..at + 8)
        .copy_from_slice(&number.to_le_bytes());
    op.finish();
}

/// Each node is changed from every core in turn, so that its versions are spread over all journals.
fn fill(store: &Arc<Store>) {
    let nids: Vec<Nid> = (0..NODES).map(|_| make(store)).collect();
    for number in 1..=CHANGES {
        let core = CoreId::new(u16::try_from(number % 3).unwrap());
        let (own, nids) = (store.clone(), nids.clone());
        let fill = move || nids.iter().for_each(|nid| change(&own, *nid, number));
        thread::spawn_on("fill", core, fill).join().unwrap();
        if number % 50 == 0 {
            store.commit_all().unwrap();
        }
    }
}

#[test]
fn the_recovered_state_does_not_depend_on_the_number_of_threads() {
    let device = Arc::new(RamDevice::new("ram", 1 << 15));
    let format = FormatOptions {
        journals: Some(3),
        ..FormatOptions::default()
    };
    make_volume(share(Arc::clone(&device)), &format).unwrap();
    fill(&Arc::new(mounted(share(Arc::clone(&device)))));
    let region = Region::open(share(device));
    let layout = read_layout(&region).unwrap();
    let (header, _) = read_header(&region, &layout).unwrap();
    let packs = Packs::read(&region, &layout, &header).unwrap();
    let log = log_layout(&layout, &header, Rules::default());
    let scan = scan(&region.log_medium(), &log, header.epoch.get(), 1).unwrap();
    let nat = Nat::new(region.clone(), &layout, Arc::new(packs));
    let base = Medium {
        region: &region,
        layout: &layout,
        nat: &nat,
    };
    assert_eq!(shares(&scan, 1).len(), 1);
    assert_eq!(shares(&scan, 4).len(), 4, "enough records to share");
    let alone = replay(&base, &scan, 1).unwrap();
    assert_eq!(alone.nodes.len(), NODES);
    for node in alone.nodes.values() {
        let image = node.image.as_ref().expect("nobody freed it");
        assert_eq!(image.version(0), 1 + CHANGES);
        assert_eq!(image.payload(0)[8..16], 1_u64.to_le_bytes());
    }
    for threads in [2, 3, 4, 7] {
        let mut shared = replay(&base, &scan, threads).unwrap();
        assert_eq!(shared.threads, shares(&scan, threads).len());
        shared.threads = alone.threads;
        assert_eq!(format!("{shared:?}"), format!("{alone:?}"));
    }
}
