//! stub
#![expect(missing_docs, unused, reason = "stub")]
use dure_sync::CoreId;
#[derive(Debug)]
pub(crate) struct CacheBudget;
impl CacheBudget {
    pub(crate) fn new(b: u64, c: usize) -> Self {
        CacheBudget
    }
}
#[derive(Debug, Default)]
pub(crate) struct DirtyInodes;
impl crate::volume::Volume {
    pub(crate) fn write_back_some(&self) -> crate::error::Result<()> {
        Ok(())
    }
}
impl crate::FileSystem {
    pub fn sync(&self) -> crate::error::Result<()> {
        Ok(())
    }
}
