//! Tests of the check. Each builds a volume by hand, puts one inconsistency into it and expects exactly
//! the issues that follow from it.

mod disk;
mod volume;

use disk::lines;
use volume::TestVolume;

#[test]
fn a_sound_volume_has_no_issues() {
    let report = TestVolume::new().check();
    assert_eq!(lines(&report), Vec::<String>::new());
    let counts = report.counts();
    assert_eq!(
        (
            counts.files,
            counts.directories,
            counts.symlinks,
            counts.others
        ),
        (4, 2, 2, 1)
    );
    assert_eq!(
        (
            counts.nodes,
            counts.orphans,
            counts.blocks_data,
            counts.blocks_log
        ),
        (10, 1, 6, 64)
    );
    assert!(report.is_spotless() && report.is_sound() && report.worst().is_none());
}

#[test]
fn a_fresh_volume_has_no_issues() {
    use crate::{FileSystem, FormatOptions};
    for (blocks, journals) in [(1024, 1), (4096, 4), (65536, 16)] {
        let device = dure_block::share(dure_block::ram::RamDevice::new("fresh", blocks));
        let options = FormatOptions {
            journals: Some(journals),
            ..Default::default()
        };
        FileSystem::format(device.clone(), &options).unwrap();
        let report = super::check(device, &super::CheckOptions::default()).unwrap();
        assert_eq!(lines(&report), Vec::<String>::new());
        assert_eq!(report.counts().directories, 1);
    }
}
