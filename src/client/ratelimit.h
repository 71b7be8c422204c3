/*
 * ratelimit.h: ask ratelimitd whether something may happen now.
 *
 *     struct ratelimit *client;
 *     struct ratelimit_decision decision;
 *     if (ratelimit_open(NULL, &client) != RATELIMIT_OK) ...no memory...
 *     enum ratelimit_status status = ratelimit_check(client, "login", user, strlen(user), 1, 50, &decision);
 *     if (status != RATELIMIT_OK) fprintf(stderr, "ratelimit: %s\n", ratelimit_error(client));
 *     else if (!decision.allowed) ...say no, and "try again in decision.retry_after_ms"...
 *     ratelimit_close(client);
 *
 * There are two clients in here: a blocking one (`struct ratelimit`: one call at a time, each with a
 * timeout) and an asynchronous one (`struct ratelimit_async`: many calls at once, driven by any event
 * loop through a descriptor and a timeout). Both connect when a call needs it and again after a loss.
 *
 * Policies   wherever a policy's name is asked for, its settings may be written instead, in braces as in the
 *            configuration or as JSON: "{algorithm: token_bucket, limit: 100, window: 1m}". The daemon must allow it
 *            (inline.allow); equal settings share their counters.
 * Units      times are milliseconds and relative, sizes are bytes, costs are the units of the policy's limit.
 * Threads    one client belongs to one thread at a time; different threads use different clients. There is no
 *            global state, and no signal is raised or handled (a lost connection makes no SIGPIPE).
 * fork()     a child may go on using a client it inherited: the first use there opens a connection of its own.
 *            Calls that were under way at the fork stay the parent's; the child's copies vanish without an answer,
 *            also where it was a callback that forked.
 * Not resent a call whose connection is lost after it was sent is not sent again, since it may have been charged:
 *            it ends as RATELIMIT_LOST. A call that never left is sent on the next connection. With a request_id
 *            (struct ratelimit_options) a check may be sent again by the caller: it is charged once.
 * Late yes   an acquire or reserve that ended as RATELIMIT_TIMEOUT may be granted afterwards. The client takes that
 *            back: when the answer comes, it sends the release or cancel before anything else that waits. The blocking
 *            client reads such an answer in its next call; where it holds no slots, it closes the connection at the
 *            timeout instead, and the daemon takes back what it would have given. A connection that leaves 4096 such
 *            calls unanswered is closed. Of calls that ended as RATELIMIT_LOST or CANCELLED the connection is gone:
 *            slots end with it, reservations at their time limit at the latest.
 * Memory     bounded, whatever the daemon sends: an answer may be at most RATELIMIT_ANSWER_MAX bytes.
 */
#ifndef RATELIMIT_H
#define RATELIMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define RATELIMIT_API __attribute__((visibility("default")))
#else
#define RATELIMIT_API
#endif

#define RATELIMIT_DEFAULT_SOCKET     "/run/ratelimitd/ratelimitd.sock"
#define RATELIMIT_DEFAULT_TIMEOUT_MS 1000u      /* what a timeout of 0 means */
#define RATELIMIT_ANSWER_MAX         (4u << 20) /* bytes of one answer; a longer one ends the connection */
#define RATELIMIT_REQUEST_MAX        (4u << 20) /* bytes of one request; the daemon's own limit is usually 64 KiB */
#define RATELIMIT_CALLS_MAX          65536u     /* calls under way in one asynchronous client */
#define RATELIMIT_BOUND_BY_SIZE      (64 + 1 + 64 + 1) /* "policy/limit" and its NUL */
#define RATELIMIT_REQUEST_ID_MAX     64u               /* bytes of a request_id */

/* How a call ended, and whether a check may have been charged. */
enum ratelimit_status {
    RATELIMIT_OK = 0,       /* the daemon answered; a denial is an answer too: look at `allowed` */
    RATELIMIT_TIMEOUT,      /* sent, and no answer by the deadline: it may have been charged */
    RATELIMIT_LOST,         /* sent, and the connection ended before an answer: it may have been charged */
    RATELIMIT_PROTOCOL,     /* what came is no answer of ratelimitd's: it may have been charged */
    RATELIMIT_UNREACHABLE,  /* the call never left: no daemon there, or it accepts or reads nothing; not charged */
    RATELIMIT_REFUSED,      /* the daemon answered with an error, such as UNKNOWN_POLICY; not charged, but for
                             * STORE_UNAVAILABLE, where it may have been */
    RATELIMIT_BAD_ARGUMENT, /* of this function; nothing was sent */
    RATELIMIT_NO_MEMORY,    /* nothing was sent */
    RATELIMIT_BUSY,         /* asynchronous: RATELIMIT_CALLS_MAX calls are under way; nothing was sent */
    RATELIMIT_CANCELLED,    /* asynchronous: the client was freed first; it may have been charged */
};

/* Who decided. From RATELIMIT_SOURCE_ALLOW on it is the policy's failure answer, and `reason` says why. */
enum ratelimit_source {
    RATELIMIT_SOURCE_OTHER = 0, /* one this library does not know yet */
    RATELIMIT_SOURCE_REDIS,
    RATELIMIT_SOURCE_MEMORY,
    RATELIMIT_SOURCE_DENY_CACHE,
    RATELIMIT_SOURCE_LEASE,
    RATELIMIT_SOURCE_UNLIMITED,
    RATELIMIT_SOURCE_ALLOW,
    RATELIMIT_SOURCE_DENY,
    RATELIMIT_SOURCE_LOCAL,
};

enum ratelimit_reason {
    RATELIMIT_REASON_NONE = 0,
    RATELIMIT_REASON_DOWN,
    RATELIMIT_REASON_BREAKER,
    RATELIMIT_REASON_DEADLINE,
    RATELIMIT_REASON_OVERLOAD,
    RATELIMIT_REASON_STORE_ERROR,
    RATELIMIT_REASON_OTHER, /* one this library does not know yet */
};

struct ratelimit_decision {
    bool allowed;
    bool shadow_denied;     /* a shadow policy let it pass and would have denied it */
    int64_t limit;          /* the capacity: the limit, or the burst of a bucket */
    int64_t remaining;      /* units left now */
    int64_t retry_after_ms; /* 0 when allowed; -1: no waiting helps */
    int64_t reset_after_ms; /* until the limit is whole again, if nothing else happens */
    int64_t delay_ms;       /* allowed, but go ahead only after so long; 0 unless the policy shapes */
    int64_t granted;        /* units charged by this call */
    int64_t policy_version; /* fingerprint of the policy's settings */
    enum ratelimit_source source;
    enum ratelimit_reason reason;
    char bound_by[RATELIMIT_BOUND_BY_SIZE]; /* the limit that denied, where a policy has several; else "" */
    int64_t refunded;                       /* of a refund, settle or cancel: units given back */
    int64_t charged;                        /* of a settle: units charged beyond the estimate */
    bool ended;                             /* of a settle or cancel: the reservation had ended before */
};

/* Names as on the wire: "redis", "deny_cache"; "down". Static; "other" where the value is not known, "" for NONE. */
RATELIMIT_API const char *ratelimit_source_name(enum ratelimit_source source);
RATELIMIT_API const char *ratelimit_reason_name(enum ratelimit_reason reason);
/* A few words, static: "no answer by the deadline". */
RATELIMIT_API const char *ratelimit_status_text(enum ratelimit_status status);
/* The library's version, "0.1.0"; static. */
RATELIMIT_API const char *ratelimit_version(void);

/*
 * What a check may be asked for beside its policy and key. Begin with RATELIMIT_OPTIONS, which has every default, and
 * set what you need:
 *
 *     struct ratelimit_options options = RATELIMIT_OPTIONS;
 *     options.at_most = 50;
 *
 * `size` tells the library which fields the caller knows; later versions add fields at the end, and a program built
 * with fewer goes on working. A pointer to options may be NULL: every default. Nothing of it is kept.
 */
struct ratelimit_options {
    size_t size;          /* sizeof(struct ratelimit_options) */
    int64_t cost;         /* units to charge, 0 to 2^53 - 1; default 1. 0 only looks */
    int64_t at_most;      /* > 0: grant as many units as there are, up to so many, in place of `cost`; see `granted` */
    int64_t max_wait_ms;  /* the longest delay_ms that will do; 0: deny instead; -1 (default): the policy's */
    int64_t ttl_ms;       /* of a reservation: the time it has to be settled in, 1 to 86400000; 0 (default): 60000 */
    uint32_t deadline_ms; /* the daemon answers by then, with the policy's failure answer if its store does not: 1 to
                           * 3600000; 0 (default): the policy's. Less than the call's own timeout, to be of use */
    uint32_t request_id_len;
    const void *request_id; /* 1 to RATELIMIT_REQUEST_ID_MAX bytes of anything: within the policy's idempotency_window
                             * the same id on the same policy and key is charged once. NULL (default): none */
};

#define RATELIMIT_OPTIONS                                                                                              \
    {                                                                                                                  \
        sizeof(struct ratelimit_options), 1, 0, -1, 0, 0, 0, NULL                                                      \
    }

/* ---- The blocking client ---------------------------------------------------------------------------------- */

struct ratelimit;

/*
 * A client of the daemon at `path`; NULL means $RATELIMIT_SOCKET, or RATELIMIT_DEFAULT_SOCKET where that is not set or
 * empty. Does not connect: the first call does, so the daemon may start later. RATELIMIT_BAD_ARGUMENT: the path is
 * empty or longer than a Unix socket's can be (107 bytes). RATELIMIT_NO_MEMORY. *ret_client is yours; ratelimit_close()
 * it.
 */
RATELIMIT_API enum ratelimit_status ratelimit_open(const char *path, struct ratelimit **ret_client);
RATELIMIT_API void ratelimit_close(struct ratelimit *client); /* NULL is fine */

/*
 * Every call below returns by `timeout_ms` (0 = RATELIMIT_DEFAULT_TIMEOUT_MS) whatever the daemon does, connecting
 * included. Any status but BUSY and CANCELLED can come; results mean something only with RATELIMIT_OK. `policy` is
 * NUL-terminated; `key` is `key_len` bytes of anything. Nothing that is passed in is kept.
 */

/* Charge `cost` units (usually 1; 0 only looks) of `policy` to `key`, if they may be charged. */
RATELIMIT_API enum ratelimit_status ratelimit_check(struct ratelimit *client, const char *policy, const void *key,
                                                    size_t key_len, int64_t cost, uint32_t timeout_ms,
                                                    struct ratelimit_decision *ret_decision);

/* The same with options, of which ttl_ms is refused. RATELIMIT_BAD_ARGUMENT: both `at_most` and a cost other than 1 are
 * set, `size` is none, a number is negative, or the request_id is empty or too long. */
RATELIMIT_API enum ratelimit_status ratelimit_check_with(struct ratelimit *client, const char *policy, const void *key,
                                                         size_t key_len, const struct ratelimit_options *options,
                                                         uint32_t timeout_ms, struct ratelimit_decision *ret_decision);

/*
 * The same, but when denied it waits and asks again with a new call, for at most `wait_ms` (negative: without end). It
 * sleeps for retry_after_ms and up to 10 % more, at least 10 ms. When allowed with a delay_ms it sleeps that too.
 * RATELIMIT_OK with a denial means: no waiting helps (retry_after_ms is -1), or retry_after_ms is longer than what is
 * left of wait_ms; it returns at once then. Any other status ends the wait. `timeout_ms` is for each call. A signal
 * does not end the wait.
 *
 * Waiting is not fair: whoever asks first gets what is there, however long others have waited.
 */
RATELIMIT_API enum ratelimit_status ratelimit_check_wait(struct ratelimit *client, const char *policy, const void *key,
                                                         size_t key_len, const struct ratelimit_options *options,
                                                         uint32_t timeout_ms, int64_t wait_ms,
                                                         struct ratelimit_decision *ret_decision);

/* The decision that a check of `cost` would get now; nothing is charged. */
RATELIMIT_API enum ratelimit_status ratelimit_peek(struct ratelimit *client, const char *policy, const void *key,
                                                   size_t key_len, int64_t cost, uint32_t timeout_ms,
                                                   struct ratelimit_decision *ret_decision);

struct ratelimit_item {
    const char *policy;
    const void *key;
    size_t key_len;
    int64_t cost;
};

/*
 * `n` independent checks in one message; ret_decisions[i] answers items[i]. A bad item refuses all of them before
 * anything is charged (RATELIMIT_REFUSED, and ratelimit_error() names its index).
 */
RATELIMIT_API enum ratelimit_status ratelimit_check_many(struct ratelimit *client, const struct ratelimit_item *items,
                                                         size_t n, uint32_t timeout_ms,
                                                         struct ratelimit_decision *ret_decisions);

/*
 * `n` checks as one: all are charged, or none is. *ret_whole is the decision of the whole (`bound_by` says which limit
 * denied it), ret_members[i] what items[i] would have got by itself; ret_members may be NULL. Of the options
 * deadline_ms and request_id count; cost and at_most must be at their defaults (RATELIMIT_BAD_ARGUMENT).
 * RATELIMIT_REFUSED as for check_many, for the same policy and key twice, and for the other options.
 */
RATELIMIT_API enum ratelimit_status ratelimit_check_all(struct ratelimit *client, const struct ratelimit_item *items,
                                                        size_t n, const struct ratelimit_options *options,
                                                        uint32_t timeout_ms, struct ratelimit_decision *ret_whole,
                                                        struct ratelimit_decision *ret_members);

/* Forget what `policy` knows of `key`. "policy/limit" in place of the policy, as bound_by says it: forget the counter
 * of that limit only; all keys that share it are freed. *ret_removed (may be NULL): was there anything? */
RATELIMIT_API enum ratelimit_status ratelimit_reset(struct ratelimit *client, const char *policy, const void *key,
                                                    size_t key_len, uint32_t timeout_ms, bool *ret_removed);

/*
 * Give back `units` (1 to 2^53 - 1) that were charged and not used. *ret_decision is how things stand afterwards (as of
 * a check of cost 0) and says in `refunded` how much was given back: never more than was charged. "policy/limit" in
 * place of the policy: to that limit only. The daemon says UNSUPPORTED (RATELIMIT_REFUSED) for policies that have no
 * such thing.
 */
RATELIMIT_API enum ratelimit_status ratelimit_refund(struct ratelimit *client, const char *policy, const void *key,
                                                     size_t key_len, int64_t units, uint32_t timeout_ms,
                                                     struct ratelimit_decision *ret_decision);

/*
 * Charge an estimate now, and what was really used later. Where *ret_decision is `allowed`, ratelimit_id() names the
 * reservation: give it to ratelimit_settle(), or to ratelimit_cancel() where nothing was used, through any client and
 * any daemon of the same store. One that is not settled within `ttl_ms` gives its units back. Of the options
 * deadline_ms and ttl_ms count; cost and at_most must be at their defaults (RATELIMIT_BAD_ARGUMENT), and the daemon
 * refuses the others.
 */
RATELIMIT_API enum ratelimit_status ratelimit_reserve(struct ratelimit *client, const char *policy, const void *key,
                                                      size_t key_len, int64_t estimate,
                                                      const struct ratelimit_options *options, uint32_t timeout_ms,
                                                      struct ratelimit_decision *ret_decision);
/* `units` were used, 0 or more, fewer or more than estimated: *ret_decision says in `refunded` or `charged` what that
 * changed, and in `ended` that it was too late or done before. */
RATELIMIT_API enum ratelimit_status ratelimit_settle(struct ratelimit *client, const char *reservation, int64_t units,
                                                     uint32_t timeout_ms, struct ratelimit_decision *ret_decision);
/* None were used. */
RATELIMIT_API enum ratelimit_status ratelimit_cancel(struct ratelimit *client, const char *reservation,
                                                     uint32_t timeout_ms, struct ratelimit_decision *ret_decision);

/*
 * Take a slot of a `concurrency` limit. Where *ret_decision is `allowed`, ratelimit_id() names the slot. It is held as
 * long as this client's connection lives: until ratelimit_release(), ratelimit_close(), the end of the process, or a
 * lost connection, after which a new one has no slots. A program that holds one for long should ratelimit_ping() now
 * and then: a call is what notices the loss. A child of fork() has a connection of its own, and no slots.
 */
RATELIMIT_API enum ratelimit_status ratelimit_acquire(struct ratelimit *client, const char *policy, const void *key,
                                                      size_t key_len, uint32_t timeout_ms,
                                                      struct ratelimit_decision *ret_decision);
/* The same, but when denied it asks again after 50 ms, then after pauses that double up to 1 s, each up to 10 % longer,
 * for at most `wait_ms` (negative: without end). Everything else as for ratelimit_check_wait(). */
RATELIMIT_API enum ratelimit_status ratelimit_acquire_wait(struct ratelimit *client, const char *policy,
                                                           const void *key, size_t key_len, uint32_t timeout_ms,
                                                           int64_t wait_ms, struct ratelimit_decision *ret_decision);
/* *ret_released (may be NULL): did this connection hold it? */
RATELIMIT_API enum ratelimit_status ratelimit_release(struct ratelimit *client, const char *slot, uint32_t timeout_ms,
                                                      bool *ret_released);

/* The reservation or the slot of the last call, where that was a reserve or acquire that was allowed; else "". A text
 * as long as the daemon likes (a reservation is some 200 bytes and the key), the client's own, valid until its next
 * call, to which it may be given. */
RATELIMIT_API const char *ratelimit_id(const struct ratelimit *client);

/* Is a daemon there that answers? */
RATELIMIT_API enum ratelimit_status ratelimit_ping(struct ratelimit *client, uint32_t timeout_ms);

/*
 * Any method of the protocol. `params` is a MessagePack array, packed by the caller (NULL, 0: no parameters);
 * *ret_result is the packed result, the client's own, valid until its next call.
 */
RATELIMIT_API enum ratelimit_status ratelimit_call(struct ratelimit *client, const char *method, const void *params,
                                                   size_t params_len, uint32_t timeout_ms, const void **ret_result,
                                                   size_t *ret_result_len);

/*
 * The connection asks for decisions as arrays, which are shorter. After this call it asks for maps, so that a decision
 * in ratelimit_call()'s result carries the names of its fields. Call it before the first call.
 */
RATELIMIT_API void ratelimit_use_maps(struct ratelimit *client);

/* What went wrong with the last call, for people: "UNKNOWN_POLICY: there is no policy nosuch". "" after RATELIMIT_OK.
 * The client's own, valid until its next call. */
RATELIMIT_API const char *ratelimit_error(const struct ratelimit *client);
/* RATELIMIT_REFUSED: the daemon's code, "UNKNOWN_POLICY". RATELIMIT_LOST: that of its last words before it closed,
 * where there were some, such as "TOO_LARGE". Else "". Valid as above. */
RATELIMIT_API const char *ratelimit_error_code(const struct ratelimit *client);

/* ---- The asynchronous client ------------------------------------------------------------------------------ */

struct ratelimit_async;

struct ratelimit_answer {
    enum ratelimit_status status;
    const struct ratelimit_decision *decision; /* of whatever is decided, once it ended OK; NULL for other calls, and
                                                * for a check_many, which has only members */
    const struct ratelimit_decision *members;  /* of a check_many or check_all that ended OK, one for each item */
    size_t n_members;
    const char *id;      /* of a reserve or acquire that was allowed: the reservation or the slot; else NULL */
    bool done;           /* of a reset or release that ended OK: was there anything to end? */
    const char *code;    /* REFUSED: "UNKNOWN_POLICY"; LOST: of the daemon's last words, or ""; else "" */
    const char *message; /* for people, with the code; "" when OK */
    const void *result;  /* OK: the packed result; else NULL */
    size_t result_len;
};

/*
 * A call's end. Runs exactly once per accepted call, only within ratelimit_async_process() or ratelimit_async_free(),
 * never within the function that makes the call. The answer and all it points to die when the callback returns. It
 * may make new calls and may free the client (the memory goes when the function that runs it returns).
 */
typedef void ratelimit_answer_fn(const struct ratelimit_answer *answer, void *arg);

/* As ratelimit_open(); *ret_client is yours, ratelimit_async_free() it. */
RATELIMIT_API enum ratelimit_status ratelimit_async_new(const char *path, struct ratelimit_async **ret_client);

/* Calls under way end as RATELIMIT_CANCELLED within this function. NULL is fine. */
RATELIMIT_API void ratelimit_async_free(struct ratelimit_async *client);

/*
 * Make a call; `callback(answer, arg)` runs later, at `timeout_ms` (0 = RATELIMIT_DEFAULT_TIMEOUT_MS) at the latest
 * if ratelimit_async_process() is called by then. Returns RATELIMIT_OK, or BAD_ARGUMENT, NO_MEMORY, BUSY, or, in a
 * callback, CANCELLED once the client was freed: then there is no callback. Nothing is sent yet: after a
 * handful of calls, call ratelimit_async_process(client, 0), which sends them in one write. (Calls made in a callback
 * are sent before the process() around it returns.)
 */
RATELIMIT_API enum ratelimit_status ratelimit_async_check(struct ratelimit_async *client, const char *policy,
                                                          const void *key, size_t key_len, int64_t cost,
                                                          uint32_t timeout_ms, ratelimit_answer_fn *callback,
                                                          void *arg);
RATELIMIT_API enum ratelimit_status ratelimit_async_peek(struct ratelimit_async *client, const char *policy,
                                                         const void *key, size_t key_len, int64_t cost,
                                                         uint32_t timeout_ms, ratelimit_answer_fn *callback, void *arg);
/* As their blocking namesakes. The items and their texts need not outlive the call. */
RATELIMIT_API enum ratelimit_status ratelimit_async_check_with(struct ratelimit_async *client, const char *policy,
                                                               const void *key, size_t key_len,
                                                               const struct ratelimit_options *options,
                                                               uint32_t timeout_ms, ratelimit_answer_fn *callback,
                                                               void *arg);
RATELIMIT_API enum ratelimit_status ratelimit_async_check_many(struct ratelimit_async *client,
                                                               const struct ratelimit_item *items, size_t n,
                                                               uint32_t timeout_ms, ratelimit_answer_fn *callback,
                                                               void *arg);
RATELIMIT_API enum ratelimit_status ratelimit_async_check_all(struct ratelimit_async *client,
                                                              const struct ratelimit_item *items, size_t n,
                                                              const struct ratelimit_options *options,
                                                              uint32_t timeout_ms, ratelimit_answer_fn *callback,
                                                              void *arg);
RATELIMIT_API enum ratelimit_status ratelimit_async_reset(struct ratelimit_async *client, const char *policy,
                                                          const void *key, size_t key_len, uint32_t timeout_ms,
                                                          ratelimit_answer_fn *callback, void *arg);
RATELIMIT_API enum ratelimit_status ratelimit_async_refund(struct ratelimit_async *client, const char *policy,
                                                           const void *key, size_t key_len, int64_t units,
                                                           uint32_t timeout_ms, ratelimit_answer_fn *callback,
                                                           void *arg);
RATELIMIT_API enum ratelimit_status ratelimit_async_reserve(struct ratelimit_async *client, const char *policy,
                                                            const void *key, size_t key_len, int64_t estimate,
                                                            const struct ratelimit_options *options,
                                                            uint32_t timeout_ms, ratelimit_answer_fn *callback,
                                                            void *arg);
RATELIMIT_API enum ratelimit_status ratelimit_async_settle(struct ratelimit_async *client, const char *reservation,
                                                           int64_t units, uint32_t timeout_ms,
                                                           ratelimit_answer_fn *callback, void *arg);
RATELIMIT_API enum ratelimit_status ratelimit_async_cancel(struct ratelimit_async *client, const char *reservation,
                                                           uint32_t timeout_ms, ratelimit_answer_fn *callback,
                                                           void *arg);
RATELIMIT_API enum ratelimit_status ratelimit_async_acquire(struct ratelimit_async *client, const char *policy,
                                                            const void *key, size_t key_len, uint32_t timeout_ms,
                                                            ratelimit_answer_fn *callback, void *arg);
RATELIMIT_API enum ratelimit_status ratelimit_async_release(struct ratelimit_async *client, const char *slot,
                                                            uint32_t timeout_ms, ratelimit_answer_fn *callback,
                                                            void *arg);
/* Any method; `params` as for ratelimit_call(). */
RATELIMIT_API enum ratelimit_status ratelimit_async_call(struct ratelimit_async *client, const char *method,
                                                         const void *params, size_t params_len, uint32_t timeout_ms,
                                                         ratelimit_answer_fn *callback, void *arg);

/*
 * What to wait for: a descriptor (-1 while there is no connection), the events it waits for (POLLIN, POLLOUT; on Linux
 * EPOLLIN and EPOLLOUT are the same numbers), and for how long at most (ms; 0 = call process() now, -1 = for ever).
 * All three may change with every other function of this client. A loop around poll(2) asks each time round:
 *
 *     struct pollfd waits = {ratelimit_async_fd(client), ratelimit_async_events(client), 0};
 *     int n = poll(&waits, 1, ratelimit_async_next_timeout_ms(client));
 *     ratelimit_async_process(client, n > 0 ? waits.revents : 0);
 */
RATELIMIT_API int ratelimit_async_fd(const struct ratelimit_async *client);
RATELIMIT_API short ratelimit_async_events(const struct ratelimit_async *client);
RATELIMIT_API int ratelimit_async_next_timeout_ms(const struct ratelimit_async *client);

/*
 * A loop that registers descriptors (epoll, libuv, libevent) must hear of each change, since a new connection may get
 * the old one's number. Runs within process() and free() only: with `events` != 0 watch `fd` for them from now on;
 * with 0 forget `fd`, which is about to be closed. Between two descriptors there is always a call with 0. After
 * fork() the child hears nothing about the parent's descriptor: it brings its own loop. Must not use the client.
 */
typedef void ratelimit_watch_fn(void *arg, int fd, short events);
RATELIMIT_API void ratelimit_async_watch(struct ratelimit_async *client, ratelimit_watch_fn *on_change, void *arg);

/*
 * Connect, send, receive and run callbacks, as far as possible without waiting. `revents` is what poll(2) said about
 * the descriptor: 0 after a timeout or just to send; POLLIN | POLLOUT where the caller does not know.
 * Within a callback it does nothing.
 */
RATELIMIT_API void ratelimit_async_process(struct ratelimit_async *client, short revents);

RATELIMIT_API size_t ratelimit_async_pending(const struct ratelimit_async *client); /* calls under way */

#ifdef __cplusplus
}
#endif

#endif
