/* A child may close and exit; other calls are refused, and nothing reaches the medium. */
#include "check.h"

static void child(dure_volume *volume, dure_session *session, dure_file *file, dure_dir *dir,
                  dure_calls *calls)
{
    struct dure_dirent entry;
    struct dure_done done;
    struct dure_stat stat;
    char byte;

    IS(dure_pread(file, &byte, 1, 0), -ENXIO);
    SAYS("fork");
    IS(dure_pwrite(file, "c", 1, 0), -ENXIO);
    IS(dure_fsync(file), -ENXIO);
    IS(dure_lseek(file, 0, SEEK_SET), -ENXIO);
    IS(dure_stat(session, "/file", &stat), -ENXIO);
    IS(dure_unlink(session, "/file"), -ENXIO);
    IS(dure_readdir(dir, &entry), -ENXIO);
    IS(dure_reap(calls, &done), -ENXIO);
    IS(dure_volume_sync(volume), -ENXIO);
    IS(dure_calls_close(calls), 0);
    IS(dure_closedir(dir), 0);
    IS(dure_close(file), 0);
    IS(dure_session_close(session), 0);
    IS(dure_volume_close(volume), 0);
    exit(7);
}

int main(int argc, char **argv)
{
    dure_volume *volume;
    dure_session *session;
    dure_file *file, *gone;
    dure_calls *calls;
    dure_dir *dir;
    char byte;
    int status;
    pid_t pid;

    IS(argc, 2);
    IS(dure_volume_create(argv[1], 64 << 20, NULL, NULL, &volume), 0);
    IS(dure_session_open(volume, 0, 0, NULL, 0, 022, &session), 0);
    IS(dure_open(session, "/file", O_RDWR | O_CREAT, 0644, &file), 0);
    /* The last handle of a file without a name: closing it would free its blocks. */
    IS(dure_open(session, "/", O_RDWR | O_TMPFILE, 0600, &gone), 0);
    IS(dure_pwrite(file, "p", 1, 0), 1);
    IS(dure_opendir(session, "/", &dir), 0);
    IS(dure_calls_open(volume, 4, &calls), 0);
    pid = fork();
    IS(pid >= 0, 1);
    if (pid == 0) {
        IS(dure_close(gone), 0);
        child(volume, session, file, dir, calls);
    }
    IS(waitpid(pid, &status, 0), pid);
    IS(WIFEXITED(status) && WEXITSTATUS(status) == 7, 1);

    IS(dure_pread(file, &byte, 1, 0), 1);
    IS(byte, 'p');
    IS(dure_pwrite(gone, "t", 1, 0), 1);
    IS(dure_flink(session, gone, "/named"), 0);
    IS(dure_calls_close(calls), 0);
    IS(dure_closedir(dir), 0);
    IS(dure_close(gone), 0);
    IS(dure_close(file), 0);
    IS(dure_session_close(session), 0);
    IS(dure_volume_close(volume), 0);

    /* A volume that the child opens is its own. */
    pid = fork();
    if (pid == 0) {
        IS(dure_volume_open(argv[1], NULL, &volume), 0);
        IS(dure_session_open(volume, 0, 0, NULL, 0, 022, &session), 0);
        IS(dure_open(session, "/named", O_RDONLY, 0, &file), 0);
        IS(dure_read(file, &byte, 1), 1);
        IS(byte, 't');
        IS(dure_close(file), 0);
        IS(dure_session_close(session), 0);
        IS(dure_volume_close(volume), 0);
        exit(8);
    }
    IS(waitpid(pid, &status, 0), pid);
    IS(WIFEXITED(status) && WEXITSTATUS(status) == 8, 1);
    return 0;
}
