/* Four threads append numbers to files and say which ones are durable, until killed: killed IMAGE [lies] */
#include "check.h"

enum { THREADS = 4 };

static dure_session *session;
static int lies; /* without having synced */

static void *work(void *argument)
{
    int thread = *(int *)argument;
    dure_file *file;
    char path[64];
    uint64_t number;

    snprintf(path, sizeof path, "/%d", thread);
    IS(dure_open(session, path, O_WRONLY | O_CREAT | O_APPEND, 0644, &file), 0);
    for (number = 0;; number++) {
        char line[64];
        int len;
        IS(dure_write(file, &number, sizeof number), sizeof number);
        if (!lies)
            IS(dure_fsync(file), 0);
        len = snprintf(line, sizeof line, "%d %llu\n", thread, (unsigned long long)number);
        /* At once, and as one. */
        IS(write(1, line, (size_t)len), len);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    int numbers[THREADS], thread;
    dure_volume *volume;

    IS(argc == 2 || argc == 3, 1);
    lies = argc == 3;
    IS(dure_volume_create(argv[1], 64 << 20, NULL, NULL, &volume), 0);
    IS(dure_session_open(volume, 0, 0, NULL, 0, 022, &session), 0);
    for (thread = 0; thread < THREADS; thread++) {
        numbers[thread] = thread;
        IS(pthread_create(&threads[thread], NULL, work, &numbers[thread]), 0);
    }
    for (thread = 0; thread < THREADS; thread++)
        IS(pthread_join(threads[thread], NULL), 0);
    return 0;
}
