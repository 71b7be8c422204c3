/*
 * page.h: the page of metrics: asked for part by part, because it may be longer than the library takes in one answer;
 * for standard output, or for a file that others read at any time.
 */
#ifndef RL_CTL_PAGE_H
#define RL_CTL_PAGE_H

#include "base/buffer.h"
#include "client/ratelimit.h"
#include "ctl/complain.h"

/* The whole page into `ret`. EXIT_DONE, or what went wrong, with the complaint made. */
enum exit_code page_ask(struct ratelimit *client, int64_t timeout_ms, struct buffer *ret);
/* Makes it the content of a file, in one step: a reader sees the old page or the new one. */
enum exit_code page_write(const char *path, const struct buffer *page);

#endif
