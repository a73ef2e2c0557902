/* Of the test programs: calls and what they must return. */
#ifndef CHECK_H
#define CHECK_H

#define _GNU_SOURCE
#include <dure.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define IS(call, expected) is((int64_t)(call), (int64_t)(expected), #call, __LINE__)
#define SAYS(word) IS(strstr(dure_last_error(), word) != NULL, 1)

static inline void is(int64_t found, int64_t expected, const char *call, int line)
{
    if (found == expected)
        return;
    fprintf(stderr, "line %d: %s is %lld, not %lld: %s\n", line, call, (long long)found,
            (long long)expected, dure_last_error());
    exit(1);
}

#endif
