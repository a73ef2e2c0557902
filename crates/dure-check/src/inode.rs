//! One inode record: each field by itself and against the inode's type.

use dure_store::format::fields::{impossible_fields, kind};
use dure_store::format::inode::InodeRecord;
use dure_store::format::name::FileKind;
use dure_store::units::Ino;

use super::context::Context;
use super::issue::IssueKind;

/// Checks a record in use; false when its trees must not be followed.
pub(super) fn check_record(context: &mut Context<'_>, ino: Ino, record: &InodeRecord) -> bool {
    if ino.0 == 0 || record.ino.get() != ino.0 {
        context.issue(IssueKind::InodeNumber {
            ino,
            got: record.ino.get(),
        });
        return false;
    }
    if FileKind::from_code(kind(record)).is_none() {
        let got = u64::from(record.mode.get());
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
