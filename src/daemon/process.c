/* process.c: what holds for the whole process, for main(); and the limit of open files, for reload.c. */
#include "daemon/process.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include <uv.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/log_key.h"
#include "base/users.h"

enum {
    FD_RESERVE = 64, /* descriptors besides the clients': Redis, names, the log, a reload */
    FD_LEAST = 32,   /* with fewer, a start would fail half-way, or every client would be reset */
};

void process_open_standard_descriptors(void)
{
    int fd = -1;
    do fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0) close(fd);
}

int process_raise_open_files(int64_t n_connections)
{
    rlim_t wanted = (rlim_t)n_connections + FD_RESERVE;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= wanted) return 0;

    limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur >= FD_LEAST) return 0;
    log_error(
        "the limit of open files is %llu; the daemon needs %d at least: raise LimitNOFILE= of its unit, or ulimit -n",
        (unsigned long long)limit.rlim_cur, FD_LEAST);
    return -1;
}

uint64_t process_set_up(void)
{
    signal(SIGPIPE, SIG_IGN);
    signal(SIGUSR1, SIG_IGN); /* has no meaning here, but by default it would end the daemon */

    users_look("/proc/self/uid_map");

    /* Three helper threads: for lookups of a server's and of a Sentinel's name, which may hang, and for reloads. Each
     * thread has an arena of its own: otherwise the loop could wait for a heap's lock while the helper that holds it
     * has no core. More arenas would only waste memory. */
    setenv("UV_THREADPOOL_SIZE", "3", 1);
    mallopt(M_ARENA_MAX, 4);
#ifdef M_MXFAST
    /* Otherwise freed blocks of up to 128 bytes (keys in memory, for example) are all merged in one call when a larger
     * block is freed: after half a million keys were forgotten, that takes 20 to 50 ms. */
    mallopt(M_MXFAST, 0);
#endif

    /* Not io_uring: with it, libuv 1.45 to 1.48 may use a descriptor that was closed and opened again. */
    if (uv_version() >= 0x012d00 && uv_version() < 0x013100) setenv("UV_USE_IO_URING", "0", 1);

    uint64_t seeds[5] = {0};
    if (getrandom(seeds, sizeof seeds, 0) != (ssize_t)sizeof seeds) log_warning("no randomness: %s", strerror(errno));
    hash_seed(seeds[0], seeds[1]);
    log_keys_seed(seeds[3], seeds[4]);
    return seeds[2];
}
