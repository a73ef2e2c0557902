/* As examples/cost.rs, through the C interface: cost CALL IMAGE */
#include <dure.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PAGE = 4096, PAGES = 256, CALLS = 20000 };

static dure_session *session;
static dure_file *file;
static _Alignas(PAGE) unsigned char page[PAGE];

static int64_t must(int64_t result)
{
    if (result < 0) {
        fprintf(stderr, "%s\n", dure_last_error());
        exit(1);
    }
    return result;
}

static void one_call(char kind, int number)
{
    int64_t offset = (int64_t)(number % PAGES) * PAGE;
    struct dure_stat stat;

    switch (kind) {
    case 'r':
        must(dure_pread(file, page, PAGE, offset));
        break;
    case 'o':
        must(dure_pwrite(file, page, PAGE, offset));
        break;
    case 's':
        must(dure_stat(session, "/dir/file", &stat));
        break;
    default:
        must(dure_fstat(file, &stat));
    }
}

/* What callgrind counts. */
__attribute__((noinline)) void counted_calls(char kind)
{
    int number;

    for (number = 0; number < CALLS; number++)
        one_call(kind, number);
}

int main(int argc, char **argv)
{
    struct timespec begin, end;
    dure_volume *volume;
    double spent;
    int number;

    if (argc != 3)
        return 2;
    must(dure_volume_create(argv[2], 64 << 20, "journals=1", "commit=3600", &volume));
    must(dure_session_open(volume, 0, 0, NULL, 0, 022, &session));
    must(dure_mkdir(session, "/dir", 0755));
    must(dure_open(session, "/dir/file", O_RDWR | O_CREAT, 0644, &file));
    for (number = 0; number < PAGES; number++)
        one_call('o', number);
    for (number = 0; number < PAGES; number++)
        one_call(argv[1][0], number);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    counted_calls(argv[1][0]);
    clock_gettime(CLOCK_MONOTONIC, &end);
    spent = (double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec);
    printf("%.1f\n", spent / CALLS);
    dure_close(file);
    dure_session_close(session);
    must(dure_volume_close(volume));
    return 0;
}
