/* test_redis_link.c: the connection's life, against a real redis-server and against nobody. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <hiredis/hiredis.h>

#include "fakes/link_fixture.h"
#include "fakes/real_redis.h"
#include "redis/counters.h"

static struct real_redis redis; /* the present test's */

static int set_up(void **state)
{
    redis.folder[0] = '\0';
    return link_fixture_setup(state);
}

static int tear_down(void **state)
{
    int status = link_fixture_teardown(state);
    if (redis.folder[0] != '\0') real_redis_fini(&redis);
    return status;
}

static void start_redis(bool over_tcp, const char *const *args)
{
    real_redis_init(&redis, over_tcp);
    real_redis_start(&redis, args);
}

static void serves_at(const char *address)
{
    link_fixture_open(address);
    link_fixture_until(is_ready);
    for (int i = 0; i < 100; i++) (void)link_fixture_probe();
    link_fixture_until(all_answered);
    for (int i = 0; i < 100; i++) assert_true(fixture->probes[i].is_good);
    assert_string_equal(redis_link_status(fixture->link), "ready");
    assert_int_equal(fixture->n_attempts, 1);
}

static void a_unix_socket_serves(void **state)
{
    (void)state;
    start_redis(false, NULL);
    serves_at(redis.address);
}

static void a_numeric_address_serves(void **state)
{
    (void)state;
    start_redis(true, NULL);
    serves_at(redis.address);
}

static void a_host_name_serves_whichever_of_its_addresses_answers(void **state)
{
    (void)state;
    start_redis(true, NULL); /* on 127.0.0.1 only; localhost may be ::1 first */
    char address[32];
    snprintf(address, sizeof(address), "localhost:%d", redis.port);
    link_fixture_open(address);
    link_fixture_until(is_ready);
    (void)link_fixture_probe();
    link_fixture_until(all_answered);
}

static void another_database_is_selected(void **state)
{
    (void)state;
    start_redis(false, NULL);
    fixture->options.database = 3;
    link_fixture_open(redis.address);
    link_fixture_until(is_ready);
    const struct slice set[] = {slice_of("SET"), slice_of("k"), slice_of("1")};
    (void)link_fixture_command(set, 3);
    link_fixture_until(all_answered);
    assert_int_equal(real_redis_command(&redis, "EVAL %s 0", "redis.call('select',3)return(redis.call('exists','k'))"),
                     1);
}

static void a_database_that_does_not_exist_is_reported(void **state)
{
    (void)state;
    start_redis(false, NULL);
    fixture->options.database = 77;
    link_fixture_open(redis.address);
    link_fixture_until(had_three_attempts);
    link_fixture_status_has("store.redis.database");
}

static void a_server_that_is_absent_is_found_once_it_comes(void **state)
{
    (void)state;
    real_redis_init(&redis, false);
    link_fixture_open(redis.address);
    link_fixture_until(had_three_attempts);
    assert_false(redis_link_is_ready(fixture->link));
    link_fixture_status_has("No such file or directory (unix:");
    assert_true(redis_counters.redis_connect_failures >= 3);
    real_redis_start(&redis, NULL);
    link_fixture_until(is_ready);
}

static void a_refused_connection_is_reported_with_its_address(void **state)
{
    (void)state;
    real_redis_init(&redis, true); /* a free port: nobody listens */
    link_fixture_open(redis.address);
    link_fixture_until(had_three_attempts);
    link_fixture_status_has("Connection refused (127.0.0.1:");
}

static void a_name_without_address_is_reported(void **state)
{
    (void)state;
    link_fixture_open("no-such-host.invalid:6379");
    link_fixture_until(had_three_attempts);
    link_fixture_status_has("(no-such-host.invalid:6379)");
    assert_false(redis_link_is_ready(fixture->link));
}

static void an_unusable_address_is_reported(void **state)
{
    (void)state;
    link_fixture_open("nonsense");
    link_fixture_until(had_three_attempts);
    link_fixture_status_has("write host:port");
}

static void a_killed_server_loses_every_waiting_call_once(void **state)
{
    (void)state;
    start_redis(false, NULL);
    link_fixture_open(redis.address);
    link_fixture_until(is_ready);
    real_redis_signal(&redis, SIGSTOP); /* so that none of them is answered */
    for (int i = 0; i < 500; i++) (void)link_fixture_probe();
    redis_link_flush(fixture->link);
    real_redis_kill(&redis);
    link_fixture_until(is_down);
    for (int i = 0; i < 500; i++) assert_true(fixture->probes[i].is_lost && fixture->probes[i].n_replies == 1);
    assert_false(redis_link_is_ready(fixture->link));
    real_redis_start(&redis, NULL);
    link_fixture_until(is_ready);
    (void)link_fixture_probe();
    link_fixture_until(all_answered);
    assert_true(fixture->probes[500].is_good);
}

static void a_stopped_server_is_noticed_though_commands_keep_coming(void **state)
{
    (void)state;
    start_redis(true, NULL);
    fixture->options.stall_ms = 250;
    link_fixture_open(redis.address);
    link_fixture_until(is_ready);
    real_redis_signal(&redis, SIGSTOP);
    while (fixture->n_down == 0) {
        if (redis_link_is_ready(fixture->link) && fixture->n_made < MAX_PROBES - 10) (void)link_fixture_probe();
        patient_loop_ticks(&fixture->patient, 1);
    }
    assert_int_equal(redis_counters.redis_stalls, 1);
    link_fixture_status_has("no reply for 250 ms");
    link_fixture_until(all_answered);
    real_redis_signal(&redis, SIGCONT);
    link_fixture_until(is_ready);
    struct probe *after = link_fixture_probe();
    link_fixture_until(all_answered);
    assert_true(after->is_good);
}

static void a_silent_idle_connection_is_no_stall(void **state)
{
    (void)state;
    start_redis(false, NULL);
    fixture->options.stall_ms = 20;
    link_fixture_open(redis.address);
    link_fixture_until(is_ready);
    (void)link_fixture_probe();
    link_fixture_until(all_answered);
    uint64_t until_ns = uv_hrtime() + UINT64_C(100) * 1000000; /* five times the stall time, without a call */
    while (uv_hrtime() < until_ns) patient_loop_ticks(&fixture->patient, 1);
    assert_int_equal(fixture->n_down, 0);
}

static void a_user_with_the_minimal_rights_is_enough(void **state)
{
    (void)state;
    start_redis(false, NULL);
    real_redis_command(&redis, "ACL SETUSER rl on >secret resetkeys ~rl:* -@all +hello +auth +client|setname +select "
                               "+script|load +evalsha");
    fixture->options.username = "rl";
    fixture->options.password = "secret";
    serves_at(redis.address);
}

static void a_wrong_password_is_reported_and_not_shown(void **state)
{
    (void)state;
    start_redis(false, NULL);
    real_redis_command(&redis, "ACL SETUSER rl on >secret ~* +@all");
    fixture->options.username = "rl";
    fixture->options.password = "not-the-secret";
    link_fixture_open(redis.address);
    link_fixture_until(had_three_attempts);
    link_fixture_status_has("WRONGPASS");
    assert_null(strstr(redis_link_status(fixture->link), "not-the-secret"));
    fixture->options.password = "secret";
    redis_link_move(fixture->link);
    link_fixture_until(is_ready);
}

static void a_missing_password_is_reported(void **state)
{
    (void)state;
    const char *const args[] = {"--requirepass", "secret", NULL};
    start_redis(false, args);
    link_fixture_open(redis.address);
    link_fixture_until(had_three_attempts);
    link_fixture_status_has("NOAUTH");
    fixture->options.password = "secret"; /* of the default user */
    redis_link_move(fixture->link);
    link_fixture_until(is_ready);
}

static void a_user_who_may_not_call_the_script_is_reported(void **state)
{
    (void)state;
    start_redis(false, NULL);
    real_redis_command(&redis, "ACL SETUSER rl on >secret ~* +@all -evalsha");
    fixture->options.username = "rl";
    fixture->options.password = "secret";
    link_fixture_open(redis.address);
    link_fixture_until(had_three_attempts);
    link_fixture_status_has("NOPERM");
}

static void a_replica_is_refused(void **state)
{
    (void)state;
    const char *const args[] = {"--replicaof", "127.0.0.1", "1", NULL};
    start_redis(false, args);
    link_fixture_open(redis.address);
    link_fixture_until(had_three_attempts);
    link_fixture_status_has("replica");
    real_redis_command(&redis, "REPLICAOF NO ONE");
    link_fixture_until(is_ready);
}

static void too_many_clients_is_reported(void **state)
{
    (void)state;
    const char *const args[] = {"--maxclients", "1", NULL};
    start_redis(true, args);
    redisContext *hog = real_redis_connect(&redis);
    link_fixture_open(redis.address);
    link_fixture_until(had_three_attempts);
    link_fixture_status_has("max number of clients");
    redisFree(hog);
    link_fixture_until(is_ready);
}

static void a_link_may_be_closed_at_once(void **state)
{
    (void)state;
    link_fixture_open("unix:/nowhere");
    link_fixture_close();
}

static void a_link_may_be_closed_while_a_name_is_looked_up(void **state)
{
    (void)state;
    link_fixture_open("no-such-host.invalid:6379");
    patient_loop_ticks(&fixture->patient, 1);
    link_fixture_close();
}

static void a_link_may_be_closed_while_it_opens(void **state)
{
    (void)state;
    start_redis(false, NULL);
    real_redis_signal(&redis, SIGSTOP);
    link_fixture_open(redis.address);
    patient_loop_ticks(&fixture->patient, 3);
    link_fixture_close();
}

static void a_link_may_be_closed_with_calls_waiting(void **state)
{
    (void)state;
    start_redis(false, NULL);
    link_fixture_open(redis.address);
    link_fixture_until(is_ready);
    for (int i = 0; i < 50; i++) (void)link_fixture_probe();
    link_fixture_close();
    assert_int_equal(fixture->n_answered, 50);
}

static void a_link_may_be_closed_from_within_a_reply(void **state)
{
    (void)state;
    start_redis(false, NULL);
    link_fixture_open(redis.address);
    link_fixture_until(is_ready);
    for (int i = 0; i < 50; i++) (void)link_fixture_probe();
    fixture->closes_in_reply = true;
    link_fixture_until(is_closed);
    assert_int_equal(fixture->n_answered, 50);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest without_server[] = {
        TEST(a_refused_connection_is_reported_with_its_address),
        TEST(a_name_without_address_is_reported),
        TEST(an_unusable_address_is_reported),
        TEST(a_link_may_be_closed_at_once),
        TEST(a_link_may_be_closed_while_a_name_is_looked_up),
    };
    const struct CMUnitTest with_server[] = {
        TEST(a_unix_socket_serves),
        TEST(a_numeric_address_serves),
        TEST(a_host_name_serves_whichever_of_its_addresses_answers),
        TEST(another_database_is_selected),
        TEST(a_database_that_does_not_exist_is_reported),
        TEST(a_server_that_is_absent_is_found_once_it_comes),
        TEST(a_killed_server_loses_every_waiting_call_once),
        TEST(a_stopped_server_is_noticed_though_commands_keep_coming),
        TEST(a_silent_idle_connection_is_no_stall),
        TEST(a_user_with_the_minimal_rights_is_enough),
        TEST(a_wrong_password_is_reported_and_not_shown),
        TEST(a_missing_password_is_reported),
        TEST(a_user_who_may_not_call_the_script_is_reported),
        TEST(a_replica_is_refused),
        TEST(too_many_clients_is_reported),
        TEST(a_link_may_be_closed_while_it_opens),
        TEST(a_link_may_be_closed_with_calls_waiting),
        TEST(a_link_may_be_closed_from_within_a_reply),
    };
    int n_failed = cmocka_run_group_tests(without_server, NULL, NULL);
    if (real_redis_is_installed())
        n_failed += cmocka_run_group_tests(with_server, NULL, NULL);
    else
        puts("skipped what needs a real server: redis-server is not installed");
    return n_failed;
}
