/*
 * test_daemon.h: the private daemon that tests ask: `ratelimitd --test-limits`, with one connection to it.
 *
 * It gets its listening socket as from a service manager, in a folder that only this user may enter and that is gone
 * once the connection stands: nothing is left behind, however this process ends, and the daemon ends with it. Its
 * messages go to standard error.
 */
#ifndef RL_CTL_TEST_DAEMON_H
#define RL_CTL_TEST_DAEMON_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/buffer.h"
#include "client/exchange.h"

enum { TEST_WORDS_MAX = 512 };

struct test_daemon {
    pid_t pid;                      /* 0: none runs */
    struct ratelimit_async *client; /* owned */
    uint32_t timeout_ms;            /* of a call */
    char words[TEST_WORDS_MAX];     /* what went wrong last */
};

enum test_started {
    TEST_STARTED,
    TEST_WRONG_CONFIG, /* it has reported why */
    TEST_NOT_STARTED,  /* `words` have the reason */
};

enum test_started test_daemon_start(struct test_daemon *daemon, const char *config);
/* Ends it. False: it had ended before, or badly; `words` have the reason. */
bool test_daemon_stop(struct test_daemon *daemon);

/* A call has ended so, not with an answer: it is ended, if it has not by itself, and `words` have the reason. */
void test_daemon_end(struct test_daemon *daemon, enum ratelimit_status status);

/* Calls a method; `params`: a packed array, or NULL. The callback runs within test_daemon_wait(). */
enum ratelimit_status test_daemon_call(struct test_daemon *daemon, const char *method, const struct buffer *params,
                                       ratelimit_answer_fn *callback, void *arg);
/* Sends what was asked for, and takes answers until at most n calls are under way. */
void test_daemon_wait(struct test_daemon *daemon, size_t n);

#endif
