/*
 * call.h: how a call becomes a request of the asynchronous client: checked, packed, submitted.
 *
 * The functions of methods.def, for both clients, use call_ask(). A call that is packed otherwise begins with
 * call_begin() and ends with call_submit().
 */
#ifndef RL_CLIENT_CALL_H
#define RL_CLIENT_CALL_H

#include "client/request.h"

/* How a call ends: the last three arguments of every asynchronous function. */
struct call_end {
    uint32_t timeout_ms;
    ratelimit_answer_fn *callback;
    void *arg;
};

enum ratelimit_status call_ask(struct ratelimit_async *client, const struct question *asked, struct call_end end);

/* *ret is a request from the pool, for the caller to pack. */
enum ratelimit_status call_begin(struct ratelimit_async *client, struct call_end end, struct request **ret);
/* `packed`: 0, or -1 without memory. The request is queued, or back in the pool. */
enum ratelimit_status call_submit(struct ratelimit_async *client, struct request *request, int packed);

/* BAD_ARGUMENT, with its reason in client->fault. The client may be NULL. */
enum ratelimit_status call_refuse(struct ratelimit_async *client, const char *about, const char *fault);

enum request_effect call_effect(const char *method);

#endif
