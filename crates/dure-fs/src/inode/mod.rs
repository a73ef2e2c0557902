//! stub
#![expect(missing_docs, unused, reason = "stub")]
#[derive(Debug)]
pub(crate) struct InodeCache;
impl InodeCache {
    pub(crate) fn new() -> Self {
        InodeCache
    }
}
#[derive(Debug)]
pub(crate) struct InodePools;
impl InodePools {
    pub(crate) fn new(c: usize) -> Self {
        InodePools
    }
}
impl crate::volume::Volume {
    pub(crate) fn finish_orphans(&self) -> crate::error::Result<()> {
        Ok(())
    }
}
