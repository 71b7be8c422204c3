/*
 * test_redis_link.c: the connection's life, against a real redis-server and against one that misbehaves.
 *
 * The script is a trivial one: the link does not know what the script does. Made = answered holds in
 * every test: each call got exactly one reply, or its NULL.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/counters.h"
#include "fakes/fake_redis.h"
#include "fakes/patient_loop.h"
#include "fakes/real_redis.h"
#include "store/redis_link.h"

#define SCRIPT "return {7, tonumber(ARGV[#ARGV])}"
#define SHA1   "19b8fd11daaa8325dd0ec6ce3be1b64a5a7e6496"

enum { MAX_PROBES = 2000 };

/* One command sent through the link. */
struct probe {
    struct redis_call call;
    struct world *world;
    unsigned number;
    int n_replies;
    bool is_lost, is_good;
};

struct world {
    struct patient_loop patient;
    struct clock clock;
    struct redis_options options;
    struct redis_script script;
    struct redis_link *link;
    unsigned n_ready, n_down, n_attempts, n_made, n_answered;
    bool is_closed, closes_in_reply;
    struct fake_redis fake;
    const char *say; /* what the fake says to the next EVALSHA after the canary */
    size_t say_len;
    struct probe probes[MAX_PROBES];
};

static struct world *world; /* one at a time */

static size_t canary(void *arg, const struct slice **ret_args)
{
    (void)arg;
    static struct slice args[2];
    args[0] = slice_of("0");
    args[1] = slice_of("42");
    *ret_args = args;
    return 2;
}

static bool is_canary_good(void *arg, const struct redis_reader *reply)
{
    (void)arg;
    return redis_reader_is_integers(reply) && reply->n_integers == 2 && reply->integers[1] == 42;
}

static void on_ready(void *arg)
{
    ((struct world *)arg)->n_ready++;
}

static void on_down(void *arg)
{
    ((struct world *)arg)->n_down++;
}

static void on_attempt(void *arg)
{
    ((struct world *)arg)->n_attempts++;
}

static void flush(void *arg)
{
    struct world *w = arg;
    if (w->link != NULL) redis_link_flush(w->link);
}

static void on_closed(void *arg)
{
    ((struct world *)arg)->is_closed = true;
}

static void close_link(void)
{
    struct redis_link *link = world->link;
    world->link = NULL;
    redis_link_close(link, on_closed, world);
}

static int setup(void **state)
{
    world = calloc(1, sizeof(*world));
    memset(&counters, 0, sizeof(counters));
    patient_loop_init(&world->patient);
    world->patient.on_turn_end = flush;
    world->patient.arg = world;
    clock_update(&world->clock);
    world->options = (struct redis_options){
        .stall_ms = 250, .backoff_min_ms = 1, .backoff_max_ms = 10, .refused_max_ms = 20, .random_seed = 7};
    world->script = (struct redis_script){
        .text = slice_of(SCRIPT), .sha1 = slice_of(SHA1), .canary = canary, .is_canary_good = is_canary_good};
    *state = world;
    return 0;
}

static bool is_closed(void *arg)
{
    return ((struct world *)arg)->is_closed;
}

static int teardown(void **state)
{
    (void)state;
    if (world->link != NULL) close_link();
    patient_loop_until(&world->patient, is_closed, world);
    assert_int_equal(world->n_made, world->n_answered);
    patient_loop_fini(&world->patient);
    free(world);
    return 0;
}

static void open_link(const char *address)
{
    world->options.address = address;
    const struct redis_link_events events = {
        .arg = world, .on_ready = on_ready, .on_down = on_down, .on_attempt = on_attempt};
    world->link = redis_link_new(&world->patient.loop, &world->clock, &world->options, &world->script, &events);
    assert_non_null(world->link);
}

static bool is_ready(void *arg)
{
    (void)arg;
    return redis_link_is_ready(world->link);
}

static bool is_down(void *arg)
{
    (void)arg;
    return world->n_down > 0;
}

static bool all_answered(void *arg)
{
    (void)arg;
    return world->n_answered == world->n_made;
}

static bool had_attempt(void *arg)
{
    (void)arg;
    return world->n_attempts >= 1;
}

static bool had_three_attempts(void *arg)
{
    (void)arg;
    return world->n_attempts >= 3;
}

static void until(bool (*is_true)(void *arg))
{
    patient_loop_until(&world->patient, is_true, world);
}

static void on_probe_reply(struct redis_call *call, const struct redis_reader *reply)
{
    struct probe *probe = CONTAINER_OF(call, struct probe, call);
    probe->n_replies++;
    probe->world->n_answered++;
    probe->is_lost = reply == NULL;
    probe->is_good = reply != NULL && redis_reader_is_integers(reply) && reply->n_integers == 2 &&
                     reply->integers[1] == (int64_t)probe->number;
    if (probe->world->closes_in_reply && probe->world->link != NULL) close_link();
}

static struct probe *probe(void)
{
    assert_true(world->n_made < MAX_PROBES);
    struct probe *made = &world->probes[world->n_made];
    *made = (struct probe){.call = {.on_reply = on_probe_reply}, .world = world, .number = 1000 + world->n_made};
    char number[16];
    snprintf(number, sizeof(number), "%u", made->number);
    const struct slice args[] = {slice_of("EVALSHA"), slice_of(SHA1), slice_of("0"), slice_of(number)};
    assert_int_equal(redis_link_send(world->link, &made->call, args, 4), 0);
    world->n_made++;
    return made;
}

static void assert_status_has(const char *part)
{
    const char *status = redis_link_status(world->link);
    if (strstr(status, part) == NULL) fail_msg("status \"%s\" does not contain \"%s\"", status, part);
}

/* ---- a real server ---- */

static void serves_at(struct real_redis *redis, const char *address)
{
    open_link(address);
    until(is_ready);
    for (int i = 0; i < 100; i++) (void)probe();
    until(all_answered);
    for (int i = 0; i < 100; i++) assert_true(world->probes[i].is_good);
    assert_string_equal(redis_link_status(world->link), "ready");
    assert_int_equal(world->n_attempts, 1);
    real_redis_fini(redis);
}

static void a_unix_socket_serves(void **state)
{
    (void)state;
    struct real_redis redis;
    real_redis_init(&redis, false);
    real_redis_start(&redis, NULL);
    serves_at(&redis, redis.address);
}

static void a_numeric_address_serves(void **state)
{
    (void)state;
    struct real_redis redis;
    real_redis_init(&redis, true);
    real_redis_start(&redis, NULL);
    serves_at(&redis, redis.address);
}

static void a_host_name_serves_whichever_of_its_addresses_answers(void **state)
{
    (void)state;
    struct real_redis redis;
    real_redis_init(&redis, true); /* on 127.0.0.1 only; localhost may be ::1 first */
    real_redis_start(&redis, NULL);
    char address[32];
    snprintf(address, sizeof(address), "localhost:%d", redis.port);
    open_link(address);
    until(is_ready);
    (void)probe();
    until(all_answered);
    real_redis_fini(&redis);
}

static void another_database_is_selected(void **state)
{
    (void)state;
    struct real_redis redis;
    real_redis_init(&redis, false);
    real_redis_start(&redis, NULL);
    world->options.database = 3;
    open_link(redis.address);
    until(is_ready);
    struct probe *made = &world->probes[world->n_made++];
    *made = (struct probe){.call = {.on_reply = on_probe_reply}, .world = world};
    const struct slice set[] = {slice_of("SET"), slice_of("k"), slice_of("1")};
    assert_int_equal(redis_link_send(world->link, &made->call, set, 3), 0);
    until(all_answered);
    assert_int_equal(real_redis_command(&redis, "EVAL %s 0", "redis.call('select',3)return(redis.call('exists','k'))"),
                     1);
    real_redis_fini(&redis);
}

static void a_database_that_does_not_exist_is_told(void **state)
{
    (void)state;
    struct real_redis redis;
    real_redis_init(&redis, false);
    real_redis_start(&redis, NULL);
    world->options.database = 77;
    open_link(redis.address);
    until(had_three_attempts);
    assert_status_has("DB index is out of range");
    real_redis_fini(&redis);
}

static void a_server_that_is_absent_is_found_once_it_comes(void **state)
{
    (void)state;
    struct real_redis redis;
    real_redis_init(&redis, false);
    open_link(redis.address);
    until(had_three_attempts);
    assert_false(redis_link_is_ready(world->link));
    assert_status_has("No such file or directory (unix:");
    assert_true(counters.redis_connect_failures >= 3);
    real_redis_start(&redis, NULL);
    until(is_ready);
    real_redis_fini(&redis);
}

static void a_refused_connection_is_told_with_its_address(void **state)
{
    (void)state;
    struct real_redis redis;
    real_redis_init(&redis, true); /* a free port: nobody listens */
    open_link(redis.address);
    until(had_three_attempts);
    assert_status_has("Connection refused (127.0.0.1:");
    real_redis_fini(&redis);
}

static void a_name_without_address_is_told(void **state)
{
    (void)state;
    open_link("no-such-host.invalid:6379");
    until(had_three_attempts);
    assert_status_has("(no-such-host.invalid:6379)");
    assert_false(redis_link_is_ready(world->link));
}

static void an_address_nobody_can_use_is_told(void **state)
{
    (void)state;
    open_link("nonsense");
    until(had_three_attempts);
    assert_status_has("write host:port");
}

static void a_killed_server_loses_every_waiting_call_once(void **state)
{
    (void)state;
    struct real_redis redis;
    real_redis_init(&redis, false);
    real_redis_start(&redis, NULL);
    open_link(redis.address);
    until(is_ready);
    real_redis_signal(&redis, SIGSTOP); /* so that none of them is answered */
    for (int i = 0; i < 500; i++) (void)probe();
    redis_link_flush(world->link);
    real_redis_kill(&redis);
    until(is_down);
    for (int i = 0; i < 500; i++) assert_true(world->probes[i].is_lost && world->probes[i].n_replies == 1);
    assert_false(redis_link_is_ready(world->link));
    real_redis_start(&redis, NULL);
    until(is_ready);
    (void)probe();
    until(all_answered);
    assert_true(world->probes[500].is_good);
    real_redis_fini(&redis);
}

static void a_stopped_server_is_noticed_though_commands_keep_coming(void **state)
{
    (void)state;
    struct real_redis redis;
    real_redis_init(&redis, true);
    real_redis_start(&redis, NULL);
    open_link(redis.address);
    until(is_ready);
    real_redis_signal(&redis, SIGSTOP);
    while (world->n_down == 0) {
        if (redis_link_is_ready(world->link) && world->n_made < MAX_PROBES - 10) (void)probe();
        patient_loop_turns(&world->patient, 1);
    }
    assert_int_equal(counters.redis_stalls, 1);
    assert_status_has("no reply for 250 ms");
    until(all_answered);
    real_redis_signal(&redis, SIGCONT);
    until(is_ready);
    struct probe *after = probe();
    until(all_answered);
    assert_true(after->is_good);
    real_redis_fini(&redis);
}

static void a_silent_idle_connection_is_no_stall(void **state)
{
    (void)state;
    struct real_redis redis;
    real_redis_init(&redis, false);
    real_redis_start(&redis, NULL);
    world->options.stall_ms = 20;
    open_link(redis.address);
    until(is_ready);
    (void)probe();
    until(all_answered);
    uint64_t until_ns = uv_hrtime() + UINT64_C(100) * 1000000; /* five times the stall time, without a call */
    while (uv_hrtime() < until_ns) patient_loop_turns(&world->patient, 1);
    assert_int_equal(world->n_down, 0);
    real_redis_fini(&redis);
}

static void a_user_with_the_minimal_rights_is_enough(void **state)
{
    (void)state;
    struct real_redis redis;
    real_redis_init(&redis, false);
    real_redis_start(&redis, NULL);
    real_redis_command(&redis, "ACL SETUSER rl on >secret resetkeys ~rl:* -@all +hello +auth +client|setname +select "
                               "+script|load +evalsha");
    world->options.username = "rl";
    world->options.password = "secret";
    serves_at(&redis, redis.address);
}

static void a_wrong_password_is_told_and_not_shown(void **state)
{
    (void)state;
    struct real_redis redis;
    real_redis_init(&redis, false);
    real_redis_start(&redis, NULL);
    real_redis_command(&redis, "ACL SETUSER rl on >secret ~* +@all");
    world->options.username = "rl";
    world->options.password = "not-the-secret";
    open_link(redis.address);
    until(had_three_attempts);
    assert_status_has("WRONGPASS");
    assert_null(strstr(redis_link_status(world->link), "not-the-secret"));
    world->options.password = "secret";
    redis_link_options_changed(world->link, true);
    until(is_ready);
    real_redis_fini(&redis);
}

static void a_missing_password_is_told(void **state)
{
    (void)state;
    struct real_redis redis;
    real_redis_init(&redis, false);
    const char *const args[] = {"--requirepass", "secret", NULL};
    real_redis_start(&redis, args);
    open_link(redis.address);
    until(had_three_attempts);
    assert_status_has("NOAUTH");
    world->options.password = "secret"; /* of the default user */
    redis_link_options_changed(world->link, true);
    until(is_ready);
    real_redis_fini(&redis);
}

static void a_user_who_may_not_call_the_script_is_told(void **state)
{
    (void)state;
    struct real_redis redis;
    real_redis_init(&redis, false);
    real_redis_start(&redis, NULL);
    real_redis_command(&redis, "ACL SETUSER rl on >secret ~* +@all -evalsha");
    world->options.username = "rl";
    world->options.password = "secret";
    open_link(redis.address);
    until(had_three_attempts);
    assert_status_has("NOPERM");
    real_redis_fini(&redis);
}

static void a_replica_is_refused(void **state)
{
    (void)state;
    struct real_redis redis;
    real_redis_init(&redis, false);
    const char *const args[] = {"--replicaof", "127.0.0.1", "1", NULL};
    real_redis_start(&redis, args);
    open_link(redis.address);
    until(had_three_attempts);
    assert_status_has("replica");
    real_redis_command(&redis, "REPLICAOF NO ONE");
    until(is_ready);
    real_redis_fini(&redis);
}

static void too_many_clients_is_told(void **state)
{
    (void)state;
    struct real_redis redis;
    real_redis_init(&redis, true);
    const char *const args[] = {"--maxclients", "1", NULL};
    real_redis_start(&redis, args);
    redisContext *hog = real_redis_connect(&redis);
    open_link(redis.address);
    until(had_three_attempts);
    assert_status_has("max number of clients");
    redisFree(hog);
    until(is_ready);
    real_redis_fini(&redis);
}

static void a_link_may_be_closed_at_once(void **state)
{
    (void)state;
    open_link("unix:/nowhere");
    close_link();
}

static void a_link_may_be_closed_while_a_name_is_looked_up(void **state)
{
    (void)state;
    open_link("no-such-host.invalid:6379");
    patient_loop_turns(&world->patient, 1);
    close_link();
}

static void a_link_may_be_closed_while_it_opens(void **state)
{
    (void)state;
    struct real_redis redis;
    real_redis_init(&redis, false);
    real_redis_start(&redis, NULL);
    real_redis_signal(&redis, SIGSTOP);
    open_link(redis.address);
    patient_loop_turns(&world->patient, 3);
    close_link();
    real_redis_fini(&redis);
}

static void a_link_may_be_closed_with_calls_waiting(void **state)
{
    (void)state;
    struct real_redis redis;
    real_redis_init(&redis, false);
    real_redis_start(&redis, NULL);
    open_link(redis.address);
    until(is_ready);
    for (int i = 0; i < 50; i++) (void)probe();
    close_link();
    assert_int_equal(world->n_answered, 50);
    real_redis_fini(&redis);
}

static void a_link_may_be_closed_from_within_a_reply(void **state)
{
    (void)state;
    struct real_redis redis;
    real_redis_init(&redis, false);
    real_redis_start(&redis, NULL);
    open_link(redis.address);
    until(is_ready);
    for (int i = 0; i < 50; i++) (void)probe();
    world->closes_in_reply = true;
    until(is_closed);
    assert_int_equal(world->n_answered, 50);
    real_redis_fini(&redis);
}

/* ---- a server that misbehaves ---- */

/* The canary is answered well; what comes after it gets `say` and, without one, nothing. */
static void misbehave(struct fake_redis *fake, struct fake_client *client, const struct slice *args, size_t n)
{
    unsigned nonce = fake_nonce(args, n);
    if (nonce == 42)
        fake_say(client, "*2\r\n:7\r\n:42\r\n");
    else if (world->say != NULL)
        fake_say_bytes(client, world->say, world->say_len);
    (void)fake;
}

static void after_ready_the_server_says(const char *bytes, size_t len)
{
    world->say = bytes;
    world->say_len = len;
    fake_redis_init(&world->fake, &world->patient.loop, SHA1, misbehave);
    open_link(world->fake.address);
    until(is_ready);
    (void)probe();
    until(is_down);
    until(all_answered);
    world->say = NULL;
    until(is_ready); /* and it comes back */
    close_link();
    fake_redis_close(&world->fake);
}

#define AFTER_READY_THE_SERVER_SAYS(text) after_ready_the_server_says(text, sizeof(text) - 1)

static void a_reply_that_nobody_waits_for_closes_the_connection(void **state)
{
    (void)state;
    AFTER_READY_THE_SERVER_SAYS("*2\r\n:7\r\n:1000\r\n+EXTRA\r\n");
    assert_true(world->probes[0].is_good);
    assert_int_equal(counters.redis_bad_replies, 1);
}

static void extra_replies_of_every_type_close_the_connection(void **state)
{
    (void)state;
    AFTER_READY_THE_SERVER_SAYS(":1\r\n*0\r\n");
    assert_int_equal(counters.redis_bad_replies, 1);
}

static void an_extra_array_an_extra_error_and_an_extra_nil_close_the_connection(void **state)
{
    (void)state;
    AFTER_READY_THE_SERVER_SAYS(":1\r\n-ERR extra\r\n$-1\r\n");
}

static void deep_nesting_closes_the_connection(void **state)
{
    (void)state;
    AFTER_READY_THE_SERVER_SAYS("*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n");
    assert_true(world->probes[0].is_lost);
    assert_int_equal(counters.redis_bad_replies, 1);
}

static void an_array_of_too_many_closes_the_connection(void **state)
{
    (void)state;
    AFTER_READY_THE_SERVER_SAYS("*4097\r\n");
}

static void garbage_closes_the_connection(void **state)
{
    (void)state;
    AFTER_READY_THE_SERVER_SAYS("\x16\x03\x01 this is no Redis\r\n");
}

static void an_http_answer_closes_the_connection(void **state)
{
    (void)state;
    AFTER_READY_THE_SERVER_SAYS("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
}

static void a_push_and_a_map_close_the_connection(void **state)
{
    (void)state;
    AFTER_READY_THE_SERVER_SAYS(">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nb\r\n%1\r\n:1\r\n:2\r\n");
    assert_true(world->probes[0].is_lost);
}

static void a_double_and_a_boolean_close_the_connection(void **state)
{
    (void)state;
    AFTER_READY_THE_SERVER_SAYS(",3.14\r\n#t\r\n");
}

static void half_a_reply_is_a_stall(void **state)
{
    (void)state;
    AFTER_READY_THE_SERVER_SAYS("*2\r\n:7\r\n:10");
    assert_int_equal(counters.redis_stalls, 1);
}

static void a_huge_bulk_closes_the_connection_before_it_is_buffered(void **state)
{
    (void)state;
    enum { SIZE = 4 * 1024 * 1024 };
    char *bytes = calloc(1, SIZE);
    memcpy(bytes, "$1000000000\r\n", 13);
    world->options.stall_ms = 30000;
    after_ready_the_server_says(bytes, SIZE);
    assert_int_equal(counters.redis_stalls, 0);
    assert_int_equal(counters.redis_bad_replies, 1);
    free(bytes);
}

static void hang_up(struct fake_redis *fake, struct fake_client *client, const struct slice *args, size_t n)
{
    (void)fake;
    if (fake_nonce(args, n) == 42) {
        fake_say(client, "*2\r\n:7\r\n:42\r\n");
        return;
    }
    fake_say(client, "*2\r\n:7");
    fake_hang_up(client);
}

static void a_connection_cut_inside_a_reply_loses_the_call_once(void **state)
{
    (void)state;
    fake_redis_init(&world->fake, &world->patient.loop, SHA1, hang_up);
    open_link(world->fake.address);
    until(is_ready);
    (void)probe();
    until(is_down);
    assert_true(world->probes[0].is_lost);
    close_link();
    fake_redis_close(&world->fake);
}

static void say_nothing(struct fake_redis *fake, struct fake_client *client, const struct slice *args, size_t n)
{
    (void)fake, (void)client, (void)args, (void)n;
}

static void a_server_that_accepts_and_hangs_is_given_up_in_time(void **state)
{
    (void)state;
    fake_redis_init(&world->fake, &world->patient.loop, SHA1, say_nothing);
    open_link(world->fake.address);
    until(had_attempt);
    assert_status_has("no answer in time");
    close_link();
    fake_redis_close(&world->fake);
}

static void say_wrong_digest(struct fake_redis *fake, struct fake_client *client, const struct slice *args, size_t n)
{
    (void)fake, (void)args, (void)n;
    fake_say(client, "$40\r\n0000000000000000000000000000000000000000\r\n");
}

static void a_digest_that_is_not_ours_is_refused(void **state)
{
    (void)state;
    fake_redis_init(&world->fake, &world->patient.loop, SHA1, misbehave);
    world->fake.on_load = say_wrong_digest;
    open_link(world->fake.address);
    until(had_three_attempts);
    assert_status_has("another digest");
    assert_int_equal(world->n_ready, 0);
    close_link();
    fake_redis_close(&world->fake);
}

static void say_busy(struct fake_redis *fake, struct fake_client *client, const struct slice *args, size_t n)
{
    (void)fake, (void)args, (void)n;
    fake_say(client, "-BUSY Redis is busy running a script.\r\n");
}

static void a_server_whose_hello_is_fine_but_whose_scripts_are_not_is_not_ready(void **state)
{
    (void)state;
    fake_redis_init(&world->fake, &world->patient.loop, SHA1, say_busy);
    open_link(world->fake.address);
    until(had_three_attempts);
    assert_status_has("BUSY");
    assert_int_equal(world->n_ready, 0);
    close_link();
    fake_redis_close(&world->fake);
}

static void hello_is_unknown(struct fake_redis *fake, struct fake_client *client, const struct slice *args, size_t n)
{
    (void)fake, (void)n;
    if (slice_is(args[0], "HELLO"))
        fake_say(client, "-ERR unknown command 'HELLO'\r\n");
    else
        fake_say(client, "+OK\r\n");
}

static void a_server_without_hello_is_asked_the_old_way(void **state)
{
    (void)state;
    world->options.password = "secret";
    fake_redis_init(&world->fake, &world->patient.loop, SHA1, misbehave);
    world->fake.on_hello = hello_is_unknown;
    open_link(world->fake.address);
    until(is_ready);
    assert_int_equal(world->n_attempts, 2);
    close_link();
    fake_redis_close(&world->fake);
}

static void say_modules(struct fake_redis *fake, struct fake_client *client, const struct slice *args, size_t n)
{
    (void)fake, (void)args, (void)n;
    fake_say(client, "*6\r\n$5\r\nproto\r\n:2\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n"
                     "*1\r\n*4\r\n$4\r\nname\r\n$2\r\nbf\r\n$4\r\nargs\r\n*1\r\n$1\r\nx\r\n");
}

static void a_server_with_modules_is_fine(void **state)
{
    (void)state;
    fake_redis_init(&world->fake, &world->patient.loop, SHA1, misbehave);
    world->fake.on_hello = say_modules;
    open_link(world->fake.address);
    until(is_ready);
    close_link();
    fake_redis_close(&world->fake);
}

static void say_http(struct fake_redis *fake, struct fake_client *client, const struct slice *args, size_t n)
{
    (void)fake, (void)args, (void)n;
    fake_say(client, "HTTP/1.1 400 Bad Request\r\n\r\n");
}

static void a_web_server_is_no_redis(void **state)
{
    (void)state;
    fake_redis_init(&world->fake, &world->patient.loop, SHA1, misbehave);
    world->fake.on_hello = say_http;
    open_link(world->fake.address);
    until(had_three_attempts);
    assert_status_has("Protocol error");
    close_link();
    fake_redis_close(&world->fake);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest with_server[] = {
        TEST(a_unix_socket_serves),
        TEST(a_numeric_address_serves),
        TEST(a_host_name_serves_whichever_of_its_addresses_answers),
        TEST(another_database_is_selected),
        TEST(a_database_that_does_not_exist_is_told),
        TEST(a_server_that_is_absent_is_found_once_it_comes),
        TEST(a_killed_server_loses_every_waiting_call_once),
        TEST(a_stopped_server_is_noticed_though_commands_keep_coming),
        TEST(a_silent_idle_connection_is_no_stall),
        TEST(a_user_with_the_minimal_rights_is_enough),
        TEST(a_wrong_password_is_told_and_not_shown),
        TEST(a_missing_password_is_told),
        TEST(a_user_who_may_not_call_the_script_is_told),
        TEST(a_replica_is_refused),
        TEST(too_many_clients_is_told),
        TEST(a_link_may_be_closed_while_it_opens),
        TEST(a_link_may_be_closed_with_calls_waiting),
        TEST(a_link_may_be_closed_from_within_a_reply),
    };
    const struct CMUnitTest without_server[] = {
        TEST(a_refused_connection_is_told_with_its_address),
        TEST(a_name_without_address_is_told),
        TEST(an_address_nobody_can_use_is_told),
        TEST(a_link_may_be_closed_at_once),
        TEST(a_link_may_be_closed_while_a_name_is_looked_up),
        TEST(a_reply_that_nobody_waits_for_closes_the_connection),
        TEST(extra_replies_of_every_type_close_the_connection),
        TEST(an_extra_array_an_extra_error_and_an_extra_nil_close_the_connection),
        TEST(deep_nesting_closes_the_connection),
        TEST(an_array_of_too_many_closes_the_connection),
        TEST(garbage_closes_the_connection),
        TEST(an_http_answer_closes_the_connection),
        TEST(a_push_and_a_map_close_the_connection),
        TEST(a_double_and_a_boolean_close_the_connection),
        TEST(half_a_reply_is_a_stall),
        TEST(a_huge_bulk_closes_the_connection_before_it_is_buffered),
        TEST(a_connection_cut_inside_a_reply_loses_the_call_once),
        TEST(a_server_that_accepts_and_hangs_is_given_up_in_time),
        TEST(a_digest_that_is_not_ours_is_refused),
        TEST(a_server_whose_hello_is_fine_but_whose_scripts_are_not_is_not_ready),
        TEST(a_server_without_hello_is_asked_the_old_way),
        TEST(a_server_with_modules_is_fine),
        TEST(a_web_server_is_no_redis),
    };
    int n_failed = cmocka_run_group_tests(without_server, NULL, NULL);
    if (real_redis_is_installed())
        n_failed += cmocka_run_group_tests(with_server, NULL, NULL);
    else
        puts("skipped what needs a real server: redis-server is not installed");
    return n_failed;
}
