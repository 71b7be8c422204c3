#include "fakes/check_all.h"

#include "base/assert.h"
#include "fakes/policies.h"

enum { CLIENT = 7 };

static void release(struct check_all *all, struct check *first)
{
    all->asked = NULL;
    for (uint8_t n = first->n_all; n > 0; n--) check_release(first);
}

void check_all_release(struct check_all *all)
{
    release(all, all->asked);
}

static void on_done(struct check *check)
{
    struct check_all *all = check->owner;
    all->n_done++;
    all->error = check->error;
    if (check->error == ERROR_NONE) {
        const struct check *checks[N_OF(all->members)];
        size_t n = 0;
        CHECK_FOREACH (one, check) {
            all->members[n] = one->decision;
            checks[n++] = one;
        }
        check_combine(checks, n, &all->whole);
    }
    release(all, check);
}

bool check_all_ask(struct check_all *all, struct engine *engine, const struct check_all_member *wanted, size_t n)
{
    CHECK(n <= N_OF(all->members));
    all->asked = NULL;
    all->whole = (struct decision){0};
    for (size_t i = 0; i < n; i++) {
        struct check *check = engine_check_new(engine, OP_CHECK, all->client > 0 ? all->client : CLIENT);
        if (check == NULL) goto err;
        check->plan = &policies_get(engine_policies(engine), wanted[i].policy)->plan;
        check->key = slice_of(wanted[i].key);
        check->cost = wanted[i].cost;
        check->has_max_wait = all->max_wait_us > 0;
        check->max_wait_us = all->max_wait_us;
        if (i == 0)
            all->asked = check;
        else
            check_join(all->asked, check);
    }
    all->asked->owner = all;
    all->asked->done = on_done;
    if (check_seal(all->asked) < 0) goto err;
    engine_submit(engine, all->asked);
    return true;

err:
    if (all->asked != NULL) check_all_release(all);
    return false;
}
