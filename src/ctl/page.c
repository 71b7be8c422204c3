/* page.c: asks for the page of metrics, and writes it to a file in one step, for ratelimitctl.c. */
#include "ctl/page.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/blocking.h"
#include "ctl/words.h"
#include "proto/pack.h"

enum {
    BEGINNINGS_MOST = 10,      /* each reload of the daemon makes the page begin anew */
    PAGE_BYTES_MOST = 1 << 30, /* a hundred thousand policies have some hundred megabytes */
    MESSAGE_SIZE = 512,
};

enum exit_code page_ask(struct ratelimit *client, int64_t timeout_ms, struct buffer *ret)
{
    struct buffer params = {0};
    struct slice next = {0};
    int n_beginnings = 0;
    enum exit_code code;
    ret->max = PAGE_BYTES_MOST;
    do {
        struct packer packer = packer_of(&params);
        struct pull answer = {0};
        struct slice piece;
        buffer_truncate(&params, 0);
        pack_array(&packer, next.len > 0);
        if (next.len > 0) pack_str(&packer, next);
        code = call_or_complain(client, "metrics", &params, timeout_ms, &answer);
        if (code != EXIT_DONE) break;

        struct pull text = words_member(answer, "text"), more = words_member(answer, "next");
        next = (struct slice){0};
        pull_text(&more, &next);
        if (words_true(answer, "first")) {
            buffer_truncate(ret, 0);
            n_beginnings++;
        }

        const struct link *link = blocking_link(client);
        if (pull_text(&text, &piece) != 0)
            code = complain(link, RATELIMIT_PROTOCOL, "", "the answer has no text");
        else if (n_beginnings > BEGINNINGS_MOST)
            code = complain(link, RATELIMIT_PROTOCOL, "", "the daemon was reloaded again and again while it was asked");
        else if (buffer_append(ret, piece.data, piece.len) < 0)
            code = complain(link, RATELIMIT_NO_MEMORY, "", "no memory for the page of metrics");
    } while (code == EXIT_DONE && next.len > 0);
    buffer_fini(&params);
    return code;
}

/* ---- the file ---- */

static enum exit_code cannot_write(const char *path, const char *why)
{
    char text[MESSAGE_SIZE];
    snprintf(text, sizeof text, "%s: %s", path, why);
    fprintf(stderr, "ratelimitctl: cannot write %s\n", text);
    complain_object("OUTPUT", text);
    return EXIT_OUTPUT;
}

/* Readable by all, because its collector is another user. 0, or -1 with errno. */
static int fill(int fd, const struct buffer *page)
{
    size_t done = 0;
    while (done < buffer_len(page)) {
        ssize_t n = write(fd, buffer_data(page) + done, buffer_len(page) - done);
        if (n < 0 && errno != EINTR) return -1;
        if (n > 0) done += (size_t)n;
    }
    return fchmod(fd, 0644);
}

enum exit_code page_write(const char *path, const struct buffer *page)
{
    struct stat there;
    if (lstat(path, &there) == 0 && !S_ISREG(there.st_mode))
        return cannot_write(path, "it is no regular file, and would be replaced; without --output the page goes to "
                                  "standard output");

    size_t size = strlen(path) + sizeof ".XXXXXX";
    char *temporary = malloc(size); /* in the same folder, and not a name that a collector takes for one of its own */
    if (temporary == NULL) return cannot_write(path, "no memory");
    snprintf(temporary, size, "%s.XXXXXX", path);

    int fd = mkstemp(temporary), error = fd < 0 ? errno : 0;
    if (fd >= 0) {
        if (fill(fd, page) < 0) error = errno;
        if (close(fd) < 0 && error == 0) error = errno;
        if (error == 0 && rename(temporary, path) < 0) error = errno;
        if (error != 0) unlink(temporary);
    }
    free(temporary);
    return error == 0 ? EXIT_DONE : cannot_write(path, strerror(error));
}
