/*
 * service.c: datagrams to NOTIFY_SOCKET and the descriptors from LISTEN_FDS, as sd_notify(3) and
 * sd_listen_fds(3) describe them.
 *
 * One notification is one datagram of NAME=value lines. READY, RELOADING and STOPPING may wait a
 * little for a busy service manager; what is said again and again (WATCHDOG, STATUS) never waits.
 */
#include "server/service.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { FIRST_LISTEN_FD = 3, SEND_WAIT_MS = 250, TEXT_MAX = 512 };

static struct {
    int fd; /* connected datagram socket; -1 = nobody listens */
    int n_listen_fds;
    uint64_t watchdog_us;
} service = {.fd = -1};

/* A decimal number of an environment variable; false where it is unset or no number. */
static bool number_of(const char *name, uint64_t *ret)
{
    const char *text = getenv(name);
    if (text == NULL || text[0] < '0' || text[0] > '9') return false;
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0') return false;
    *ret = value;
    return true;
}

/* A path, or with a leading @ an abstract name; other kinds of address do not concern a local daemon. */
static bool address_of(const char *text, struct sockaddr_un *ret, socklen_t *ret_len)
{
    size_t len = text != NULL ? strlen(text) : 0;
    if (len < 2 || len >= sizeof ret->sun_path || (text[0] != '/' && text[0] != '@')) return false;
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(ret->sun_path, text, len);
    if (text[0] == '@') ret->sun_path[0] = '\0';
    *ret_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    return true;
}

static void open_notify(void)
{
    struct sockaddr_un addr;
    socklen_t len;
    if (service.fd >= 0) close(service.fd);
    service.fd = -1;
    if (!address_of(getenv("NOTIFY_SOCKET"), &addr, &len)) return;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return;
    struct timeval wait = {.tv_usec = SEND_WAIT_MS * 1000};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
    if (connect(fd, (struct sockaddr *)&addr, len) == 0)
        service.fd = fd;
    else
        close(fd);
}

static bool is_for_us(const char *pid_name)
{
    uint64_t pid;
    return number_of(pid_name, &pid) && pid == (uint64_t)getpid();
}

static void take_listen_fds(void)
{
    uint64_t n = 0;
    service.n_listen_fds = 0;
    if (!is_for_us("LISTEN_PID") || !number_of("LISTEN_FDS", &n) || n > 1000) return;
    for (int fd = FIRST_LISTEN_FD; fd < FIRST_LISTEN_FD + (int)n; fd++) fcntl(fd, F_SETFD, FD_CLOEXEC);
    service.n_listen_fds = (int)n;
}

static void take_watchdog(void)
{
    service.watchdog_us = 0;
    if (getenv("WATCHDOG_PID") != NULL && !is_for_us("WATCHDOG_PID")) return;
    number_of("WATCHDOG_USEC", &service.watchdog_us);
}

void service_init(void)
{
    static const char *const names[] = {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID",
                                        "LISTEN_FDS",    "LISTEN_PID",    "LISTEN_FDNAMES"};
    open_notify();
    take_listen_fds();
    take_watchdog();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) unsetenv(names[i]);
}

int service_listen_fd(void)
{
    if (service.n_listen_fds == 0) return -1;
    return service.n_listen_fds == 1 ? FIRST_LISTEN_FD : -2;
}

uint64_t service_watchdog_ms(void)
{
    return service.watchdog_us / 2000;
}

static void notify(int flags, const char *text)
{
    if (service.fd >= 0) send(service.fd, text, strlen(text), flags | MSG_NOSIGNAL);
}

/* `before` and a STATUS= line; a line break in `status` would begin an assignment of its own. */
static void notify_status(int flags, const char *before, const char *status)
{
    char text[TEXT_MAX];
    size_t at = (size_t)snprintf(text, sizeof text, "%sSTATUS=%s", before, status);
    if (at >= sizeof text) at = sizeof text - 1;
    for (size_t i = strlen(before); i < at; i++)
        if (text[i] == '\n') text[i] = ' ';
    notify(flags, text);
}

void service_ready(const char *status)
{
    notify_status(0, "READY=1\n", status);
}

void service_reloading(void)
{
    char text[TEXT_MAX];
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(text, sizeof text, "RELOADING=1\nMONOTONIC_USEC=%lld",
             (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000);
    notify(0, text);
}

void service_stopping(void)
{
    notify(0, "STOPPING=1");
}

void service_watchdog(void)
{
    notify(MSG_DONTWAIT, "WATCHDOG=1");
}

void service_status(const char *status)
{
    notify_status(MSG_DONTWAIT, "", status);
}
