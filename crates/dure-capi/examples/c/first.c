/* Makes a volume, writes a file that is durable, lists the root: first IMAGE */
#include <dure.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program if a call failed. */
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
    const char *path = argc > 1 ? argv[1] : "volume.img";
    const char text[] = "sown together\n";
    struct dure_dirent entry;
    struct dure_stat stat;
    dure_volume *volume;
    dure_session *session;
    dure_file *file;
    dure_dir *dir;

    must(dure_volume_create(path, 64 << 20, NULL, "cache=16M", &volume), "create the volume");
    must(dure_session_open(volume, 0, 0, NULL, 0, 022, &session), "open a session");

    must(dure_mkdir(session, "/notes", 0755), "mkdir");
    must(dure_open(session, "/notes/today", O_RDWR | O_CREAT | O_EXCL, 0644, &file), "open");
    must(dure_write(file, text, strlen(text)), "write");
    /* Now a power cut may come: the file is there, with its name. */
    must(dure_fsync(file), "fsync");
    must(dure_fstat(file, &stat), "fstat");
    printf("inode %llu has %llu bytes\n", (unsigned long long)stat.ino,
           (unsigned long long)stat.size);
    dure_close(file);

    must(dure_opendir(session, "/notes", &dir), "opendir");
    while (must(dure_readdir(dir, &entry), "readdir"))
        printf("%s\n", entry.name);
    dure_closedir(dir);

    dure_session_close(session);
    must(dure_volume_close(volume), "close the volume");
    return 0;
}
