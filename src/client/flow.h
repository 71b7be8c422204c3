/*
 * flow.h: a policy in a request: its name, or its settings as people write them, in braces.
 *
 *     {algorithm: token_bucket, limit: 100, window: 1m}
 *     {"limits": [{"name": "day", "algorithm": "fixed_window", "limit": 5000, "window": "1d"}]}
 *
 * This is YAML's flow style as far as settings need it, and so all of JSON: maps, lists, plain texts, texts in single
 * or double quotes. Every value but null goes out as a text; the daemon reads numbers, durations and truth out of it,
 * as it does from its file.
 */
#ifndef RL_CLIENT_FLOW_H
#define RL_CLIENT_FLOW_H

#include "proto/pack.h"

enum {
    FLOW_DEPTH_MAX = 8,
    FLOW_ENTRIES_MAX = 65535, /* of one map or list */
    FLOW_NAME_SIZE = 64 + 1,
};

/* What a policy's settings call it, in `name`: a label that not every daemon takes. */
struct flow_name {
    bool is_left_out; /* from what is packed */
    char text[FLOW_NAME_SIZE];
};

/* Packs the name as a text, settings as a map; a name has no brace. NULL, or what is wrong with the settings (static),
 * with *ret_at the place; then what was packed is of no use. Memory that is short shows in packer->failed alone. The
 * name among the settings, if there is one, goes into `name`, and must be one that a daemon takes; with NULL it is a
 * setting like the others. */
const char *flow_pack(struct packer *packer, const char *text, struct flow_name *name, const char **ret_at);

#endif
