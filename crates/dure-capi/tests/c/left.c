/* Handles are left open: the sanitizer has to see it. */
#include "check.h"

int main(int argc, char **argv)
{
    dure_volume *volume;
    dure_session *session;
    dure_file *file;

    IS(argc, 2);
    IS(dure_volume_create(argv[1], 64 << 20, NULL, NULL, &volume), 0);
    IS(dure_session_open(volume, 0, 0, NULL, 0, 022, &session), 0);
    IS(dure_open(session, "/file", O_RDWR | O_CREAT, 0644, &file), 0);
    volume = NULL;
    session = NULL;
    file = NULL;
    return 0;
}
