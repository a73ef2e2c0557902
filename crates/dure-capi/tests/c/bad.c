/* Wrong arguments on live handles, and no handles: each is refused, and none crashes. */
#include "check.h"

static void no_handles(void)
{
    struct dure_stat stat;
    struct dure_statfs statfs;
    struct dure_dirent entry;
    struct dure_done done;
    dure_session *session;
    dure_file *file;
    dure_dir *dir;
    dure_calls *calls;
    char byte[1] = {0};

    IS(dure_volume_open(NULL, NULL, NULL), -EFAULT);
    IS(dure_volume_close(NULL), 0);
    IS(dure_volume_sync(NULL), -EINVAL);
    IS(dure_volume_statfs(NULL, &statfs), -EINVAL);
    IS(dure_snapshot_create(NULL, "a"), -EINVAL);
    IS(dure_snapshot_delete(NULL, "a"), -EINVAL);
    IS(dure_snapshot_rename(NULL, "a", "b"), -EINVAL);
    IS(dure_snapshot_next(NULL, 0, NULL), -EINVAL);
    IS(dure_snapshot_open(NULL, "a", NULL, NULL), -EINVAL);
    IS(dure_session_open(NULL, 0, 0, NULL, 0, 0, &session), -EINVAL);
    IS(dure_session_clone(NULL, &session), -EINVAL);
    IS(dure_session_at(NULL, NULL, &session), -EINVAL);
    IS(dure_session_close(NULL), 0);
    IS(dure_open(NULL, "/a", O_RDONLY, 0, &file), -EINVAL);
    IS(dure_openat(NULL, NULL, "/a", O_RDONLY, 0, &file), -EINVAL);
    IS(dure_dup(NULL, &file), -EINVAL);
    IS(dure_close(NULL), 0);
    IS(dure_pread(NULL, byte, 1, 0), -EINVAL);
    IS(dure_lseek(NULL, 0, SEEK_SET), -EINVAL);
    IS(dure_copy_file_range(NULL, NULL, NULL, NULL, 1, 0), -EINVAL);
    IS(dure_calls_open(NULL, 1, &calls), -EINVAL);
    IS(dure_reap(NULL, &done), -EINVAL);
    IS(dure_calls_close(NULL), 0);
    IS(dure_stat(NULL, "/", &stat), -EINVAL);
    IS(dure_opendir(NULL, "/", &dir), -EINVAL);
    IS(dure_readdir(NULL, &entry), -EINVAL);
    IS(dure_closedir(NULL), 0);
    IS(dure_getxattr(NULL, "/", "user.a", byte, 1), -EINVAL);
}

static void bad_volumes(const char *image)
{
    dure_volume *volume;

    IS(dure_volume_create(image, 0, NULL, NULL, &volume), -ENOENT);
    IS(dure_volume_create(image, 4096, NULL, NULL, &volume) < 0, 1);
    unlink(image);
    IS(dure_volume_create(image, 64 << 20, "size=1", NULL, &volume), -EINVAL);
    SAYS("size");
    IS(dure_volume_create(image, 64 << 20, NULL, "cache=1", &volume), -EINVAL);
    SAYS("1M");
    IS(dure_volume_open("/nowhere/v.img", NULL, &volume), -ENOENT);
    SAYS("/nowhere/v.img");
    IS(dure_volume_open(image, "\xff", &volume), -EINVAL);
}

static void bad_buffers(const dure_session *session, const dure_file *file)
{
    struct iovec two[2] = {{NULL, SSIZE_MAX}, {NULL, SSIZE_MAX}};
    struct iovec null[2] = {{NULL, 1}, {NULL, 1}};
    char buf[16];

    IS(dure_pread(file, NULL, 1, 0), -EFAULT);
    IS(dure_pread(file, NULL, 0, 0), 0);
    IS(dure_pread(file, buf, (size_t)SSIZE_MAX + 1, 0), -EINVAL);
    IS(dure_pread(file, buf, sizeof buf, -1), -EINVAL);
    IS(dure_pread(file, buf, sizeof buf, INT64_MAX), 0);
    IS(dure_pwrite(file, NULL, 1, 0), -EFAULT);
    IS(dure_pwrite(file, buf, (size_t)-1, 0), -EINVAL);
    IS(dure_pwrite(file, buf, 1, INT64_MIN), -EINVAL);
    IS(dure_pwrite(file, buf, 1, INT64_MAX), -EFBIG);
    IS(dure_read(file, NULL, 1), -EFAULT);
    IS(dure_write(file, NULL, 1), -EFAULT);
    IS(dure_readv(file, NULL, 1), -EFAULT);
    IS(dure_readv(file, two, 2), -EINVAL);
    IS(dure_writev(file, null, 2), -EFAULT);
    IS(dure_preadv(file, null, 2, 0), -EFAULT);
    IS(dure_preadv(file, null, -1, 0), -EINVAL);
    IS(dure_pwritev(file, null, 1025, 0), -EINVAL);
    IS(dure_pwritev(file, null, 0, 0), 0);
    IS(dure_readlink(session, "/file", buf, 0), -EINVAL);
    IS(dure_readlink(session, "/file", buf, sizeof buf), -EINVAL);
    IS(dure_fgetxattr(file, NULL, buf, sizeof buf), -EFAULT);
    IS(dure_fgetxattr(file, "user.none", buf, sizeof buf), -ENODATA);
    IS(dure_fsetxattr(file, "user.a", NULL, 4, 0), -EFAULT);
    IS(dure_fsetxattr(file, "user.a", "long", 4, 9), -EINVAL);
    IS(dure_fsetxattr(file, "user.a", "long", 4, 0), 0);
    IS(dure_fgetxattr(file, "user.a", buf, 3), -ERANGE);
    IS(dure_fgetxattr(file, "user.a", NULL, 0), 4);
}

static void bad_numbers(const dure_session *session, const dure_file *file)
{
    struct timespec wrong[2] = {{0, -5}, {0, 1000000000}};
    int64_t offset = -1;

    IS(dure_lseek(file, -1, SEEK_SET), -EINVAL);
    IS(dure_lseek(file, INT64_MIN, SEEK_CUR), -EINVAL);
    IS(dure_lseek(file, INT64_MAX, SEEK_SET), INT64_MAX);
    IS(dure_lseek(file, 1, SEEK_CUR), -EINVAL);
    IS(dure_write(file, "a", 1), -EFBIG);
    IS(dure_lseek(file, 0, SEEK_SET), 0);
    IS(dure_lseek(file, -1, SEEK_DATA), -ENXIO);
    IS(dure_lseek(file, 0, 77), -EINVAL);
    IS(dure_ftruncate(file, -1), -EINVAL);
    IS(dure_ftruncate(file, INT64_MAX), -EFBIG);
    IS(dure_fallocate(file, 0, 0, 0), -EINVAL);
    IS(dure_fallocate(file, 0, INT64_MAX, INT64_MAX), -EFBIG);
    IS(dure_fallocate(file, FALLOC_FL_COLLAPSE_RANGE, 0, 4096), -EOPNOTSUPP);
    IS(dure_fadvise(file, -1, 0, POSIX_FADV_WILLNEED), -EINVAL);
    IS(dure_fadvise(file, 0, 0, 77), -EINVAL);
    IS(dure_fadvise(file, INT64_MAX, INT64_MAX, POSIX_FADV_WILLNEED), 0);
    IS(dure_fadvise(file, 0, 0, POSIX_FADV_DONTNEED), 0);
    IS(dure_fadvise(file, 0, 0, POSIX_FADV_RANDOM), 0);
    IS(dure_copy_file_range(file, &offset, file, NULL, 1, 0), -EINVAL);
    /* Behind the end nothing overlaps, as on Linux. */
    IS(dure_copy_file_range(file, NULL, file, NULL, 1, 0), 0);
    IS(dure_copy_file_range(file, NULL, NULL, NULL, 1, 0), -EINVAL);
    IS(dure_copy_file_range(file, NULL, file, NULL, 1, 7), -EINVAL);
    IS(dure_clone_range(file, 0, file, 4096, 4096), -EINVAL);
    IS(dure_clone_range(file, -1, file, 0, 4096), -EINVAL);
    IS(dure_clone_range(file, 0, NULL, 0, 4096), -EINVAL);
    IS(dure_dedupe_range(file, 0, file, 4096, 4096, NULL), -EINVAL);
    IS(dure_dedupe_range(NULL, 0, file, 0, INT64_MAX, NULL), -EINVAL);
    IS(dure_access(session, "/file", 8), -EINVAL);
    IS(dure_access(session, "/file", -1), -EINVAL);
    IS(dure_rename(session, "/file", "/b", 77), -EINVAL);
    IS(dure_mknod(session, "/b", S_IFDIR | 0755, 0), -EINVAL);
    IS(dure_utimens(session, "/file", wrong, 0), -EINVAL);
    IS(dure_utimens(session, "/file", NULL, 77), -EINVAL);
    IS(dure_futimens(file, wrong + 1), -EINVAL);
}

static void bad_opens(dure_volume *volume, const dure_session *session, const dure_file *file)
{
    gid_t nobody = (gid_t)-1;
    dure_session *other;
    dure_calls *calls;
    dure_file *opened;
    dure_dir *dir;

    IS(dure_session_open(volume, (uid_t)-1, 0, NULL, 0, 0, &other), -EINVAL);
    IS(dure_session_open(volume, 1, 1, &nobody, 1, 0, &other), -EINVAL);
    IS(dure_session_open(volume, 1, 1, NULL, 1, 0, &other), -EFAULT);
    IS(dure_session_open(volume, 1, 1, &nobody, 65537, 0, &other), -EINVAL);
    IS(dure_session_open(volume, 1, 1, NULL, 0, 0, NULL), -EFAULT);
    IS(dure_session_at(session, file, &other), -ENOTDIR);
    IS(dure_open(session, NULL, O_RDONLY, 0, &opened), -EFAULT);
    IS(dure_open(session, "/file", O_RDONLY, 0, NULL), -EFAULT);
    IS(dure_open(session, "", O_RDONLY, 0, &opened), -ENOENT);
    IS(dure_open(session, "/file", O_RDONLY | O_TRUNC, 0, &opened), -EINVAL);
    IS(dure_open(session, "/file", O_RDWR | O_DIRECT, 0, &opened), -EINVAL);
    IS(dure_open(session, "/file", O_WRONLY | O_RDWR, 0, &opened), -EINVAL);
    IS(dure_open(session, "/", O_WRONLY, 0, &opened), -EISDIR);
    IS(dure_open(session, "/", O_TMPFILE | O_WRONLY, 0, &opened), -EINVAL);
    IS(dure_open(session, "/file", O_RDWR | O_CREAT | O_EXCL, 0, &opened), -EEXIST);
    IS(dure_openat(session, file, "a", O_RDONLY, 0, &opened), -ENOTDIR);
    IS(dure_opendir(session, "/file", &dir), -ENOTDIR);
    IS(dure_calls_open(volume, 0, &calls), -EINVAL);
    IS(dure_stat(session, "/file", NULL), -EFAULT);
    IS(dure_mkdir(session, "/file", 0), -EEXIST);
    IS(dure_symlink(session, NULL, "/b"), -EFAULT);
}

static void bad_queues(dure_volume *volume, const dure_file *file, const dure_file *of_other)
{
    struct dure_done done;
    dure_calls *calls;
    char byte[1] = {7};

    IS(dure_calls_open(volume, 2, &calls), 0);
    IS(dure_submit_read(calls, NULL, byte, 1, 0, 0), -EINVAL);
    IS(dure_submit_read(calls, of_other, byte, 1, 0, 0), -EXDEV);
    IS(dure_submit_read(calls, file, NULL, 1, 0, 0), -EFAULT);
    IS(dure_submit_read(calls, file, byte, 1, -1, 0), -EINVAL);
    IS(dure_submit_write(calls, file, byte, (size_t)-1, 0, 0), -EINVAL);
    IS(dure_reap(calls, NULL), -EFAULT);
    IS(dure_reap(calls, &done), 0);
    IS(dure_try_reap(calls, &done), 0);
    IS(dure_submit_write(calls, file, byte, 1, INT64_MAX, 9), 0);
    IS(dure_reap(calls, &done), 1);
    IS(done.token, 9);
    IS(done.result, -EFBIG);
    IS(dure_calls_close(calls), 0);
}

int main(int argc, char **argv)
{
    const char *image = argv[1];
    char second[4096];
    dure_volume *volume, *other;
    dure_session *session, *of_other, *none;
    dure_file *file, *elsewhere;
    char byte;

    IS(argc, 2);
    no_handles();
    bad_volumes(image);
    snprintf(second, sizeof second, "%s2", image);
    unlink(image);
    IS(dure_volume_create(image, 64 << 20, NULL, NULL, &volume), 0);
    IS(dure_volume_open(image, NULL, &other), -EBUSY);
    IS(dure_volume_create(second, 64 << 20, NULL, NULL, &other), 0);
    IS(dure_session_open(volume, 0, 0, NULL, 0, 022, &session), 0);
    IS(dure_session_open(other, 0, 0, NULL, 0, 022, &of_other), 0);
    IS(dure_open(of_other, "/", O_RDONLY | O_DIRECTORY, 0, &elsewhere), 0);
    IS(dure_openat(session, elsewhere, "file", O_RDONLY, 0, &file), -EXDEV);
    IS(dure_session_at(session, elsewhere, &none), -EXDEV);
    IS(dure_open(session, "/file", O_RDWR | O_CREAT, 0644, &file), 0);
    IS(dure_flink(session, elsewhere, "/b"), -EXDEV);
    bad_buffers(session, file);
    bad_numbers(session, file);
    bad_opens(volume, session, file);
    bad_queues(volume, file, elsewhere);

    /* What is left of a closed volume can read. */
    IS(dure_pwrite(file, "x", 1, 0), 1);
    IS(dure_volume_close(volume), 0);
    IS(dure_pread(file, &byte, 1, 0), 1);
    IS(dure_pwrite(file, "y", 1, 0), -EROFS);
    IS(dure_mkdir(session, "/late", 0755), -EROFS);
    IS(dure_volume_open(image, NULL, &volume), -EBUSY);
    IS(dure_close(file), 0);
    IS(dure_session_close(session), 0);
    IS(dure_close(elsewhere), 0);
    IS(dure_session_close(of_other), 0);
    IS(dure_volume_close(other), 0);
    return 0;
}
