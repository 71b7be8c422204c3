/* link.c: connects, sends and receives without waiting, for exchange.c. */
#include "client/link.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "client/ratelimit.h"

enum {
    LINK_DEPTH_MAX = 16,        /* of an answer; none that the protocol has comes near */
    LINK_READ_SIZE = 16 * 1024, /* bytes asked for at once: a few hundred decisions */
    LINK_KEEP_SIZE = 64 * 1024, /* a buffer that a long answer made larger than this is given back */
};

static enum link_step fail_link(struct link *link, const char *what, int error)
{
    snprintf(link->error, sizeof link->error, "%s%s%s", what, error != 0 ? ": " : "",
             error != 0 ? strerror(error) : "");
    return LINK_FAILED;
}

static void forget_input(struct link *link)
{
    buffer_consume(&link->in, buffer_len(&link->in));
    buffer_shrink(&link->in, LINK_KEEP_SIZE);
    scanner_init(&link->scanner, RATELIMIT_ANSWER_MAX, LINK_DEPTH_MAX);
}

enum ratelimit_status link_init(struct link *link, const char *path)
{
    size_t len = strlen(path);
    *link = (struct link){.fd = -1, .address.sun_family = AF_UNIX, .pid = getpid()};
    if (len == 0 || len >= sizeof link->address.sun_path) return RATELIMIT_BAD_ARGUMENT;
    memcpy(link->address.sun_path, path, len);

    /* The kernel makes a page of it. */
    void *page = mmap(NULL, sizeof(bool), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return RATELIMIT_NO_MEMORY;
    if (madvise(page, sizeof(bool), MADV_WIPEONFORK) != 0) {
        munmap(page, sizeof(bool));
    } else {
        link->is_ours = page;
        *link->is_ours = true;
    }

    buffer_init(&link->in, RATELIMIT_ANSWER_MAX + LINK_READ_SIZE);
    forget_input(link);
    return RATELIMIT_OK;
}

void link_close(struct link *link)
{
    if (link->fd >= 0) close(link->fd);
    link->fd = -1;
    forget_input(link);
}

void link_disown(struct link *link)
{
    if (link->fd >= 0) close(link->fd);
    link->fd = -1;
    if (link->is_ours != NULL) *link->is_ours = true;
    link->pid = getpid();
}

void link_fini(struct link *link)
{
    link_close(link);
    buffer_fini(&link->in);
    if (link->is_ours != NULL) munmap(link->is_ours, sizeof(bool));
    link->is_ours = NULL;
}

enum link_step link_connect(struct link *link)
{
    char what[sizeof link->address.sun_path + 32];
    CHECK(link->fd < 0);
    forget_input(link);
    link->connect_errno = 0;
    link->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (link->fd < 0) return fail_link(link, "cannot create a socket", errno);
    if (connect(link->fd, (struct sockaddr *)&link->address, sizeof link->address) == 0) return LINK_DONE;

    int error = errno;
    link_close(link);
    if (error == EAGAIN || error == EINTR) {
        fail_link(link, "the daemon does not accept connections: its backlog is full", 0);
        return LINK_LATER;
    }
    link->connect_errno = error;
    snprintf(what, sizeof what, "cannot connect to %s", link->address.sun_path);
    return fail_link(link, what, error);
}

enum link_step link_send(struct link *link, const struct iovec *parts, size_t n, size_t *ret_len)
{
    struct msghdr message = {.msg_iov = (struct iovec *)parts, .msg_iovlen = n};
    ssize_t len;
    CHECK(link->fd >= 0 && n > 0);
    do {
        len = sendmsg(link->fd, &message, MSG_NOSIGNAL);
    } while (len < 0 && errno == EINTR);

    if (len < 0 && errno != EAGAIN) return fail_link(link, "cannot send", errno);
    if (len < 0) {
        fail_link(link, "the daemon does not read: its socket is full", 0);
        return LINK_LATER;
    }
    *ret_len = (size_t)len;
    return LINK_DONE;
}

enum link_step link_receive(struct link *link, bool *ret_more)
{
    ssize_t len;
    uint8_t *space = buffer_reserve(&link->in, LINK_READ_SIZE);
    CHECK(link->fd >= 0);
    if (space == NULL) return fail_link(link, "no memory to read the answer", 0);
    do {
        len = recv(link->fd, space, LINK_READ_SIZE, 0);
    } while (len < 0 && errno == EINTR);

    if (len == 0) return fail_link(link, "the daemon closed the connection", 0);
    if (len < 0) return errno == EAGAIN ? LINK_LATER : fail_link(link, "cannot receive", errno);
    buffer_grew(&link->in, (size_t)len);
    *ret_more = len == LINK_READ_SIZE;
    return LINK_DONE;
}

enum link_step link_next(struct link *link, struct rpc_response *ret)
{
    if (buffer_len(&link->in) == 0) {
        buffer_shrink(&link->in, LINK_KEEP_SIZE);
        return LINK_LATER;
    }

    const uint8_t *bytes = buffer_data(&link->in);
    int64_t len = scanner_next(&link->scanner, bytes, buffer_len(&link->in));
    if (len == 0) return LINK_LATER;
    if (len == -SCAN_TOO_LARGE) return fail_link(link, "an answer is too long", 0);
    if (len < 0 || rpc_parse_response(bytes, (size_t)len, ret) != 0) {
        return fail_link(link, "the process at the socket does not speak ratelimitd's protocol", 0);
    }
    buffer_consume(&link->in, (size_t)len); /* its bytes stay where they are */
    return LINK_DONE;
}
