/*
 * listing.h: the policies of a daemon, however many, asked for page by page.
 */
#ifndef RL_CTL_LISTING_H
#define RL_CTL_LISTING_H

#include "base/buffer.h"
#include "client/ratelimit.h"
#include "ctl/complain.h"

/* One packed array of all policies, as `policies` answers them, into `ret`, which is empty; with `only`, those of that
 * name or label. Each page may take timeout_ms. 0, or the exit code with the complaint made. */
enum exit_code listing_ask(struct ratelimit *client, uint32_t timeout_ms, const char *only, struct buffer *ret);

#endif
