//! One inode record: each field by itself and against the inode's type.

use dure_store::format::fields::{impossible_fields, kind};
use dure_store::format::inode::InodeRecord;
use dure_store::format::name::FileKind;
use dure_store::format::node::NodeImage;
use dure_store::units::{Ino, to_u64};

use crate::context::Context;
use crate::issue::IssueKind;

/// Checks that a free inode holds no data.
pub(super) fn check_free(context: &mut Context<'_>, ino: Ino, image: &NodeImage) {
    let data = image.payload(usize::from(ino.data_index()));
    let dirt = data.iter().filter(|byte| **byte != 0).count();
    if dirt > 0 {
        context.issue(IssueKind::InodeField {
            ino,
            field: "data of a free inode",
            got: to_u64(dirt),
            must: "zero",
        });
    }
}

/// Checks a record in use; false when its trees must not be followed.
pub(super) fn check_record(context: &mut Context<'_>, ino: Ino, record: &InodeRecord) -> bool {
    let got = record.attributes.ino.get();
    if ino.0 == 0 || got != ino.0 {
        context.issue(IssueKind::InodeNumber { ino, got });
        return false;
    }
    if FileKind::from_code(kind(record)).is_none() {
        let got = u64::from(record.attributes.mode.get());
        let field = "mode";
        context.issue(IssueKind::InodeField {
            ino,
            field,
            got,
            must: "of a known type",
        });
        return false;
    }
    let mut sound = true;
    let project = record.attributes.project.get();
    if project != 0 && !context.layout.superblock.has_projects() {
        context.issue(IssueKind::InodeProject { ino, project });
    }
    for (field, got, must) in impossible_fields(ino, record) {
        context.issue(IssueKind::InodeField {
            ino,
            field,
            got,
            must,
        });
        sound = false;
    }
    sound
}
