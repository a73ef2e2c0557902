/* A volume that is mounted, too: both sides see each other, locks hold, a child may only close. */
#define _GNU_SOURCE
#include "check.h"

#include <dure.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    dure_volume *volume;
    dure_session *session;
    dure_file *file;
    dure_mountpoint *mounted, *again;
    char directory[4096], path[4200], bytes[16];
    int bad, fd, theirs, status;
    char *map;
    pid_t pid;

    IS(argc, 2);
    snprintf(directory, sizeof directory, "%s.d", argv[1]);
    snprintf(path, sizeof path, "%s/mounted", directory);
    IS(mkdir(directory, 0755), 0);
    IS(dure_volume_create(argv[1], 64 << 20, NULL, NULL, &volume), 0);
    IS(dure_session_open_process(volume, &session), 0);
    bad = dure_mount(volume, "/nowhere/at/all", NULL, &mounted);
    IS(bad, -ENOENT);
    IS(dure_mount(volume, directory, "nonsense", &mounted), -EINVAL);
    bad = dure_mount(volume, directory, "source=rice", &mounted);
    if (bad == -ENOENT || bad == -EACCES || bad == -EPERM) {
        printf("not run: %s\n", dure_last_error());
        return 0;
    }
    IS(bad, 0);
    IS(dure_mount(volume, directory, NULL, &again), -EBUSY);
    IS(dure_volume_close(volume), -EBUSY);

    IS(dure_open(session, "/mounted", O_RDWR | O_CREAT, 0644, &file), 0);
    IS(dure_pwrite(file, "sown here!", 10, 0), 10);
    theirs = open(path, O_RDWR);
    IS(theirs >= 0, 1);
    IS(pread(theirs, bytes, 16, 0), 10);
    IS(memcmp(bytes, "sown here!", 10), 0);
    IS(pwrite(theirs, "there", 5, 5), 5);
    IS(dure_pread(file, bytes, 16, 0), 10);
    IS(memcmp(bytes, "sown there", 10), 0);

    fd = dure_mount_fd(mounted, file);
    IS(fd >= 0, 1);
    IS(flock(fd, LOCK_EX), 0);
    IS(flock(theirs, LOCK_SH | LOCK_NB), -1);
    IS(flock(fd, LOCK_UN), 0);
    IS(flock(theirs, LOCK_SH | LOCK_NB), 0);
    map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map != MAP_FAILED) { /* ENODEV before Linux 6.6 */
        IS(dure_pwrite(file, "S", 1, 0), 1);
        IS(map[0], 'S');
        map[0] = 's';
        IS(dure_pread(file, bytes, 1, 0), 1);
        IS(bytes[0], 's');
        IS(munmap(map, 4096), 0);
    }
    IS(close(fd), 0);
    IS(dure_unmount(mounted, 0), -EBUSY);
    IS(dure_unmount(mounted, 7), -EINVAL);

    pid = fork();
    IS(pid >= 0, 1);
    if (pid == 0) {
        /* The mount is a file system to the child as to any other. */
        IS(pread(theirs, bytes, 16, 0), 10);
        IS(dure_mount_fd(mounted, file), -ENXIO);
        IS(dure_unmount(mounted, 0), 0);
        IS(dure_volume_close(volume), 0);
        _exit(7);
    }
    IS(waitpid(pid, &status, 0), pid);
    IS(WIFEXITED(status) && WEXITSTATUS(status) == 7, 1);
    IS(pread(theirs, bytes, 16, 0), 10);

    IS(close(theirs), 0);
    IS(dure_unmount(mounted, 0), 0);
    IS(dure_unmount(NULL, 0), 0);
    IS(access(path, F_OK), -1);
    IS(dure_mount(volume, directory, NULL, &mounted), 0);
    theirs = open(path, O_RDONLY);
    IS(dure_unmount(mounted, DURE_DETACH), 0);
    IS(pread(theirs, bytes, 16, 0), 10);
    IS(close(theirs), 0);
    IS(dure_close(file), 0);
    IS(dure_session_close(session), 0);
    /* The detached mount ends when its last user has left, which takes a moment. */
    while ((bad = dure_volume_close(volume)) == -EBUSY)
        usleep(1000);
    IS(bad, 0);
    printf("mounted\n");
    return 0;
}
