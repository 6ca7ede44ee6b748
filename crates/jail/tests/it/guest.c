/* A stand-in for bailey-guest: as PID 1 it runs shell commands that come over descriptor 3, with all its rights; as
 * a collector it lists the names in the upper and in the merged folder. It is as hostile as the test wants. */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void list(int fd, const char *label) {
    DIR *folder = fdopendir(dup(fd));
    if (!folder) {
        dprintf(3, "%s: unreadable\n", label);
        return;
    }
    for (struct dirent *entry; (entry = readdir(folder));)
        if (entry->d_name[0] != '.') dprintf(3, "%s %s\n", label, entry->d_name);
}

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "collect")) {
        dprintf(3, "pid %d uid %d root %d\n", getpid(), getuid(), access("/proc", F_OK));
        list(4, "upper");
        list(5, "merged");
        list(6, "lower");
        return 0;
    }
    if (argc != 2 || strcmp(argv[1], "init")) return 2;
    /* A program that cannot be read is hidden from its own children, too; the tests want to look. */
    prctl(PR_SET_DUMPABLE, 1);
    FILE *commands = fdopen(dup(3), "r");
    for (char line[65536]; fgets(line, sizeof line, commands);) {
        pid_t child = fork();
        if (child == 0) {
            dup2(3, 1);
            dup2(3, 2);
            execl("/bin/sh", "sh", "-c", line, NULL);
            _exit(127);
        }
        int status = 0;
        while (waitpid(child, &status, 0) < 0) {
        }
        dprintf(3, "\n#END %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status));
        while (waitpid(-1, &status, WNOHANG) > 0) {
        }
    }
    return 0;
}
