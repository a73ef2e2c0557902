//! What each owner of a volume's state needs of the mount options, decided once.

use dure_store::{RecordPolicy, Store};

use super::options::{DataMode, MountOptions, PageCaching, RangeWait};
use crate::file::FileOptions;
use crate::inode::InodeOptions;

impl MountOptions {
    /// The options of inodes.
    pub(crate) fn of_inodes(&self) -> InodeOptions {
        InodeOptions {
            alloc: self.alloc,
            read_only: self.read_only,
            access_times: (
                self.access_time,
                self.directory_access_time.unwrap_or(self.access_time),
            ),
            file_lock: self.range_lock.policy(),
        }
    }

    /// The options of files, on a store that was mounted with these.
    pub(crate) fn of_files(&self, store: &Store) -> FileOptions {
        let absorb = store.absorb();
        let in_turn = self.range_wait == RangeWait::InTurn;
        FileOptions {
            data: self.data,
            pages_join: self.data == DataMode::Journal && self.records == RecordPolicy::Image,
            order: self.order,
            fsync: self.fsync,
            pages_in_log: match (self.records, self.page_cache) {
                // Their blocks are as near as the log.
                (_, Some(PageCaching::Nvram)) | (RecordPolicy::None, _) => 0,
                (RecordPolicy::Delta | RecordPolicy::Image, _) => self.log_data_pages,
            },
            absorbs_all: self.absorbs_all(),
            absorbed_leaves_dram: self.absorbed_leaves_dram(),
            each_write_looks: self.each_write_looks(),
            tiers: (self.tier(true), self.tier(false)),
            absorbed_high: absorb.map(|absorb| self.nvram_high(absorb.segments_max)),
            range_lock: self.range_lock,
            range_wait: self.range_wait,
            ranges_queue: in_turn && !self.range_lock.policy().is_whole_file(),
            rules: self.volume_rules,
        }
    }
}
