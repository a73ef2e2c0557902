/* Reads pages of one file, up to 32 at a time, from one thread: async IMAGE */
#include <dure.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096, PAGES = 256, DEPTH = 32 };

static int64_t must(int64_t result, const char *what)
{
    if (result < 0) {
        fprintf(stderr, "%s: %s: %s\n", what, strerror((int)-result), dure_last_error());
        exit(1);
    }
    return result;
}

int main(int argc, char **argv)
{
    static unsigned char pages[PAGES][PAGE];
    const char *path = argc > 1 ? argv[1] : "volume.img";
    struct dure_done done;
    dure_volume *volume;
    dure_session *session;
    dure_calls *calls;
    dure_file *file;
    int page, reaped = 0;

    must(dure_volume_create(path, 64 << 20, NULL, NULL, &volume), "create the volume");
    must(dure_session_open(volume, 0, 0, NULL, 0, 022, &session), "open a session");
    must(dure_open(session, "/file", O_RDWR | O_CREAT, 0600, &file), "open");
    must(dure_calls_open(volume, DEPTH, &calls), "open calls");

    for (page = 0; page < PAGES; page++) {
        memset(pages[page], page, PAGE);
        must(dure_submit_write(calls, file, pages[page], PAGE, (int64_t)page * PAGE, page),
             "submit a write");
    }
    while (must(dure_reap(calls, &done), "reap"))
        must(done.result, "write");
    must(dure_fsync(file), "fsync");

    memset(pages, 0xff, sizeof pages);
    for (page = 0; page < PAGES; page++)
        must(dure_submit_read(calls, file, pages[page], PAGE, (int64_t)page * PAGE, page),
             "submit a read");
    /* In any order: the token says which. */
    while (must(dure_reap(calls, &done), "reap")) {
        if (must(done.result, "read") != PAGE || pages[done.token][PAGE - 1] != done.token)
            exit(2);
        reaped++;
    }
    printf("%d pages\n", reaped);

    dure_calls_close(calls);
    dure_close(file);
    dure_session_close(session);
    must(dure_volume_close(volume), "close the volume");
    return 0;
}
