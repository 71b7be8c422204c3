/*
 * top.h: ratelimitctl top: who is limited now: policies, keys and clients, the most first, again every two seconds.
 *
 * On a terminal a page takes the place of the one before, and q ends it; else pages follow each other as plain lines,
 * or with --json as one object each.
 */
#ifndef RL_CTL_TOP_H
#define RL_CTL_TOP_H

#include "client/ratelimit.h"
#include "ctl/complain.h"
#include "ctl/options.h"

enum exit_code top_run(struct ratelimit *client, const struct options *options);

#endif
