/*
 * redis_check.h: looks once, at start and after each reload, whether Redis is as it should be, and warns if it is not.
 *
 * It waits for a ready connection, so a Redis that comes later is looked at later. Each warning names what is wrong and
 * the way out. Nothing depends on the result: checks go on, and a right that is missing shows in their failure answers.
 */
#ifndef RL_DAEMON_REDIS_CHECK_H
#define RL_DAEMON_REDIS_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/policy.h"
#include "redis/store.h"

enum { REDIS_ADVICE_MAX = SELF_TEST_USER_MAX + SELF_TEST_KEYS_MAX + SELF_TEST_MISSING_MAX + 16 };

struct redis_check {
    bool is_due, is_running;
    bool is_loud;                  /* what is due logs all that it finds */
    bool is_quiet;                 /* what runs logs only a change of the rights */
    int64_t round_trip_us;         /* to be compared with the deadlines; 0 = nothing is */
    char advice[REDIS_ADVICE_MAX]; /* the rights that the user lacks, "ACL SETUSER ratelimit ~shop:*"; "" = none */
};

void redis_check_again(struct redis_check *check); /* at start and at each reload */
/* Redis has refused a policy for want of a right, or takes it again: a warning follows if it is another one. */
void redis_check_rights(struct redis_check *check);
/* Once a second. */
void redis_check_look(struct redis_check *check, struct redis_store *redis, const struct policy_set *policies);

#endif
