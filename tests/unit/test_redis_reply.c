/* test_redis_reply.c: error texts as Redis 5.0 to 7.4 and Valkey 8 write them, and what they mean for us. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "redis/handshake.h"

static const struct {
    const char *text;
    enum redis_error error;
    enum redis_remedy remedy;
} texts[] = {
    {"NOSCRIPT No matching script. Please use EVAL.", REDIS_ERROR_NOSCRIPT, REMEDY_RELOAD},
    {"NOSCRIPT No matching script.", REDIS_ERROR_NOSCRIPT, REMEDY_RELOAD},
    {"NOSCRIPT", REDIS_ERROR_NOSCRIPT, REMEDY_RELOAD},
    {"MOVED 3999 127.0.0.1:6381", REDIS_ERROR_OTHER, REMEDY_KEEP},
    {"ASK 3999 127.0.0.1:6381", REDIS_ERROR_OTHER, REMEDY_KEEP},
    {"TRYAGAIN Multiple keys request during rehashing of slot", REDIS_ERROR_OTHER, REMEDY_KEEP},
    {"CROSSSLOT Keys in request don't hash to the same slot", REDIS_ERROR_OTHER, REMEDY_KEEP},
    {"CLUSTERDOWN The cluster is down", REDIS_ERROR_REFUSED, REMEDY_KEEP},
    {"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", REDIS_ERROR_REFUSED,
     REMEDY_KEEP},
    {"LOADING Redis is loading the dataset in memory", REDIS_ERROR_REFUSED, REMEDY_KEEP},
    {"READONLY You can't write against a read only replica.", REDIS_ERROR_ROLE, REMEDY_RECONNECT},
    {"READONLY You can't write against a read only replica. script: 7f92, on @user_script:1.", REDIS_ERROR_ROLE,
     REMEDY_RECONNECT},
    {"ERR Error running script (call to f_7f92): @user_script:1: @user_script: 1: -READONLY You can't write against a "
     "read only replica. ",
     REDIS_ERROR_ROLE, REMEDY_RECONNECT},
    {"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", REDIS_ERROR_REFUSED,
     REMEDY_KEEP},
    {"OOM command not allowed when used memory > 'maxmemory'.", REDIS_ERROR_REFUSED, REMEDY_KEEP},
    {"ERR Error running script (call to f_7f92): @user_script:1: @user_script: 1: -OOM command not allowed when used "
     "memory > 'maxmemory'. ",
     REDIS_ERROR_REFUSED, REMEDY_KEEP},
    {"NOREPLICAS Not enough good replicas to write.", REDIS_ERROR_REFUSED, REMEDY_KEEP},
    {"ERR Error running script (call to f_7f92): @user_script:1: @user_script: 1: -NOREPLICAS Not enough good replicas "
     "to write. ",
     REDIS_ERROR_REFUSED, REMEDY_KEEP},
    {"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
     REDIS_ERROR_REFUSED, REMEDY_KEEP},
    {"NOAUTH Authentication required.", REDIS_ERROR_AUTH, REMEDY_RECONNECT_LATE},
    {"NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> "
     "<pass> option can be used",
     REDIS_ERROR_AUTH, REMEDY_RECONNECT_LATE},
    {"WRONGPASS invalid username-password pair or user is disabled.", REDIS_ERROR_AUTH, REMEDY_RECONNECT_LATE},
    {"NOPERM User rl has no permissions to run the 'evalsha' command", REDIS_ERROR_NOPERM, REMEDY_SEPARATE},
    {"NOPERM this user has no permissions to access one of the keys used as arguments", REDIS_ERROR_NOPERM,
     REMEDY_SEPARATE},
    {"NOPERM No permissions to access a key script: 7f92, on @user_script:1.", REDIS_ERROR_NOPERM_INSIDE, REMEDY_KEEP},
    {"ERR The user executing the script can't run this command or subcommand script: 7f92, on @user_script:1.",
     REDIS_ERROR_NOPERM_INSIDE, REMEDY_KEEP},
    {"ERR ACL failure in script: User rl has no permissions to run the 'get' command script: 7f92, on @user_script:1.",
     REDIS_ERROR_NOPERM_INSIDE, REMEDY_KEEP},
    {"ERR Client sent AUTH, but no password is set", REDIS_ERROR_AUTH, REMEDY_RECONNECT_LATE},
    {"ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration "
     "is correct?",
     REDIS_ERROR_AUTH, REMEDY_RECONNECT_LATE},
    {"ERR DB index is out of range", REDIS_ERROR_AUTH, REMEDY_RECONNECT_LATE},
    {"ERR max number of clients reached", REDIS_ERROR_CLIENTS, REMEDY_RECONNECT_LATE},
    {"ERR unknown command 'HELLO', with args beginning with: '2' ", REDIS_ERROR_UNKNOWN_COMMAND, REMEDY_KEEP},
    {"ERR unknown command `HELLO`, with args beginning with: `2`, ", REDIS_ERROR_UNKNOWN_COMMAND, REMEDY_KEEP},
    {"WRONGTYPE Operation against a key holding the wrong kind of value script: 7f92, on @user_script:1.",
     REDIS_ERROR_OTHER, REMEDY_KEEP},
    {"ERR user_script:1: data string too short script: 7f92, on @user_script:1.", REDIS_ERROR_OTHER, REMEDY_KEEP},
    {"ERR Error running script (call to f_7f92): @user_script:1: user_script:1: attempt to index a nil value ",
     REDIS_ERROR_OTHER, REMEDY_KEEP},
    {"ERR syntax error", REDIS_ERROR_OTHER, REMEDY_KEEP},
    {"", REDIS_ERROR_OTHER, REMEDY_KEEP},
    {" ", REDIS_ERROR_OTHER, REMEDY_KEEP},
    {"READONLYX", REDIS_ERROR_OTHER, REMEDY_KEEP},
};

static void every_known_text_has_its_class_and_remedy(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        enum redis_error error = redis_error_of(slice_of(texts[i].text));
        if (error != texts[i].error) fail_msg("class %d for: %s", error, texts[i].text);
        if (redis_error_remedy(error) != texts[i].remedy) fail_msg("wrong remedy for: %s", texts[i].text);
    }
}

static void a_call_that_ran_in_part_is_never_taken_for_one_that_did_not(void **state)
{
    (void)state;
    const char *text = "ERR Error running script (call to f_7f92): @user_script:1: -NOSCRIPT No matching script. ";
    assert_int_equal(redis_error_of(slice_of(text)), REDIS_ERROR_OTHER);
}

static void text_may_be_cut_anywhere(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        for (size_t len = 0; len <= strlen(texts[i].text); len++)
            (void)redis_error_of((struct slice){slice_of(texts[i].text).data, len});
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_known_text_has_its_class_and_remedy),
        cmocka_unit_test(a_call_that_ran_in_part_is_never_taken_for_one_that_did_not),
        cmocka_unit_test(text_may_be_cut_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
