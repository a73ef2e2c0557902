/* Signals of a program are for its own threads: none is handled in a thread of the library. */
#include "check.h"

#include <signal.h>

static volatile sig_atomic_t handled;

static void handle(int signal)
{
    (void)signal;
    handled = 1;
}

int main(int argc, char **argv)
{
    const struct timespec while_threads_work = {0, 50 * 1000 * 1000};
    sigset_t set, before, after, pending;
    dure_volume *volume;

    IS(argc, 2);
    IS(signal(SIGUSR1, handle) != SIG_ERR, 1);
    IS(pthread_sigmask(SIG_SETMASK, NULL, &before), 0);
    IS(dure_volume_create(argv[1], 64 << 20, NULL, NULL, &volume), 0);
    IS(pthread_sigmask(SIG_SETMASK, NULL, &after), 0);
    IS(memcmp(&before, &after, sizeof before), 0);

    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    IS(pthread_sigmask(SIG_BLOCK, &set, NULL), 0);
    IS(kill(getpid(), SIGUSR1), 0);
    nanosleep(&while_threads_work, NULL);
    IS(sigpending(&pending), 0);
    IS(handled, 0);
    IS(sigismember(&pending, SIGUSR1), 1);
    IS(dure_volume_close(volume), 0);
    return 0;
}
