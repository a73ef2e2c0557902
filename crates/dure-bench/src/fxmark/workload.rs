//! The workloads by their names in `FxMark`: data or metadata; read or write; which operation; how
//! much is shared (low, medium, high).

use clap::ValueEnum;

/// A workload: what one worker does over and over, on blocks of 4 KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
#[value(rename_all = "UPPER")]
pub enum Workload {
    /// Read the block of a private file.
    Drbl,
    /// Read a block of one's own in a shared file.
    Drbm,
    /// Read the same block of a shared file.
    Drbh,
    /// Overwrite the block of a private file.
    Dwol,
    /// Overwrite a block of one's own in a shared file.
    Dwom,
    /// Append to a private file.
    Dwal,
    /// Cut the last block off a private file.
    Dwtl,
    /// Overwrite the block of a private file, and fsync.
    Dwsl,
    /// stat of a private path five deep.
    Mrpl,
    /// stat of a random leaf of a shared tree.
    Mrpm,
    /// stat of the same leaf of a shared tree.
    Mrph,
    /// Read the entries of a private directory.
    Mrdl,
    /// Read the entries of a shared directory.
    Mrdm,
    /// Create an empty file in a private directory.
    Mwcl,
    /// Create a file in a shared directory and write a block.
    Mwcm,
    /// Unlink a file in a private directory.
    Mwul,
    /// Unlink a file in a shared directory.
    Mwum,
    /// Rename a file in a private directory.
    Mwrl,
    /// Rename a file from a private into a shared directory.
    Mwrm,
    /// Three of four workers overwrite as DWOM, the fourth reads their blocks (pNOVA). With fewer
    /// than four workers each does both in turn.
    Dwom75,
    /// One of four workers overwrites as DWOM, the others read their blocks (pNOVA).
    Dwom25,
    /// As DRBL, while one worker that does not count overwrites a block of its own.
    #[value(name = "DRBL_bg")]
    DrblBg,
    /// As DRBM, while one that does not count overwrites the blocks of the others.
    #[value(name = "DRBM_bg")]
    DrbmBg,
    /// As DRBH, while one that does not count overwrites the block.
    #[value(name = "DRBH_bg")]
    DrbhBg,
    /// As MRPM, while one that does not count creates and unlinks files in the tree.
    #[value(name = "MRPM_bg")]
    MrpmBg,
    /// As MRDL, while one that does not count unlinks files of the others and creates them again.
    #[value(name = "MRDL_bg")]
    MrdlBg,
    /// As MRDM, with the same.
    #[value(name = "MRDM_bg")]
    MrdmBg,
}

impl Workload {
    /// All of them.
    pub const ALL: [Workload; 27] = [
        Workload::Drbl,
        Workload::Drbm,
        Workload::Drbh,
        Workload::Dwol,
        Workload::Dwom,
        Workload::Dwal,
        Workload::Dwtl,
        Workload::Dwsl,
        Workload::Mrpl,
        Workload::Mrpm,
        Workload::Mrph,
        Workload::Mrdl,
        Workload::Mrdm,
        Workload::Mwcl,
        Workload::Mwcm,
        Workload::Mwul,
        Workload::Mwum,
        Workload::Mwrl,
        Workload::Mwrm,
        Workload::Dwom75,
        Workload::Dwom25,
        Workload::DrblBg,
        Workload::DrbmBg,
        Workload::DrbhBg,
        Workload::MrpmBg,
        Workload::MrdlBg,
        Workload::MrdmBg,
    ];

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Workload::Drbl => "DRBL",
            Workload::Drbm => "DRBM",
            Workload::Drbh => "DRBH",
            Workload::Dwol => "DWOL",
            Workload::Dwom => "DWOM",
            Workload::Dwal => "DWAL",
            Workload::Dwtl => "DWTL",
            Workload::Dwsl => "DWSL",
            Workload::Mrpl => "MRPL",
            Workload::Mrpm => "MRPM",
            Workload::Mrph => "MRPH",
            Workload::Mrdl => "MRDL",
            Workload::Mrdm => "MRDM",
            Workload::Mwcl => "MWCL",
            Workload::Mwcm => "MWCM",
            Workload::Mwul => "MWUL",
            Workload::Mwum => "MWUM",
            Workload::Mwrl => "MWRL",
            Workload::Mwrm => "MWRM",
            Workload::Dwom75 => "DWOM75",
            Workload::Dwom25 => "DWOM25",
            Workload::DrblBg => "DRBL_bg",
            Workload::DrbmBg => "DRBM_bg",
            Workload::DrbhBg => "DRBH_bg",
            Workload::MrpmBg => "MRPM_bg",
            Workload::MrdlBg => "MRDL_bg",
            Workload::MrdmBg => "MRDM_bg",
        }
    }

    /// Whether it only reads the content of files.
    #[must_use]
    pub fn reads_data(self) -> bool {
        self.name().starts_with("DR")
    }

    /// Whether one more worker disturbs those that count.
    #[must_use]
    pub fn has_background(self) -> bool {
        self.name().ends_with("_bg")
    }

    /// Whether it moves the content of files.
    #[must_use]
    pub fn is_data(self) -> bool {
        self.name().starts_with('D')
    }
}
