/* Eight threads on one volume: each with files of its own, and all in one file, directory and queue. */
#include "check.h"

enum { THREADS = 8, ROUNDS = 100, PAGE = 4096 };

static dure_session *session;
static dure_file *shared;
static dure_calls *calls;
/* Of calls that may be under way when their threads go on. */
static unsigned char reads[THREADS][PAGE];

static void *work(void *argument)
{
    int thread = *(int *)argument, round;
    unsigned char page[PAGE], found[PAGE];
    unsigned char *read = reads[thread];
    dure_session *own;
    dure_file *file;
    struct dure_done done;
    struct dure_stat stat;
    char path[64];

    IS(dure_session_clone(session, &own), 0);
    memset(page, 'a' + thread, PAGE);
    for (round = 0; round < ROUNDS; round++) {
        int64_t offset = ((int64_t)round * THREADS + thread) * PAGE;
        snprintf(path, sizeof path, "/dir/%d-%d", thread, round);
        IS(dure_open(own, path, O_RDWR | O_CREAT | O_EXCL, 0644, &file), 0);
        IS(dure_pwrite(file, page, PAGE, 0), PAGE);
        IS(dure_pwrite(shared, page, PAGE, offset), PAGE);
        IS(dure_submit_read(calls, file, read, PAGE, 0, 1), 0);
        /* The call of this thread or of another. */
        IS(dure_reap(calls, &done), 1);
        IS(done.result, PAGE);
        if (round % 25 == 0)
            IS(dure_fsync(file), 0);
        IS(dure_fstat(file, &stat), 0);
        IS(stat.size, PAGE);
        IS(dure_close(file), 0);
        /* Errors are of the thread. */
        snprintf(path, sizeof path, "/none-%d", thread);
        IS(dure_stat(own, path, &stat), -ENOENT);
        SAYS(path);
        IS(dure_pread(shared, found, PAGE, offset), PAGE);
        IS(memcmp(found, page, PAGE), 0);
    }
    IS(dure_session_close(own), 0);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    int numbers[THREADS], thread, entries = 0;
    struct dure_dirent entry;
    struct dure_stat stat;
    dure_volume *volume;
    dure_dir *dir;

    IS(argc, 2);
    IS(dure_volume_create(argv[1], 128 << 20, NULL, "cache=16M", &volume), 0);
    IS(dure_session_open(volume, 0, 0, NULL, 0, 022, &session), 0);
    IS(dure_mkdir(session, "/dir", 0755), 0);
    IS(dure_open(session, "/shared", O_RDWR | O_CREAT, 0644, &shared), 0);
    IS(dure_calls_open(volume, THREADS, &calls), 0);
    for (thread = 0; thread < THREADS; thread++) {
        numbers[thread] = thread;
        IS(pthread_create(&threads[thread], NULL, work, &numbers[thread]), 0);
    }
    for (thread = 0; thread < THREADS; thread++)
        IS(pthread_join(threads[thread], NULL), 0);
    IS(dure_fstat(shared, &stat), 0);
    IS(stat.size, (int64_t)THREADS * ROUNDS * PAGE);
    IS(dure_opendir(session, "/dir", &dir), 0);
    while (dure_readdir(dir, &entry) == 1)
        entries++;
    IS(entries, THREADS * ROUNDS);
    IS(dure_closedir(dir), 0);
    IS(dure_calls_close(calls), 0);
    IS(dure_close(shared), 0);
    IS(dure_session_close(session), 0);
    IS(dure_volume_close(volume), 0);
    return 0;
}
