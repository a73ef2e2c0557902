//! A volume that is open here and mounted, too.
//!
//! **Problem.** A program has a volume open, and shells, backups and children are to see the same
//! files; a volume is open in one process. **Structure.** The process serves the mount itself:
//! [`Volume::mount`]. Calls of the library that change something tell the kernel
//! ([`dure_fuse::coherence`]). **Invariants.** What one side has done when it returns, the other one
//! sees. A volume is mounted once at a time, and not closed before it is unmounted. **On a crash** of
//! the process the mount answers ENOTCONN until it is unmounted (`umount -l`).

use std::os::fd::BorrowedFd;
use std::path::Path;

use dure_fs::FileKind;
use dure_fs::units::Ino;
use dure_fuse::mount::flags;
use dure_fuse::{MountSettings, Serving, Transport};
use rustix::fs::{AtFlags, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::MountFlags;

use crate::credentials::Credentials;
use crate::error::{Context, Result};
use crate::file::File;
use crate::options::OpenOptions;
use crate::volume::Volume;
use crate::walk;

/// How a volume is mounted.
#[derive(Debug, Clone, Default)]
pub struct MountPoint {
    /// Other users may use the mount, as modes let them. Needs root, or `user_allow_other` in
    /// `/etc/fuse.conf`.
    pub allow_other: bool,
    /// Nothing can be changed through the mount.
    pub read_only: bool,
    /// What `mount` and `df` show as the source; empty: "dure". The path of the image would have
    /// `dure umount` wait until this process closes it.
    pub source: String,
}

/// A mount of a volume that is open in this process. It ends with [`Mount::unmount`]; when it is
/// dropped, it is gone from its directory at once, and serves those that use it until they leave.
///
/// The volume stays open meanwhile. Threads of this process serve it: one for each core, and more
/// while these wait.
#[derive(Debug)]
pub struct Mount {
    serving: Serving,
    volume: Volume,
    /// Number of the device that files of it have.
    device: (u32, u32),
}

impl Volume {
    /// Mounts the volume on the directory `at`, while this process goes on to use it. What a call of
    /// the library or a program in the mount has changed, the other side sees as soon as the call
    /// returns: content, sizes, attributes, names. Locks: [`Mount::open`].
    ///
    /// # Errors
    /// `EBUSY` while it is mounted by an earlier call; `ENOENT` or `EACCES` of `/dev/fuse` where there
    /// is no FUSE; those of the directory, and of mount(2) or `fusermount3`.
    ///
    /// ```no_run
    /// let volume = dure::Volume::open("/var/lib/rice.dure", dure::MountOptions::default())?;
    /// let mut mount = volume.mount("/mnt")?;
    /// volume.root().write("field", b"sown")?;
    /// assert_eq!(std::fs::read("/mnt/field").unwrap(), b"sown");
    /// mount.unmount()?;
    /// # Ok::<(), dure::Error>(())
    /// ```
    pub fn mount(&self, at: impl AsRef<Path>) -> Result<Mount> {
        self.mount_with(at, &MountPoint::default())
    }

    /// Like [`Volume::mount`], with options.
    ///
    /// # Errors
    /// Those of [`Volume::mount`].
    pub fn mount_with(&self, at: impl AsRef<Path>, options: &MountPoint) -> Result<Mount> {
        let at = at.as_ref();
        let fs = &self.shared().fs;
        let mut settings = MountSettings {
            allow_other: options.allow_other,
            // Rings are bound to cores, which are the program's.
            transport: Transport::Device,
            ..MountSettings::default()
        };
        if options.read_only || fs.options().is_read_only() {
            settings.flags = flags::DEFAULT | MountFlags::RDONLY;
        }
        if !options.source.is_empty() {
            settings.source.clone_from(&options.source);
        }
        let serving = self.shared().mount_once(at, |coherence| {
            let keep = Box::new(self.clone());
            let serving = Serving::begin((fs.clone(), keep), coherence, (at, &settings));
            serving.at("mount on", at)
        })?;
        let volume = self.clone();
        let device = dev_of(&serving).at("mount on", at)?;
        Ok(Mount {
            serving,
            volume,
            device,
        })
    }
}

/// Number of the device of a mount.
fn dev_of(serving: &Serving) -> walk::Result<(u32, u32)> {
    let (how, what) = (AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE);
    let root = rustix::fs::statx(rustix::fs::CWD, serving.path(), how, what)?;
    Ok((root.stx_dev_major, root.stx_dev_minor))
}

impl Mount {
    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.serving.path()
    }

    /// The same file, opened in the mount, for what the library has not: locks (flock(2), fcntl(2)),
    /// which hold among all that use the mount, mmap(2), a descriptor for a child. Opened for what
    /// `file` is open for, with a position of its own; it works also when `file` has no name any more.
    /// A process that is killed with changed pages of its own mount mapped does not end before `umount -f`:
    /// map for writing in children, or sync the pages first.
    ///
    /// # Errors
    /// `EXDEV` of another volume; `EINVAL` of what is no regular file; `EACCES` where the process
    /// itself may not open it; `ENOTCONN` when it was unmounted.
    ///
    /// ```no_run
    /// # let volume = dure::Volume::in_memory(32 << 20)?;
    /// # let mount = volume.mount("/mnt")?;
    /// let file = volume.root().create("/journal")?;
    /// let there = mount.open(&file)?;
    /// there.lock().unwrap(); // as `flock /mnt/journal` of a shell does
    /// # Ok::<(), dure::Error>(())
    /// ```
    pub fn open(&self, file: &File) -> Result<std::fs::File> {
        self.open_inode(file).at("open in the mount", file.path())
    }

    fn open_inode(&self, file: &File) -> walk::Result<std::fs::File> {
        if !self.volume.is(file.volume()) {
            return Err(Errno::XDEV.into());
        }
        if file.inode().kind() != FileKind::File {
            return Err(Errno::INVAL.into());
        }
        let shared = self.volume.shared();
        let coherence = shared
            .coherence()
            .filter(|coherence| coherence.is_mounted());
        let lent = coherence
            .ok_or(Errno::NOTCONN)?
            .lend_name(file.inode().clone());
        let path = self.path().join(lent.name());
        Ok(file.options_of_std().open(path)?)
    }

    /// The file of a descriptor that was opened in the mount, open for the same: what is read, written
    /// and synced by it needs no request. `None`: it is of another file system, or no regular file. It
    /// is not asked again whether `caller` may. The position is its own.
    ///
    /// # Errors
    /// `EBADF` of a descriptor that is open for its path only (`O_PATH`), `EIO`.
    ///
    /// ```no_run
    /// # let volume = dure::Volume::in_memory(32 << 20)?;
    /// # let mount = volume.mount("/mnt")?;
    /// # use std::os::fd::AsFd;
    /// let there = std::fs::File::create("/mnt/journal").unwrap();
    /// let file = mount.file(there.as_fd(), dure::Credentials::of_process())?.expect("of the mount");
    /// file.write_all_at(b"sown", 0)?;
    /// # Ok::<(), dure::Error>(())
    /// ```
    pub fn file(&self, descriptor: BorrowedFd<'_>, caller: Credentials) -> Result<Option<File>> {
        self.file_of(descriptor, caller)
            .at("take a file of the mount", self.path())
    }

    fn file_of(
        &self,
        descriptor: BorrowedFd<'_>,
        caller: Credentials,
    ) -> walk::Result<Option<File>> {
        // What the kernel knows without asking: the number was in the answer to open(2).
        let how = AtFlags::STATX_DONT_SYNC | AtFlags::EMPTY_PATH;
        let what = StatxFlags::TYPE | StatxFlags::INO;
        let found = rustix::fs::statx(descriptor, "", how, what)?;
        let is_file = rustix::fs::FileType::from_raw_mode(found.stx_mode.into()).is_file();
        if (found.stx_dev_major, found.stx_dev_minor) != self.device || !is_file {
            return Ok(None);
        }
        let flags = rustix::fs::fcntl_getfl(descriptor)?;
        if flags.contains(OFlags::PATH) {
            return Err(Errno::BADF.into());
        }
        let access = flags & OFlags::RWMODE;
        let options = OpenOptions::new()
            .read(access != OFlags::WRONLY)
            .write(access != OFlags::RDONLY)
            .append(flags.contains(OFlags::APPEND));
        // The bits of O_SYNC have those of O_DSYNC among them.
        let options = match flags.contains(OFlags::SYNC) {
            true => options.sync(true),
            false => options.data_sync(flags.contains(OFlags::DSYNC)),
        };
        let inode = self.volume.shared().fs.inode(Ino(found.stx_ino))?;
        let session = self.volume.session(caller);
        Ok(Some(File::new(&session, inode, self.path(), &options)))
    }

    /// Ends it at once: all that use it get errors. For a process that ends without
    /// [`Mount::unmount`], while files of the mount are mapped in it: the kernel would wait for an answer
    /// of it. Needs root, or `/sys/fs/fuse/connections`.
    pub fn abort(&self) {
        self.serving.abort(self.device);
    }

    /// Unmounts it. What stands in shared mappings of it is on the volume then. Does nothing if it was
    /// unmounted by others.
    ///
    /// # Errors
    /// `EBUSY` while a program has a file or directory of it open, or works there: the mount stays.
    pub fn unmount(&mut self) -> Result<()> {
        let path = self.serving.path().to_owned();
        self.serving.unmount().at("unmount", &path)
    }
}
