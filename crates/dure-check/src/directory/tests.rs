//! What cannot be built from names, because no two short names are known whose hashes nearly agree.

use dure_block::ram::RamDevice;
use dure_block::share;
use dure_store::layout::{FormatOptions, Layout};
use dure_store::media::Region;

use super::*;
use crate::{CheckOptions, Report};

#[test]
fn equal_cookies_are_reported() {
    let layout = Layout::plan(1024, &FormatOptions::default(), 1).unwrap();
    let region = Region::open(share(RamDevice::new("none", 1024)));
    let options = CheckOptions::default();
    let mut context = Context::new(&options, region, layout, Report::default());
    let entry = |name, ordinal| Entry {
        ino: 2,
        kind: 8,
        ordinal,
        name,
    };
    let entries = [
        entry(&b"a"[..], 0),
        entry(b"b", 1),
        entry(b"c", 1),
        entry(b"d", 1),
    ];
    let id = GranuleId {
        nid: Nid(2),
        index: 0,
    };
    let bucket = Bucket {
        directory: Ino(1),
        id,
        level: 0,
        prefix: 0,
    };
    check_names(&mut context, &bucket, &entries, &[1024, 1025, 1026, 2048]);
    let lines: Vec<String> = context
        .report
        .issues()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        lines,
        ["error: directory 1: \"c\" has the readdir cookie of another entry"]
    );
}
