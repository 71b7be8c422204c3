/* pages.h: the short pages: readiness, status.json, and the page of links. */
#ifndef RL_ADMIN_PAGES_H
#define RL_ADMIN_PAGES_H

#include <stddef.h>

#include "admin/admin.h"

/* Writes one line. Is the daemon ready? With `needs_store`, only if the store decides. */
bool pages_ready(const struct admin_view *view, int64_t now_us, bool needs_store, char *out, size_t size);
void pages_status(const struct admin_view *view, int64_t now_us, char *out, size_t size);
void pages_links(const struct admin_view *view, int64_t now_us, char *out, size_t size);

#endif
