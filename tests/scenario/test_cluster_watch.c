/* test_cluster_watch.c: who is asked for the map of a cluster, when, and what becomes of each answer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fakes/all_counters.h"
#include "fakes/fake_redis.h"
#include "fakes/patient_loop.h"
#include "redis/cluster_watch.h"

enum { N_FAKES = 3 };

/* What a node answers to CLUSTER SHARDS and CLUSTER SLOTS. */
struct node {
    struct fake_redis fake;
    const char *shards, *slots; /* NULL = silence */
    unsigned n_shards, n_slots, n_auth;
};

static struct fixture {
    struct patient_loop patient;
    struct clock clock;
    struct redis_options options;
    struct cluster_watch *watch;
    struct node nodes[N_FAKES];
    char seeds[256];
    unsigned n_maps, n_none, n_wanted;
    struct cluster_map map; /* the last one */
    char why[512];
    bool is_closed;
} * w;

static const char no_shards[] =
    "-ERR Unknown subcommand or wrong number of arguments for 'SHARDS'. Try CLUSTER HELP.\r\n";

static char map_of_all[N_FAKES][128]; /* in the form of SLOTS: that node has all hash slots */

static void on_map(void *arg, const struct cluster_map *map)
{
    (void)arg;
    w->n_maps++;
    w->map = *map;
}

static void on_none(void *arg, const char *why)
{
    (void)arg;
    w->n_none++;
    snprintf(w->why, sizeof w->why, "%s", why);
}

static void on_closed(void *arg)
{
    (void)arg;
    w->is_closed = true;
}

static void on_command(struct fake_redis *fake, struct fake_client *client, const struct slice *args, size_t n)
{
    struct node *node = fake->arg;
    assert_int_equal(n, 2);
    assert_true(slice_is(args[0], "CLUSTER"));
    bool is_shards = slice_is(args[1], "SHARDS");
    const char *reply = is_shards ? node->shards : node->slots;
    if (is_shards)
        node->n_shards++;
    else
        node->n_slots++;
    if (reply != NULL) fake_reply_bytes(client, reply, strlen(reply));
}

static int set_up(void **state)
{
    (void)state;
    all_counters_reset();
    w = calloc(1, sizeof *w);
    patient_loop_init(&w->patient);
    clock_update(&w->clock);
    w->options = (struct redis_options){.topology = TOPOLOGY_CLUSTER, .address = w->seeds, .random_seed = 3};
    for (int i = 0; i < N_FAKES; i++) {
        struct node *node = &w->nodes[i];
        fake_redis_init_tcp(&node->fake, &w->patient.loop, "", NULL);
        node->fake.arg = node;
        node->fake.on_other = on_command;
        node->shards = no_shards;
        node->slots = map_of_all[i];
        snprintf(map_of_all[i], sizeof map_of_all[i],
                 "*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$9\r\n127.0.0.1\r\n:%u\r\n$2\r\nid\r\n", node->fake.port);
    }
    return 0;
}

static bool is_closed(void *arg)
{
    (void)arg;
    return w->is_closed;
}

static int tear_down(void **state)
{
    (void)state;
    if (w->watch != NULL) {
        cluster_watch_close(w->watch, on_closed, NULL);
        patient_loop_until(&w->patient, is_closed, NULL);
    }
    for (int i = 0; i < N_FAKES; i++) fake_redis_close(&w->nodes[i].fake);
    patient_loop_fini(&w->patient);
    free(w);
    return 0;
}

static void open_watch(const char *seeds)
{
    const struct cluster_watch_events events = {.on_map = on_map, .on_none = on_none};
    snprintf(w->seeds, sizeof w->seeds, "%s", seeds);
    w->watch = cluster_watch_new(&w->patient.loop, &w->clock, &w->options, &events);
    assert_non_null(w->watch);
}

static const char *seeds_of(int first, int second)
{
    static char text[256];
    snprintf(text, sizeof text, "%s\n%s", w->nodes[first].fake.address, w->nodes[second].fake.address);
    return text;
}

static bool has_maps(void *arg)
{
    (void)arg;
    return w->n_maps >= w->n_wanted;
}

static void until_maps(unsigned n)
{
    w->n_wanted = n;
    patient_loop_until(&w->patient, has_maps, NULL);
}

static bool has_none(void *part)
{
    return w->n_none > 0 && strstr(w->why, part) != NULL;
}

/* Until a round has found no map for this reason; on a busy machine, an answer may be too late in those before it. */
static void until_none(const char *part)
{
    patient_loop_until(&w->patient, has_none, (void *)part);
}

/* Of two servers. False: on a busy machine, the second one was too late as well. */
static bool had_time(void)
{
    return w->n_none == 0;
}

/* The n-th seed was asked, and on a busy machine its answer came too late. */
static bool was_late(uint32_t n)
{
    return strstr(cluster_watch_passed(w->watch, n), "no answer within 250 ms") != NULL;
}

/* The first two are the seeds. The first map is certainly that of 0: until then 1 is silent. */
static void open_at_first_of_two(void)
{
    w->nodes[1].shards = NULL;
    open_watch(seeds_of(0, 1));
    until_maps(1);
    w->n_none = 0;
    w->nodes[1].shards = no_shards;
}

/* A node of its map does not serve. The next map comes, and 1 was in time to be asked for it. */
static void doubt_until_second_was_asked(void)
{
    do {
        cluster_watch_doubt(w->watch);
        until_maps(w->n_maps + 1);
    } while (was_late(1));
}

static void expect_all_at(int node)
{
    assert_int_equal(w->map.n_nodes, 1);
    assert_int_equal(w->map.owner[16383], 0);
    assert_string_equal(w->map.address[0], w->nodes[node].fake.address);
}

/* ---- asking ---- */

static void the_map_comes_by_itself(void **state)
{
    (void)state;
    open_watch(w->nodes[0].fake.address);
    until_maps(1);
    expect_all_at(0);
    if (had_time()) assert_string_equal(cluster_watch_passed(w->watch, 0), "");
    assert_null(cluster_watch_passed(w->watch, 1));
}

static void shards_are_asked_first(void **state)
{
    (void)state;
    w->nodes[0].shards =
        "*1\r\n*4\r\n$5\r\nslots\r\n*2\r\n:0\r\n:16383\r\n$5\r\nnodes\r\n*1\r\n*8\r\n$4\r\nport\r\n:7\r\n$8\r\n"
        "endpoint\r\n$0\r\n\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$6\r\nhealth\r\n$6\r\nonline\r\n";
    open_watch(w->nodes[0].fake.address);
    until_maps(1);
    assert_string_equal(w->map.address[0], "127.0.0.1:7"); /* the host is the one that was asked */
    assert_int_equal(w->nodes[0].n_slots, 0);
}

static void slots_are_asked_where_shards_are_not_permitted(void **state)
{
    (void)state;
    w->nodes[0].shards = "-NOPERM this user has no permissions to run the 'cluster|shards' command\r\n";
    open_watch(w->nodes[0].fake.address);
    until_maps(1);
    expect_all_at(0);
}

static void many_wishes_are_one_question_a_second(void **state)
{
    (void)state;
    int64_t first_us = w->clock.mono_us;
    open_watch(w->nodes[0].fake.address);
    while (w->n_maps < 3) {
        for (int i = 0; i < 100; i++) cluster_watch_ask(w->watch);
        patient_loop_ticks(&w->patient, 1);
    }
    clock_update(&w->clock);
    int64_t at_least_us = 1000000 - 2000; /* timers count whole milliseconds */
    assert_true(w->nodes[0].n_shards <= 1 + (w->clock.mono_us - first_us) / at_least_us);
}

static void a_wish_during_a_round_brings_another_one(void **state)
{
    (void)state;
    w->nodes[0].slots = NULL; /* passed over: the round takes a while */
    w->nodes[1].slots = NULL; /* no round is over before */
    open_watch(seeds_of(0, 1));
    while (w->nodes[0].n_slots == 0) patient_loop_ticks(&w->patient, 1);
    w->nodes[1].slots = map_of_all[1];
    cluster_watch_ask(w->watch);
    until_maps(2);
}

static void the_one_that_answered_goes_first_next_time(void **state)
{
    (void)state;
    w->nodes[0].slots = NULL;
    open_watch(seeds_of(0, 1));
    until_maps(1);
    expect_all_at(1);
    assert_non_null(strstr(cluster_watch_passed(w->watch, 0), "no answer within 250 ms"));
    if (had_time()) assert_string_equal(cluster_watch_passed(w->watch, 1), "");
    unsigned before = w->nodes[0].n_slots;
    cluster_watch_ask(w->watch);
    until_maps(2);
    if (had_time()) assert_int_equal(w->nodes[0].n_slots, before);
}

static void a_node_that_is_cut_off_is_not_believed_for_ever(void **state)
{
    (void)state;
    open_at_first_of_two();
    doubt_until_second_was_asked();
    assert_true(w->nodes[1].n_slots > 0);
    expect_all_at(1);
}

static void a_redirect_doubts_no_map(void **state)
{
    (void)state;
    open_at_first_of_two();
    cluster_watch_ask(w->watch);
    until_maps(2);
    if (!was_late(0)) expect_all_at(0);
}

static void another_node_that_knows_fewer_hash_slots_is_not_believed(void **state)
{
    (void)state;
    w->nodes[1].slots = "*1\r\n*3\r\n:0\r\n:16382\r\n*3\r\n$9\r\n127.0.0.1\r\n:7\r\n$2\r\nid\r\n";
    open_at_first_of_two(); /* 1 was told to forget a node, and has not heard who has its hash slot now */
    doubt_until_second_was_asked();
    if (!had_time()) return;
    expect_all_at(0);
    assert_non_null(strstr(cluster_watch_passed(w->watch, 1), "fewer hash slots"));
}

static void a_cluster_that_has_become_smaller_is_believed_at_last(void **state)
{
    (void)state;
    open_at_first_of_two();
    for (int i = 0; i < 2; i++)
        w->nodes[i].slots = "*1\r\n*3\r\n:0\r\n:99\r\n*3\r\n$9\r\n127.0.0.1\r\n:7\r\n$2\r\nid\r\n";
    w->nodes[0].shards = NULL; /* silent, as is the only node of the last map */
    cluster_watch_doubt(w->watch);
    until_none("");
    until_maps(2);
    assert_int_equal(w->map.owner[99], 0);
    assert_int_equal(w->map.owner[100], CLUSTER_NONE);
}

static void the_nodes_of_the_last_map_are_asked_once_the_seeds_are_gone(void **state)
{
    (void)state;
    w->nodes[0].slots = map_of_all[2]; /* the seed names a node that is no seed */
    open_watch(w->nodes[0].fake.address);
    until_maps(1);
    expect_all_at(2);
    w->nodes[0].slots = NULL;
    cluster_watch_ask(w->watch);
    until_maps(2);
    assert_true(w->nodes[2].n_slots > 0);
}

static void another_server_is_asked_at_once_after_the_settings_have_changed(void **state)
{
    (void)state;
    open_watch(w->nodes[0].fake.address);
    until_maps(1);
    snprintf(w->seeds, sizeof w->seeds, "%s", w->nodes[1].fake.address);
    cluster_watch_options_changed(w->watch);
    until_maps(2);
    if (!was_late(0)) expect_all_at(1);
}

static void a_watch_that_closes_while_it_asks_says_nothing_more(void **state)
{
    (void)state;
    w->nodes[0].slots = NULL;
    open_watch(w->nodes[0].fake.address);
    while (w->nodes[0].n_slots == 0) patient_loop_ticks(&w->patient, 1);
    unsigned n_none = w->n_none; /* of rounds before, on a busy machine */
    cluster_watch_close(w->watch, on_closed, NULL);
    w->watch = NULL;
    patient_loop_until(&w->patient, is_closed, NULL);
    assert_int_equal(w->n_maps, 0);
    assert_int_equal(w->n_none, n_none);
}

/* ---- servers that are of no use ---- */

static void a_server_without_cluster_support_is_named(void **state)
{
    (void)state;
    w->nodes[0].shards = "-ERR This instance has cluster support disabled\r\n";
    open_watch(w->nodes[0].fake.address);
    until_none("it is no node of a cluster; write store.redis.topology: single");
    assert_non_null(strstr(w->why, w->nodes[0].fake.address));
    w->nodes[0].shards = "-ERR unknown subcommand 'SHARDS'. Try CLUSTER HELP.\r\n";
    until_maps(1); /* it goes on asking */
}

static void a_user_without_the_right_is_told_the_right(void **state)
{
    (void)state;
    w->options.username = "rl";
    w->nodes[0].shards = w->nodes[0].slots =
        "-NOPERM this user has no permissions to run the 'cluster|slots' command\r\n";
    open_watch(w->nodes[0].fake.address);
    until_none("ACL SETUSER rl +cluster|shards +cluster|slots");
}

static void refuse_hello(struct fake_redis *fake, struct fake_client *client, const struct slice *args, size_t n)
{
    (void)fake, (void)args, (void)n;
    fake_reply(client, "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
}

static void a_wrong_password_is_named_by_its_setting(void **state)
{
    (void)state;
    w->options.password = "secret";
    w->nodes[0].fake.on_hello = refuse_hello;
    open_watch(w->nodes[0].fake.address);
    until_none("store.redis.password_file");
    assert_null(strstr(w->why, "secret"));
}

static void a_broken_map_is_passed_over_for_the_next_servers(void **state)
{
    (void)state;
    static const char *const broken[] = {
        "+OK\r\n",
        "*0\r\n",
        ":7\r\n",
        "$3\r\nmap\r\n",
        "*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$1\r\nh\r\n:1\r\n",
        "*2\r\n*3\r\n:0\r\n:9\r\n*2\r\n$1\r\nh\r\n:1\r\n*3\r\n:9\r\n:9\r\n*2\r\n$1\r\ni\r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n:9\r\n*2\r\n$1\r\nh\r\n:0\r\n", /* port 0 */
        "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",      /* nested too deeply */
        "*1000000\r\n",
        "$1000000\r\n",
        "%1\r\n",
        "HTTP/1.1 400 Bad Request\r\n\r\n",
        "*1\r\n*3\r\n:0\r\n"};
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        w->nodes[0].slots = broken[i];
        if (i == 0)
            open_watch(seeds_of(0, 1));
        else
            cluster_watch_options_changed(w->watch);
        until_maps((unsigned)i + 1);
        expect_all_at(1);
        assert_non_null(strstr(cluster_watch_passed(w->watch, 0), w->nodes[0].fake.address));
    }
}

static void a_server_that_sends_maps_without_end_is_closed(void **state)
{
    (void)state;
    static char endless[2 << 20];
    char *to = endless + sprintf(endless, "*32768\r\n");
    while ((size_t)(to - endless) < sizeof endless - 256) to += sprintf(to, "$100\r\n%0100d\r\n", 7);
    w->nodes[0].slots = endless;
    open_watch(seeds_of(0, 1));
    until_maps(1);
    expect_all_at(1);
    assert_string_not_equal(cluster_watch_passed(w->watch, 0), "");
}

static void an_address_that_nobody_listens_on_is_passed_over(void **state)
{
    (void)state;
    char seeds[256];
    snprintf(seeds, sizeof seeds, "unix:/x\nnonsense\n127.0.0.1:1\n%s", w->nodes[0].fake.address);
    open_watch(seeds);
    until_maps(1);
    expect_all_at(0);
    assert_non_null(strstr(cluster_watch_passed(w->watch, 0), "Unix socket"));
    assert_non_null(strstr(cluster_watch_passed(w->watch, 1), "host:port"));
    assert_non_null(strstr(cluster_watch_passed(w->watch, 2), "node 127.0.0.1:1: "));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(the_map_comes_by_itself),
        TEST(shards_are_asked_first),
        TEST(slots_are_asked_where_shards_are_not_permitted),
        TEST(many_wishes_are_one_question_a_second),
        TEST(a_wish_during_a_round_brings_another_one),
        TEST(the_one_that_answered_goes_first_next_time),
        TEST(a_node_that_is_cut_off_is_not_believed_for_ever),
        TEST(a_redirect_doubts_no_map),
        TEST(another_node_that_knows_fewer_hash_slots_is_not_believed),
        TEST(a_cluster_that_has_become_smaller_is_believed_at_last),
        TEST(the_nodes_of_the_last_map_are_asked_once_the_seeds_are_gone),
        TEST(another_server_is_asked_at_once_after_the_settings_have_changed),
        TEST(a_watch_that_closes_while_it_asks_says_nothing_more),
        TEST(a_server_without_cluster_support_is_named),
        TEST(a_user_without_the_right_is_told_the_right),
        TEST(a_wrong_password_is_named_by_its_setting),
        TEST(a_broken_map_is_passed_over_for_the_next_servers),
        TEST(a_server_that_sends_maps_without_end_is_closed),
        TEST(an_address_that_nobody_listens_on_is_passed_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
