/* check_all.h: asks an engine several checks as one, as a request does, and keeps what they answer. */
#ifndef RL_TESTS_CHECK_ALL_H
#define RL_TESTS_CHECK_ALL_H

#include "engine/engine.h"

struct check_all_member {
    const char *policy;
    const char *key;
    int64_t cost;
};

/* All zero = nothing was asked. Several may wait at a time: this is what the last answer was. */
struct check_all {
    uint64_t client;     /* of those to come; 0 = one and the same */
    int64_t max_wait_us; /* of each of them; 0 = its limits' */
    struct check *asked; /* the first of the checks that were asked last; NULL = they are answered, or released */
    int n_done;
    enum error_code error;
    struct decision whole;
    struct decision members[8]; /* one for each check */
};

/* False: the cap is reached, or there is no memory; nothing is left of it then. */
bool check_all_ask(struct check_all *all, struct engine *engine, const struct check_all_member *wanted, size_t n);
void check_all_release(struct check_all *all); /* their owner leaves */

#define CHECK_ALL_ASK(all, engine, ...)                                                                                \
    check_all_ask(all, engine, (const struct check_all_member[]){__VA_ARGS__},                                         \
                  sizeof((const struct check_all_member[]){__VA_ARGS__}) / sizeof(struct check_all_member))

#endif
