/* routes.h: one HTTP request: its method, its Host, its path; for admin.c alone. */
#ifndef RL_ADMIN_ROUTES_H
#define RL_ADMIN_ROUTES_H

#include <microhttpd.h>

#include "admin/admin.h"

struct routes {
    struct clock *clock; /* not owned */
    struct admin_options options;
    char *allow_hosts; /* owned */
};

/* The one request of a connection. */
struct visit {
    const struct routes *routes; /* not owned */
    bool is_answered;            /* it came whole */
};

/* libmicrohttpd calls it for each request: once with its header, then for each part of its body, then to be answered.
 * `cls` is a struct visit. */
enum MHD_Result routes_answer(void *cls, struct MHD_Connection *connection, const char *url, const char *method,
                              const char *version, const char *body, size_t *body_len, void **request);
/* Likewise for each path and each value of a query: turns %41 into A, in place. Returns the length. */
size_t routes_unescape(void *cls, struct MHD_Connection *connection, char *text);

#endif
