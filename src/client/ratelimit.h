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
 * The library has two clients: a blocking one (`struct ratelimit`: one call at a time, each with a timeout) and an
 * asynchronous one (`struct ratelimit_async`: many calls in flight, driven by any event loop through a descriptor and a
 * timeout). Both connect when a call needs it, and connect again after a connection is lost.
 *
 * Policies: wherever a function takes the name of a policy, it also takes its settings in braces, as in the
 * configuration or as JSON: "{algorithm: token_bucket, limit: 100, window: 1m}". The daemon must allow it
 * (inline.allow). Equal settings share their counters. A `name` among them, such as {name: search, ...}, is what
 * decisions say in place of `inline-` and 16 hex digits; it does not change what counts together.
 *
 * Keys: a key of more than RATELIMIT_KEY_MAX bytes is sent as its first 64 bytes, '#', and the SHA-256 of all of it in
 * hex. Every client of ratelimitd does this, in any language.
 *
 * Units: times are milliseconds and relative, sizes are bytes, costs are the units of the policy's limit.
 *
 * Threads: only one thread at a time may use a client; different threads use different clients. There is no global
 * state, and the library raises and handles no signals (a lost connection causes no SIGPIPE).
 *
 * fork(): a child may use a client that it inherited: the first use there opens a connection of its own. Calls that
 * were in flight at the fork stay with the parent. The child's copies vanish without an answer, even if a callback
 * forked.
 *
 * Not resent: the library does not send a call again after its connection was lost, because it may have been charged:
 * the call ends as RATELIMIT_LOST. A call that was never sent goes out on the next connection. With a request_id
 * (struct ratelimit_options) the caller may send a check again: it is charged once.
 *
 * Hanging: after three calls in a row that ended as RATELIMIT_TIMEOUT, calls end as RATELIMIT_BREAKER for a second.
 * Then one call is tried, while others still end so. Any answer ends this. Calls that end what is held (release,
 * settle, cancel) are always tried.
 *
 * Late yes: an acquire or reserve that ended as RATELIMIT_TIMEOUT may still be granted later. The client reports to the
 * daemon at the timeout that it has given up the call (`abandon`), and the daemon gives back what it grants. A daemon
 * that is older does not know this. With such a one the client undoes a late yes itself: when the answer comes, it
 * sends the release or cancel before anything else that waits. The blocking client reads such an answer in its next
 * call. If it holds no slots, it closes the connection at the timeout instead, and the daemon takes back what it
 * grants. The client closes a connection that has left 4096 such calls unanswered. After RATELIMIT_LOST or
 * RATELIMIT_CANCELLED the connection is gone: slots end with it, reservations at their time limit at the latest.
 *
 * Memory: bounded, whatever the daemon sends: an answer may have at most RATELIMIT_ANSWER_MAX bytes.
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
#define RATELIMIT_DEFAULT_TIMEOUT_MS 250u       /* what a timeout of 0 means */
#define RATELIMIT_KEY_MAX            512u       /* bytes of a key that is sent as it is; see Keys above */
#define RATELIMIT_ANSWER_MAX         (4u << 20) /* bytes of one answer; a longer one ends the connection */
#define RATELIMIT_REQUEST_MAX        (4u << 20) /* bytes of one request; the daemon's own limit is usually 64 KiB */
#define RATELIMIT_CALLS_MAX          65536u     /* calls in flight in one asynchronous client */
#define RATELIMIT_BOUND_BY_SIZE      (64 + 1 + 64 + 1) /* "policy/limit" and its NUL */
#define RATELIMIT_REQUEST_ID_MAX     64u               /* bytes of a request_id */

/* How a call ended, and whether a check may have been charged. */
enum ratelimit_status {
    RATELIMIT_OK = 0,       /* the daemon answered; a denial is an answer too: look at `allowed` */
    RATELIMIT_TIMEOUT,      /* sent, but no answer within the timeout: it may have been charged */
    RATELIMIT_LOST,         /* sent, but the connection ended before an answer: it may have been charged */
    RATELIMIT_PROTOCOL,     /* the answer was not valid: it may have been charged */
    RATELIMIT_UNREACHABLE,  /* never sent: no daemon is there, or it accepts or reads nothing; not charged */
    RATELIMIT_REFUSED,      /* the daemon answered with an error, such as UNKNOWN_POLICY; not charged, except that
                             * after STORE_UNAVAILABLE it may have been */
    RATELIMIT_BAD_ARGUMENT, /* an argument of the function is not valid; nothing was sent */
    RATELIMIT_NO_MEMORY,    /* nothing was sent */
    RATELIMIT_BUSY,         /* asynchronous: RATELIMIT_CALLS_MAX calls are in flight; nothing was sent */
    RATELIMIT_CANCELLED,    /* asynchronous: the client was freed first; it may have been charged */
    RATELIMIT_BREAKER,      /* not tried, because the last three calls timed out; nothing was sent. See Hanging above */
};

/* Who decided. RATELIMIT_SOURCE_ALLOW and later are the policy's failure answers; `reason` says why. */
enum ratelimit_source {
    RATELIMIT_SOURCE_OTHER = 0, /* unknown to this library version */
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
    RATELIMIT_REASON_OTHER,   /* unknown to this library version */
    RATELIMIT_REASON_PENALTY, /* no failure: the pause of a limit's penalty denied */
};

struct ratelimit_decision {
    bool allowed;
    bool shadow_denied;     /* a shadow policy allowed it, and would have denied it if it were enforced */
    bool near;              /* more than the policy's warn_at is used */
    int64_t limit;          /* the capacity: the limit, or the burst of a bucket */
    int64_t remaining;      /* units available now */
    int64_t retry_after_ms; /* 0 when allowed; -1: waiting does not help */
    int64_t reset_after_ms; /* until the whole limit is available again, without further charges */
    int64_t delay_ms;       /* allowed: wait for this time before going ahead; 0 without a max_wait */
    int64_t granted;        /* units charged by this call */
    int64_t policy_version; /* fingerprint of the policy's settings */
    enum ratelimit_source source;
    enum ratelimit_reason reason;
    char bound_by[RATELIMIT_BOUND_BY_SIZE]; /* the limit that denied, if the policy has several; else "" */
    int64_t refunded;                       /* of a refund, settle or cancel: units given back */
    int64_t charged;                        /* of a settle: units charged beyond the estimate */
    bool ended;                             /* of a settle or cancel: the reservation had ended before */

    /* After ratelimit_describe(), the limit that `limit` and `remaining` are of; denied: the one that denied. "" and 0
     * for unlimited and for failure answers, without ratelimit_describe(), and from a daemon that is older than it. */
    char of[RATELIMIT_BOUND_BY_SIZE]; /* "policy/limit", or "policy" if it has no name */
    int64_t quota;                    /* its setting `limit`: units per window, not the burst of a bucket */
    int64_t window_ms;                /* its window; of a calendar_window the present one's length; 0: concurrency */
    int64_t of_reset_ms;              /* until this limit alone is unused again, without further charges */
};

/* Names as in the protocol: "redis", "deny_cache"; "down". Static; "other" for an unknown value, "" for NONE. */
RATELIMIT_API const char *ratelimit_source_name(enum ratelimit_source source);
RATELIMIT_API const char *ratelimit_reason_name(enum ratelimit_reason reason);
/* A few words, static: "no answer by the deadline". */
RATELIMIT_API const char *ratelimit_status_text(enum ratelimit_status status);
/* The library's version: "0.1.0", or "0.1.0-git.5fdf955e7287" from a commit that is not a release; static. */
RATELIMIT_API const char *ratelimit_version(void);

/*
 * Options of a check. Start with RATELIMIT_OPTIONS, which has every default, and set what you need:
 *
 *     struct ratelimit_options options = RATELIMIT_OPTIONS;
 *     options.at_most = 50;
 *
 * From `size` the library knows which fields the caller has. Later versions add fields at the end, and a program that
 * was built with fewer fields continues to work. NULL instead of options means every default. The library keeps no
 * pointer to them.
 */
struct ratelimit_options {
    size_t size;     /* sizeof(struct ratelimit_options) */
    int64_t cost;    /* units to charge, 0 to 2^53 - 1; default 1. 0 charges nothing */
    int64_t at_most; /* > 0: instead of `cost`, grant as many units as are available, at most these; see `granted` */
    int64_t max_wait_ms;  /* the longest acceptable delay_ms; 0: deny instead; -1 (default): the policy's */
    int64_t ttl_ms;       /* of a reservation: it must be settled within this time, 1 to 86400000; 0 (default): 60000 */
    uint32_t deadline_ms; /* the daemon answers within this time, with the policy's failure answer if its store does
                           * not: 1 to 3600000; 0 (default): the policy's. Make it shorter than the call's timeout */
    uint32_t request_id_len;
    const void *request_id; /* 1 to RATELIMIT_REQUEST_ID_MAX bytes, any bytes: within the policy's idempotency_window
                             * the same id with the same policy and key is charged once. NULL (default): none */
};

#define RATELIMIT_OPTIONS                                                                                              \
    {                                                                                                                  \
        sizeof(struct ratelimit_options), 1, 0, -1, 0, 0, 0, NULL                                                      \
    }

/* ---- The blocking client ---------------------------------------------------------------------------------- */

struct ratelimit;

/*
 * A client of the daemon at `path`; NULL means $RATELIMIT_SOCKET, or RATELIMIT_DEFAULT_SOCKET if that is not set or
 * empty. It does not connect; the first call does. So the daemon may start later. RATELIMIT_BAD_ARGUMENT: the path is
 * empty, or longer than the path of a Unix socket can be (107 bytes). RATELIMIT_NO_MEMORY. The caller owns *ret_client
 * and frees it with ratelimit_close().
 */
RATELIMIT_API enum ratelimit_status ratelimit_open(const char *path, struct ratelimit **ret_client);
RATELIMIT_API void ratelimit_close(struct ratelimit *client); /* NULL is fine */

/*
 * Every call below returns within `timeout_ms` (0 = RATELIMIT_DEFAULT_TIMEOUT_MS), whatever the daemon does; that
 * includes the time to connect. It may return any status except BUSY and CANCELLED. Results are valid only with
 * RATELIMIT_OK. `policy` is NUL-terminated; `key` is `key_len` bytes, any bytes. The library keeps no pointer to an
 * argument.
 */

/* Charge `cost` units (usually 1; 0 charges nothing) of `policy` to `key`, if the policy allows it. */
RATELIMIT_API enum ratelimit_status ratelimit_check(struct ratelimit *client, const char *policy, const void *key,
                                                    size_t key_len, int64_t cost, uint32_t timeout_ms,
                                                    struct ratelimit_decision *ret_decision);

/* The same with options; ttl_ms is refused. RATELIMIT_BAD_ARGUMENT: both `at_most` and a cost other than 1 are set,
 * `size` is not valid, a number is negative, or the request_id is empty or too long. */
RATELIMIT_API enum ratelimit_status ratelimit_check_with(struct ratelimit *client, const char *policy, const void *key,
                                                         size_t key_len, const struct ratelimit_options *options,
                                                         uint32_t timeout_ms, struct ratelimit_decision *ret_decision);

/*
 * The same, but after a denial it waits and tries again with a new call, for at most `wait_ms` (negative: without end).
 * It sleeps for retry_after_ms and up to 10 % more, at least 10 ms. If the check is allowed with a delay_ms, it sleeps
 * for that time too. RATELIMIT_OK with a denial means: waiting does not help (retry_after_ms is -1), or retry_after_ms
 * is longer than the rest of wait_ms; then it returns at once. Any other status ends the wait. `timeout_ms` limits each
 * call. A signal does not end the wait.
 *
 * Waiting is not fair: the first client to ask gets what is available, however long others have waited.
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
 * `n` checks as one: all are charged, or none is. *ret_whole is the combined decision (`bound_by` names the limit that
 * denied it). ret_members[i] is what items[i] would have got by itself; ret_members may be NULL. The function uses the
 * options deadline_ms and request_id; cost and at_most must have their defaults (else RATELIMIT_BAD_ARGUMENT).
 * RATELIMIT_REFUSED as for check_many, for the same policy and key twice, and for the other options.
 */
RATELIMIT_API enum ratelimit_status ratelimit_check_all(struct ratelimit *client, const struct ratelimit_item *items,
                                                        size_t n, const struct ratelimit_options *options,
                                                        uint32_t timeout_ms, struct ratelimit_decision *ret_whole,
                                                        struct ratelimit_decision *ret_members);

/* Forget what `key` has used under `policy`. "policy/limit" instead of the policy, as in bound_by: forget only the
 * counter of that limit, for all keys that share it. *ret_removed (may be NULL): was there anything to forget? */
RATELIMIT_API enum ratelimit_status ratelimit_reset(struct ratelimit *client, const char *policy, const void *key,
                                                    size_t key_len, uint32_t timeout_ms, bool *ret_removed);

/*
 * Give back `units` (1 to 2^53 - 1) that were charged and not used. *ret_decision describes the state afterwards (like
 * a check of cost 0), and `refunded` in it is the number of units given back, never more than were charged.
 * "policy/limit" instead of the policy: to that limit only. The daemon answers UNSUPPORTED (RATELIMIT_REFUSED) for a
 * policy that cannot give units back.
 */
RATELIMIT_API enum ratelimit_status ratelimit_refund(struct ratelimit *client, const char *policy, const void *key,
                                                     size_t key_len, int64_t units, uint32_t timeout_ms,
                                                     struct ratelimit_decision *ret_decision);

/*
 * Charge an estimate now, and correct it later. If *ret_decision is `allowed`, ratelimit_id() returns the reservation.
 * Pass it to ratelimit_settle(), or to ratelimit_cancel() if nothing was used, with any client and any daemon of the
 * same store. A reservation that is not settled within `ttl_ms` gives its units back. The function uses the options
 * deadline_ms and ttl_ms; cost and at_most must have their defaults (else RATELIMIT_BAD_ARGUMENT), and the daemon
 * refuses the others.
 */
RATELIMIT_API enum ratelimit_status ratelimit_reserve(struct ratelimit *client, const char *policy, const void *key,
                                                      size_t key_len, int64_t estimate,
                                                      const struct ratelimit_options *options, uint32_t timeout_ms,
                                                      struct ratelimit_decision *ret_decision);
/* `units` were used: 0 or more, and fewer or more than estimated. In *ret_decision, `refunded` or `charged` is the
 * correction, and `ended` is true if the reservation had ended or was settled before. */
RATELIMIT_API enum ratelimit_status ratelimit_settle(struct ratelimit *client, const char *reservation, int64_t units,
                                                     uint32_t timeout_ms, struct ratelimit_decision *ret_decision);
/* Nothing was used. */
RATELIMIT_API enum ratelimit_status ratelimit_cancel(struct ratelimit *client, const char *reservation,
                                                     uint32_t timeout_ms, struct ratelimit_decision *ret_decision);

/*
 * Take a slot of a `concurrency` limit. If *ret_decision is `allowed`, ratelimit_id() returns the slot. The slot is
 * held as long as this client's connection lives: until ratelimit_release(), ratelimit_close(), the end of the process,
 * or the loss of the connection; a new connection has no slots. A program that holds a slot for long should call
 * ratelimit_ping() now and then, because only a call notices the loss. A child of fork() has a connection of its own,
 * and no slots.
 */
RATELIMIT_API enum ratelimit_status ratelimit_acquire(struct ratelimit *client, const char *policy, const void *key,
                                                      size_t key_len, uint32_t timeout_ms,
                                                      struct ratelimit_decision *ret_decision);
/* The same, but after a denial it tries again after 50 ms, then after pauses that double up to 1 s, each up to 10 %
 * longer, for at most `wait_ms` (negative: without end). Everything else as for ratelimit_check_wait(). */
RATELIMIT_API enum ratelimit_status ratelimit_acquire_wait(struct ratelimit *client, const char *policy,
                                                           const void *key, size_t key_len, uint32_t timeout_ms,
                                                           int64_t wait_ms, struct ratelimit_decision *ret_decision);
/* *ret_released (may be NULL): did this connection hold the slot? */
RATELIMIT_API enum ratelimit_status ratelimit_release(struct ratelimit *client, const char *slot, uint32_t timeout_ms,
                                                      bool *ret_released);

/* The reservation or the slot of the last call, if that was a reserve or acquire and was allowed; else "". Its length
 * is the daemon's choice (a reservation has some 200 bytes and the key). The client owns the text; it is valid until
 * the client's next call, and may be an argument of that call. */
RATELIMIT_API const char *ratelimit_id(const struct ratelimit *client);

/* Does a daemon answer? */
RATELIMIT_API enum ratelimit_status ratelimit_ping(struct ratelimit *client, uint32_t timeout_ms);

/*
 * For the start of a program: does the daemon have all these policies? RATELIMIT_REFUSED with the code UNKNOWN_POLICY
 * if its configuration lacks some; ratelimit_error() names them. For settings in braces it asks whether the daemon
 * allows inline policies (NOT_PERMITTED). With RATELIMIT_OK, ratelimit_error() is a warning or "": it names the
 * policies that do not fit ratelimit_remember_denials().
 */
RATELIMIT_API enum ratelimit_status ratelimit_verify(struct ratelimit *client, const char *const *policies, size_t n,
                                                     uint32_t timeout_ms);

/*
 * Call any method of the protocol. `params` is a MessagePack array, packed by the caller (NULL, 0: no parameters).
 * *ret_result is the packed result; the client owns it, and it is valid until the client's next call.
 */
RATELIMIT_API enum ratelimit_status ratelimit_call(struct ratelimit *client, const char *method, const void *params,
                                                   size_t params_len, uint32_t timeout_ms, const void **ret_result,
                                                   size_t *ret_result_len);

/*
 * By default the client asks the daemon for decisions as arrays, which are shorter. After this function it asks for
 * maps, so that a decision in the result of ratelimit_call() has the names of its fields. Use it before the first call.
 */
RATELIMIT_API void ratelimit_use_maps(struct ratelimit *client);

/*
 * From now on every decision says which limit it speaks of: `of`, `quota`, `window_ms`, `of_reset_ms`. An HTTP server
 * needs them for its RateLimit headers. Use it before the first call.
 */
RATELIMIT_API void ratelimit_describe(struct ratelimit *client);

/*
 * From now on the client repeats a denial by itself for `duration_ms` (such as 100; 0, the default: never), but not
 * longer than its retry_after_ms, so that a flood of checks that are denied asks a few times a second. It repeats what
 * ratelimit_check(), ratelimit_check_with() and ratelimit_check_all() got, if policies, keys, costs and max_wait_ms are
 * the same in the same order, and there is neither request_id nor at_most. Such a decision has
 * RATELIMIT_SOURCE_DENY_CACHE and shorter times. The client remembers the latest 1024, and forgets those of a policy
 * and key with its own ratelimit_reset() and ratelimit_refund() of them; setting the duration again forgets all. The
 * failure answer RATELIMIT_SOURCE_DENY is never remembered. It also works while the daemon is away.
 *
 * The daemon does not see these checks: neither its counters nor a policy with count_denied count them. Do not use it
 * with such policies; ratelimit_verify() names them. RATELIMIT_BAD_ARGUMENT: the duration is negative.
 */
RATELIMIT_API enum ratelimit_status ratelimit_remember_denials(struct ratelimit *client, int64_t duration_ms);
/* How many checks the client has answered so since it was opened. */
RATELIMIT_API uint64_t ratelimit_remembered(const struct ratelimit *client);

/* What was wrong with the last call, for people: "UNKNOWN_POLICY: there is no policy nosuch". "" after RATELIMIT_OK,
 * but for ratelimit_verify(). The client owns the text; it is valid until the client's next call. */
RATELIMIT_API const char *ratelimit_error(const struct ratelimit *client);
/* RATELIMIT_REFUSED: the daemon's code, "UNKNOWN_POLICY". RATELIMIT_LOST: the code of the daemon's final error before
 * it closed the connection, if it sent one, such as "TOO_LARGE". Else "". Valid as above. */
RATELIMIT_API const char *ratelimit_error_code(const struct ratelimit *client);

/* ---- The asynchronous client ------------------------------------------------------------------------------ */

struct ratelimit_async;

struct ratelimit_answer {
    enum ratelimit_status status;
    const struct ratelimit_decision *decision; /* OK: of a call that decides; NULL for other calls, and for a
                                                * check_many, which has only members */
    const struct ratelimit_decision *members;  /* OK: of a check_many or check_all, one for each item */
    size_t n_members;
    const char *id;      /* of a reserve or acquire that was allowed: the reservation or the slot; else NULL */
    bool done;           /* OK: of a reset or release, was there anything to end? */
    const char *code;    /* REFUSED: "UNKNOWN_POLICY"; LOST: of the daemon's final error, or ""; else "" */
    const char *message; /* for people, with the code; "" when OK, but of a verify it may be a warning */
    const void *result;  /* OK: the packed result; NULL for a repeated denial, which has none; else NULL */
    size_t result_len;
};

/*
 * Reports the end of a call. It runs exactly once for each accepted call, only within ratelimit_async_process() or
 * ratelimit_async_free(), never within the function that makes the call. The answer and all it points to are valid
 * until the callback returns. The callback may make new calls and may free the client (the memory is released when the
 * function that runs the callback returns).
 */
typedef void ratelimit_answer_fn(const struct ratelimit_answer *answer, void *arg);

/* As ratelimit_open(). The caller owns *ret_client and frees it with ratelimit_async_free(). */
RATELIMIT_API enum ratelimit_status ratelimit_async_new(const char *path, struct ratelimit_async **ret_client);

/* As the blocking functions of the same name. A repeated denial, too, is reported in ratelimit_async_process(). */
RATELIMIT_API void ratelimit_async_describe(struct ratelimit_async *client);
RATELIMIT_API enum ratelimit_status ratelimit_async_remember_denials(struct ratelimit_async *client,
                                                                     int64_t duration_ms);
RATELIMIT_API uint64_t ratelimit_async_remembered(const struct ratelimit_async *client);

/* Calls in flight end as RATELIMIT_CANCELLED within this function. NULL is fine. */
RATELIMIT_API void ratelimit_async_free(struct ratelimit_async *client);

/*
 * Make a call. `callback(answer, arg)` runs later: after `timeout_ms` (0 = RATELIMIT_DEFAULT_TIMEOUT_MS) at the latest,
 * if ratelimit_async_process() is called then. Returns RATELIMIT_OK; or BAD_ARGUMENT, NO_MEMORY, BUSY, BREAKER or, in a
 * callback after the client was freed, CANCELLED: then there is no callback. Nothing is sent yet. After a handful of
 * calls, use ratelimit_async_process(client, 0), which sends them in one write. (Calls made in a callback are sent
 * before the process() that runs it returns.)
 */
RATELIMIT_API enum ratelimit_status ratelimit_async_check(struct ratelimit_async *client, const char *policy,
                                                          const void *key, size_t key_len, int64_t cost,
                                                          uint32_t timeout_ms, ratelimit_answer_fn *callback,
                                                          void *arg);
RATELIMIT_API enum ratelimit_status ratelimit_async_peek(struct ratelimit_async *client, const char *policy,
                                                         const void *key, size_t key_len, int64_t cost,
                                                         uint32_t timeout_ms, ratelimit_answer_fn *callback, void *arg);
/* As the blocking functions of the same name. The items and their texts need not outlive the call. */
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
/* As ratelimit_verify(), but settings in braces are passed over: make a peek of them. */
RATELIMIT_API enum ratelimit_status ratelimit_async_verify(struct ratelimit_async *client, const char *const *policies,
                                                           size_t n, uint32_t timeout_ms, ratelimit_answer_fn *callback,
                                                           void *arg);
/* Any method; `params` as for ratelimit_call(). */
RATELIMIT_API enum ratelimit_status ratelimit_async_call(struct ratelimit_async *client, const char *method,
                                                         const void *params, size_t params_len, uint32_t timeout_ms,
                                                         ratelimit_answer_fn *callback, void *arg);

/*
 * What to wait for: a descriptor (-1 without a connection), its events (POLLIN, POLLOUT; on Linux EPOLLIN and EPOLLOUT
 * are the same numbers), and the longest wait (ms; 0 = call process() now, -1 = for ever). Every other function of this
 * client may change all three. A loop around poll(2) reads them in each iteration:
 *
 *     struct pollfd waits = {ratelimit_async_fd(client), ratelimit_async_events(client), 0};
 *     int n = poll(&waits, 1, ratelimit_async_next_timeout_ms(client));
 *     ratelimit_async_process(client, n > 0 ? waits.revents : 0);
 */
RATELIMIT_API int ratelimit_async_fd(const struct ratelimit_async *client);
RATELIMIT_API short ratelimit_async_events(const struct ratelimit_async *client);
RATELIMIT_API int ratelimit_async_next_timeout_ms(const struct ratelimit_async *client);

/*
 * An event loop that registers descriptors (epoll, libuv, libevent) must learn of each change, because a new connection
 * may get the old one's number. The callback runs only within process() and free(). With `events` != 0, watch `fd` for
 * them from now on; with 0, forget `fd`, which is about to be closed. Between two descriptors there is always a call
 * with 0. After fork() the child gets no call about the parent's descriptor: it has an event loop of its own. The
 * callback must not use the client.
 */
typedef void ratelimit_watch_fn(void *arg, int fd, short events);
RATELIMIT_API void ratelimit_async_watch(struct ratelimit_async *client, ratelimit_watch_fn *on_change, void *arg);

/*
 * Connect, send, receive and run callbacks, as far as possible without waiting. `revents` is what poll(2) returned for
 * the descriptor: 0 after a timeout or just to send; POLLIN | POLLOUT if the caller does not know. Within a callback
 * this function does nothing.
 */
RATELIMIT_API void ratelimit_async_process(struct ratelimit_async *client, short revents);

RATELIMIT_API size_t ratelimit_async_pending(const struct ratelimit_async *client); /* calls in flight */

#ifdef __cplusplus
}
#endif

#endif
