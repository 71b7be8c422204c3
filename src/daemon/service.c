/*
 * service.c: datagrams to NOTIFY_SOCKET and the descriptors from LISTEN_FDS, as sd_notify(3) and
 * sd_listen_fds(3) describe them.
 *
 * One notification is one datagram of NAME=value lines. The daemon never waits for one: the loop would stop while a
 * service manager does not read. RELOADING, READY and STOPPING are kept then and sent later, in that order; what is
 * sent again and again anyway (WATCHDOG, STATUS) is lost.
 */
#include "daemon/service.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"

enum { FIRST_LISTEN_FD = 3, TEXT_MAX = 512 };
enum message { MESSAGE_RELOADING, MESSAGE_READY, MESSAGE_STOPPING, N_MESSAGES };

static struct {
    int fd; /* connected datagram socket; -1 = no service manager listens */
    int listen_fds[N_SERVICE_SOCKETS];
    uint64_t watchdog_us;
    char unsent[N_MESSAGES][TEXT_MAX]; /* still to be sent; "" = nothing */
} service = {.fd = -1};

/* A decimal number of an environment variable; false if it is unset or no number. */
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

/* NOTIFY_SOCKET is a path, or with a leading @ an abstract name; a local daemon has no other address. */
static void open_notify(void)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    const char *text = getenv("NOTIFY_SOCKET");
    size_t len = text != NULL ? strlen(text) : 0;
    if (service.fd >= 0) close(service.fd);
    service.fd = -1;
    memset(service.unsent, 0, sizeof service.unsent);
    if (len < 2 || len >= sizeof addr.sun_path || (text[0] != '/' && text[0] != '@')) return;

    memcpy(addr.sun_path, text, len);
    if (text[0] == '@') addr.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return;
    if (connect(fd, (struct sockaddr *)&addr, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) == 0)
        service.fd = fd;
    else
        close(fd);
}

static bool is_for_us(const char *pid_name)
{
    uint64_t pid;
    return number_of(pid_name, &pid) && pid == (uint64_t)getpid();
}

/* `names` has a name for each descriptor, with colons between them. */
static void take_listen_fds(int n, const char *names)
{
    for (int fd = FIRST_LISTEN_FD; fd < FIRST_LISTEN_FD + n; fd++) {
        size_t len = names != NULL ? strcspn(names, ":") : 0;
        enum service_socket which = SERVICE_DATA;
        if (len == strlen("control") && memcmp(names, "control", len) == 0) which = SERVICE_CONTROL;
        int claimed = fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 ? fd : SERVICE_FD_CLOSED;
        service.listen_fds[which] = service.listen_fds[which] == SERVICE_FD_NONE ? claimed : SERVICE_FD_SEVERAL;
        if (names != NULL) names = names[len] == ':' ? names + len + 1 : NULL;
    }
}

void service_init(void)
{
    static const char *const names[] = {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID",
                                        "LISTEN_FDS",    "LISTEN_PID",    "LISTEN_FDNAMES"};
    enum { LISTEN_FDS_MAX = 1000 };
    uint64_t n = 0;
    for (size_t i = 0; i < N_SERVICE_SOCKETS; i++) service.listen_fds[i] = SERVICE_FD_NONE;
    if (is_for_us("LISTEN_PID") && number_of("LISTEN_FDS", &n) && n <= LISTEN_FDS_MAX)
        take_listen_fds((int)n, getenv("LISTEN_FDNAMES"));
    open_notify();

    service.watchdog_us = 0;
    if (getenv("WATCHDOG_PID") == NULL || is_for_us("WATCHDOG_PID")) number_of("WATCHDOG_USEC", &service.watchdog_us);
    for (size_t i = 0; i < N_OF(names); i++) unsetenv(names[i]);
}

int service_listen_fd(enum service_socket which)
{
    CHECK(which < N_SERVICE_SOCKETS);
    return service.listen_fds[which];
}

uint64_t service_watchdog_ms(void)
{
    return service.watchdog_us / 2000;
}

/* False: the service manager is busy, and it is worth another try. */
static bool notify(const char *text)
{
    if (service.fd < 0 || send(service.fd, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return true;
    return errno != EAGAIN && errno != ENOBUFS;
}

/* `before` and a STATUS= line in `text`; a line break in `status` would begin an assignment of its own. */
static void write_status(char text[TEXT_MAX], const char *before, const char *status)
{
    size_t at = (size_t)snprintf(text, TEXT_MAX, "%sSTATUS=%s", before, status);
    if (at >= TEXT_MAX) at = TEXT_MAX - 1;
    for (size_t i = strlen(before); i < at; i++)
        if (text[i] == '\n') text[i] = ' ';
}

void service_retry(void)
{
    for (int i = 0; i < N_MESSAGES; i++) {
        if (service.unsent[i][0] != '\0' && !notify(service.unsent[i])) return;
        service.unsent[i][0] = '\0';
    }
}

/* service.unsent[which] has a new text. What would follow it, of an earlier reload, is out of date. */
static void send_from(enum message which)
{
    for (int i = which + 1; i < N_MESSAGES; i++) service.unsent[i][0] = '\0';
    service_retry();
}

void service_ready(const char *status)
{
    write_status(service.unsent[MESSAGE_READY], "READY=1\n", status);
    send_from(MESSAGE_READY);
}

void service_reloading(void)
{
    snprintf(service.unsent[MESSAGE_RELOADING], TEXT_MAX, "RELOADING=1\nMONOTONIC_USEC=%" PRId64, clock_mono_us());
    send_from(MESSAGE_RELOADING);
}

void service_stopping(void)
{
    snprintf(service.unsent[MESSAGE_STOPPING], TEXT_MAX, "STOPPING=1");
    send_from(MESSAGE_STOPPING);
}

void service_watchdog(void)
{
    notify("WATCHDOG=1");
}

void service_status(const char *status)
{
    char text[TEXT_MAX];
    write_status(text, "", status);
    notify(text);
}
