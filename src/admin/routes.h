/* routes.h: what a request is answered with: by its method, its Host and its path; for http.c alone. */
#ifndef RL_ADMIN_ROUTES_H
#define RL_ADMIN_ROUTES_H

#include "admin/admin.h"
#include "admin/metrics.h"
#include "base/slice.h"

struct routes {
    struct clock *clock; /* not owned */
    struct admin_options options;
    char *allow_hosts; /* owned */
};

/* A request, as far as it matters here. The slices are valid until it is answered. */
struct visit {
    struct slice url;  /* as it was sent */
    struct slice host; /* of the last Host field */
    unsigned n_hosts;
    bool is_get;
    bool is_head;
    bool is_old; /* HTTP/1.0 */
};

enum { PAGE_TEXT_MAX = 16384 };

struct page {
    const char *status;      /* "404 Not Found"; static */
    const char *type;        /* static */
    struct metrics *metrics; /* owned: it is the body, and is made while it is sent; NULL: the text is */
    char text[PAGE_TEXT_MAX];
};

/* False: no memory. */
bool routes_answer(const struct routes *routes, const struct visit *visit, struct page *ret_page);
/* A page of one line. */
__attribute__((format(printf, 3, 4))) void routes_say(struct page *page, const char *status, const char *format, ...);

/*
 * A web page of another site can lead a browser to this listener under a name of its own (DNS rebinding), and read the
 * answers. So a name must be known; an address is fine, because a page under an address is that host's own.
 *
 * `host` as in the field, with or without a port; `allowed`: one name a line, or NULL.
 */
bool host_is_known(const char *host, const char *allowed);

#endif
