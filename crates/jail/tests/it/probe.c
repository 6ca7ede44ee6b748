/* A stand-in for a machine monitor: a program that was taken over and tries what it is told over descriptor 3, a line
 * each. It cannot start others, so it does everything itself. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static void *none(void *argument) { return argument; }

static void answer(long result) {
    if (result == -1) dprintf(3, "%s\n", strerrorname_np(errno));
    else dprintf(3, "%ld\n", result);
}

static void list(const char *path) {
    DIR *folder = opendir(path);
    if (!folder) return answer(-1);
    struct dirent *entry;
    while ((entry = readdir(folder)))
        if (entry->d_name[0] != '.' && atoi(entry->d_name) != dirfd(folder)) dprintf(3, "%s ", entry->d_name);
    dprintf(3, "\n");
    closedir(folder);
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "die")) {
        dprintf(2, "there is no such %s\n", "machine\033[0m");
        return 3;
    }
    FILE *commands = fdopen(dup(3), "r");
    for (char line[4096]; fgets(line, sizeof line, commands);) {
        char word[4096] = "", text[4096] = "";
        unsigned long n[7] = {0};
        line[strcspn(line, "\n")] = 0;
        sscanf(line, "%4095s %4095s", word, text);
        if (!strcmp(word, "call")) {
            sscanf(line, "call %li %li %li %li %li %li %li", &n[0], &n[1], &n[2], &n[3], &n[4], &n[5], &n[6]);
            long result = syscall(n[0], n[1], n[2], n[3], n[4], n[5], n[6]);
            /* A child that should not be. */
            if (result == 0 && (n[0] == SYS_fork || n[0] == SYS_vfork || n[0] == SYS_clone)) _exit(0);
            answer(result);
        } else if (!strcmp(word, "read")) {
            char bytes[4096];
            int file = open(text, O_RDONLY);
            long count = file < 0 ? -1 : read(file, bytes, sizeof bytes - 1);
            if (count < 0) answer(-1);
            else dprintf(3, "%.*s\n", (int)strcspn((bytes[count] = 0, bytes), "\n"), bytes);
            if (file >= 0) close(file);
        } else if (!strcmp(word, "write")) {
            int file = open(text, O_WRONLY | O_CREAT, 0700);
            answer(file < 0 ? -1 : write(file, "x", 1));
            if (file >= 0) close(file);
        } else if (!strcmp(word, "reopen")) {
            answer(open(text, O_RDWR));
        } else if (!strcmp(word, "list")) {
            list(text);
        } else if (!strcmp(word, "exec")) {
            char *const arguments[] = {text, "die", NULL};
            answer(execve(text, arguments, NULL));
        } else if (!strcmp(word, "execat")) {
            char *const arguments[] = {text, "die", NULL};
            sscanf(line, "execat %*s %li %li", &n[0], &n[1]);
            if (!n[1]) n[0] = open(text, O_PATH);
            answer(syscall(SYS_execveat, n[0], n[1] ? text : "", arguments, NULL, AT_EMPTY_PATH));
        } else if (!strcmp(word, "thread")) {
            pthread_t thread;
            errno = pthread_create(&thread, NULL, none, NULL);
            answer(errno ? -1 : pthread_join(thread, NULL));
        } else if (!strcmp(word, "fill")) {
            static char block[65536];
            int file = open("/tmp/big", O_WRONLY | O_CREAT, 0600);
            long total = 0, count;
            while ((count = write(file, block, sizeof block)) > 0) total += count;
            dprintf(3, "%ld %s\n", total, strerrorname_np(errno));
            close(file);
            unlink("/tmp/big");
        } else if (!strcmp(word, "eat")) {
            for (;;) memset(malloc(1 << 20), 1, 1 << 20);
        } else if (!strcmp(word, "say")) {
            for (int turn = 0; turn < 10000; turn++) dprintf(2, "%s\n", text);
            answer(0);
        } else if (!strcmp(word, "id")) {
            dprintf(3, "%d %d %d\n", getpid(), getuid(), getgid());
        } else {
            return 4;
        }
    }
    return 0;
}
