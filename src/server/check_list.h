/*
 * check_list.h: a check_many that is too long for one tick of the loop.
 *
 *   check_list_begin ─▶ WAITING   until the connection may have that many more checks in flight
 *                       READING   the members are validated, and become checks of the request
 *                       HANDING   nothing was wrong with any of them: the checks go to the engine; with the last one
 *                                 the list is gone, and only the request is left
 *
 * Reading and handing over happen in pieces. All lists of all connections share UNITS_PER_TICK and take turns, so
 * that neither one long list nor many of them delay the others. Nor do they fill the store's queue: handing over
 * waits while HANDED_MAX members have no answer. As long as its list is under way a session takes no further message:
 * the order within a connection stays.
 */
#ifndef RL_SERVER_CHECK_LIST_H
#define RL_SERVER_CHECK_LIST_H

#include <stdbool.h>
#include <stdint.h>

struct params;
struct session;
struct sessions;

/* Must a list of `n` members go in pieces? A short one is done at once, if the connection may have that many more
 * checks in flight. */
bool check_list_is_long(const struct session *session, uint32_t n);
/* Takes over the list of `n` members at params->pull, and answers it later. 0, or -1 with the fault filled. */
int check_list_begin(struct params *params, uint32_t n);

/* One tick's share of work on the lists under way; is there any left for the next tick? */
void check_lists_run(struct sessions *sessions);
bool check_lists_have_work(const struct sessions *sessions);

#endif
