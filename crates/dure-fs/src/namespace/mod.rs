//! stub
#![expect(missing_docs, unused, reason = "stub")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    File,
    Directory,
    Other,
}
