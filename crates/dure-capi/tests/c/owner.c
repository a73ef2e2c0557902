/* Mounts a volume, forks a child that stays, and waits to be killed. */
#include "check.h"

#include <sys/mman.h>

int main(int argc, char **argv)
{
    dure_volume *volume;
    dure_session *session;
    dure_file *file;
    dure_mountpoint *mounted;
    char directory[4000], path[4096];
    int bad, fd;
    pid_t child;

    IS(argc >= 2, 1);
    snprintf(directory, sizeof directory, "%s.d", argv[1]);
    IS(mkdir(directory, 0755), 0);
    IS(dure_volume_create(argv[1], 64 << 20, NULL, NULL, &volume), 0);
    IS(dure_session_open(volume, 0, 0, NULL, 0, 022, &session), 0);
    IS(dure_chown(session, "/", geteuid(), getegid()), 0);
    bad = dure_mount(volume, directory, NULL, &mounted);
    if (bad == -ENOENT || bad == -EACCES || bad == -EPERM) {
        printf("not run: %s\n", dure_last_error());
        return 0;
    }
    IS(bad, 0);
    IS(dure_open(session, "/ours", O_RDWR | O_CREAT, 0644, &file), 0);
    IS(dure_pwrite(file, "sown", 4, 0), 4);
    IS(dure_fsync(file), 0);
    snprintf(path, sizeof path, "%s/theirs", directory);
    fd = open(path, O_RDWR | O_CREAT, 0644);
    IS(fd >= 0, 1);
    IS(pwrite(fd, "sown", 4, 0), 4);
    IS(fsync(fd), 0);
    IS(close(fd), 0);
    /* It has files of its own mount open when it is killed. */
    IS(open(path, O_RDWR) >= 0, 1);
    IS(dure_mount_fd(mounted, file) >= 0, 1);
    child = fork();
    IS(child >= 0, 1);
    if (child == 0)
        for (;;)
            pause();
    if (argc > 2) {
        char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, open(path, O_RDWR), 0);
        IS(map != MAP_FAILED, 1);
        map[0] = 'S';
    }
    printf("%d\n", (int)child);
    fflush(stdout);
    for (;;)
        pause();
}
