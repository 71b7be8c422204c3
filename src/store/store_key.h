/*
 * store_key.h: what a limit's state is called in Redis: `prefix:{bNNN}:head id`, but for compat keys, which
 * are the foreign ones: `head id`, and for some the window's name behind it.
 */
#ifndef RL_STORE_STORE_KEY_H
#define RL_STORE_STORE_KEY_H

#include "store/store.h"

enum { STORE_TAG_LEN = 8, STORE_KEY_PIECES = 5 };

/* ":{b017}:" of a member's key: the bucket spreads a policy's keys over a cluster's slots, and keeps together what one
 * check asks for. */
void store_key_tag(const struct op_member *member, char out[STORE_TAG_LEN]);

/* Where the pieces that are made up stand. */
struct store_key_room {
    char tag[STORE_TAG_LEN];
    char window[WINDOW_NAME_MAX];
};

/* The whole key at the run's time, piece by piece; `room` and what the member points to stay as long. Returns how many
 * pieces. */
size_t store_key_pieces(const struct op_member *member, const struct run *run, const char *prefix,
                        struct store_key_room *room, struct slice ret[STORE_KEY_PIECES]);

#endif
