/*
 * dure.h - dure for C and C++: volumes, paths and open files without a kernel crossing.
 *
 * Link with -ldure (pkg-config dure). docs/user/c.md has the first steps.
 *
 * RESULTS. 0 or a count is success, -errno is failure; nothing is in errno. dure_last_error() has
 * words for it. Besides the errors that a call names, every call may return
 *   -EINVAL  no handle, a negative offset or size, a buffer of more than SSIZE_MAX bytes, a flag or
 *            mode that is not named here;
 *   -EFAULT  NULL where there has to be a path, a buffer or a place for a result;
 *   -ENXIO   the volume was opened before a fork(), in the parent;
 *   -EIO     the device failed; content is damaged; or a call on the volume failed by a bug of
 *            dure: then all later ones do, they write nothing more, and the next open of the volume
 *            recovers, as after a crash (a bug in a thread of the library ends the process);
 *   -EROFS   for changes: the volume is closed, was opened with "ro", or stopped after a failed
 *            write.
 * Calls with a path may also return -ENOENT, -ENOTDIR, -EACCES, -ELOOP (more than 40 symbolic
 * links), -ENAMETOOLONG (a path of 4096 bytes or more, a name of more than 255). Calls that make or
 * grow something: -ENOSPC. What POSIX says of a call counts where nothing else is said here;
 * docs/user/semantics.md has the details.
 *
 * HANDLES are opaque, and come from one call: dure_volume_open, dure_session_open, dure_open,
 * dure_opendir, dure_calls_open and the like, which store them through their last argument, and
 * store nothing to be used when they fail. Each has one close, which takes NULL too, and after
 * which it must not be used. The order of closing does not matter: what is left of a closed volume
 * can still read, and keeps the image or device in use. Wrong arguments of a call on live handles
 * do not crash it. Undefined is: a handle that was closed or never opened, a path or name without a
 * zero byte at its end, a buffer shorter than said.
 *
 * THREADS. All calls but a handle's close may be made by any number of threads at once. dure_pread
 * and dure_pwrite of one file take no lock of the handle; dure_read, dure_write and dure_lseek
 * share its position, calls on one dure_dir or dure_calls wait for each other. A thread with its
 * own clone of a session and its own dure_file shares no counter with others. Bytes of a buffer
 * belong to the call while it runs. No call may be made in a signal handler; a call is not ended by
 * signals, and no handler runs in a thread of the library.
 *
 * DURABLE, that is there after a power cut, is what dure_fsync, dure_fdatasync or dure_volume_sync
 * returned 0 for, and a write to a file opened with O_SYNC or O_DSYNC when it returns. All else
 * becomes durable in the background, about every "commit=" seconds (5), each call as a whole or not
 * at all.
 *
 * FORK. A child may close handles, which only frees what the child's exit frees anyway, and exit or
 * exec; all other calls on a volume of its parent return -ENXIO. It keeps the image or device in
 * use until then. Fork before a volume is opened, and the child may open it.
 *
 * INTERFACE. Functions have the symbol version DURE_0, and libdure.so the SONAME libdure.so.0.
 * Structs are written wholly, fields that are not used yet as 0.
 */
#ifndef DURE_H
#define DURE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

struct iovec;    /* <sys/uio.h> */
struct timespec; /* <time.h> */

typedef struct dure_volume dure_volume;   /* a mounted volume */
typedef struct dure_session dure_session; /* a caller on it, and where its paths begin */
typedef struct dure_file dure_file;       /* an open file or directory, with a position */
typedef struct dure_dir dure_dir;         /* a directory that is being read */
typedef struct dure_calls dure_calls;     /* reads and writes under way */
typedef struct dure_mountpoint dure_mountpoint; /* a mount of a volume that is open */

/* ---- errors, version ---- */

/* What failed, on which path and why: of the last call of this thread that returned an error, and
 * "" before the first. The text is UTF-8, and stays until this thread's next error or end. Its
 * words may change between versions. */
const char *dure_last_error(void);

/* "MAJOR.MINOR.PATCH" of the library. */
const char *dure_version(void);

/* ---- volumes ---- */

/* Options are words with commas between them, or NULL; of equal words the last counts.
 *   mount: ro, rw, noatime, relatime, strictatime, nodiratime, cache=BYTES (with K, M, G, T;
 *     default 256M, at least 1M; of all memory for pages and inodes), commit=SECONDS (0.001 to
 *     3600), and the policies of docs/user/options.md such as journal=per-core;
 *   format: label=TEXT (64 bytes), uid=N and gid=N (owner of the root directory, 0), journals=N (1
 *     to 1000), segment_blocks=N (a power of two, 32 to 512).
 * An unknown word is -EINVAL. */

/* Makes a volume and mounts it. image_bytes > 0: in a new image file of that size, which must not
 * be there (-EEXIST). image_bytes == 0: on the existing file or block device; ALL THAT IS ON IT IS
 * LOST. -EBUSY: in use. -ENOSPC or -EINVAL: too small. */
int dure_volume_create(const char *path, uint64_t image_bytes, const char *format_options,
                       const char *mount_options, dure_volume **volume);

/* Mounts a volume, and recovers it if it was not closed. -EBUSY: open in another process or
 * mounted. A volume is open once at a time. */
int dure_volume_open(const char *path, const char *mount_options, dure_volume **volume);

/* Makes everything durable, marks the volume as closed, frees the handle (after an error too).
 * Sessions and files that are left can read; their changes return -EROFS. An error says what is not
 * durable; the next open recovers. -EBUSY: it is mounted (dure_mount); then the handle stays. */
int dure_volume_close(dure_volume *volume);

/* Makes everything durable that calls had done before. */
int dure_volume_sync(const dure_volume *volume);

struct dure_statfs {
    uint64_t block_bytes;      /* 4096, the unit of the next three */
    uint64_t blocks;           /* for data and metadata */
    uint64_t blocks_free;
    uint64_t blocks_available; /* what a new file can have */
    uint64_t inodes;           /* used, and the most that free space allows */
    uint64_t inodes_free;
    uint64_t name_max;         /* bytes */
    uint64_t spare[4];
};

int dure_volume_statfs(const dure_volume *volume, struct dure_statfs *statfs);

/* ---- snapshots: the volume as it was, read-only ---- */

/* Takes a snapshot, durably: all that was acknowledged before is in it, nothing that begins after
 * this has returned. name: 1 to 64 bytes of UTF-8, no slash, no control character. -EEXIST; -ENOSPC:
 * no room for copies of tables, or 248 snapshots; -EBUSY: a call did not end within 2 seconds. */
int dure_snapshot_create(const dure_volume *volume, const char *name);

/* Frees what only it needed, durably. -ENOENT; -EBUSY: it is open, or
 * needed to end what is half received or half restored. */
int dure_snapshot_delete(const dure_volume *volume, const char *name);

int dure_snapshot_rename(const dure_volume *volume, const char *name, const char *to);

struct dure_snapshot {
    uint64_t id;      /* rises from snapshot to snapshot, from 1 */
    int64_t created;  /* seconds since 1970 */
    uint64_t inodes;  /* in use in it */
    uint64_t bytes;   /* what the volume held then */
    char name[256];   /* ends with a zero */
    uint64_t spare[4];
};

/* The oldest snapshot whose id is greater than after. 1: *snapshot is set. 0: there is none. */
int dure_snapshot_next(const dure_volume *volume, uint64_t after, struct dure_snapshot *snapshot);

/* Opens a snapshot as a volume; close it before the volume that it is of. Of mount_options, those
 * about memory count. -ENOENT. */
int dure_snapshot_open(const dure_volume *volume, const char *name, const char *mount_options,
                       dure_volume **snapshot);

/* ---- a volume that is mounted, too ---- */

/* Mounts an open volume on a directory through FUSE, while this process goes on to use it: shells,
 * backups and children see the same files. What a call here, or a program there, has changed, the
 * other side sees when the call has returned. Threads of this process serve the mount; when the
 * process ends without dure_unmount, the mount answers ENOTCONN until `umount -l`, and nothing is
 * lost that was durable. Options: allow_other (other users, as modes let them), ro, source=TEXT (what
 * mount and df show). -EBUSY: it is mounted. -ENOENT or -EACCES: no FUSE here, or no such directory
 * (dure_last_error says which). -EPERM: not root, and no fusermount3. */
int dure_mount(const dure_volume *volume, const char *directory, const char *options,
               dure_mountpoint **mounted);

/* A descriptor (open(2), FD_CLOEXEC) of the same file in the mount, for what this library has not:
 * flock(2) and fcntl(2) locks, which hold among all that use the mount, mmap(2), children. It is open
 * for what the file is open for (a process that is killed with changed pages of its own mount mapped
 * does not end before `umount -f`), has a position of its own, and is closed with close(2). -EXDEV: of
 * another volume. -EINVAL: no regular file. -ENOTCONN: not mounted any more. */
int dure_mount_fd(const dure_mountpoint *mounted, const dure_file *file);

/* Unmounts, and frees the handle. -EBUSY: a program has a file of it open, or works there; then the
 * mount and the handle stay. With DURE_DETACH it is gone from its directory at once, serves those
 * that use it until they leave, and the handle is freed. In a child it frees the handle only. */
enum { DURE_DETACH = 1 };
int dure_unmount(dure_mountpoint *mounted, int flags);

/* ---- sessions: callers ---- */

/* A caller with these ids, at the root directory. uid 0 may do everything, others what modes and
 * access lists let them. groups_len: 0 to 65536. umask: as of a process, e.g. 022. */
int dure_session_open(const dure_volume *volume, uid_t uid, gid_t gid, const gid_t *groups,
                      size_t groups_len, mode_t umask, dure_session **session);

/* The same with the effective ids and groups of this process, umask 022. */
int dure_session_open_process(const dure_volume *volume, dure_session **session);

/* The same caller and directories. Give each thread its own: threads then share no counter. */
int dure_session_clone(const dure_session *session, dure_session **clone);

/* A session whose relative paths begin at an open directory: the *at calls. -ENOTDIR; -EXDEV: of
 * another volume. The directory may be closed. */
int dure_session_at(const dure_session *session, const dure_file *directory, dure_session **at);

/* A session whose root and start are the directory at path: nothing outside can be named. */
int dure_session_with_root(const dure_session *session, const char *path, dure_session **inside);

int dure_session_close(dure_session *session);

/* ---- open files ---- */

/* Opens path. flags, of <fcntl.h>: O_RDONLY, O_WRONLY or O_RDWR, with O_CREAT, O_EXCL, O_TRUNC (not
 * with O_RDONLY), O_APPEND, O_DIRECTORY, O_NOFOLLOW, O_SYNC, O_DSYNC; O_TMPFILE | O_RDWR alone
 * (path is the directory; dure_flink gives it a name); O_CLOEXEC, O_NOCTTY, O_NONBLOCK and
 * O_LARGEFILE do nothing. mode: of a new file, before the umask. -EEXIST, -EISDIR; -ENXIO: a pipe,
 * socket or device. The name of a new file is durable with dure_fsync of it. */
int dure_open(const dure_session *session, const char *path, int flags, mode_t mode,
              dure_file **file);

/* The same, with relative paths from an open directory. -EXDEV: of another volume. */
int dure_openat(const dure_session *session, const dure_file *directory, const char *path,
                int flags, mode_t mode, dure_file **file);

/* A second handle of the same open file: they share position and flags. */
int dure_dup(const dure_file *file, dure_file **copy);

/* Writes nothing: what is not durable stays so. */
int dure_close(dure_file *file);

/* Up to len bytes from offset on; fewer: the end of the file is there. -EBADF: not open for
 * reading. -EISDIR. */
ssize_t dure_pread(const dure_file *file, void *buf, size_t len, int64_t offset);

/* Writes at offset; with O_APPEND at the end. Returns how many bytes: fewer than len only if there
 * is no space for all. -EBADF: not open for writing. -EFBIG. Set-id bits of the file go, unless the
 * caller is root. */
ssize_t dure_pwrite(const dure_file *file, const void *buf, size_t len, int64_t offset);

/* The same at the position of the file, which moves behind the bytes. */
ssize_t dure_read(const dure_file *file, void *buf, size_t len);
ssize_t dure_write(const dure_file *file, const void *buf, size_t len);

/* The same with 0 to 1024 buffers. Up to 1 MiB in all is one read or write to other threads; more
 * is read or written buffer by buffer. */
ssize_t dure_preadv(const dure_file *file, const struct iovec *iov, int iovcnt, int64_t offset);
ssize_t dure_pwritev(const dure_file *file, const struct iovec *iov, int iovcnt, int64_t offset);
ssize_t dure_readv(const dure_file *file, const struct iovec *iov, int iovcnt);
ssize_t dure_writev(const dure_file *file, const struct iovec *iov, int iovcnt);

/* Moves the position of a regular file; returns it. whence: SEEK_SET, SEEK_CUR, SEEK_END, SEEK_DATA
 * or SEEK_HOLE (-ENXIO: none at or behind offset). */
int64_t dure_lseek(const dure_file *file, int64_t offset, int whence);

/* Makes content and attributes durable, the names of the file, and all they depend on. An error
 * stays: the data was not written, and the call fails again. */
int dure_fsync(const dure_file *file);

/* Makes content durable, and what is needed to read it. */
int dure_fdatasync(const dure_file *file);

/* Cuts the file, or extends it with a hole. -EINVAL: not open for writing. -EFBIG. */
int dure_ftruncate(const dure_file *file, int64_t size);

/* mode: 0, or of FALLOC_FL_KEEP_SIZE, FALLOC_FL_ZERO_RANGE, both, FALLOC_FL_PUNCH_HOLE with
 * FALLOC_FL_KEEP_SIZE; else -EOPNOTSUPP. len > 0. -EBADF, -EFBIG. */
int dure_fallocate(const dure_file *file, int mode, int64_t offset, int64_t len);

/* What will be read of len bytes from offset on, 0: of all that follows. advice, of <fcntl.h>:
 * POSIX_FADV_WILLNEED or POSIX_FADV_DONTNEED; the other four do nothing. A hint. */
int dure_fadvise(const dure_file *file, int64_t offset, int64_t len, int advice);

/* Up to len bytes (and 2 GiB) from one regular file to another, of this or another volume; returns
 * how many, 0 at the end. *from_offset and *to_offset move, or the position of the file if NULL.
 * -EINVAL: no regular file, overlap. Holes become zeroes. flags: 0. Not one step to other threads.
 */
int64_t dure_copy_file_range(const dure_file *from, int64_t *from_offset, const dure_file *to,
                             int64_t *to_offset, size_t len, unsigned int flags);

/* Makes len bytes of to share the blocks of from (FICLONERANGE); len 0: up to the end of from. Nothing
 * is copied, and a write to one of the two leaves the other as it is. -EINVAL: one file twice, offsets
 * that are no multiples of 4096, an end within a page unless from ends there and to not behind it;
 * -EXDEV: of two volumes; -EOPNOTSUPP: no page cache; -ENOSPC: too few blocks to list the slots in;
 * the start of the range may be cloned. */
int dure_clone_range(const dure_file *from, int64_t from_offset, const dure_file *to,
                     int64_t to_offset, int64_t len);

/* Lets len bytes of to share the blocks of from as far as both are the same, compared from the start
 * of the range on (FIDEDUPERANGE): no reader sees a difference. Returns how many are; fewer than len:
 * *differs, if not NULL, is 1 if the page behind them differs, else 0: it cannot be shared, or there
 * was an error, which the next call from there on returns. Errors as of dure_clone_range but for
 * -ENOSPC; -EINVAL: behind the end of one of the two, and an end within a page that is not the end of
 * both. */
int64_t dure_dedupe_range(const dure_file *from, int64_t from_offset, const dure_file *to,
                          int64_t to_offset, int64_t len, int *differs);

/* ---- many calls at once ---- */

/* Reads and writes of which up to depth (at least 1) are under way. */
int dure_calls_open(const dure_volume *volume, uint32_t depth, dure_calls **calls);

/* Begins a read. What is in memory is read at once, the rest is under way when this returns; it
 * waits only if depth reads are already. The buffer belongs to the call until it is reaped or the
 * calls are closed; the file may be closed before. 0: it is to be reaped. -EXDEV: a file of another
 * volume. */
int dure_submit_read(const dure_calls *calls, const dure_file *file, void *buf, size_t len,
                     int64_t offset, uint64_t token);

/* Writes: as dure_pwrite, now; the result is to be reaped. */
int dure_submit_write(const dure_calls *calls, const dure_file *file, const void *buf, size_t len,
                      int64_t offset, uint64_t token);

struct dure_done {
    uint64_t token;  /* as submitted */
    int64_t result;  /* as of dure_pread or dure_pwrite */
};

/* A call that is done, in any order; waits for one. 1: *done is set. 0: all were reaped. */
int dure_reap(const dure_calls *calls, struct dure_done *done);

/* The same without waiting. 0: none is done by now, or all were reaped. */
int dure_try_reap(const dure_calls *calls, struct dure_done *done);

/* What was not reaped is given up. No buffer is written from then on. */
int dure_calls_close(dure_calls *calls);

/* ---- attributes ---- */

struct dure_time {
    int64_t sec;       /* since 1970-01-01 UTC, may be negative */
    uint32_t nsec;     /* 0 to 999999999 */
    uint32_t reserved;
};

struct dure_stat {
    uint64_t ino;
    uint64_t size;     /* bytes */
    uint64_t blocks;   /* of 512 bytes; what was not written back yet may not count */
    uint64_t rdev;     /* of a device file */
    uint32_t mode;     /* S_IFMT and permissions */
    uint32_t nlink;
    uint32_t uid;
    uint32_t gid;
    uint32_t blksize;  /* 4096 */
    uint32_t reserved;
    struct dure_time atime;
    struct dure_time mtime;
    struct dure_time ctime;
    struct dure_time btime; /* birth */
    uint64_t spare[4];
};

int dure_stat(const dure_session *session, const char *path, struct dure_stat *stat);
int dure_lstat(const dure_session *session, const char *path, struct dure_stat *stat);
int dure_fstat(const dure_file *file, struct dure_stat *stat);

/* want: F_OK, or of R_OK, W_OK, X_OK. -EACCES. */
int dure_access(const dure_session *session, const char *path, int want);

/* -EISDIR; -EINVAL: no regular file. */
int dure_truncate(const dure_session *session, const char *path, int64_t size);

/* Permission bits, 0 to 07777. -EPERM: not the owner. */
int dure_chmod(const dure_session *session, const char *path, mode_t mode);
int dure_fchmod(const dure_file *file, mode_t mode);

/* -1 leaves one of them. -EPERM. */
int dure_chown(const dure_session *session, const char *path, uid_t uid, gid_t gid);
int dure_lchown(const dure_session *session, const char *path, uid_t uid, gid_t gid);
int dure_fchown(const dure_file *file, uid_t uid, gid_t gid);

/* times: two, of the last read and the last change; tv_nsec may be UTIME_NOW or UTIME_OMIT. NULL:
 * both now. flags: 0 or AT_SYMLINK_NOFOLLOW. -EPERM, -EACCES. */
int dure_utimens(const dure_session *session, const char *path, const struct timespec *times,
                 int flags);
int dure_futimens(const dure_file *file, const struct timespec *times);

/* ---- names ---- */

/* mode: before the umask. -EEXIST. */
int dure_mkdir(const dure_session *session, const char *path, mode_t mode);

/* A pipe, socket, device (root only: -EPERM) or, with no type in mode, an empty file. -EEXIST. */
int dure_mknod(const dure_session *session, const char *path, mode_t mode, uint64_t rdev);

/* -ENOTEMPTY. */
int dure_rmdir(const dure_session *session, const char *path);

/* -EISDIR. An open file lives until it is closed. */
int dure_unlink(const dure_session *session, const char *path);

/* flags: 0, RENAME_NOREPLACE (-EEXIST) or RENAME_EXCHANGE. One step, also to a crash. */
int dure_rename(const dure_session *session, const char *from, const char *to,
                unsigned int flags);

/* A second name; a symbolic link is not followed. -EPERM: a directory. -EEXIST. */
int dure_link(const dure_session *session, const char *from, const char *to);

/* A name for an open file: of O_TMPFILE, or one that has a name (else -ENOENT). -EXDEV. */
int dure_flink(const dure_session *session, const dure_file *file, const char *to);

/* target: 1 to 4095 bytes. -EEXIST. */
int dure_symlink(const dure_session *session, const char *target, const char *path);

/* The first len bytes of the target, without a zero; returns how many. -EINVAL: no link. */
ssize_t dure_readlink(const dure_session *session, const char *path, void *buf, size_t len);

/* Makes content and permissions of the file to those of from, which is made if it is not there.
 * Holes stay holes. Returns the size. -EINVAL: no regular file, or both are one. */
int64_t dure_copy(const dure_session *session, const char *from, const char *to);

/* ---- reading directories ---- */

struct dure_dirent {
    uint64_t ino;
    uint32_t kind;     /* DT_* of <dirent.h> */
    uint32_t name_len; /* bytes, without the zero */
    char name[256];    /* ends with a zero */
};

int dure_opendir(const dure_session *session, const char *path, dure_dir **dir);

/* The next entry, without "." and "..". 1: *entry is set. 0: there are no more. An entry that is
 * there all the time is returned once, whatever happens to others. */
int dure_readdir(const dure_dir *dir, struct dure_dirent *entry);

int dure_closedir(dure_dir *dir);

/* ---- extended attributes ---- */

/* Names begin with "user.", "trusted." or "security.", or are those of access lists; else
 * -EOPNOTSUPP. Calls with a path follow symbolic links. get and list return how many bytes there
 * are; with len == 0 only that; -ERANGE: the buffer is too short. -ENODATA: no such attribute.
 * list: each name with a zero behind it. set: value of up to 65536 bytes (-E2BIG); flags: 0,
 * XATTR_CREATE (-EEXIST) or XATTR_REPLACE (-ENODATA). -EPERM. */
ssize_t dure_getxattr(const dure_session *session, const char *path, const char *name, void *buf,
                      size_t len);
ssize_t dure_fgetxattr(const dure_file *file, const char *name, void *buf, size_t len);
int dure_setxattr(const dure_session *session, const char *path, const char *name,
                  const void *value, size_t len, int flags);
int dure_fsetxattr(const dure_file *file, const char *name, const void *value, size_t len,
                   int flags);
ssize_t dure_listxattr(const dure_session *session, const char *path, void *buf, size_t len);
ssize_t dure_flistxattr(const dure_file *file, void *buf, size_t len);
int dure_removexattr(const dure_session *session, const char *path, const char *name);
int dure_fremovexattr(const dure_file *file, const char *name);

#ifdef __cplusplus
}
#endif

#endif
