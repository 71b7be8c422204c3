/* peer.c: reads /proc, for operator_log.c and views.c. */
#include "server/peer.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void peer_program(pid_t pid, char out[PEER_PROGRAM_MAX])
{
    char path[32];
    snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, out, PEER_PROGRAM_MAX - 1) : 0;
    if (fd >= 0) close(fd);
    if (n > 0 && out[n - 1] == '\n') n--;
    if (n <= 0) out[0] = '?';
    out[n > 0 ? n : 1] = '\0';
}
