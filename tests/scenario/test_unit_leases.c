/* test_unit_leases.c: each rule of leased units by itself. What follows from them together: test_unit_lease_traces.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "engine/engine.h"
#include "engine/engine_counters.h"
#include "fakes/policies.h"
#include "fakes/shared_store.h"
#include "store/counter_table.h"
#include "store/memory_store.h"

#define SECOND_US INT64_C(1000000)
#define WALL_US   INT64_C(1700000000000000)
#define WINDOW_US (1000 * SECOND_US)

enum { LIMIT = 900, CLIENT = 7, BUSY = 16, SIZE_MIN = 8 };

static const struct limit_spec window = {
    .algo = ALGO_FIXED_WINDOW, .limit = LIMIT, .window_us = WINDOW_US, .lease_us = SECOND_US};
static const struct limit_spec bucket = {
    .algo = ALGO_BUCKET, .limit = 10, .window_us = SECOND_US, .burst = 400, .lease_us = 10 * SECOND_US};

static const struct limit_spec slow = {/* nothing of it drains here */
                                       .algo = ALGO_BUCKET,
                                       .limit = 1,
                                       .window_us = 1000 * WINDOW_US,
                                       .burst = LIMIT,
                                       .lease_us = SECOND_US};

static const struct limit_spec *const kinds[] = {&window, &slow};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

static struct clock host;
static struct shared_store shared;
static struct shared_link here, there; /* of the daemon with leases, and of another one without */
static struct engine *daemon, *other;
static size_t n_asking; /* ops that asked the store for more than one unit */

struct answer {
    int n_done;
    struct decision decision;
    int64_t n_leased;
};

static const struct engine_options options = {
    .max_inflight = 1000, .local_max_keys = 100, .slots = {.max = 100, .max_per_owner = 50}};

/* ---- two daemons and their store ---- */

static struct policy_set *set_of(const struct limit_spec *limit, enum on_failure on_failure)
{
    struct policy_spec spec = {.name = "p", .on_failure = on_failure, .deadline_ms = 1000, .limits = {*limit}};
    return policies_make(&spec, 1);
}

static void on_run(struct op *op)
{
    n_asking += op->at_most > 1;
}

static void begin(const struct limit_spec *limit, enum on_failure on_failure)
{
    struct limit_spec without = *limit;
    without.lease_us = 0;
    host = (struct clock){.frozen = true, .mono_us = 5 * SECOND_US, .wall_us = WALL_US / 2};
    shared_store_init(&shared, WALL_US);
    shared.on_run = on_run;
    n_asking = 0;
    shared_link_init(&here, &shared, false);
    shared_link_init(&there, &shared, true);
    here.server = 5;
    daemon = engine_new(&host, shared_link_handle(&here), set_of(limit, on_failure), &options);
    other = engine_new(&host, shared_link_handle(&there), set_of(&without, ON_FAILURE_DENY), &options);
    engine_counters = (struct engine_counters){0};
}

static void mark_closed(void *arg)
{
    *(bool *)arg = true;
}

static void close_engine(struct engine *engine)
{
    bool is_closed = false;
    engine_close(engine, mark_closed, &is_closed);
    assert_true(is_closed);
}

static void end(void)
{
    close_engine(daemon);
    close_engine(other);
    shared_store_fini(&shared);
}

static void pass(int64_t us)
{
    host.mono_us += us;
    host.wall_us += us;
    shared.clock.wall_us += us;
    engine_expire(daemon);
}

static void on_done(struct check *check)
{
    struct answer *answer = check->owner;
    *answer = (struct answer){answer->n_done + 1, check->decision, check->n_leased};
    for (uint8_t n = check->n_all; n > 0; n--) check_release(check);
}

static const char *key = "hot";

static struct check *new_check(struct engine *engine, struct answer *answer, enum op_kind kind, int64_t cost)
{
    struct check *check = engine_check_new(engine, kind, CLIENT);
    assert_non_null(check);
    check->key = slice_of(key);
    check->plan = &policies_get(engine_policies(engine), "p")->plan;
    check->cost = cost;
    check->owner = answer;
    check->done = on_done;
    return check;
}

static void submit(struct engine *engine, struct answer *answer, enum op_kind kind, int64_t cost)
{
    struct check *check = new_check(engine, answer, kind, cost);
    assert_int_equal(check_seal(check), 0);
    engine_submit(engine, check);
}

/* The store decides all that it was sent, and its answers arrive. */
static void exchange(void)
{
    shared_link_run(&here, here.n_sent);
    shared_link_reply(&here, here.n_replied);
}

static struct answer ask(struct engine *engine, enum op_kind kind, int64_t cost)
{
    struct answer answer = {0};
    submit(engine, &answer, kind, cost);
    if (engine == daemon) exchange();
    assert_int_equal(answer.n_done, 1);
    return answer;
}

/* So many checks of one unit; returns how many of them were decided by units that the daemon held. */
static int ask_often(int n)
{
    int n_by_lease = 0;
    for (int i = 0; i < n; i++) n_by_lease += ask(daemon, OP_CHECK, 1).decision.source == SOURCE_LEASE;
    return n_by_lease;
}

static int64_t left_in_store(void)
{
    return ask(other, OP_PEEK, 0).decision.remaining;
}

/* The daemon holds its first lease, of 16 units. */
static void begin_with_lease(const struct limit_spec *limit)
{
    begin(limit, ON_FAILURE_DENY);
    assert_int_equal(ask_often(BUSY + 1), 0);
    assert_int_equal(engine_counters.leases_units, BUSY);
}

/* It sees that others are charged in the bucket, too. */
static void begin_with_lease_among_others(const struct limit_spec *limit)
{
    begin(limit, ON_FAILURE_DENY);
    ask_often(BUSY);
    ask(other, OP_CHECK, 1);
    ask_often(1);
    assert_int_equal(engine_counters.leases_units, BUSY);
}

/* All units that were ever leased, and are not held any more, with `used` of them. */
static void assert_all_accounted(uint64_t used)
{
    assert_int_equal(engine_counters.leases_units,
                     used + engine_counters.leases_returned + engine_counters.leases_lost);
}

/* ---- how many units ---- */

/* A key that is asked for ten times a second, a shadow policy, which denies no check, and a key too long for the table. */
static void some_keys_have_no_lease(void **state)
{
    char long_key[COUNTER_KEY_MAX + 2] = {0};
    (void)state;
    memset(long_key, 'k', COUNTER_KEY_MAX + 1);
    for (int i = 0; i < 3; i++) {
        begin(&window, ON_FAILURE_DENY);
        struct policy_spec spec = {.name = "p", .deadline_ms = 1000, .shadow = true, .limits = {window}};
        if (i == 1) engine_set_policies(daemon, policies_make(&spec, 1));
        if (i == 2) key = long_key;
        for (int n = 0; n < 200; n++) {
            if (i == 0) pass(SECOND_US / 10);
            assert_int_equal(ask(daemon, OP_CHECK, 1).decision.source, SOURCE_REDIS);
        }
        assert_int_equal(n_asking, 0);
        key = "hot";
        end();
    }
}

/* Some of the others take its place in what is known of keys without a lease: less busy ones do not. */
static void a_key_becomes_busy_among_many_that_are_asked_once(void **state)
{
    enum { N_KEYS = 64, N_OTHERS = 8000 };
    char name[8];
    (void)state;
    begin(&window, ON_FAILURE_DENY);
    key = name;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < N_KEYS; i++) {
            snprintf(name, sizeof name, "busy%02d", i);
            ask_often(round == 0 ? BUSY - 1 : 4);
        }
        for (int i = 0; i < N_OTHERS && round == 0; i++) {
            snprintf(name, sizeof name, "%04d", i);
            ask_often(1);
        }
    }
    key = "hot";
    assert_int_equal(engine_counters.leases_taken, N_KEYS);
    end();
}

/* It was busy once, had a lease that it used up, and is asked for 2.5 times a second now. */
static void a_key_that_does_not_use_its_lease_takes_no_other(void **state)
{
    const struct limit_spec *limits[] = {&window, &bucket};
    (void)state;
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        struct limit_spec limit = *limits[i];
        limit.lease_us = SECOND_US;
        begin_with_lease(&limit);
        assert_int_equal(ask_often(BUSY + 1), BUSY);
        assert_int_equal(n_asking, 2);
        for (int n = 0; n < 50; n++) {
            pass(2 * SECOND_US / 5);
            exchange();
            ask_often(1);
        }
        assert_int_equal(n_asking, 2);
        end();
    }
}

/* If that was not used up; else as large as half of its age needs, and at most four times as large. */
static void a_lease_is_as_large_as_what_was_used_of_the_last_one(void **state)
{
    static const struct {
        int used;
        int64_t age_us;
        uint64_t units;
    } last[] = {{10, SECOND_US, 10}, {BUSY, SECOND_US, BUSY - 1}, {BUSY, 0, 4 * BUSY}};
    (void)state;
    for (size_t i = 0; i < sizeof last / sizeof last[0]; i++) {
        begin_with_lease(&window);
        for (int half = 0; half < 2; half++) {
            assert_int_equal(ask_often(last[i].used / 2), last[i].used / 2);
            pass(last[i].age_us / 2);
        }
        exchange();
        ask_often(1);
        assert_int_equal(engine_counters.leases_units, BUSY + last[i].units);
        end();
    }
}

/* The server's clock stepped back between the two: the answer shows a state from before the lease. */
static void an_answer_from_before_the_lease_does_not_count_its_units_as_free(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_KINDS; i++) {
        struct answer answers[2] = {0};
        begin(kinds[i], ON_FAILURE_DENY);
        pass(SECOND_US);
        ask_often(BUSY);
        for (int n = 0; n < 2; n++) submit(daemon, &answers[n], OP_CHECK, 1);
        shared_link_run(&here, 1);
        shared.clock.wall_us -= SECOND_US / 2;
        shared_link_run(&here, 1);
        exchange();
        assert_in_range(answers[1].decision.remaining, 1, LIMIT - BUSY - 2 - BUSY);
        assert_int_equal(ask_often(BUSY), BUSY);
        end();
    }
}

/* What others were charged in the next window is no unit of the lease, which has none any more. The next lease is a
 * small one: this was not used. */
static void an_answer_from_the_next_window_counts_no_unit_as_free(void **state)
{
    struct answer answers[2] = {0};
    (void)state;
    begin(&window, ON_FAILURE_DENY);
    pass(WINDOW_US - SECOND_US / 4);
    ask_often(BUSY);
    for (int n = 0; n < 2; n++) submit(daemon, &answers[n], OP_CHECK, 1);
    shared_link_run(&here, 1);
    pass(SECOND_US / 2);
    for (int n = 0; n < 30; n++) ask(other, OP_CHECK, 1);
    exchange();
    assert_int_equal(answers[1].decision.remaining, LIMIT - 31);
    assert_int_equal(engine_counters.leases_lost, BUSY);
    end();

    begin(&window, ON_FAILURE_DENY);
    pass(WINDOW_US - SECOND_US / 4);
    ask_often(BUSY + 1);
    pass(SECOND_US / 2);
    assert_int_equal(ask_often(1), 0);
    assert_int_equal(engine_counters.leases_units, BUSY + SIZE_MIN);
    end();
}

/* It was submitted before its key was busy, and overtaken on another connection to Redis. */
static void a_check_that_was_overtaken_by_its_keys_lease_has_its_units(void **state)
{
    enum { LEFT = 64 };
    struct answer answer = {0};
    struct limit_spec small = window;
    (void)state;
    small.limit = BUSY + LEFT;
    begin(&small, ON_FAILURE_DENY);
    submit(daemon, &answer, OP_CHECK, 1);
    struct list *overtaken = list_pop_front(&here.sent);
    here.n_sent--;
    ask_often(BUSY + 1);
    assert_int_equal(engine_counters.leases_units, LEFT / 8);
    while (ask(other, OP_CHECK, 1).decision.allowed) continue;
    list_push_back(&here.sent, overtaken);
    here.n_sent++;
    exchange();
    assert_true(answer.decision.allowed);
    assert_int_equal(answer.decision.source, SOURCE_LEASE);
    end();
}

static void without_redis_units_are_not_leased(void **state)
{
    struct memory_options memory_options = {.max_keys = 100, .sweep = true};
    (void)state;
    begin(&window, ON_FAILURE_DENY);
    struct memory_store *memory = memory_store_new(&host, &memory_options);
    struct engine *alone = engine_new(&host, memory_store_handle(memory), set_of(&window, ON_FAILURE_DENY), &options);
    for (int i = 0; i < 100; i++) {
        struct answer answer = {0};
        submit(alone, &answer, OP_CHECK, 1);
        engine_flush(alone);
        assert_int_equal(answer.decision.source, SOURCE_MEMORY);
        assert_int_equal(answer.decision.remaining, LIMIT - 1 - i);
    }
    assert_int_equal(engine_counters.leases_taken, 0);
    close_engine(alone);
    end();
}

/* ---- giving back ---- */

static void units_go_back_right_before_a_peek_of_the_same_client(void **state)
{
    struct answer answer = {0};
    (void)state;
    begin_with_lease(&window);
    assert_int_equal(ask_often(6), 6);
    submit(daemon, &answer, OP_PEEK, 0);
    const struct op *first = LIST_ITEM(here.sent.next, struct op, link);
    assert_int_equal(here.n_sent, 2);
    assert_int_equal(first->kind, OP_REFUND);
    assert_int_equal(first->client, CLIENT);
    assert_true(first->is_bound); /* to the server that charged them */
    exchange();
    assert_int_equal(answer.decision.remaining, LIMIT - BUSY - 1 - 6);
    assert_int_equal(answer.n_leased, BUSY - 6);
    assert_all_accounted(6);
    end();
}

/* Of 2000 keys, at their age or because the daemon stops: more than may be on their way at once. */
static void all_units_go_back_however_many_keys_have_some(void **state)
{
    enum { N_KEYS = 2000, TICK_MAX = 256, OUT_MAX = 1024 };
    (void)state;
    for (int stops = 0; stops <= 1; stops++) {
        char name[] = "0000";
        uint64_t taken = 0;
        begin(&window, ON_FAILURE_DENY);
        key = name;
        for (int i = 0; i < N_KEYS; i++) {
            snprintf(name, sizeof name, "%04d", i);
            for (int n = 0; n <= 2 * BUSY && engine_counters.leases_taken == taken; n++) ask_often(1);
            taken = engine_counters.leases_taken; /* some have to be as busy as another key was before */
        }
        key = "hot";
        assert_in_range(taken, N_KEYS - 10, N_KEYS);

        if (stops) engine_stop(daemon);
        pass(stops ? 0 : SECOND_US);
        for (size_t before = 0; before < here.n_sent; engine_expire(daemon)) { /* the store is slow */
            assert_true(here.n_sent - before <= TICK_MAX);
            before = here.n_sent;
        }
        assert_int_equal(here.n_sent, OUT_MAX);
        assert_int_equal(engine_next_deadline(daemon), INT64_MAX);
        for (; here.n_sent > 0; engine_expire(daemon)) exchange();
        assert_int_equal(engine_counters.leases_lost, 0);
        assert_in_range(engine_counters.decided_by_lease, 0, 10); /* of keys that were taken for busy too soon */
        assert_all_accounted(engine_counters.decided_by_lease);
        end();
    }
}

/* They stay charged for a check of the new version that was on its way behind the grant, and that counts three times as
 * much for each of them. */
static void units_of_an_older_version_go_back_unused(void **state)
{
    struct answer answers[2] = {0};
    struct limit_spec faster = slow;
    (void)state;
    faster.limit = 3;
    begin(&slow, ON_FAILURE_DENY);
    ask_often(BUSY);
    submit(daemon, &answers[0], OP_CHECK, 1);
    engine_set_policies(daemon, set_of(&faster, ON_FAILURE_DENY));
    submit(daemon, &answers[1], OP_CHECK, 1);
    exchange();
    assert_int_equal(engine_counters.leases_units, BUSY);
    assert_int_equal(answers[1].decision.remaining, LIMIT - 3 * (2 * BUSY + 1) - 1);
    assert_int_equal(ask(daemon, OP_CHECK, 1).decision.source, SOURCE_REDIS);
    assert_all_accounted(0);
    end();
}

static void units_whose_age_cannot_be_kept_go_back_at_once(void **state)
{
    struct limit_spec limit = window;
    char name[] = "0";
    (void)state;
    begin(&window, ON_FAILURE_DENY);
    key = name;
    for (; name[0] <= '0' + DEADLINE_LANES; name[0]++, limit.lease_us += SECOND_US) {
        engine_set_policies(daemon, set_of(&limit, ON_FAILURE_DENY));
        ask_often(BUSY);
        mem_fail_nth(name[0] == '0' + DEADLINE_LANES); /* for one more age than there are lanes */
        ask_often(1);
        mem_fail_nth(0);
    }
    key = "hot";
    exchange();
    assert_int_equal(engine_counters.leases_taken, DEADLINE_LANES + 1);
    assert_int_equal(engine_counters.leases_returned, BUSY);
    end();
}

/* ---- buckets ---- */

/* 10 units a ms drain, and the store is 1.5 ms away: of a first lease hardly a unit is left when it arrives. */
static void a_lease_grows_until_it_outlasts_what_its_bucket_drains(void **state)
{
    const struct limit_spec fast = {
        .algo = ALGO_BUCKET, .limit = 10000, .window_us = SECOND_US, .burst = 1000000, .lease_us = SECOND_US};
    size_t n_asked = 0;
    (void)state;
    begin(&fast, ON_FAILURE_DENY);
    for (int i = 0; i < 2000; i++) {
        struct answer answer = {0};
        submit(daemon, &answer, OP_CHECK, 1);
        if (answer.n_done == 0) {
            n_asked++;
            pass(1500);
            exchange();
        }
        assert_true(answer.n_done == 1 && answer.decision.allowed);
        pass(500);
    }
    assert_in_range(n_asked, BUSY, BUSY + 10);
    end();
}

static void believe(struct op *op)
{
    if (op->kind == OP_REFUND) op->reservation = NULL; /* an ordinary refund */
}

/* The daemon gives its units back from below the lease of a second one, whose units are used once the bucket seems
 * full. Returns how many are admitted at once then. */
static int64_t admitted_at_once(void (*before_run)(struct op *op))
{
    struct shared_link link;
    begin_with_lease(&bucket);
    shared.before_run = before_run;
    shared_link_init(&link, &shared, true);
    struct engine *second = engine_new(&host, shared_link_handle(&link), set_of(&bucket, ON_FAILURE_DENY), &options);
    for (int i = 0; i <= BUSY; i++) ask(second, OP_CHECK, 1);
    ask(daemon, OP_PEEK, 0);
    pass(5 * SECOND_US); /* of 66 charged units 50 have drained, or of 50 all */

    int64_t n = left_in_store();
    assert_true(ask(other, OP_CHECK, n).decision.allowed);
    for (int i = 0; i < BUSY; i++) n += ask(second, OP_CHECK, 1).decision.allowed;
    close_engine(second);
    end();
    return n;
}

static void what_a_later_lease_counts_on_is_not_given_back(void **state)
{
    (void)state;
    assert_int_equal(admitted_at_once(NULL), 400);
    assert_int_equal(admitted_at_once(believe),
                     400 + BUSY); /* a store that takes back all: this finds the difference */
}

/* Others are charged, too, so the store would not take units back: they are kept over a peek. */
static void a_buckets_lease_is_kept_over_a_peek_if_others_are_charged_too(void **state)
{
    struct answer answers[2] = {0};
    (void)state;
    begin_with_lease_among_others(&slow);
    assert_int_equal(ask(daemon, OP_PEEK, 0).decision.remaining, LIMIT - 2 * BUSY - 2);
    ask(other, OP_CHECK, 1);
    ask(daemon, OP_CHECK, BUSY + 1); /* too much for it: the answer shows the others' charge */
    ask(daemon, OP_PEEK, 0);
    assert_int_equal(ask_often(BUSY), BUSY);
    submit(daemon, &answers[0], OP_CHECK, 1); /* the next lease, */
    submit(daemon, &answers[1], OP_PEEK, 0);  /* for which it is the same */
    exchange();
    exchange();
    assert_true(engine_counters.leases_units > BUSY);
    assert_int_equal(ask_often(BUSY), BUSY);
    assert_int_equal(engine_counters.leases_lost, 0);
    end();
}

/* What gives back, as a late refund, finds the leased units in the level, and those of the other daemon. A reservation
 * may give back those that have ended, and a check_all may be undone in one of several places. So may a new version
 * count on another level. */
static void other_ops_take_a_buckets_units_away_if_others_are_charged_too(void **state)
{
    enum { CHECK_ALL = -1, RELOAD = -2 };
    static const int what[] = {OP_REFUND, OP_RESERVE, OP_RESET, OP_SWEEP, CHECK_ALL, RELOAD};
    (void)state;
    for (size_t i = 0; i < sizeof what / sizeof what[0]; i++) {
        for (int is_under_way = 0; is_under_way <= (what[i] != RELOAD); is_under_way++) {
            struct answer answers[2] = {0};
            struct limit_spec another = slow;
            begin_with_lease_among_others(&slow);
            if (is_under_way) {
                ask_often(BUSY);
                submit(daemon, &answers[0], OP_CHECK, 1);
            }
            uint64_t granted = engine_counters.leases_units;
            another.burst++;
            if (what[i] == RELOAD) engine_set_policies(daemon, set_of(&another, ON_FAILURE_DENY));
            bool is_check = what[i] == CHECK_ALL || what[i] == RELOAD;
            enum op_kind kind = is_check ? OP_CHECK : (enum op_kind)what[i];
            struct check *check = new_check(daemon, &answers[1], kind, kind != OP_RESET && kind != OP_SWEEP);
            key = "cold";
            if (what[i] == CHECK_ALL) check_join(check, new_check(daemon, &answers[1], OP_CHECK, 1));
            key = "hot";
            assert_int_equal(check_seal(check), 0);
            engine_submit(daemon, check);
            exchange();
            exchange();
            assert_int_equal(answers[1].n_done, 1);
            assert_true(!is_under_way || engine_counters.leases_units > granted);
            assert_all_accounted(is_under_way ? BUSY : 0);
            end();
        }
    }
}

/* ---- failures ---- */

static void units_are_used_while_the_store_is_away(void **state)
{
    (void)state;
    begin_with_lease(&window);
    here.is_down = true;
    assert_int_equal(ask_often(BUSY), BUSY);
    assert_int_equal(ask(daemon, OP_CHECK, 1).decision.source, SOURCE_DENY);
    end();
}

static void a_local_answer_grants_a_check_that_asks_for_a_lease_its_own_unit_alone(void **state)
{
    struct answer answer = {0};
    (void)state;
    begin(&window, ON_FAILURE_LOCAL);
    ask_often(BUSY);
    submit(daemon, &answer, OP_CHECK, 1);
    pass(SECOND_US);
    assert_int_equal(answer.decision.source, SOURCE_LOCAL);
    assert_int_equal(answer.decision.granted, 1);
    assert_int_equal(answer.decision.remaining, LIMIT - 1);

    exchange(); /* too late for the answer, but not for the lease */
    assert_int_equal(engine_counters.leases_units, BUSY);
    assert_int_equal(n_asking, 1);
    end();
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(some_keys_have_no_lease),
        cmocka_unit_test(a_key_becomes_busy_among_many_that_are_asked_once),
        cmocka_unit_test(a_key_that_does_not_use_its_lease_takes_no_other),
        cmocka_unit_test(a_lease_is_as_large_as_what_was_used_of_the_last_one),
        cmocka_unit_test(an_answer_from_before_the_lease_does_not_count_its_units_as_free),
        cmocka_unit_test(an_answer_from_the_next_window_counts_no_unit_as_free),
        cmocka_unit_test(a_check_that_was_overtaken_by_its_keys_lease_has_its_units),
        cmocka_unit_test(without_redis_units_are_not_leased),
        cmocka_unit_test(units_go_back_right_before_a_peek_of_the_same_client),
        cmocka_unit_test(all_units_go_back_however_many_keys_have_some),
        cmocka_unit_test(units_of_an_older_version_go_back_unused),
        cmocka_unit_test(units_whose_age_cannot_be_kept_go_back_at_once),
        cmocka_unit_test(a_lease_grows_until_it_outlasts_what_its_bucket_drains),
        cmocka_unit_test(what_a_later_lease_counts_on_is_not_given_back),
        cmocka_unit_test(a_buckets_lease_is_kept_over_a_peek_if_others_are_charged_too),
        cmocka_unit_test(other_ops_take_a_buckets_units_away_if_others_are_charged_too),
        cmocka_unit_test(units_are_used_while_the_store_is_away),
        cmocka_unit_test(a_local_answer_grants_a_check_that_asks_for_a_lease_its_own_unit_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
