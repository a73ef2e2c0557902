//! Options that cannot be together, or not on such a volume.

use dure_store::error::{Error, Result};
use dure_store::{Durability, RecordPolicy, VolumeMedia};

use super::words::NO_CRASH_GUARANTEE;
use super::{CrashGuarantee, DataMode, MountOptions, PageCaching};

impl MountOptions {
    /// Refuses options that contradict each other.
    pub(crate) fn check(&self) -> Result<()> {
        let refused = |why: &str| {
            Err(Error::BadOption {
                option: "journal=none",
                why: why.into(),
            })
        };
        match (self.records, self.crash_guarantee, self.data) {
            _ if self.is_read_only() => Ok(()),
            (RecordPolicy::None, CrashGuarantee::Needed, _) => refused(
                "a crash may then lose all files, also those that were synced; if that does not matter, say \
                 no-crash-guarantee, too",
            ),
            (RecordPolicy::None, _, DataMode::Journal) => {
                refused("with data=journal file data goes into the log, of which there is none")
            }
            (RecordPolicy::None, ..) | (_, CrashGuarantee::Needed, _) => Ok(()),
            (_, CrashGuarantee::Waived, _) => Err(Error::BadOption {
                option: NO_CRASH_GUARANTEE,
                why: "only journal=none is without one".into(),
            }),
        }
    }

    /// Whether the content of files is in memory, too, on a volume on such media.
    ///
    /// # Errors
    /// `BadOption` when that cannot be.
    pub(crate) fn page_caching(&self, media: VolumeMedia) -> Result<PageCaching> {
        self.check_nvram(media)?;
        let refused = |why: &str| {
            Err(Error::BadOption {
                option: "page_cache=none",
                why: why.into(),
            })
        };
        match (self.page_cache, self.data) {
            (None | Some(PageCaching::Dram), _) => Ok(PageCaching::Dram),
            (Some(PageCaching::Nvram), _) => Ok(PageCaching::Nvram),
            (Some(PageCaching::None), _) if media != VolumeMedia::Nvm => refused(
                "the background is not wholly in persistent memory (nvm=emulated uses a file as if it were)",
            ),
            (Some(PageCaching::None), DataMode::Ordered) => Ok(PageCaching::None),
            (Some(PageCaching::None), DataMode::Writeback | DataMode::Journal) => {
                refused("without pages in memory data can only be written as with data=ordered")
            }
        }
    }

    /// When what a call has done is durable, with files in memory or not.
    ///
    /// # Errors
    /// `BadOption` when that cannot be.
    pub(crate) fn durability(&self, pages: PageCaching) -> Result<Durability> {
        let refused = |why: &str| {
            Err(Error::BadOption {
                option: "durability=strict",
                why: why.into(),
            })
        };
        let default = match (pages, self.records) {
            (PageCaching::None, RecordPolicy::Delta) => Durability::Strict,
            _ => Durability::Posix,
        };
        match (self.durability.unwrap_or(default), pages, self.records) {
            (Durability::Posix, ..) => Ok(Durability::Posix),
            (Durability::Strict, PageCaching::Dram, _) => {
                refused("pages in memory are written back later; with page_cache=none they are not")
            }
            (Durability::Strict, PageCaching::Nvram, _) => refused(
                "page_cache=nvram makes data durable at once, and not each call; page_cache=none does",
            ),
            (Durability::Strict, _, RecordPolicy::Image | RecordPolicy::None) => {
                refused("only journal=per-core and journal=single log an operation by itself")
            }
            (Durability::Strict, PageCaching::None, RecordPolicy::Delta) => Ok(Durability::Strict),
        }
    }
}
